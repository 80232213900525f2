"""The front of a Whisper encoder: two convolutions over a mel spectrogram, sinusoidal positions, one pre-norm encoder layer."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "full": {"batch": 2, "mels": 80, "frames": 3000, "width": 512, "heads": 8},  # Whisper base: 30 seconds of sound
    "small": {"batch": 2, "mels": 20, "frames": 70, "width": 64, "heads": 4},
}
SIZE = SIZES["full"]


def sinusoids(length: int, channels: int, max_timescale: float = 10000.0):
    """(length, channels) positions: sines in the first half of the channels, cosines in the second."""
    step = math.log(max_timescale) / (channels // 2 - 1)
    inverse_timescales = torch.exp(-step * torch.arange(channels // 2))
    time = torch.arange(length)[:, None] * inverse_timescales[None, :]
    return torch.cat([time.sin(), time.cos()], dim=1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p(x).view(b, t, self.heads, c // self.heads).permute(0, 2, 1, 3) for p in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.permute(0, 2, 1, 3).flatten(start_dim=2))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Model(nn.Module):
    def __init__(self, mels: int, tokens: int, width: int, heads: int):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(width, width, kernel_size=3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(tokens, width))
        self.layer = EncoderLayer(width, heads)

    def forward(self, mel):
        x = F.gelu(self.conv1(mel))
        x = F.gelu(self.conv2(x))
        x = x.permute(0, 2, 1)  # (batch, width, tokens) -> (batch, tokens, width)
        return self.layer(x + self.positions)


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["mels"], SIZE["frames"])]


def get_init_inputs():
    return [SIZE["mels"], (SIZE["frames"] + 1) // 2, SIZE["width"], SIZE["heads"]]

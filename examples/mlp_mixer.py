"""An MLP-Mixer: patches, layers that mix tokens and then channels by MLPs, mean over the tokens, a linear classifier."""

import torch
import torch.nn as nn

SIZES = {
    "full": {"batch": 16, "image": 224, "patch": 16, "width": 512, "tokens_hidden": 256, "channels_hidden": 2048, "depth": 4, "classes": 1000},
    "small": {"batch": 2, "image": 40, "patch": 8, "width": 32, "tokens_hidden": 24, "channels_hidden": 64, "depth": 2, "classes": 10},
}
SIZE = SIZES["full"]


class MLP(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class MixerLayer(nn.Module):
    def __init__(self, tokens: int, width: int, tokens_hidden: int, channels_hidden: int):
        super().__init__()
        self.token_norm = nn.LayerNorm(width)
        self.token_mlp = MLP(tokens, tokens_hidden)
        self.channel_norm = nn.LayerNorm(width)
        self.channel_mlp = MLP(width, channels_hidden)

    def forward(self, x):
        x = x + self.token_mlp(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(self.channel_norm(x))


class Model(nn.Module):
    def __init__(self, image: int, patch: int, width: int, tokens_hidden: int, channels_hidden: int, depth: int, classes: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        tokens = (image // patch) ** 2
        self.layers = nn.Sequential(*(MixerLayer(tokens, width, tokens_hidden, channels_hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.stem(images).flatten(2).transpose(1, 2)  # (batch, tokens, width)
        x = self.norm(self.layers(x))
        return self.head(x.mean(dim=1))


def get_inputs():
    return [torch.randn(SIZE["batch"], 3, SIZE["image"], SIZE["image"])]


def get_init_inputs():
    return [SIZE[k] for k in ("image", "patch", "width", "tokens_hidden", "channels_hidden", "depth", "classes")]

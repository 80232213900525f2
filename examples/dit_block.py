"""A diffusion transformer (DiT) block: adaLN-Zero modulation from a conditioning vector, attention, GELU MLP."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "full": {"batch": 4, "tokens": 256, "width": 768, "heads": 12, "depth": 2},  # DiT-B/2 at 256 x 256 pixels
    "small": {"batch": 2, "tokens": 20, "width": 48, "heads": 4, "depth": 2},
}
SIZE = SIZES["full"]


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attention(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class Model(nn.Module):
    """adaLN-Zero starts training with gates of zero, which would hide every error: here the modulation is random."""

    def __init__(self, width: int, heads: int, depth: int):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def forward(self, x, c):
        """x (batch, tokens, width), c (batch, width): the embedding of timestep and class."""
        for block in self.blocks:
            x = block(x, c)
        return x


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["tokens"], SIZE["width"]), torch.randn(SIZE["batch"], SIZE["width"])]


def get_init_inputs():
    return [SIZE["width"], SIZE["heads"], SIZE["depth"]]

"""Causal attention with the mask as a buffer, and a feed-forward part."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = [t.view(batch, steps, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(width, dim=2)]
        scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        scores = scores.masked_fill(self.mask[:, :, :steps, :steps] == 0, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, steps, width))


batch_size = 32
longest = 1024
steps = 512
width = 768
heads = 12


def get_inputs():
    return [torch.rand(batch_size, steps, width)]


def get_init_inputs():
    return [width, heads, longest]

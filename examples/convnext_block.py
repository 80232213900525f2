"""ConvNeXt blocks: 7x7 depthwise convolution, channels-last LayerNorm, a GELU MLP of 4x width, layer scale, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "full": {"batch": 32, "channels": 192, "image": 28, "depth": 2},
    "small": {"batch": 2, "channels": 24, "image": 10, "depth": 2},
}
SIZE = SIZES["full"]


class Block(nn.Module):
    def __init__(self, channels: int, layer_scale: float = 1e-6):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(layer_scale * torch.ones(channels))

    def forward(self, x):
        y = self.depthwise(x).permute(0, 2, 3, 1)  # (N, C, H, W) -> (N, H, W, C)
        y = self.gamma * self.down(F.gelu(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class Model(nn.Module):
    def __init__(self, channels: int, depth: int, layer_scale: float):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(channels, layer_scale) for _ in range(depth)))

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["channels"], SIZE["image"], SIZE["image"])]


def get_init_inputs():
    # ConvNeXt starts training with a layer scale of 1e-6; after training it is around 0.1 to 1, and then an error in a block shows.
    return [SIZE["channels"], SIZE["depth"], 0.5]

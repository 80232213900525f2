"""A strided, grouped, transposed 3-d convolution with group norm and a mean."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, groups):
        super().__init__()
        self.up = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, padding=1, output_padding=1, groups=groups)
        self.norm = nn.GroupNorm(groups, out_channels)

    def forward(self, x):
        x = nn.functional.hardswish(self.norm(self.up(x)))
        return x.mean(dim=(2, 3, 4))


batch_size = 16
in_channels = 32
out_channels = 64
depth, height, width = 16, 32, 32
kernel_size = (3, 4, 5)
stride = 2
groups = 4


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, groups]

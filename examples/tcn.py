"""A temporal convolutional network: weight-normed causal convolutions with growing dilation, in residual blocks."""

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm

SIZES = {
    "full": {"batch": 16, "channels_in": 32, "channels": [128, 128, 128, 128], "kernel": 5, "steps": 1024, "classes": 10},
    "small": {"batch": 2, "channels_in": 6, "channels": [16, 16, 24], "kernel": 3, "steps": 40, "classes": 5},
}
SIZE = SIZES["full"]


class CausalConv(nn.Module):
    """Pads both ends, as the library wants, and drops the results that would see the future."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dilation: int):
        super().__init__()
        self.ahead = (kernel - 1) * dilation
        self.conv = weight_norm(nn.Conv1d(channels_in, channels_out, kernel, padding=self.ahead, dilation=dilation))

    def forward(self, x):
        return self.conv(x)[:, :, :-self.ahead]


class Block(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, kernel: int, dilation: int):
        super().__init__()
        self.conv1 = CausalConv(channels_in, channels_out, kernel, dilation)
        self.conv2 = CausalConv(channels_out, channels_out, kernel, dilation)
        self.skip = nn.Conv1d(channels_in, channels_out, 1) if channels_in != channels_out else nn.Identity()
        self.act = nn.ReLU()

    def forward(self, x):
        y = self.act(self.conv2(self.act(self.conv1(x))))
        return self.act(y + self.skip(x))


class Model(nn.Module):
    def __init__(self, channels_in: int, channels: list, kernel: int, classes: int):
        super().__init__()
        widths = [channels_in, *channels]
        self.blocks = nn.Sequential(*(Block(a, b, kernel, 2**i) for i, (a, b) in enumerate(zip(widths[:-1], widths[1:]))))
        self.head = nn.Conv1d(widths[-1], classes, 1)

    def forward(self, x):
        return self.head(self.blocks(x))  # logits of every step, from that step and those before it


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["channels_in"], SIZE["steps"])]


def get_init_inputs():
    return [SIZE["channels_in"], SIZE["channels"], SIZE["kernel"], SIZE["classes"]]

"""A U-Net: double convolutions with group norm and SiLU, strided convolutions down, transposed ones up, skip connections."""

import torch
import torch.nn as nn

SIZES = {
    "full": {"batch": 4, "image": 96, "in_channels": 3, "base": 64, "levels": 3, "out_channels": 4},
    "small": {"batch": 2, "image": 16, "in_channels": 3, "base": 8, "levels": 2, "out_channels": 4},
}
SIZE = SIZES["full"]
GROUPS = 8


class DoubleConv(nn.Module):
    """Two 3x3 convolutions; a residual connection, through a 1x1 convolution where the width changes."""

    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, channels_out)
        self.act = nn.SiLU()
        self.skip = nn.Conv2d(channels_in, channels_out, 1) if channels_in != channels_out else nn.Identity()

    def forward(self, x):
        y = self.act(self.norm1(self.conv1(x)))
        return self.act(self.norm2(self.conv2(y)) + self.skip(x))


class Up(nn.Module):
    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels_in, channels_out, kernel_size=2, stride=2)
        self.conv = DoubleConv(2 * channels_out, channels_out)

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, base: int, levels: int):
        super().__init__()
        widths = [base * 2**i for i in range(levels + 1)]
        self.stem = DoubleConv(in_channels, base)
        self.downs = nn.ModuleList(nn.Conv2d(a, a, kernel_size=3, stride=2, padding=1) for a in widths[:-1])
        self.encoder = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.decoder = nn.ModuleList(Up(b, a) for a, b in reversed(list(zip(widths[:-1], widths[1:]))))
        self.head = nn.Conv2d(base, out_channels, kernel_size=1)

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for down, block in zip(self.downs, self.encoder):
            skips.append(x)
            x = block(down(x))
        for up in self.decoder:
            x = up(x, skips.pop())
        return self.head(x)


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["in_channels"], SIZE["image"], SIZE["image"])]


def get_init_inputs():
    return [SIZE["in_channels"], SIZE["out_channels"], SIZE["base"], SIZE["levels"]]

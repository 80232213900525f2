"""Two convolutions with train-mode batch norm, a residual and a pool."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, kernel_size, padding=kernel_size // 2, groups=4)
        self.second_norm = nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += x
        return self.pool(torch.relu(y))


batch_size = 64
channels = 128
height, width = 56, 72
kernel_size = 3


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size]

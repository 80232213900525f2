"""A two-layer perceptron with GELU and a softmax over the classes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.act = nn.GELU(approximate="tanh")
        self.down = nn.Linear(hidden, classes)

    def forward(self, x):
        return torch.softmax(self.down(self.act(self.up(x))), dim=-1)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64, 128, 10]

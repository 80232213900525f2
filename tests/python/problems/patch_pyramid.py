"""Sizes that stand in the module itself: a small pyramid of convolutions and a classifier that knows its input's size."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.stages = nn.Sequential(
            nn.Conv2d(3, 64, 4, stride=4), nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU6(),
            nn.Conv2d(128, 256, 3, stride=2, padding=1), nn.GELU(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Linear(256 * 4 * 4, 1024), nn.Dropout(p=0.0), nn.Linear(1024, num_classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.stages(x), 1))


batch_size = 10
num_classes = 100


def get_inputs():
    return [torch.rand(batch_size, 3, 128, 128)]


def get_init_inputs():
    return [num_classes]

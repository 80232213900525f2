"""Embedding bags in every form: bags of one size, of sizes that the offsets give, weighted, padded. Many results a program: an export
costs more than all of them."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from capture_case import check, lower
from stitchcuda.errors import CaptureError

ROWS, WIDTH = 9, 4
OFFSETS = torch.tensor([0, 2, 2, 5, 9])  # the second bag is empty, and the last one where the last offset is a start
FLAT = torch.tensor([1, 0, 8, 3, 3, 0, 5, 2, 7])
SQUARE = torch.tensor([[1, 0, 8], [3, 3, 0], [0, 0, 0], [5, 2, 7]])


class Bags(nn.Module):
    def __init__(self, modes, **options):
        super().__init__()
        torch.manual_seed(1)
        self.bags = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode=mode, padding_idx=padding, **options) for mode in modes for padding in (None, 0))

    def forward(self, *indices):
        return tuple(bag(*indices) for bag in self.bags)


def test_bags_of_one_size():
    program = check(Bags(["sum", "mean", "max"]), SQUARE)
    assert "scatter_add" not in program.ops() and {"sum", "mean", "amax"} <= set(program.ops())


def test_bags_at_offsets():
    check(Bags(["sum", "mean"]), FLAT, OFFSETS)
    check(Bags(["sum", "mean"], include_last_offset=True), FLAT, OFFSETS)


def test_weighted_bags():
    def bags(weight, square, flat, offsets, scale):
        return (F.embedding_bag(square, weight, per_sample_weights=scale, mode="sum"),
                F.embedding_bag(flat, weight, offsets, per_sample_weights=scale.flatten()[:9], mode="sum", padding_idx=3))
    check(bags, torch.randn(ROWS, WIDTH), SQUARE, FLAT, OFFSETS, torch.randn(4, 3))


def test_narrow_indices_and_other_types():
    check(lambda w, i: F.embedding_bag(i, w, mode="sum"), torch.randn(ROWS, WIDTH, dtype=torch.float64), SQUARE.int())
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"), torch.randn(ROWS, WIDTH), FLAT.int(), OFFSETS.int())


def test_maxima_of_bags_of_different_sizes_are_refused():
    with pytest.raises(CaptureError, match="pad the bags to one size"):
        lower(nn.EmbeddingBag(ROWS, WIDTH, mode="max"), FLAT, OFFSETS)

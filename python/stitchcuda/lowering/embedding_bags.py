"""Embedding bags: sums, means and maxima of the rows that every bag names."""

import torch
import torch.nn.functional as F

from .registry import op


@op("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(c, a):
    mode = ("sum", "mean", "max")[a.mode]
    padding = a.get("padding_idx", -1)
    size = bag_size(a.offsets, a.indices)
    if size is None and mode == "max":
        c.fail("EmbeddingBag with mode=\"max\" and bags of different sizes cannot be captured; pad the bags to one size and give 2-d indices")
    last_is_end = bool(a.get("include_last_offset", False))
    tensors = [a.weight, a.indices, a.offsets] + ([a.per_sample_weights] if a.get("per_sample_weights") is not None else [])

    def equal(weight, indices, offsets, scale=None):
        return equal_bags(mode, padding, size, weight, indices, scale)

    def ragged(weight, indices, offsets, scale=None):
        return ragged_bags(mode, padding, weight, indices, offsets[:-1] if last_is_end else offsets, scale)

    y = c.lower_torch(ragged if size is None else equal, *tensors)
    return y, *(c.lowering.missing(f"the {what} of an embedding bag") for what in ("bag of every index", "size of every bag", "index of every maximum"))


def bag_size(offsets, indices):
    """Indices of every bag where all have as many: PyTorch turns 2-d indices into flat ones and offsets 0, n, 2n, ..."""
    node = offsets.node
    if node.op != "arange" or node.params["start"] != 0 or offsets.shape[0] == 0:
        return None
    size, count = int(node.params["step"]), offsets.shape[0]
    return size if size * count == indices.shape[0] else None


def equal_bags(mode, padding, size, weight, indices, scale):
    indices = indices.view(-1, size)
    rows = F.embedding(indices, weight)
    if scale is not None:
        rows = rows * scale.view(-1, size, 1)
    if padding < 0:
        return {"sum": rows.sum, "mean": rows.mean, "max": rows.amax}[mode](dim=1)
    counts = (indices != padding).unsqueeze(-1)
    some = counts.sum(dim=1)
    if mode == "max":
        top = rows.masked_fill(~counts, float("-inf")).amax(dim=1)
        return torch.where(some > 0, top, torch.zeros_like(top))
    total = torch.where(counts, rows, torch.zeros_like(rows)).sum(dim=1)
    return total if mode == "sum" else total / some.clamp(min=1).to(total.dtype)


def ragged_bags(mode, padding, weight, indices, offsets, scale):
    """The bag of an index is the last one that starts at or before it."""
    position = torch.arange(indices.shape[0])
    bag = (offsets.unsqueeze(0) <= position.unsqueeze(1)).sum(dim=1) - 1
    rows = F.embedding(indices, weight)
    if scale is not None:
        rows = rows * scale.unsqueeze(-1)
    counts = torch.ones(indices.shape[0], dtype=weight.dtype)
    if padding >= 0:
        counts = (indices != padding).to(weight.dtype)
        rows = torch.where((indices != padding).unsqueeze(-1), rows, torch.zeros_like(rows))
    total = torch.zeros(offsets.shape[0], weight.shape[1], dtype=weight.dtype)
    total = total.scatter_add(0, bag.unsqueeze(-1).expand_as(rows), rows)
    if mode == "sum":
        return total
    some = torch.zeros(offsets.shape[0], dtype=weight.dtype).scatter_add(0, bag, counts)
    return total / some.clamp(min=1).unsqueeze(-1)

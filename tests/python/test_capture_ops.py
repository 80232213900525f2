"""Every operator family: a tiny program is captured, its IR evaluated, and the values compared with PyTorch's."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from capture_case import check

torch.manual_seed(0)


def r(*shape):
    return torch.randn(*shape)


def pos(*shape):
    return torch.rand(*shape) + 0.5


def ints(high, *shape):
    return torch.randint(0, high, shape)


X = (2, 3, 4)

UNARY = {name: getattr(torch, name) for name in (
    "neg abs sign exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid floor ceil trunc frac isnan isinf isfinite "
    "square positive relu selu round sgn").split()}
POSITIVE = {name: getattr(torch, name) for name in "log log2 log10 log1p sqrt rsqrt reciprocal acosh".split()}
UNIT = {name: getattr(torch, name) for name in "asin acos atanh logit".split()}
ACTIVATIONS = {name: getattr(F, name) for name in (
    "gelu silu mish hardswish hardsigmoid elu celu leaky_relu softplus hardshrink softshrink relu6 hardtanh logsigmoid softsign "
    "tanhshrink softmin glu").split()}
BINARY = {name: getattr(torch, name) for name in (
    "add sub mul maximum minimum atan2 hypot logaddexp eq ne lt le gt ge logical_and logical_or logical_xor fmax fmin copysign "
    "max min logaddexp2 heaviside").split()}


def _softmin(x):
    return F.softmin(x, dim=1)


ACTIVATIONS["softmin"] = _softmin


def all_of(functions):
    """One program with a result per function: an export costs more than all of them."""
    return lambda *x: tuple(f(*x) for f in functions.values())


def test_unary():
    check(all_of(UNARY), r(*X) * 2)


def test_unary_of_positive_numbers():
    check(all_of(POSITIVE), pos(*X) + 0.6)


def test_unary_of_unit_interval():
    check(all_of(UNIT), torch.rand(*X) * 0.9 + 0.05)


def test_activations():
    check(all_of(ACTIVATIONS), r(*X) * 3)


def test_binary():
    check(all_of(BINARY), r(*X), r(3, 1))


# name: (function, arguments, ops that must appear)
CASES = {
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), [r(*X)], ["gelu"]),
    "elu_alpha": (lambda x: F.elu(x, 0.5), [r(*X)], ["elu"]),
    "celu_alpha": (lambda x: F.celu(x, 0.5), [r(*X)], ["elu"]),
    "threshold": (lambda x: F.threshold(x, 0.1, 20.0), [r(*X)], ["threshold"]),
    "rrelu_eval": (lambda x: F.rrelu(x, 0.1, 0.3, training=False), [r(*X)], ["leaky_relu"]),
    "round_decimals": (lambda x: torch.round(x, decimals=2), [r(*X)], ["round"]),
    "floor_of_ints": (lambda x: torch.floor(x) + 1, [ints(9, 3)], ["add"]),
    "nan_to_num": (lambda x: torch.nan_to_num(x / x, nan=2.0), [torch.tensor([0.0, 1.0])], ["nan_to_num"]),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), [r(*X)], ["clamp"]),
    "clamp_min": (lambda x: x.clamp_min(0.1), [r(*X)], ["clamp"]),
    "clamp_max": (lambda x: x.clamp(max=0.1), [r(*X)], ["clamp"]),
    "clamp_tensor": (lambda x, a: torch.clamp(x, min=a), [r(*X), r(4)], ["clamp"]),
    "add_alpha": (lambda x, y: torch.add(x, y, alpha=0.5), [r(*X), r(*X)], ["add"]),
    "sub_alpha": (lambda x, y: torch.sub(x, y, alpha=2), [r(*X), r(*X)], ["sub"]),
    "rsub": (lambda x: 3 - x, [r(*X)], ["sub"]),
    "rsub_alpha": (lambda x: torch.rsub(x, 3, alpha=2), [r(*X)], ["sub"]),
    "div": (lambda x, y: x / y, [r(*X), pos(*X)], ["div"]),
    "div_of_ints": (lambda x, y: x / y, [ints(9, 3), ints(5, 3) + 1], ["div"]),
    "div_floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), [r(*X) * 5, pos(*X)], ["div"]),
    "div_trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), [r(*X) * 5, pos(*X)], ["div"]),
    "floor_divide": (lambda x: x // 3, [ints(20, 5) - 10], ["div"]),
    "remainder": (lambda x, y: torch.remainder(x, y), [r(*X) * 5, pos(*X)], ["remainder"]),
    "fmod": (lambda x: torch.fmod(x, 1.5), [r(*X) * 5], ["fmod"]),
    "reciprocal_scalar": (lambda x: 2.0 / x, [pos(*X)], ["reciprocal"]),
    "pow_scalar": (lambda x: x ** 3, [r(*X)], ["pow"]),
    "pow_tensor": (lambda x, y: x ** y, [pos(*X), r(*X)], ["pow"]),
    "scalar_pow": (lambda x: 2.0 ** x, [r(*X)], ["pow"]),
    "xlogy": (lambda x, y: torch.xlogy(x, y), [pos(*X), pos(*X)], ["xlogy"]),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), [r(*X), r(*X)], ["lerp"]),
    "lerp_tensor": (lambda x, y, w: torch.lerp(x, y, w), [r(*X), r(*X), r(*X)], ["lerp"]),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.5), [r(*X), r(*X), r(4)], ["addcmul"]),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), [r(*X), r(*X), pos(4)], ["addcdiv"]),
    "where": (lambda x, y: torch.where(x > 0, x, y), [r(*X), r(*X)], ["gt", "where"]),
    "where_scalars": (lambda x: torch.where(x > 0, 1.0, -1.0), [r(*X)], ["where"]),
    "masked_fill": (lambda x, m: x.masked_fill(m, float("-inf")), [r(*X), r(*X) > 0], ["where"]),
    "masked_fill_tensor": (lambda x, m, v: x.masked_fill(m, v), [r(*X), r(*X) > 0, torch.tensor(2.0)], ["where"]),
    "masked_assignment": (lambda x: _assign_mask(x), [r(*X)], ["where"]),
    "bitwise": (lambda x, y: (x & y) | (x ^ 3), [ints(64, 5), ints(64, 5)], ["bitwise_and", "bitwise_or", "bitwise_xor"]),
    "bitwise_not": (lambda x: ~x, [ints(64, 5)], ["bitwise_not"]),
    "shifts": (lambda x: (x << 2) >> 1, [ints(64, 5)], ["bitwise_left_shift", "bitwise_right_shift"]),
    "logical_not": (lambda x: torch.logical_not(x), [ints(2, 5)], ["logical_not"]),
    "bool_arithmetic": (lambda x, m: x * m + m, [r(*X), r(*X) > 0], ["mul", "add"]),
    "prelu": (lambda x, w: F.prelu(x, w), [r(*X), r(3)], ["where"]),
    "prelu_one": (lambda x, w: F.prelu(x, w), [r(*X), r(1)], ["where"]),
    # dtypes
    "int_plus_float": (lambda x: x + 0.5, [ints(9, 3)], ["add"]),
    "int_compare_float": (lambda x, y: x > y, [ints(3, 4), r(4)], ["cast", "gt"]),
    "zero_dim_promotion": (lambda x, s: x * s, [r(*X), torch.tensor(2.0, dtype=torch.float64)], ["mul"]),
    "compare_zero_dim": (lambda x, s: x < s, [r(*X).half(), torch.tensor(0.1)], ["lt"]),
    "half": (lambda x: (x * 2).relu().to(torch.float32), [r(*X).half()], ["cast"]),
    "bfloat16": (lambda x: x.bfloat16() * 2, [r(*X)], ["cast"]),
    "type_as": (lambda x, y: x.type_as(y), [ints(3, 4), r(2)], ["cast"]),
    "to_bool": (lambda x: x.bool(), [ints(3, 4)], ["cast"]),
    "double": (lambda x: x.double().exp(), [r(3)], ["cast", "exp"]),
    # movement
    "view": (lambda x: x.view(6, 4).reshape(-1).unflatten(0, (4, 6)), [r(*X)], ["view"]),
    "view_back": (lambda x: x.view(6, 4).view(2, 3, 4) + 1, [r(*X)], ["add"]),
    "flatten": (lambda x: torch.flatten(x, 1), [r(*X)], ["view"]),
    "squeeze": (lambda x: x.unsqueeze(1).squeeze() + x.unsqueeze(0).squeeze(0), [r(*X)], ["add"]),
    "view_of_permuted": (lambda x: x.permute(0, 2, 1).reshape(8, 3), [r(*X)], ["permute", "view"]),
    "transpose": (lambda x: x.transpose(-1, 0), [r(*X)], ["permute"]),
    "t": (lambda x: x.t() @ x, [r(3, 4)], ["permute", "matmul"]),
    "T": (lambda x: x.T, [r(3, 4)], ["permute"]),
    "mT": (lambda x: x.mT, [r(*X)], ["permute"]),
    "movedim": (lambda x: torch.movedim(x, 0, -1), [r(*X)], ["permute"]),
    "movedim_many": (lambda x: torch.movedim(x, (0, 1), (2, 0)), [r(*X)], ["permute"]),
    "swapaxes": (lambda x: torch.swapaxes(x, 0, 2), [r(*X)], ["permute"]),
    "expand": (lambda x: x.expand(5, -1, 4), [r(3, 1)], ["expand"]),
    "expand_as": (lambda x, y: x.expand_as(y) * 1.0, [r(3, 1), r(*X)], ["expand"]),
    "broadcast_tensors": (lambda x, y: torch.broadcast_tensors(x, y), [r(3, 1), r(1, 4)], ["expand"]),
    "slice": (lambda x: x[:, 1:, ::2], [r(*X)], ["slice"]),
    "slice_negative": (lambda x: x[:, -2:, :-1], [r(*X)], ["slice"]),
    "narrow": (lambda x: x.narrow(1, 1, 2), [r(*X)], ["slice"]),
    "select": (lambda x: x[:, -1], [r(*X)], ["select"]),
    "split": (lambda x: torch.split(x, 3, dim=-1), [r(2, 7)], ["slice"]),
    "split_sizes": (lambda x: torch.split(x, [1, 2, 4], dim=1), [r(2, 7)], ["slice"]),
    "chunk": (lambda x: x.chunk(3, dim=1), [r(2, 7)], ["slice"]),
    "tensor_split": (lambda x: torch.tensor_split(x, 3, dim=1), [r(2, 7)], ["slice"]),
    "unbind": (lambda x: x.unbind(1), [r(*X)], ["select"]),
    "cat": (lambda x, y: torch.cat([x, y], -1), [r(2, 3), r(2, 1)], ["cat"]),
    "cat_mixed_dtypes": (lambda x, y: torch.cat([x, y]), [r(3), ints(4, 2)], ["cast", "cat"]),
    "stack": (lambda x, y: torch.stack([x, y], -1), [r(2, 3), r(2, 3)], ["cat"]),
    "hstack": (lambda x, y: torch.hstack([x, y]) + torch.vstack([x, y]).sum(), [r(2, 3), r(2, 3)], ["cat"]),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), [r(*X)], ["pad"]),
    "pad_crop": (lambda x: F.pad(x, (-1, 2)), [r(*X)], ["pad"]),
    "pad_reflect": (lambda x: F.pad(x, (1, 2), mode="reflect"), [r(*X)], ["pad"]),
    "pad_replicate": (lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), [r(1, *X)], ["pad"]),
    "pad_circular": (lambda x: F.pad(x, (1, 2), mode="circular"), [r(*X)], ["pad"]),
    "flip": (lambda x: x.flip(0, 2), [r(*X)], ["flip"]),
    "fliplr": (lambda x: torch.fliplr(x), [r(*X)], ["flip"]),
    "roll": (lambda x: torch.roll(x, (1, -1), (0, 2)), [r(*X)], ["roll"]),
    "roll_flat": (lambda x: torch.roll(x, 3), [r(*X)], ["roll"]),
    "repeat": (lambda x: x.repeat(2, 1, 3), [r(3, 2)], ["repeat"]),
    "tile": (lambda x: torch.tile(x, (2,)), [r(3, 2)], ["repeat"]),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, dim=1), [r(3, 2)], ["expand"]),
    "unfold": (lambda x: x.unfold(1, 3, 2), [r(2, 7)], ["unfold"]),
    "tril": (lambda x: x.tril(-1) + x.triu(1), [r(4, 4)], ["tril", "triu"]),
    "diagonal": (lambda x: x.diagonal(1), [r(4, 5)], ["diagonal"]),
    "diag_embed": (lambda x: torch.diag_embed(x), [r(3)], []),
    "slice_assignment": (lambda x: _assign_slice(x), [r(*X)], ["slice_scatter"]),
    "select_assignment": (lambda x: _assign_select(x), [r(*X)], ["select_scatter"]),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), [r(3), r(4)], []),
    "pixel_shuffle": (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) * 2, 2), [r(1, 8, 2, 3)], ["permute"]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), [r(1, 8, 2, 3)], ["permute"]),
    "im2col": (lambda x: F.unfold(x, 2, padding=1), [r(1, 2, 4, 4)], []),
    "rot90": (lambda x: torch.rot90(x, 1, (1, 2)), [r(*X)], []),
    "kron": (lambda x, y: torch.kron(x, y), [r(2, 3), r(2, 2)], []),
    # creation
    "zeros_ones": (lambda x: torch.zeros(2, 3) + torch.ones_like(x) * torch.full((3,), 2.0), [r(2, 3)], ["full"]),
    "arange": (lambda x: x + torch.arange(4), [r(4)], ["arange"]),
    "arange_step": (lambda x: x * torch.arange(1, 2, 0.25), [r(4)], ["arange"]),
    "linspace": (lambda x: x * torch.linspace(-1, 1, 7), [r(7)], ["arange"]),
    "eye": (lambda x: x + torch.eye(3, 4), [r(3, 4)], ["eye"]),
    "new_zeros": (lambda x: torch.cat([x.new_zeros(2), x.new_full((1,), 3), x]), [r(2)], ["full", "cat"]),
    "constant_tensor": (lambda x: x * torch.tensor([1.0, 2.0, 3.0]), [r(3)], ["mul"]),
    "constant_number": (lambda x: x * torch.tensor(2.5), [r(3)], ["mul"]),
    "causal_mask": (lambda x: x.masked_fill(torch.triu(torch.ones(4, 4), 1).bool(), 0.0), [r(4, 4)], ["triu", "where"]),
    "one_hot": (lambda x: F.one_hot(x, 5), [ints(5, 3)], ["eq"]),
    # reductions
    "sum": (lambda x: x.sum(), [r(*X)], ["sum"]),
    "sum_dims": (lambda x: x.sum((0, -1), keepdim=True), [r(*X)], ["sum"]),
    "sum_of_ints": (lambda x: x.sum(0), [ints(9, 3, 2).int()], ["cast", "sum"]),
    "sum_of_bools": (lambda x: (x > 0).sum(1), [r(*X)], ["cast", "sum"]),
    "sum_dtype": (lambda x: x.sum(0, dtype=torch.float64), [r(*X)], ["cast", "sum"]),
    "mean": (lambda x: x.mean() + x.mean(1, keepdim=True), [r(*X)], ["mean"]),
    "prod": (lambda x: x.prod() + x.prod(1), [r(2, 3)], ["prod"]),
    "amax": (lambda x: x.amax((0, 1)) - x.amin(-1, keepdim=True), [r(*X)], ["amax", "amin"]),
    "max_all": (lambda x: x.max() - x.min(), [r(*X)], ["amax", "amin"]),
    "max_dim": (lambda x: torch.max(x, dim=1), [r(*X)], ["max_dim"]),
    "min_dim": (lambda x: x.min(dim=-1, keepdim=True), [r(*X)], ["min_dim"]),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), [r(*X)], ["amin", "amax"]),
    "argmax": (lambda x: x.argmax(), [r(*X)], ["argmax"]),
    "argmin_dim": (lambda x: x.argmin(1, keepdim=True), [r(*X)], ["argmin"]),
    "var": (lambda x: x.var() + x.var(1, keepdim=True), [r(*X)], ["var"]),
    "var_biased": (lambda x: x.var(1, unbiased=False), [r(*X)], ["var"]),
    "std": (lambda x: x.std((0, 2), correction=0), [r(*X)], ["std"]),
    "var_mean": (lambda x: torch.var_mean(x, 1), [r(*X)], ["var", "mean"]),
    "std_mean": (lambda x: torch.std_mean(x, 1), [r(*X)], ["std", "mean"]),
    "any_all": (lambda x: (x > 0).any(1) & (x > -9).all(), [r(*X)[0]], ["any", "all"]),
    "logsumexp": (lambda x: torch.logsumexp(x, (0, 1)), [r(*X)], ["logsumexp"]),
    "norm": (lambda x: torch.norm(x) + x.norm(p=1, dim=1).sum(), [r(*X)], ["vector_norm"]),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, float("inf"), dim=(0, 1)), [r(*X)], ["vector_norm"]),
    "frobenius": (lambda x: torch.norm(x, p="fro"), [r(3, 4)], ["vector_norm"]),
    "count_nonzero": (lambda x: torch.count_nonzero(x, 1), [ints(2, 3, 4)], ["sum"]),
    "nansum": (lambda x: torch.nansum(x / x, 0), [ints(2, 3, 4).float()], ["sum"]),
    "sum_of_scalar": (lambda x: x.sum().sum(), [r(3)], ["sum"]),
    "normalize": (lambda x: F.normalize(x, dim=1), [r(*X)], ["vector_norm"]),
    "pairwise_distance": (lambda x, y: F.pairwise_distance(x, y), [r(3, 4), r(3, 4)], []),
    # scans, rows, sorting
    "cumsum": (lambda x: x.cumsum(-1), [r(*X)], ["cumsum"]),
    "cumsum_of_ints": (lambda x: x.cumsum(0), [ints(5, 4).int()], ["cast", "cumsum"]),
    "cumprod": (lambda x: x.cumprod(1), [r(*X)], ["cumprod"]),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), [r(*X)], ["logcumsumexp"]),
    "cummax": (lambda x: torch.cummax(x, 1), [r(*X)], ["cummax"]),
    "cummin": (lambda x: torch.cummin(x, 1), [r(*X)], ["cummin"]),
    "softmax": (lambda x: x.softmax(-2), [r(*X)], ["softmax"]),
    "softmax_dtype": (lambda x: F.softmax(x, 1, dtype=torch.float32), [r(*X).bfloat16()], ["cast", "softmax"]),
    "log_softmax": (lambda x: F.log_softmax(x, dim=1), [r(*X)], ["log_softmax"]),
    "topk": (lambda x: x.topk(2, dim=1), [r(2, 5)], ["topk"]),
    "topk_smallest": (lambda x: x.topk(2, largest=False), [r(2, 5)], ["topk"]),
    "sort": (lambda x: x.sort(dim=0, descending=True), [r(5, 2)], ["sort"]),
    "argsort": (lambda x: x.argsort(dim=1), [r(2, 5)], ["sort"]),
    "kthvalue": (lambda x: torch.kthvalue(x, 2, dim=1), [r(2, 5)], ["sort", "select"]),
    # indexing
    "gather": (lambda x, i: torch.gather(x, 1, i), [r(3, 4), ints(4, 3, 2)], ["gather"]),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), [r(3, 4), ints(4, 3, 2)], ["gather"]),
    "index_select": (lambda x, i: x.index_select(1, i), [r(3, 4), ints(4, 5)], ["index_select"]),
    "embedding": (lambda w, i: F.embedding(i, w), [r(7, 3), ints(7, 2, 2)], ["embedding"]),
    "index": (lambda x, i: x[i], [r(3, 4), ints(3, 5)], ["index"]),
    "index_second": (lambda x, i: x[:, i], [r(3, 4, 2), ints(4, 5)], ["index"]),
    "index_pair": (lambda x, i, j: x[i, j], [r(3, 4, 2), ints(3, 5), ints(4, 5)], ["index"]),
    "index_apart": (lambda x, i, j: x[i, :, j], [r(3, 4, 2), ints(3, 5), ints(2, 5)], ["index"]),
    "index_put": (lambda x, i, v: torch.index_put(x, (i,), v, accumulate=True), [r(4, 2), ints(4, 3), r(3, 2)], ["index_put"]),
    "index_assignment": (lambda x, i: _assign_index(x, i), [r(4, 2), torch.tensor([0, 2])], ["index_put"]),
    "index_add": (lambda x, i, v: x.index_add(0, i, v), [r(4, 2), ints(4, 3), r(3, 2)], ["index_put"]),
    "scatter": (lambda x, i, v: x.scatter(1, i, v), [r(3, 4), torch.tensor([[0, 1], [2, 3], [1, 0]]), r(3, 2)], ["scatter"]),
    "scatter_value": (lambda x, i: x.scatter(1, i, 2.0), [r(3, 4), ints(4, 3, 2)], ["scatter"]),
    "scatter_add": (lambda x, i, v: x.scatter_add(1, i, v), [r(3, 4), ints(4, 3, 2), r(3, 4)], ["scatter_add"]),
    "scatter_reduce": (lambda x, i, v: x.scatter_reduce(1, i, v, "sum"), [r(3, 4), ints(4, 3, 2), r(3, 2)], ["scatter_add"]),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-0.5, 0.0, 0.5])), [r(3, 4)], ["sum"]),
    # contractions
    "matmul": (lambda x, y: x @ y, [r(2, 3, 4), r(4, 5)], ["matmul"]),
    "mm": (lambda x, y: torch.mm(x, y), [r(3, 4), r(4, 5)], ["matmul"]),
    "bmm": (lambda x, y: torch.bmm(x, y), [r(2, 3, 4), r(2, 4, 5)], ["matmul"]),
    "mv": (lambda x, y: torch.mv(x, y) + torch.dot(y, y), [r(3, 4), r(4)], ["matmul"]),
    "outer": (lambda x, y: torch.outer(x, y), [r(3), r(4)], ["mul"]),
    "inner": (lambda x, y: torch.inner(x, y), [r(3, 4), r(2, 4)], ["einsum"]),
    "addmm": (lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2), [r(5), r(3, 4), r(4, 5)], ["addmm"]),
    "baddbmm": (lambda c, x, y: torch.baddbmm(c, x, y), [r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)], ["baddbmm"]),
    "addbmm": (lambda c, x, y: torch.addbmm(c, x, y, alpha=2), [r(3, 5), r(2, 3, 4), r(2, 4, 5)], ["einsum"]),
    "addmv": (lambda c, x, y: torch.addmv(c, x, y), [r(3), r(3, 4), r(4)], ["matmul"]),
    "linear": (lambda x, w, b: F.linear(x, w, b), [r(2, 3, 4), r(5, 4), r(5)], ["linear"]),
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), [r(2, 3), r(2, 4), r(5, 3, 4), r(5)], ["einsum"]),
    "tensordot": (lambda x, y: torch.tensordot(x, y, dims=2), [r(2, 3, 4), r(3, 4, 5)], []),
    "einsum": (lambda x, y: torch.einsum("b i j, j k -> b i k", x, y), [r(2, 3, 4), r(4, 5)], ["einsum"]),
    "einsum_implicit": (lambda x, y: torch.einsum("ij,jk", x, y), [r(3, 4), r(4, 5)], ["einsum"]),
    "einsum_ellipsis": (lambda x, y: torch.einsum("...ij,jk->...ik", x, y), [r(2, 5, 3, 4), r(4, 5)], ["einsum"]),
    "einsum_ellipsis_uneven": (lambda x, y: torch.einsum("...ij,...jk->...ik", x, y), [r(2, 5, 3, 4), r(5, 4, 2)], ["einsum"]),
    "cdist": (lambda x, y: torch.cdist(x, y), [r(3, 4), r(5, 4)], []),
    # losses
    "mse": (lambda x, y: F.mse_loss(x, y), [r(*X), r(*X)], ["mean"]),
    "mse_sum": (lambda x, y: F.mse_loss(x, y, reduction="sum"), [r(*X), r(*X)], ["sum"]),
    "l1": (lambda x, y: F.l1_loss(x, y), [r(*X), r(*X)], ["mean"]),
    "smooth_l1": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.7), [r(*X), r(*X)], ["mean"]),
    "huber": (lambda x, y: F.huber_loss(x, y, delta=0.7), [r(*X), r(*X)], ["mean"]),
    "kl_div": (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), [r(3, 4), r(3, 4)], ["log_softmax"]),
    "kl_div_log": (lambda x, y: F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True, reduction="sum"), [r(3, 4), r(3, 4)], []),
    "bce": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), [r(*X), torch.rand(*X)], ["sigmoid", "log"]),
    "bce_logits": (lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.tensor([2.0, 1, 1, 1])), [r(*X), torch.rand(*X)], []),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), [r(5, 4), ints(4, 5)], ["log_softmax", "gather"]),
    "cross_entropy_2d": (lambda x, y: F.cross_entropy(x, y), [r(2, 4, 3, 3), ints(4, 2, 3, 3)], ["log_softmax"]),
    "cross_entropy_weight": (lambda x, y, w: F.cross_entropy(x, y, weight=w), [r(5, 4), ints(4, 5), pos(4)], ["log_softmax"]),
    "cross_entropy_smooth": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), [r(5, 4), ints(4, 5)], ["log_softmax"]),
    "cross_entropy_ignore": (lambda x, y: F.cross_entropy(x, y, ignore_index=2), [r(5, 4), torch.tensor([0, 2, 1, 3, 2])], ["log_softmax"]),
    "cross_entropy_probabilities": (lambda x, y: F.cross_entropy(x, y.softmax(1)), [r(5, 4), r(5, 4)], ["log_softmax"]),
    "cross_entropy_none": (lambda x, y: F.cross_entropy(x, y, reduction="none"), [r(5, 4), ints(4, 5)], ["log_softmax"]),
    "nll": (lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction="sum"), [r(5, 4), ints(4, 5)], ["log_softmax"]),
    "triplet": (lambda a, b, c: F.triplet_margin_loss(a, b, c), [r(3, 4), r(3, 4), r(3, 4)], []),
    "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, dim=1), [r(3, 4), r(3, 4)], []),
    "cosine_embedding": (lambda x, y, t: F.cosine_embedding_loss(x, y, t), [r(3, 4), r(3, 4), torch.tensor([1, -1, 1])], []),
    "hinge_embedding": (lambda x, t: F.hinge_embedding_loss(x, t), [r(3), torch.tensor([1, -1, 1])], []),
    "hinge": (lambda x, t: torch.mean(torch.clamp(1 - x * t, min=0)), [r(3, 4), torch.ones(4)], ["clamp"]),
    "margin_ranking": (lambda x, y, t: F.margin_ranking_loss(x, y, t), [r(3), r(3), torch.tensor([1.0, -1, 1])], []),
    "soft_margin": (lambda x, t: F.soft_margin_loss(x, t), [r(3), torch.tensor([1.0, -1, 1])], []),
    "poisson_nll": (lambda x, t: F.poisson_nll_loss(x, t), [r(3, 4), pos(3, 4)], []),
    # attention
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [r(2, 3, 5, 8), r(2, 3, 6, 8), r(2, 3, 6, 4)], ["scaled_dot_product_attention"]),
    "sdpa_causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), [r(2, 3, 5, 8)] * 3, ["scaled_dot_product_attention"]),
    "sdpa_mask": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [r(2, 3, 5, 8)] * 3 + [r(5, 5) > -1], ["scaled_dot_product_attention"]),
    "sdpa_bias": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [r(2, 3, 5, 8)] * 3 + [r(3, 5, 5)], ["scaled_dot_product_attention"]),
    "sdpa_gqa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), [r(1, 4, 5, 8), r(1, 2, 5, 8), r(1, 2, 5, 8)], ["scaled_dot_product_attention"]),
    # resampling
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), [r(1, 2, 3, 4)], ["upsample_nearest"]),
    "nearest_size": (lambda x: F.interpolate(x, size=(5, 7)), [r(1, 2, 3, 4)], ["upsample_nearest"]),
    "nearest_1d_3d": (lambda x, y: (F.interpolate(x, scale_factor=1.5), F.interpolate(y, scale_factor=2)), [r(1, 2, 5), r(1, 2, 2, 3, 2)], ["upsample_nearest"]),
    "bilinear_up": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), [r(1, 2, 3, 4)], ["upsample_linear"]),
    "bilinear_aligned": (lambda x: F.interpolate(x, size=(6, 9), mode="bilinear", align_corners=True), [r(1, 2, 3, 4)], ["upsample_linear"]),
    "linear_1d": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), [r(1, 2, 5)], ["upsample_linear"]),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), [r(1, 2, 2, 3, 2)], ["upsample_linear"]),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [r(1, 2, 4, 4)], ["upsample_bicubic"]),
    "area": (lambda x: F.interpolate(x, size=(2, 2), mode="area"), [r(1, 2, 4, 6)], ["adaptive_avg_pool"]),
    # pooling
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), [r(1, 2, 7, 6)], ["max_pool"]),
    "max_pool_dilated": (lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0), dilation=2, ceil_mode=True), [r(1, 2, 9, 9)], ["max_pool"]),
    "max_pool_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), [r(1, 2, 6, 6)], ["max_pool"]),
    "max_pool_1d_3d": (lambda x, y: (F.max_pool1d(x, 2), F.max_pool3d(y, 2)), [r(1, 2, 6), r(1, 2, 4, 4, 4)], ["max_pool"]),
    "max_pool_unbatched": (lambda x: F.max_pool2d(x, 2), [r(2, 6, 6)], ["view", "max_pool"]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), [r(1, 2, 6, 6)], ["avg_pool"]),
    "avg_pool_divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), [r(1, 2, 6, 6)], ["avg_pool"]),
    "avg_pool_1d_3d": (lambda x, y: (F.avg_pool1d(x, 2), F.avg_pool3d(y, 2)), [r(1, 2, 6), r(1, 2, 4, 4, 4)], ["avg_pool"]),
    "lp_pool": (lambda x: F.lp_pool2d(x, 2, 2), [r(1, 2, 6, 6)], ["avg_pool"]),
    "adaptive_avg": (lambda x: F.adaptive_avg_pool2d(x, (3, 1)), [r(1, 2, 7, 6)], ["adaptive_avg_pool"]),
    "adaptive_avg_1d_3d": (lambda x, y: (F.adaptive_avg_pool1d(x, 2), F.adaptive_avg_pool3d(y, (1, 2, 2))), [r(1, 2, 6), r(1, 2, 4, 4, 4)], ["adaptive_avg_pool"]),
    "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True), [r(1, 2, 7, 6)], ["adaptive_max_pool"]),
    # convolutions as functions
    "conv_same": (lambda x, w: F.conv2d(x, w, padding="same"), [r(1, 2, 5, 5), r(3, 2, 4, 3)], ["pad", "convolution"]),
    "conv_valid": (lambda x, w: F.conv1d(x, w, padding="valid"), [r(1, 2, 5), r(3, 2, 3)], ["convolution"]),
    "conv_unbatched": (lambda x, w: F.conv2d(x, w), [r(2, 5, 5), r(3, 2, 3, 3)], ["view", "convolution"]),
}


def _assign_mask(x):
    y = x.clone()
    y[y > 0] = 5.0
    return y


def _assign_slice(x):
    y = x.clone()
    y[:, 1:3] = 2.0
    return y


def _assign_select(x):
    y = x.clone()
    y[0] = y[1]
    return y


def _assign_index(x, i):
    y = x.clone()
    y[i] = 1.0
    return y


@pytest.mark.parametrize("name", CASES)
def test_function(name):
    function, arguments, ops = CASES[name]
    program = check(function, *arguments, tolerance=2e-5)
    missing = [op for op in ops if op not in program.ops()]
    assert not missing, f"{missing} not among {program.ops()}"


# Modules -------------------------------------------------------------------------------------------------------------------------
class RMSNormNoWeight(nn.Module):
    def forward(self, x):
        return F.rms_norm(x, (4,))


MODULES = {
    "linear": (lambda: nn.Linear(4, 5, bias=False), [r(2, 4)], ["linear"]),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), [r(2, 4, 12)], ["convolution"]),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), padding=(1, 0)), [r(2, 4, 7, 6)], ["convolution"]),
    "conv2d_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), [r(2, 4, 7, 6)], ["convolution"]),
    "conv2d_reflect": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), [r(1, 2, 5, 5)], ["pad", "convolution"]),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), [r(1, 2, 4, 5, 4)], ["convolution"]),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, dilation=2), [r(2, 4, 5)], ["convolution"]),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), [r(2, 4, 5, 4)], ["convolution"]),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), [r(1, 2, 3, 2, 3)], ["convolution"]),
    "batch_norm_train": (lambda: nn.BatchNorm2d(3), [r(4, 3, 5, 5)], ["batch_norm", "add"]),
    "batch_norm_eval": (lambda: nn.BatchNorm2d(3).eval(), [r(4, 3, 5, 5)], ["batch_norm"]),
    "batch_norm_1d": (lambda: nn.BatchNorm1d(3, affine=False), [r(8, 3)], ["batch_norm"]),
    "batch_norm_no_stats": (lambda: nn.BatchNorm2d(3, track_running_stats=False), [r(4, 3, 5, 5)], ["batch_norm"]),
    "layer_norm": (lambda: nn.LayerNorm((3, 4)), [r(*X)], ["layer_norm"]),
    "layer_norm_plain": (lambda: nn.LayerNorm(4, elementwise_affine=False), [r(*X)], ["layer_norm"]),
    "group_norm": (lambda: nn.GroupNorm(2, 4), [r(2, 4, 5)], ["group_norm"]),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), [r(2, 3, 4, 4)], ["group_norm"]),
    "instance_norm_train": (lambda: nn.InstanceNorm2d(3, track_running_stats=True), [r(2, 3, 4, 4)], ["group_norm", "lerp"]),
    "instance_norm_eval": (lambda: nn.InstanceNorm2d(3, track_running_stats=True).eval(), [r(2, 3, 4, 4)], ["batch_norm"]),
    "rms_norm": (lambda: nn.RMSNorm(4, eps=1e-6), [r(*X)], ["rms_norm"]),
    "rms_norm_default_eps": (RMSNormNoWeight, [r(*X) * 1e-3], ["rms_norm"]),
    "local_response_norm": (lambda: nn.LocalResponseNorm(3), [r(2, 5, 4, 4)], ["avg_pool"]),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=0), [ints(7, 2, 3)], ["embedding"]),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True), [r(2, 6, 4)], ["lstm"]),
    "lstm_bidirectional": (lambda: nn.LSTM(4, 5, bidirectional=True, bias=False), [r(6, 2, 4)], ["lstm"]),
    "lstm_unbatched": (lambda: nn.LSTM(4, 5), [r(6, 4)], ["lstm"]),
    "lstm_state": (lambda: nn.LSTM(4, 5), [r(6, 2, 4), (r(1, 2, 5), r(1, 2, 5))], ["lstm"]),
    "lstm_dropout_eval": (lambda: nn.LSTM(4, 5, num_layers=2, dropout=0.5).eval(), [r(6, 2, 4)], ["lstm"]),
    "gru": (lambda: nn.GRU(4, 5, num_layers=2, bidirectional=True), [r(6, 2, 4)], ["gru"]),
    "rnn_relu": (lambda: nn.RNN(4, 5, nonlinearity="relu"), [r(6, 2, 4)], ["rnn"]),
    "rnn_tanh": (lambda: nn.RNN(4, 5, batch_first=True), [r(2, 6, 4)], ["rnn"]),
    "lstm_cell": (lambda: nn.LSTMCell(4, 5), [r(2, 4)], ["sigmoid", "tanh"]),
    "gru_cell": (lambda: nn.GRUCell(4, 5), [r(2, 4), r(2, 5)], ["sigmoid", "tanh"]),
    "rnn_cell": (lambda: nn.RNNCell(4, 5), [r(2, 4), r(2, 5)], ["tanh"]),
    "multihead_attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), [r(2, 5, 8)] * 3, ["linear"]),
    "multihead_attention_eval": (lambda: nn.MultiheadAttention(8, 2, batch_first=True).eval(), [r(2, 5, 8)] * 3, ["linear"]),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), [r(2, 5, 8)], ["layer_norm", "scaled_dot_product_attention"]),
    "encoder_layer_eval": (lambda: nn.TransformerEncoderLayer(8, 2, 16).eval(), [r(5, 2, 8)], ["layer_norm"]),
    "decoder_layer_eval": (lambda: nn.TransformerDecoderLayer(8, 2, 16).eval(), [r(5, 2, 8), r(4, 2, 8)], ["layer_norm"]),
    "dropout_eval": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout2d(0.3)).eval(), [r(2, 4, 4)], ["linear"]),
    "dropout_zero": (lambda: nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 4)), [r(2, 4)], ["linear"]),
    "prelu": (lambda: nn.PReLU(3), [r(*X)], ["where"]),
    "upsample": (lambda: nn.Upsample(scale_factor=2), [r(1, 2, 3, 3)], ["upsample_nearest"]),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), [r(2, 3), r(2, 4)], ["einsum"]),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), [r(2, 4)], ["linear"]),
    "spectral_norm_eval": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)).eval(), [r(2, 4)], ["linear"]),
    "zero_pad": (lambda: nn.ZeroPad2d(1), [r(1, 2, 3, 3)], ["pad"]),
    "cosine": (lambda: nn.CosineSimilarity(), [r(3, 4), r(3, 4)], []),
    "fold": (lambda: nn.Fold((4, 4), 2, stride=2), [r(1, 8, 4)], []),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    make, arguments, ops = MODULES[name]
    torch.manual_seed(1)
    program = check(make(), *arguments, tolerance=2e-5)
    missing = [op for op in ops if op not in program.ops()]
    assert not missing, f"{missing} not among {program.ops()}"

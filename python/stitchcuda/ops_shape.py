"""Handlers of ops that move, select or make data."""

from __future__ import annotations

import math

import torch

from . import ir
from .errors import unsupported
from .lower import handles


def _arg(args, kwargs, index, name, default):
    return args[index] if len(args) > index else kwargs.get(name, default)


@handles("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "lift", "lift_fresh", "dropout", "feature_dropout", "alpha_dropout",
         "native_dropout", "_assert_tensor_metadata", "resolve_conj", "resolve_neg", "positive", "to", "_to_copy", "type_as", "view_as_real_copy")
def identity(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    if name == "_assert_tensor_metadata":
        return None
    if "dropout" in name:
        p, train = float(_arg(args, kwargs, 1, "p", 0.5)), _arg(args, kwargs, 2, "train", True)
        if train and p > 0:
            raise unsupported(f"Dropout with p={p} in train mode gives random results{c.where(node)}; call model.eval() or set p=0 before capture.")
        if name == "native_dropout":
            return args[0], None
        return args[0]
    dtype, shape = c.meta(node)
    x = args[0]
    if not isinstance(x, ir.Value):
        return c.tensor(x, dtype) if shape == () else x
    device = node.meta["val"].device
    if device.type not in ("cpu", "cuda", "meta"):
        raise unsupported(f"The program moves a tensor to device {device}{c.where(node)}; only CPU and CUDA are supported.")
    return c.cast(x, dtype)


@handles("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as", "_reshape_copy", "view_copy", "squeeze_copy", "unsqueeze_copy")
def view(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    return c.view(c.tensor(args[0], dtype), shape)


@handles("permute", "transpose", "t", "numpy_T", "movedim", "moveaxis", "swapaxes", "swapdims", "mT", "adjoint", "permute_copy")
def permute(c, node, args, kwargs):
    name, x = str(node.target).split(".")[1], args[0]
    dims = list(range(x.rank))
    if name in ("permute", "permute_copy"):
        dims = [d % x.rank for d in args[1]]
    elif name in ("transpose", "swapaxes", "swapdims") and x.rank:
        a, b = args[1] % x.rank, args[2] % x.rank
        dims[a], dims[b] = dims[b], dims[a]
    elif name in ("t", "mT", "adjoint") and x.rank > 1:
        dims[-1], dims[-2] = dims[-2], dims[-1]
    elif name == "numpy_T":
        dims.reverse()
    elif name in ("movedim", "moveaxis"):
        src = [args[1]] if isinstance(args[1], int) else list(args[1])
        dst = [args[2]] if isinstance(args[2], int) else list(args[2])
        src, dst = [s % x.rank for s in src], [d % x.rank for d in dst]
        rest = [d for d in range(x.rank) if d not in src]
        dims = [None] * x.rank
        for s, d in zip(src, dst):
            dims[d] = s
        dims = [rest.pop(0) if d is None else d for d in dims]
    return c.permute(x, dims)


@handles("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    return c.expand(c.tensor(args[0], dtype), shape)


@handles("broadcast_tensors")
def broadcast_tensors(c, node, args, kwargs):
    return [c.expand(x, shape) for x, (_, shape) in zip(args[0], c.meta(node))]


def _clip(i, extent):
    i = extent if i is None or i > extent else i
    return max(0, i + extent if i < 0 else i)


@handles("slice", "narrow", "slice_copy")
def slice_(c, node, args, kwargs):
    x = args[0]
    if "narrow" in str(node.target):
        dim, start, length = args[1] % x.rank, args[2], args[3]
        start = start + x.shape[dim] if start < 0 else start
        return c.slice(x, dim, start, start + length)
    dim = _arg(args, kwargs, 1, "dim", 0) % x.rank
    start, end = _arg(args, kwargs, 2, "start", None), _arg(args, kwargs, 3, "end", None)
    start = _clip(0 if start is None else start, x.shape[dim])
    end = max(start, _clip(end, x.shape[dim]))
    return c.slice(x, dim, start, end, _arg(args, kwargs, 4, "step", 1))


@handles("slice_scatter")
def slice_scatter(c, node, args, kwargs):
    x, src = args[0], args[1]
    dim = _arg(args, kwargs, 2, "dim", 0) % x.rank
    start, end = _arg(args, kwargs, 3, "start", None), _arg(args, kwargs, 4, "end", None)
    start = _clip(0 if start is None else start, x.shape[dim])
    end = max(start, _clip(end, x.shape[dim]))
    return c.g.add("slice_scatter", [x, c.cast(src, x.dtype)], (x.dtype, x.shape), dim=dim, start=start, end=end, step=_arg(args, kwargs, 5, "step", 1))


@handles("select", "select_copy")
def select(c, node, args, kwargs):
    x = args[0]
    dim = args[1] % x.rank
    return c.g.add("select", [x], c.meta(node), dim=dim, index=args[2] % x.shape[dim])


@handles("select_scatter")
def select_scatter(c, node, args, kwargs):
    x, src = args[0], args[1]
    dim = args[2] % x.rank
    return c.g.add("select_scatter", [x, c.cast(src, x.dtype)], (x.dtype, x.shape), dim=dim, index=args[3] % x.shape[dim])


@handles("copy")
def copy(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    return c.expand(c.cast(c.tensor(args[1], dtype), dtype), shape)


@handles("cat", "concat", "concatenate")
def cat(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    tensors = [c.cast(t, dtype) for t in args[0] if t.shape != (0,) or len(shape) == 1]
    dim = _arg(args, kwargs, 1, "dim", 0) % len(shape)
    return tensors[0] if len(tensors) == 1 else c.g.add("cat", [tensors], (dtype, shape), dim=dim)


@handles("stack")
def stack(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    dim = _arg(args, kwargs, 1, "dim", 0) % len(shape)
    tensors = [c.unsqueeze(c.cast(c.tensor(t, dtype), dtype), dim) for t in args[0]]
    return tensors[0] if len(tensors) == 1 else c.g.add("cat", [tensors], (dtype, shape), dim=dim)


@handles("hstack", "vstack", "column_stack", "dstack")
def hstack(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    dtype, shape = c.meta(node)
    tensors = [c.cast(t, dtype) for t in args[0]]
    if name == "vstack":
        tensors, dim = [c.view(t, [1, *t.shape]) if t.rank < 2 else t for t in tensors], 0
    elif name == "hstack":
        dim = 0 if tensors[0].rank == 1 else 1
    else:
        raise unsupported(f"The operator {node.target} is not supported{c.where(node)}; use torch.cat.")
    return c.g.add("cat", [tensors], (dtype, shape), dim=dim)


@handles("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "split_copy", "split_with_sizes_copy")
def split(c, node, args, kwargs):
    x = args[0]
    dim = _arg(args, kwargs, 2, "dim", 0) % x.rank
    out, start = [], 0
    for _, shape in c.meta(node):
        out.append(c.slice(x, dim, start, start + shape[dim]))
        start += shape[dim]
    return out


@handles("unbind", "unbind_copy")
def unbind(c, node, args, kwargs):
    x = args[0]
    dim = _arg(args, kwargs, 1, "dim", 0) % x.rank
    return [c.g.add("select", [x], t, dim=dim, index=i) for i, t in enumerate(c.meta(node))]


@handles("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d")
def pad(c, node, args, kwargs):
    name, x, amounts = str(node.target).split(".")[1], args[0], [int(p) for p in args[1]]
    mode, value = "constant", 0.0
    if name == "pad":
        mode = _arg(args, kwargs, 2, "mode", "constant")
        value = _arg(args, kwargs, 3, "value", None) or 0.0
    elif name == "constant_pad_nd":
        value = _arg(args, kwargs, 2, "value", 0.0)
    else:
        mode = "reflect" if name.startswith("reflection") else "replicate"
    if not any(amounts):
        return x
    named = {"mode": mode}
    if mode == "constant":
        named["value"] = float(value)
    return c.g.add("pad", [x], c.meta(node), pad=amounts, **named)


@handles("flip", "fliplr", "flipud")
def flip(c, node, args, kwargs):
    name, x = str(node.target).split(".")[1], args[0]
    dims = {"fliplr": [1], "flipud": [0]}.get(name) or [d % x.rank for d in args[1]]
    return c.g.add("flip", [x], c.meta(node), dims=dims)


@handles("roll")
def roll(c, node, args, kwargs):
    x = args[0]
    shifts, dims = args[1], _arg(args, kwargs, 2, "dims", [])
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = c.view(x, [math.prod(x.shape)])
        return c.view(c.g.add("roll", [flat], (x.dtype, flat.shape), shifts=shifts, dims=[0]), x.shape)
    return c.g.add("roll", [x], c.meta(node), shifts=shifts, dims=[d % x.rank for d in dims])


@handles("repeat", "tile")
def repeat(c, node, args, kwargs):
    x, repeats = args[0], [int(r) for r in args[1]]
    repeats = [1] * (x.rank - len(repeats)) + repeats
    return c.g.add("repeat", [x], c.meta(node), repeats=repeats)


@handles("repeat_interleave")
def repeat_interleave(c, node, args, kwargs):
    if not str(node.target).endswith("self_int"):
        raise unsupported(f"repeat_interleave with a tensor of repeats has a data-dependent shape{c.where(node)}; use a plain number.")
    x, times = args[0], int(args[1])
    dim = _arg(args, kwargs, 2, "dim", None)
    if dim is None:
        x, dim = c.view(x, [math.prod(x.shape)]), 0
    dim %= x.rank
    wide = list(x.shape[: dim + 1]) + [times] + list(x.shape[dim + 1:])
    return c.view(c.expand(c.unsqueeze(x, dim + 1), wide), c.meta(node)[1])


@handles("unfold", "unfold_copy")
def unfold(c, node, args, kwargs):
    x = args[0]
    return c.g.add("unfold", [x], c.meta(node), dim=args[1] % x.rank, size=int(args[2]), step=int(args[3]))


@handles("tril", "triu")
def tril(c, node, args, kwargs):
    return c.g.add(str(node.target).split(".")[1], [args[0]], c.meta(node), diagonal=int(_arg(args, kwargs, 1, "diagonal", 0)))


@handles("diagonal", "diagonal_copy")
def diagonal(c, node, args, kwargs):
    x = args[0]
    return c.g.add("diagonal", [x], c.meta(node), offset=int(_arg(args, kwargs, 1, "offset", 0)),
                   dim1=_arg(args, kwargs, 2, "dim1", 0) % x.rank, dim2=_arg(args, kwargs, 3, "dim2", 1) % x.rank)


@handles("diag")
def diag(c, node, args, kwargs):
    x, offset = args[0], int(_arg(args, kwargs, 1, "diagonal", 0))
    dtype, shape = c.meta(node)
    if x.rank == 2:
        return c.g.add("diagonal", [x], (dtype, shape), offset=offset)
    return _embed_diagonal(c, x, shape, offset)


@handles("diag_embed")
def diag_embed(c, node, args, kwargs):
    x, offset = args[0], int(_arg(args, kwargs, 1, "offset", 0))
    dtype, shape = c.meta(node)
    d1, d2 = _arg(args, kwargs, 2, "dim1", -2) % len(shape), _arg(args, kwargs, 3, "dim2", -1) % len(shape)
    if (d1, d2) != (len(shape) - 2, len(shape) - 1):
        raise unsupported(f"diag_embed into dims other than the last two is not supported{c.where(node)}.")
    return _embed_diagonal(c, x, shape, offset)


def _embed_diagonal(c, x, shape, offset):
    """Element (i, i + offset) is x[i]: broadcast x over columns, shifted rows, and mask."""
    n = shape[-1]
    rows = c.g.add("arange", types=(torch.int64, (n,)), start=0.0, end=float(n), step=1.0)
    i, j = c.view(rows, [n, 1]), c.view(rows, [1, n])
    on = c.pointwise("eq", c.pointwise("sub", j, i), offset, dtype=torch.bool)
    before, after = (offset, 0) if offset > 0 else (0, -offset)
    spread = x if offset == 0 else c.g.add("pad", [x], (x.dtype, (*x.shape[:-1], n)), pad=[before, after], value=0.0)
    return c.g.add("where", [on, c.expand(c.unsqueeze(spread, spread.rank - 1), shape), 0.0], (x.dtype, shape))


# --- sources ---------------------------------------------------------------------------------------------------------
def fill(c, node, value):
    dtype, shape = c.meta(node)
    return c.g.add("full", types=(dtype, shape), size=list(shape), value=float(value))


@handles("full", "full_like", "new_full")
def full(c, node, args, kwargs):
    index = 2 if "new_full" in str(node.target) else 1
    v = args[index] if len(args) > index else kwargs["fill_value"]
    if isinstance(v, ir.Value):
        dtype, shape = c.meta(node)
        return c.expand(c.cast(v, dtype), shape)
    return fill(c, node, v)


@handles("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
def zeros(c, node, args, kwargs):
    return fill(c, node, 0)


@handles("ones", "ones_like", "new_ones")
def ones(c, node, args, kwargs):
    return fill(c, node, 1)


@handles("scalar_tensor")
def scalar_tensor(c, node, args, kwargs):
    return args[0] if not isinstance(args[0], ir.Value) else c.cast(args[0], c.meta(node)[0])


@handles("fill")
def fill_(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    return c.expand(c.cast(args[1], dtype), shape) if isinstance(args[1], ir.Value) else fill(c, node, args[1])


@handles("arange")
def arange(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    numbers = [a for a in args if isinstance(a, (int, float))]
    start, end, step = 0, None, 1
    if len(numbers) == 1:
        end = numbers[0]
    else:
        start, end = numbers[:2]
        step = numbers[2] if len(numbers) > 2 else kwargs.get("step", 1)
    # The end is written so that the number of elements is exact whatever the rounding.
    end = start + step * shape[0] if step == int(step) and start == int(start) else start + step * (shape[0] - 0.5)
    return c.g.add("arange", types=(dtype, shape), start=float(start), end=float(end), step=float(step))


@handles("linspace")
def linspace(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    start, end, steps = args[0], args[1], shape[0]
    i = c.g.add("arange", types=(dtype, shape), start=0.0, end=float(steps), step=1.0)
    step = (end - start) / max(1, steps - 1)
    return c.pointwise("add", c.pointwise("mul", i, float(step)), float(start))


@handles("eye")
def eye(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    return c.g.add("eye", types=(dtype, shape), rows=shape[0], cols=shape[1])


@handles("randint", "bernoulli", "multinomial", "randperm", "normal", "uniform", "normal_functional")
def random(c, node, args, kwargs):
    raise unsupported(f"{node.target} draws random numbers inside forward(){c.where(node)}; make the tensor an input or a buffer.")


# --- indexing --------------------------------------------------------------------------------------------------------
@handles("gather")
def gather(c, node, args, kwargs):
    x, dim, index = args[:3]
    return c.g.add("gather", [x, index], c.meta(node), dim=dim % max(1, x.rank))


@handles("take_along_dim")
def take_along_dim(c, node, args, kwargs):
    x, index = args[0], args[1]
    dim = _arg(args, kwargs, 2, "dim", None)
    _, shape = c.meta(node)
    dim %= x.rank
    other = list(shape)
    other[dim] = x.shape[dim]
    return c.g.add("gather", [c.expand(x, other), c.expand(index, shape)], (x.dtype, shape), dim=dim)


@handles("index_select")
def index_select(c, node, args, kwargs):
    x, dim, index = args[:3]
    return c.g.add("index_select", [x, index], c.meta(node), dim=dim % x.rank)


@handles("embedding")
def embedding(c, node, args, kwargs):
    return c.g.add("embedding", [args[0], args[1]], c.meta(node))


@handles("index", "_unsafe_index")
def index(c, node, args, kwargs):
    for i in args[1]:
        if i is not None and i.dtype == torch.bool:
            raise unsupported(f"Indexing with a bool mask gives a data-dependent shape{c.where(node)}; use torch.where.")
    return c.g.add("index", [args[0], list(args[1])], c.meta(node))


@handles("index_put", "_unsafe_index_put")
def index_put(c, node, args, kwargs):
    x, indices, values = args[:3]
    accumulate = bool(_arg(args, kwargs, 3, "accumulate", False))
    values = c.tensor(values, x.dtype)
    masks = [i for i in indices if i is not None and i.dtype == torch.bool]
    if masks:
        if len(indices) == 1 and values.rank == 0 and not accumulate:
            mask = c.view(masks[0], list(masks[0].shape) + [1] * (x.rank - masks[0].rank))
            return c.pointwise("where", mask, values, x, dtype=x.dtype)
        raise unsupported(f"Assignment through a bool mask is supported for single numbers only{c.where(node)}; use torch.where.")
    return c.g.add("index_put", [x, list(indices), c.cast(values, x.dtype)], c.meta(node), accumulate=accumulate)


@handles("index_add", "index_copy")
def index_add(c, node, args, kwargs):
    x, dim, index, source = args[:4]
    alpha = kwargs.get("alpha", 1)
    dim %= x.rank
    where = [None] * dim + [index]
    accumulate = "index_add" in str(node.target)
    if alpha != 1:
        source = c.pointwise("mul", source, alpha)
    return c.g.add("index_put", [x, where, source], (x.dtype, x.shape), accumulate=accumulate)


@handles("scatter", "scatter_add", "scatter_reduce")
def scatter(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    x, dim, index, src = args[:4]
    dim %= max(1, x.rank)
    reduce = kwargs.get("reduce", args[4] if len(args) > 4 else None)
    if name == "scatter_reduce" or reduce is not None:
        if reduce not in ("sum", "add") or kwargs.get("include_self", True) is not True:
            raise unsupported(f"{name} with reduce={reduce} is not supported{c.where(node)}.")
        name = "scatter_add"
    if isinstance(src, ir.Value):
        src = c.cast(src, x.dtype)
        if src.shape != index.shape:  # only the part under the index is used
            for d in range(index.rank):
                src = c.slice(src, d, 0, index.shape[d])
    elif name == "scatter_add":
        src = c.expand(c.tensor(src, x.dtype), index.shape)
    return c.g.add(name, [x, index, src], c.meta(node), dim=dim)


@handles("one_hot")
def one_hot(c, node, args, kwargs):
    x = args[0]
    dtype, shape = c.meta(node)
    n = shape[-1]
    classes = c.g.add("arange", types=(torch.int64, (n,)), start=0.0, end=float(n), step=1.0)
    hit = c.pointwise("eq", c.unsqueeze(x, x.rank), classes, dtype=torch.bool)
    return c.cast(hit, dtype)


@handles("topk")
def topk(c, node, args, kwargs):
    x, k = args[0], int(args[1])
    return c.g.add("topk", [x], c.meta(node), k=k, dim=_arg(args, kwargs, 2, "dim", -1) % max(1, x.rank), largest=bool(_arg(args, kwargs, 3, "largest", True)),
                   sorted=True)


@handles("sort", "argsort", "msort")
def sort(c, node, args, kwargs):
    name, x = str(node.target).split(".")[1], args[0]
    if "stable" in str(node.target):
        kwargs = {**kwargs, "dim": _arg(args, kwargs, 2, "dim", -1), "descending": _arg(args, kwargs, 3, "descending", False)}
        args = args[:1]
    dim = (0 if name == "msort" else _arg(args, kwargs, 1, "dim", -1)) % max(1, x.rank)
    values, indices = c.g.add("sort", [x], [(x.dtype, x.shape), (torch.int64, x.shape)], dim=dim, descending=bool(_arg(args, kwargs, 2, "descending", False)))
    return {"argsort": indices, "msort": values}.get(name, (values, indices))


@handles("meshgrid")
def meshgrid(c, node, args, kwargs):
    tensors = args[0]
    xy = kwargs.get("indexing", args[1] if len(args) > 1 else "ij") == "xy" and len(tensors) > 1
    out = []
    for i, (t, (_, shape)) in enumerate(zip(tensors, c.meta(node))):
        place = {0: 1, 1: 0}.get(i, i) if xy else i
        out.append(c.expand(c.view(t, [t.shape[0] if d == place else 1 for d in range(len(shape))]), shape))
    return out


@handles("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def pixel_shuffle(c, node, args, kwargs):
    name, x, r = str(node.target).split(".")[1], args[0], int(args[1])
    *lead, ch, h, w = x.shape
    n = len(lead)
    _, shape = c.meta(node)
    if name == "pixel_shuffle":
        v = c.view(x, [*lead, ch // (r * r), r, r, h, w])
        return c.view(c.permute(v, [*range(n), n, n + 3, n + 1, n + 4, n + 2]), shape)
    if name == "pixel_unshuffle":
        v = c.view(x, [*lead, ch, h // r, r, w // r, r])
        return c.view(c.permute(v, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), shape)
    v = c.view(x, [*lead, r, ch // r, h, w])
    return c.view(c.permute(v, [*range(n), n + 1, n, n + 2, n + 3]), shape)

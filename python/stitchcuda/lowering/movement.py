"""Operators that move elements: views, permutations, slices, concatenation, padding."""

from ..ir import Immediate
from .registry import op


@op("aten.view.default", "aten._unsafe_view", "aten.reshape", "aten.flatten", "aten.unflatten", "aten.unsqueeze", "aten.squeeze",
    "aten.view_as", "aten.reshape_as", "aten.view_copy.default", "aten.unsqueeze_copy", "aten.squeeze_copy", "aten._reshape_alias",
    "aten.atleast_1d", "aten.atleast_2d", "aten.atleast_3d", "aten._reshape_copy", "aten.ravel")
def view(c, a):
    x = a.get("x", a.get("input"))
    return x if isinstance(x, Immediate) and c.shape == () else c.view(x, c.shape)


@op("aten.view.dtype", "aten.view_as_real", "aten.view_as_complex")
def view_dtype(c, a):
    c.fail("Viewing a tensor's bytes as another dtype cannot be captured")


@op("aten.as_strided", "aten.as_strided_copy", "aten.as_strided_scatter")
def as_strided(c, a):
    c.fail("as_strided depends on the memory layout and cannot be captured; use view, permute, slice or unfold")


@op("aten.permute", "aten.permute_copy")
def permute(c, a):
    return c.permute(a.x, a.dims)


@op("aten.transpose.int", "aten.swapaxes", "aten.swapdims", "aten.transpose_copy.int")
def transpose(c, a):
    first, second = list(v for k, v in a.__dict__.items() if k != "x")[:2]
    return swap(c, a.x, first, second)


def swap(c, x, first, second):
    if x.rank == 0:
        return x
    dims = list(range(x.rank))
    i, j = c.dim(first, x.rank), c.dim(second, x.rank)
    dims[i], dims[j] = dims[j], dims[i]
    return c.permute(x, dims)


@op("aten.t", "aten.t_copy", "aten.numpy_T", "aten.matrix_H")
def t(c, a):
    return c.permute(a.x, list(range(a.x.rank))[::-1])


@op("aten.mT", "aten.mH", "aten.adjoint")
def matrix_transpose(c, a):
    return swap(c, a.x, -2, -1)


@op("aten.movedim", "aten.moveaxis")
def movedim(c, a):
    source = [a.source] if isinstance(a.source, int) else list(a.source)
    destination = [a.destination] if isinstance(a.destination, int) else list(a.destination)
    rank = a.x.rank
    source, destination = [c.dim(d, rank) for d in source], [c.dim(d, rank) for d in destination]
    rest = [d for d in range(rank) if d not in source]
    dims = []
    for place in range(rank):
        dims.append(source[destination.index(place)] if place in destination else rest.pop(0))
    return c.permute(a.x, dims)


@op("aten.expand", "aten.expand_as", "aten.broadcast_to", "aten.expand_copy")
def expand(c, a):
    return c.expand(a.x, c.shape)


@op("aten.broadcast_tensors")
def broadcast_tensors(c, a):
    return [c.expand(x, tuple(v.shape)) for x, v in zip(a.tensors, c.vals)]


@op("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_tensor(c, a):
    dim = c.dim(a.dim, a.x.rank)
    start, end = bounds(a.get("start", 0), a.end, a.x.shape[dim])
    return c.slice(a.x, dim, start, end, a.step)


def bounds(start, end, extent):
    """Python's slice clamping."""
    start = 0 if start is None else start
    end = extent if end is None else end
    start = min(max(start + extent if start < 0 else start, 0), extent)
    end = min(max(end + extent if end < 0 else end, start), extent)
    return start, end


@op("aten.narrow", "aten.narrow_copy")
def narrow(c, a):
    dim = c.dim(a.dim, a.x.rank)
    if not isinstance(a.start, int):
        c.fail("narrow with a tensor as start depends on data and cannot be captured")
    start = a.start % a.x.shape[dim] if a.start < 0 else a.start
    return c.slice(a.x, dim, start, start + a.length)


@op("aten.select.int", "aten.select_copy.int")
def select(c, a):
    return c.select(a.x, c.dim(a.dim, a.x.rank), a.index)


@op("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unsafe_split", "aten.unsafe_split_with_sizes", "aten.unsafe_chunk",
    "aten.tensor_split.sections", "aten.tensor_split.indices", "aten.split_copy", "aten.split_with_sizes_copy")
def split(c, a):
    """The sizes are those of the results."""
    dim = c.dim(a.get("dim", 0), a.x.rank)
    parts, start = [], 0
    for val in c.vals:
        end = start + val.shape[dim]
        parts.append(c.slice(a.x, dim, start, end))
        start = end
    return parts


@op("aten.unbind", "aten.unbind_copy")
def unbind(c, a):
    dim = c.dim(a.dim, a.x.rank)
    return [c.select(a.x, dim, i) for i in range(a.x.shape[dim])]


@op("aten.cat", "aten.concat", "aten.concatenate")
def cat(c, a):
    # PyTorch skips the legacy empty tensor of shape [0] whatever the rank of the others.
    tensors = [c.cast(t, c.dtype) for t in a.tensors if t.shape != (0,) or c.shape == (0,)]
    rank = max(t.rank for t in tensors)
    return c.cat(tensors, c.dim(a.dim, rank))


@op("aten.stack")
def stack(c, a):
    dim = c.dim(a.dim, len(c.shape))
    shape = c.shape[:dim] + (1,) + c.shape[dim + 1:]
    return c.cat([c.view(c.cast(t, c.dtype), shape) for t in a.tensors], dim)


@op("aten.pad")
def pad(c, a):
    return pad_by_mode(c, a.x, a.pad, a.mode, a.get("value", 0.0))


@op("aten.constant_pad_nd")
def constant_pad_nd(c, a):
    return c.pad(a.x, a.pad, "constant", a.get("value", 0.0))


@op("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def reflection_pad(c, a):
    return pad_by_mode(c, a.x, a.padding, "reflect", 0.0)


@op("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def replication_pad(c, a):
    return pad_by_mode(c, a.x, a.padding, "replicate", 0.0)


@op("aten._pad_circular")
def circular_pad(c, a):
    return pad_by_mode(c, a.x, a.pad, "circular", 0.0)


def pad_by_mode(c, x, pad, mode, value):
    pad = [int(p) for p in pad]
    if mode != "constant" and any(p < 0 for p in pad):
        # Only constant padding crops: crop first, then pad with what is left.
        x = c.pad(x, [min(p, 0) for p in pad])
        pad = [max(p, 0) for p in pad]
        if mode == "circular":
            c.fail("Circular padding with negative amounts cannot be captured")
    return c.pad(x, pad, mode, value)


@op("aten.flip")
def flip(c, a):
    dims = c.dims(a.dims, a.x.rank)
    return c.result("flip", c.tensor(a.x), dims=dims) if dims else a.x


@op("aten.roll")
def roll(c, a):
    shifts = [a.shifts] if isinstance(a.shifts, int) else list(a.shifts)
    dims = [a.dims] if isinstance(a.dims, int) else list(a.dims or [])
    if not dims:
        size = 1
        for e in a.x.shape:
            size *= e
        flat = c.view(a.x, (size,))
        return c.view(c.emit("roll", [flat], [(flat.dtype, flat.shape)], shifts=shifts, dims=[0]), c.shape)
    return c.result("roll", a.x, shifts=shifts, dims=[c.dim(d, a.x.rank) for d in dims])


@op("aten.repeat", "aten.tile")
def repeat(c, a):
    repeats = list(a.get("repeats", a.get("dims", [])))
    repeats = [1] * (a.x.rank - len(repeats)) + repeats
    if all(r == 1 for r in repeats):
        return c.view(a.x, c.shape)
    return c.result("repeat", c.tensor(a.x), repeats=repeats)


@op("aten.repeat_interleave.self_int")
def repeat_interleave(c, a):
    x = a.x
    if a.dim is None:
        size = 1
        for e in x.shape:
            size *= e
        x, dim = c.view(x, (size,)), 0
    else:
        dim = c.dim(a.dim, x.rank)
    wide = x.shape[:dim + 1] + (a.repeats,) + x.shape[dim + 1:]
    return c.view(c.expand(c.view(x, x.shape[:dim + 1] + (1,) + x.shape[dim + 1:]), wide), c.shape)


@op("aten.unfold", "aten.unfold_copy")
def unfold(c, a):
    return c.result("unfold", a.x, dim=c.dim(a.dimension, a.x.rank), size=a.size, step=a.step)


@op("aten.tril", "aten.triu")
def tril(c, a):
    return c.result(str(c.target).split(".")[1], a.x, diagonal=int(a.diagonal))


@op("aten.diagonal", "aten.diagonal_copy", "aten.linalg_diagonal")
def diagonal(c, a):
    x = a.get("x", a.get("A"))
    return c.result("diagonal", x, offset=int(a.offset), dim1=c.dim(a.dim1, x.rank), dim2=c.dim(a.dim2, x.rank))


@op("aten.slice_scatter")
def slice_scatter(c, a):
    dim = c.dim(a.dim, a.x.rank)
    start, end = bounds(a.get("start", 0), a.end, a.x.shape[dim])
    src = c.cast(a.src, a.x.dtype)
    shape = list(a.x.shape)
    shape[dim] = (end - start + a.step - 1) // a.step
    src = c.expand(src, shape)
    return src if tuple(shape) == a.x.shape else c.result("slice_scatter", a.x, src, dim=dim, start=start, end=end, step=a.step)


@op("aten.select_scatter")
def select_scatter(c, a):
    dim = c.dim(a.dim, a.x.rank)
    src = c.expand(c.cast(a.src, a.x.dtype), a.x.shape[:dim] + a.x.shape[dim + 1:])
    return c.result("select_scatter", c.tensor(a.x), src, dim=dim, index=a.index % a.x.shape[dim])


@op("aten.pixel_shuffle")
def pixel_shuffle(c, a):
    *batch, channels, height, width = a.x.shape
    r, n = a.upscale_factor, len(batch)
    x = c.view(a.x, (*batch, channels // (r * r), r, r, height, width))
    return c.view(c.permute(x, [*range(n), n, n + 3, n + 1, n + 4, n + 2]), c.shape)


@op("aten.pixel_unshuffle")
def pixel_unshuffle(c, a):
    *batch, channels, height, width = a.x.shape
    r, n = a.downscale_factor, len(batch)
    x = c.view(a.x, (*batch, channels, height // r, r, width // r, r))
    return c.view(c.permute(x, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), c.shape)


@op("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(c, a):
    n, channels, *rest = a.x.shape
    x = c.view(a.x, (n, a.groups, channels // a.groups, *rest))
    return c.view(c.permute(x, [0, 2, 1, *range(3, len(rest) + 3)]), c.shape)

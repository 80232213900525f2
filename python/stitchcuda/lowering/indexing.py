"""Gathers, scatters, embeddings and advanced indexing."""

from ..ir import Immediate, Value
from .registry import op


@op("aten.gather")
def gather(c, a):
    if a.x.rank == 0:
        return c.expand(a.x, c.shape)
    index = a.index if a.index.rank else c.view(a.index, (1,) * a.x.rank)
    return c.view(c.emit("gather", [c.tensor(a.x), index], [(c.dtype, index.shape)], dim=c.dim(a.dim, a.x.rank)), c.shape)


@op("aten.index_select")
def index_select(c, a):
    if a.x.rank == 0:
        return c.view(a.x, c.shape)
    return c.result("index_select", a.x, c.tensor(a.index), dim=c.dim(a.dim, a.x.rank))


@op("aten.embedding")
def embedding(c, a):
    return c.result("embedding", a.weight, c.tensor(a.indices))


@op("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(c, a):
    indices = integer_indices(c, a.indices)
    while indices and indices[-1] is None:
        indices.pop()
    if not indices:
        return a.x
    return c.result("index", c.tensor(a.x), indices)


def integer_indices(c, indices):
    out = []
    for i in indices:
        if i is not None and i.dtype in ("b8", "u8"):
            c.fail("Indexing with a boolean mask gives a result whose shape depends on the data and cannot be captured; use torch.where")
        out.append(None if i is None else c.tensor(i))
    return out


@op("aten.index_put", "aten._unsafe_index_put")
def index_put(c, a):
    masked = masked_put(c, a)
    if masked is not None:
        return masked
    values = c.tensor(c.cast(a.values, a.x.dtype))
    indices = integer_indices(c, a.indices)
    while indices[-1] is None:
        indices.pop()
    return c.result("index_put", c.tensor(a.x), indices, values, accumulate=bool(a.accumulate))


def masked_put(c, a):
    """x[mask] = number is a `where`: its shape does not depend on the mask."""
    indices = list(a.indices)
    if not indices or indices[0] is None or indices[0].dtype != "b8" or any(i is not None for i in indices[1:]):
        return None
    size = 1
    for e in a.values.shape:
        size *= e
    if size != 1:
        return None
    mask = indices[0]
    mask = c.view(mask, mask.shape + (1,) * (a.x.rank - mask.rank))
    value = a.values if isinstance(a.values, Immediate) else c.view(a.values, ())
    if a.accumulate:
        value = c.pointwise("add", a.x, value, dtype=c.dtype)
    return c.result("where", mask, value, a.x)


@op("aten.scatter.src", "aten.scatter.value")
def scatter(c, a):
    src = a.get("src", a.get("value"))
    src = 0 if src is None else src
    if isinstance(src, Value):
        src = crop(c, c.cast(src, a.x.dtype), a.index.shape)
    return c.result("scatter", c.tensor(a.x), a.index, src, dim=c.dim(a.dim, a.x.rank))


def crop(c, src, shape):
    """scatter reads only the part of src that index covers."""
    for dim, extent in enumerate(shape):
        src = c.slice(src, dim, 0, extent)
    return src


@op("aten.scatter_add")
def scatter_add(c, a):
    return c.result("scatter_add", c.tensor(a.x), a.index, crop(c, c.tensor(a.src), a.index.shape), dim=c.dim(a.dim, a.x.rank))


@op("aten.scatter_reduce.two", "aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_reduce(c, a):
    if a.reduce not in ("sum", "add") or not a.get("include_self", True):
        c.fail(f'scatter with reduce="{a.reduce}" cannot be captured; only a sum that includes the destination can')
    src = a.get("src", a.get("value"))
    if not isinstance(src, Value):
        src = c.full(a.index.shape, 0 if src is None else getattr(src, "value", src), a.x.dtype)
    return c.result("scatter_add", c.tensor(a.x), a.index, crop(c, c.tensor(src), a.index.shape), dim=c.dim(a.dim, a.x.rank))


@op("aten.one_hot")
def one_hot(c, a):
    classes = c.shape[-1]
    numbers = c.emit("arange", [], [("i64", (classes,))], start=0.0, end=float(classes), step=1.0)
    x = c.view(a.x, a.x.shape + (1,))
    return c.cast(c.pointwise("eq", x, numbers, dtype="b8"), "i64")


@op("aten.bucketize.Tensor")
def bucketize(c, a):
    """The number of boundaries below (or, with right=True, not above) each element."""
    x, edges = c.view(a.x, a.x.shape + (1,)), a.boundaries
    below = c.pointwise("le" if a.right else "lt", edges, x, dtype="b8")
    count = c.reduce("sum", c.cast(below, "i64"), [below.rank - 1], False)
    return c.cast(count, c.dtype)

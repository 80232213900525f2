"""Reductions, arg-reductions, scans, softmax, sorting."""

import math

from ..ir import FLOATS
from .registry import op


def _reduce(c, name, x, dims, keepdim, **params):
    """Converts first (sum of ints is i64, sum(dtype=...)), then reduces; the result is this node's."""
    x = c.cast(c.tensor(x), c.dtype)
    return c.view(c.reduce(name, x, c.dims(dims, x.rank), keepdim, **params), c.shape)


@op("aten.sum", "aten.mean", "aten.prod", "aten.nansum")
def total(c, a):
    name = str(c.target).split(".")[1]
    x = a.x
    if name == "nansum":
        name = "sum"
        x = c.pointwise("where", c.pointwise("isnan", x, dtype="b8"), 0, x, dtype=x.dtype) if x.dtype in FLOATS else x
    dims = a.get("dim")
    return _reduce(c, name, x, dims, a.get("keepdim", False))


@op("aten.amax", "aten.amin")
def amax(c, a):
    return _reduce(c, str(c.target).split(".")[1], a.x, a.dim, a.keepdim)


@op("aten.max.default", "aten.min.default")
def max_all(c, a):
    return _reduce(c, "amax" if ".max" in str(c.target) else "amin", a.x, None, False)


@op("aten.aminmax")
def aminmax(c, a):
    x = c.tensor(a.x)
    dims = c.dims(a.get("dim"), x.rank)
    return tuple(c.view(c.reduce(name, x, dims, a.keepdim), c.shape) for name in ("amin", "amax"))


@op("aten.max.dim", "aten.min.dim")
def max_dim(c, a):
    if a.x.rank == 0:
        return c.tensor(a.x), c.emit("full", [], [("i64", ())], size=[], value=0.0)
    name = "max_dim" if ".max" in str(c.target) else "min_dim"
    return c.results(name, 2, c.tensor(a.x), dim=c.dim(a.dim, a.x.rank), keepdim=bool(a.keepdim))


@op("aten.argmax", "aten.argmin")
def argmax(c, a):
    x = c.tensor(a.x)
    dim = None if a.dim is None else c.dim(a.dim, x.rank)
    params = {} if dim is None else {"dim": dim}
    return c.result(str(c.target).split(".")[1], x, **params, keepdim=bool(a.keepdim))


@op("aten.any", "aten.all")
def any_all(c, a):
    x = c.tensor(a.x)
    result = c.reduce(str(c.target).split(".")[1], x, c.dims(a.get("dim"), x.rank), a.get("keepdim", False), dtype="b8")
    return c.cast(c.view(result, c.shape), c.dtype)


@op("aten.logsumexp")
def logsumexp(c, a):
    return _reduce(c, "logsumexp", a.x, a.dim, a.keepdim)


@op("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(c, a):
    x = c.tensor(a.x)
    if hasattr(a, "unbiased"):
        correction = 1.0 if a.unbiased else 0.0
    else:
        correction = float(a.get("correction", 1))
    name = str(c.target).split(".")[1]
    dims, keepdim = c.dims(a.get("dim"), x.rank), a.get("keepdim", False)
    spread = c.view(c.reduce(name[:3], x, dims, keepdim, correction=correction), c.shape)
    return (spread, c.view(c.reduce("mean", x, dims, keepdim), c.shape)) if name.endswith("_mean") else spread


@op("aten.linalg_vector_norm")
def vector_norm(c, a):
    return _reduce(c, "vector_norm", a.x, a.get("dim"), a.keepdim, ord=float(a.ord))


@op("aten.norm")
def norm(c, a):
    order = a.get("p", 2)
    return _reduce(c, "vector_norm", a.x, a.get("dim"), a.get("keepdim", False), ord=float(order))


@op("aten.count_nonzero")
def count_nonzero(c, a):
    truth = c.cast(c.pointwise("ne", c.tensor(a.x), 0, dtype="b8"), "i64")
    return c.view(c.reduce("sum", truth, c.dims(a.get("dim"), a.x.rank), False), c.shape)


# Scans and rows ---------------------------------------------------------------------------------------------------------
@op("aten.cumsum", "aten.cumprod", "aten.logcumsumexp")
def scan(c, a):
    x = c.cast(c.tensor(a.x), c.dtype)
    return c.result(str(c.target).split(".")[1], x, dim=c.dim(a.dim, x.rank))


@op("aten.cummax", "aten.cummin")
def cummax(c, a):
    return c.results(str(c.target).split(".")[1], 2, c.tensor(a.x), dim=c.dim(a.dim, a.x.rank))


@op("aten.softmax", "aten._softmax", "aten.special_softmax")
def softmax(c, a):
    x = c.cast(c.tensor(a.x), c.dtype)
    return c.result("softmax", x, dim=c.dim(a.dim, x.rank))


@op("aten.log_softmax", "aten._log_softmax", "aten.special_log_softmax")
def log_softmax(c, a):
    x = c.cast(c.tensor(a.x), c.dtype)
    return c.result("log_softmax", x, dim=c.dim(a.dim, x.rank))


@op("aten._safe_softmax")
def safe_softmax(c, a):
    """Rows that are all -inf give zeros."""
    x = c.cast(c.tensor(a.x), c.dtype)
    dim = c.dim(a.dim, x.rank)
    nothing = c.pointwise("eq", x, -math.inf, dtype="b8")
    nothing = c.reduce("all", nothing, [dim], True, dtype="b8")
    return c.result("where", nothing, 0.0, c.emit("softmax", [x], [(x.dtype, x.shape)], dim=dim))


# Sorting -----------------------------------------------------------------------------------------------------------------
@op("aten.topk")
def topk(c, a):
    return c.results("topk", 2, c.tensor(a.x), k=int(a.k), dim=c.dim(a.dim, a.x.rank), largest=bool(a.largest), sorted=True)


@op("aten.sort")
def sort(c, a):
    return c.results("sort", 2, c.tensor(a.x), dim=c.dim(a.dim, a.x.rank), descending=bool(a.descending))


def _sorted(c, x, dim, descending):
    return c.emit("sort", [x], [(x.dtype, x.shape), ("i64", x.shape)], dim=dim, descending=bool(descending))


@op("aten.argsort")
def argsort(c, a):
    return _sorted(c, c.tensor(a.x), c.dim(a.dim, a.x.rank), a.descending)[1]


@op("aten.msort")
def msort(c, a):
    return _sorted(c, c.tensor(a.x), 0, False)[0]


@op("aten.kthvalue")
def kthvalue(c, a):
    dim = c.dim(a.dim, a.x.rank)
    values, indices = _sorted(c, c.tensor(a.x), dim, False)
    return tuple(c.view(c.select(v, dim, int(a.k) - 1), c.shape) for v in (values, indices))

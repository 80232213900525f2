"""Random nodes of movement, reductions, scans, indexing and sorting, over their whole attribute space. SAMPLERS[op](s) adds one or more nodes
of that op to s.program and gives back the handles to look at."""

import math

import torch

from interp_source import INTS, indices, sampler


# Movement --------------------------------------------------------------------------------------------------------------------
def any_type(s, **kw):
    return s.x(dtype=s.pick(torch.float64, torch.float64, torch.int64, torch.bool), **kw)


@sampler("view")
def view(s, name):
    x = any_type(s)
    n, size = x.t.numel(), []
    if n == 0:
        return s.op(name, x, size=s.pick([0], [0, 3], [2, 0, 1]))
    while n > 1 and len(size) < 5 and s.maybe(0.8):
        divisor = s.random.choice([d for d in range(1, n + 1) if n % d == 0])
        size.append(divisor)
        n //= divisor
    return s.op(name, x, size=size + [n] if n > 1 or s.maybe() else size)


@sampler("permute")
def permute(s, name):
    x = any_type(s)
    return s.op(name, x, dims=s.random.sample(range(x.t.dim()), x.t.dim()))


@sampler("expand")
def expand(s, name):
    shape = s.shape(0, 4)
    return s.op(name, any_type(s, shape=s.broadcastable(shape)), size=shape)


@sampler("slice")
def slice_(s, name):
    x = any_type(s, low=1)
    d = s.dim(x)
    start = s.int(0, x.t.shape[d])
    return s.op(name, x, dim=d, start=start, end=s.int(start, x.t.shape[d]), step=s.int(1, 3))


@sampler("select")
def select(s, name):
    x = any_type(s, low=1)
    d = s.random.choice([i for i, e in enumerate(x.t.shape) if e] or [-1])
    return s.op(name, x, dim=d, index=s.int(0, x.t.shape[d] - 1)) if d >= 0 else ()


@sampler("cat")
def cat(s, name):
    x = any_type(s, low=1)
    d = s.dim(x)
    parts = [x]
    for _ in range(s.int(0, 3)):
        shape = list(x.t.shape)
        shape[d] = s.int(0, 3)
        parts.append(s.x(shape=shape, dtype=x.t.dtype))
    s.random.shuffle(parts)
    return s.op(name, parts, dim=d)


@sampler("pad")
def pad(s, name):
    mode = s.pick("constant", "constant", "reflect", "replicate", "circular")
    if mode == "constant":
        x = any_type(s, low=1)
        amounts = []
        for i in range(s.int(0, x.t.dim())):
            e = x.t.shape[-1 - i]
            before = s.int(-min(1, e), 2)
            amounts += [before, s.int(-(min(1, e + min(before, 0))), 2)]
        return s.op(name, x, pad=amounts, value=s.pick(0.0, 1.0) if x.t.dtype != torch.float64 else s.pick(0.0, -2.5, math.inf))
    n = s.int(1, 3)
    x = s.fresh([s.int(1, 3), s.int(1, 3)] + [s.int(1 if mode != "reflect" else 3, 5) for _ in range(n)])
    most = [x.t.shape[-1 - i] - (mode == "reflect") if mode != "replicate" else 4 for i in range(n)]
    return s.op(name, x, pad=[s.int(0, min(most[i // 2], 3)) for i in range(2 * n)], mode=mode)


@sampler("flip")
def flip(s, name):
    x = any_type(s)
    return s.op(name, x, dims=s.dims(x))


@sampler("roll")
def roll(s, name):
    x = any_type(s, low=1)
    dims = s.dims(x) or [0]
    if s.maybe(0.2):
        dims = dims + [dims[0]]  # shifts of one dim add up
    return s.op(name, x, shifts=[s.int(-7, 7) for _ in dims], dims=dims)


@sampler("repeat")
def repeat(s, name):
    x = any_type(s, high=3)
    return s.op(name, x, repeats=[s.int(1 if not s.empty else 0, 3) for _ in range(x.t.dim() + s.int(0, 1))])


@sampler("unfold")
def unfold(s, name):
    x = any_type(s, low=1)
    d = s.random.choice([i for i, e in enumerate(x.t.shape) if e] or [-1])
    return s.op(name, x, dim=d, size=s.int(1, x.t.shape[d]), step=s.int(1, 3)) if d >= 0 else ()


@sampler("tril", "triu")
def triangle(s, name):
    return s.op(name, any_type(s, low=2), diagonal=s.int(-4, 4))


@sampler("diagonal")
def diagonal(s, name):
    x = any_type(s, low=2)
    d1, d2 = s.random.sample(range(x.t.dim()), 2)
    return s.op(name, x, offset=s.int(-3, 3), dim1=d1, dim2=d2)


@sampler("slice_scatter")
def slice_scatter(s, name):
    x = any_type(s, low=1)
    d = s.dim(x)
    start = s.int(0, x.t.shape[d])
    end, step = s.int(start, x.t.shape[d]), s.int(1, 3)
    shape = list(x.t.shape)
    shape[d] = len(range(start, end, step))
    return s.op(name, x, s.x(shape=shape, dtype=x.t.dtype), dim=d, start=start, end=end, step=step)


@sampler("select_scatter")
def select_scatter(s, name):
    x = any_type(s, low=1)
    d = s.random.choice([i for i, e in enumerate(x.t.shape) if e] or [-1])
    shape = list(x.t.shape)
    return s.op(name, x, s.x(shape=shape[:d] + shape[d + 1:], dtype=x.t.dtype), dim=d, index=s.int(0, shape[d] - 1)) if d >= 0 else ()


# Reductions, scans, rows -------------------------------------------------------------------------------------------------------
@sampler("sum", "mean", "prod", "amax", "amin", "var", "std", "any", "all", "logsumexp", "vector_norm")
def reduction(s, name):
    ints = {"sum": INTS + [torch.bool], "prod": INTS, "amax": INTS + [torch.bool], "amin": INTS + [torch.bool], "any": [torch.bool, torch.int64],
            "all": [torch.bool, torch.int64]}.get(name)
    x = s.x(dtype=s.pick(*ints) if ints and s.maybe(0.3) else torch.float64, domain=s.pick("normal", "normal", "ties"))
    dims = s.dims(x)
    if name in ("amax", "amin") and x.t.numel() == 0:
        return ()
    params = {"dims": dims, "keepdim": s.maybe()}
    if name in ("var", "std"):
        params["correction"] = s.pick(1.0, 0.0, 2.0, 0.5)
    if name == "vector_norm":
        params["ord"] = s.pick(2.0, 1.0, 0.0, math.inf, -math.inf, 3.0, 0.5, -1.0, -2.0) if x.t.numel() else 2.0
    return s.op(name, x, **params)


@sampler("argmax", "argmin")
def arg_reduction(s, name):
    x = s.x(dtype=s.pick(torch.float64, torch.float64, *INTS), domain=s.pick("normal", "ties"))
    if x.t.numel() == 0:
        return ()
    return s.op(name, x, dim=None if s.maybe(0.4) else s.dim(x), keepdim=s.maybe())


@sampler("max_dim", "min_dim")
def dim_reduction(s, name):
    x = s.x(low=1, dtype=s.pick(torch.float64, torch.float64, torch.int64), domain=s.pick("normal", "ties"))
    return s.op(name, x, dim=s.dim(x), keepdim=s.maybe()) if x.t.numel() else ()


@sampler("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
def scan(s, name):
    float_only = name == "logcumsumexp"
    x = s.x(dtype=torch.float64 if float_only else s.pick(torch.float64, torch.float64, torch.int64, torch.int32, torch.bool), domain=s.pick("normal", "ties"))
    return s.op(name, x, dim=s.dim(x))


@sampler("softmax", "log_softmax")
def softmax(s, name):
    x = s.x()
    return s.op(name, x, dim=s.dim(x))


# Indexing, sorting ---------------------------------------------------------------------------------------------------------------
@sampler("gather", "scatter", "scatter_add")
def along_dim(s, name):
    x = any_type(s, low=1) if name == "gather" else s.x(low=1, dtype=s.pick(torch.float64, torch.int64))
    if x.t.numel() == 0:
        return ()
    d = s.dim(x)
    shape = [s.int(1, e) if i != d else s.int(1, 7) for i, e in enumerate(x.t.shape)]
    if name == "scatter":  # PyTorch leaves open who wins where two elements meet
        shape[d] = s.int(1, x.t.shape[d])
        index = s.program.leaf(torch.rand([*shape[:d], x.t.shape[d], *shape[d + 1:]], generator=s.torch).argsort(d).narrow(d, 0, shape[d]).contiguous())
        number = s.pick(0.5, -math.inf) if x.t.is_floating_point() else 3
        src = number if s.maybe(0.3) else s.x(shape=[e + s.int(0, 1) for e in shape], dtype=x.t.dtype)
        return s.op(name, x, index, src, dim=d)
    index = indices(s, shape, x.t.shape[d])
    if name == "gather":
        return s.op(name, x, index, dim=d)
    return s.op(name, x, index, s.x(shape=[e + s.int(0, 1) for e in shape], dtype=x.t.dtype), dim=d)


@sampler("index_select")
def index_select(s, name):
    x = any_type(s, low=1)
    d = s.dim(x)
    if not x.t.shape[d]:
        return ()
    return s.op(name, x, indices(s, [] if s.maybe(0.2) else [s.int(0, 7)], x.t.shape[d]), dim=d)


@sampler("embedding")
def embedding(s, name):
    rows = s.int(1, 7)
    return s.op(name, s.x(shape=[rows, s.int(1, 5)]), indices(s, s.shape(0, 3), rows))


def index_list(s, x, distinct=False):
    """Index tensors for some dims of x (None for others), broadcasting together."""
    rank = x.t.dim()
    length = s.int(1, rank)
    given = [i for i in range(length) if s.maybe(0.6)] or [s.int(0, length - 1)]
    joint = [s.int(1, 4)] if distinct else s.shape(0, 2, 4)
    out = []
    for i in range(max(given) + 1):
        if i not in given:
            out.append(None)
            continue
        e = x.t.shape[i]
        if distinct:
            t = torch.randperm(e, generator=s.torch)[:1] if i != given[0] else torch.randperm(e, generator=s.torch)[:joint[0]]
            out.append(s.program.leaf(t - e if s.maybe(0.2) else t))
        else:
            out.append(indices(s, s.broadcastable(joint), e, low=-e))
    return out


@sampler("index")
def index(s, name):
    x = any_type(s, low=1)
    return s.op(name, x, index_list(s, x)) if x.t.numel() else ()


@sampler("index_put")
def index_put(s, name):
    x = s.x(low=1, dtype=s.pick(torch.float64, torch.int64))
    if not x.t.numel():
        return ()
    accumulate = s.maybe()
    at = index_list(s, x, distinct=not accumulate)
    shape = list(torch.ops.aten.index(x.t, [None if i is None else i.t for i in at]).shape)
    return s.op(name, x, at, s.x(shape=s.broadcastable(shape), dtype=x.t.dtype), accumulate=accumulate)


@sampler("topk", "sort")
def sort(s, name):
    dtype = s.pick(torch.float64, torch.float64, torch.int64)
    # PyTorch's topk picks any of several equal elements.
    if name == "topk":
        x = s.x(low=1, dtype=torch.float64)
        if x.t.unique().numel() != x.t.numel():
            x = s.fresh([s.int(1, 5), s.int(1, 8)], domain="wide")
        if x.t.unique().numel() != x.t.numel():
            return ()
        d = s.dim(x)
        return s.op(name, x, k=s.int(0, x.t.shape[d]), dim=d, largest=s.maybe())
    x = s.x(dtype=dtype, domain=s.pick("normal", "ties"))
    return s.op(name, x, dim=s.dim(x), descending=s.maybe())

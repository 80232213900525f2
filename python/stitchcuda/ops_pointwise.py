"""Handlers of pointwise ops, reductions, scans and losses."""

from __future__ import annotations

import math

import torch

from . import ir
from .lower import handles

SAME = """neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh
atanh erf erfc sigmoid log_sigmoid relu silu mish hardswish hardsigmoid floor ceil trunc frac logical_not bitwise_not isnan isinf""".split()
ALIASES = {"absolute": "abs", "negative": "neg", "sgn": "sign", "fix": "trunc", "arctan": "atan", "special_expit": "sigmoid", "special_erf": "erf"}


def unary(ir_name):
    def lower(c, node, args, kwargs):
        dtype, shape = c.meta(node)
        return c.g.add(ir_name, [_operand(c, args[0], dtype)], (dtype, shape))

    return lower


def _operand(c, a, dtype):
    """A number that an op needs as a tensor, e.g. exp of a folded constant."""
    return a if isinstance(a, ir.Value) else c.tensor(a, dtype)


for _name in SAME:
    handles(_name)(unary(_name))
for _alias, _name in ALIASES.items():
    handles(_alias)(unary(_name))

BINARY = """maximum minimum fmod remainder atan2 hypot logaddexp xlogy eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and
bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift mul pow""".split()
BINARY_ALIASES = {"multiply": "mul", "greater": "gt", "less": "lt", "less_equal": "le", "greater_equal": "ge", "not_equal": "ne",
                  "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__lshift__": "bitwise_left_shift",
                  "__rshift__": "bitwise_right_shift", "arctan2": "atan2"}


def binary(ir_name):
    def lower(c, node, args, kwargs):
        dtype, shape = c.meta(node)
        a, b = args[0], args[1]
        if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            a = c.tensor(a, dtype)
        return c.g.add(ir_name, [a, b], (dtype, shape))

    return lower


for _name in BINARY:
    handles(_name)(binary(_name))
for _alias, _name in BINARY_ALIASES.items():
    handles(_alias)(binary(_name))


@handles("add", "sub", "subtract")
def add(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    op = "add" if "add" in str(node.target) else "sub"
    a, b = args[0], args[1]
    if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
        a = c.tensor(a, dtype)
    return c.g.add(op, [a, b], (dtype, shape), **({} if alpha == 1 else {"alpha": float(alpha)}))


@handles("rsub")
def rsub(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    x = args[0] if alpha == 1 else c.pointwise("mul", args[0], alpha, dtype=dtype)
    return c.g.add("sub", [args[1], x], (dtype, shape))


@handles("div", "divide", "true_divide", "floor_divide")
def div(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    mode = kwargs.get("rounding_mode")
    if "floor_divide" in str(node.target):
        mode = "floor"
    a, b = args[0], args[1]
    if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
        a = c.tensor(a, dtype)
    return c.g.add("div", [a, b], (dtype, shape), **({} if mode is None else {"rounding_mode": mode}))


@handles("square")
def square(c, node, args, kwargs):
    return c.g.add("pow", [args[0], 2], c.meta(node))


@handles("gelu")
def gelu(c, node, args, kwargs):
    return c.g.add("gelu", [args[0]], c.meta(node), approximate=kwargs.get("approximate", args[1] if len(args) > 1 else "none"))


def _arg(args, kwargs, index, name, default):
    return args[index] if len(args) > index else kwargs.get(name, default)


@handles("elu", "selu", "celu")
def elu(c, node, args, kwargs):
    kind = str(node.target).split(".")[1]
    alpha, scale, input_scale = 1.0, 1.0, 1.0
    if kind == "selu":
        alpha, scale = 1.6732632423543772, 1.0507009873554805
    elif kind == "celu":
        alpha = float(_arg(args, kwargs, 1, "alpha", 1.0))
        input_scale = 1.0 / alpha
    else:
        alpha = float(_arg(args, kwargs, 1, "alpha", 1.0))
        scale, input_scale = float(_arg(args, kwargs, 2, "scale", 1.0)), float(_arg(args, kwargs, 3, "input_scale", 1.0))
    return c.g.add("elu", [args[0]], c.meta(node), alpha=alpha, scale=scale, input_scale=input_scale)


@handles("leaky_relu")
def leaky_relu(c, node, args, kwargs):
    return c.g.add("leaky_relu", [args[0]], c.meta(node), negative_slope=float(_arg(args, kwargs, 1, "negative_slope", 0.01)))


@handles("softplus")
def softplus(c, node, args, kwargs):
    return c.g.add("softplus", [args[0]], c.meta(node), beta=float(_arg(args, kwargs, 1, "beta", 1)), threshold=float(_arg(args, kwargs, 2, "threshold", 20)))


@handles("hardshrink", "softshrink")
def shrink(c, node, args, kwargs):
    return c.g.add(str(node.target).split(".")[1], [args[0]], c.meta(node), lambd=float(_arg(args, kwargs, 1, "lambd", 0.5)))


@handles("threshold")
def threshold(c, node, args, kwargs):
    return c.g.add("threshold", [args[0]], c.meta(node), threshold=float(args[1]), value=float(args[2]))


@handles("hardtanh", "relu6", "clamp", "clip", "clamp_min", "clamp_max")
def clamp(c, node, args, kwargs):
    kind = str(node.target).split(".")[1]
    low, high = None, None
    if kind == "hardtanh":
        low, high = _arg(args, kwargs, 1, "min_val", -1.0), _arg(args, kwargs, 2, "max_val", 1.0)
    elif kind == "relu6":
        low, high = 0.0, 6.0
    elif kind == "clamp_min":
        low = args[1]
    elif kind == "clamp_max":
        high = args[1]
    else:
        low, high = _arg(args, kwargs, 1, "min", None), _arg(args, kwargs, 2, "max", None)
    return c.g.add("clamp", [args[0], low, high], c.meta(node))


@handles("round")
def round_(c, node, args, kwargs):
    return c.g.add("round", [args[0]], c.meta(node), decimals=int(kwargs.get("decimals", 0)))


@handles("nan_to_num")
def nan_to_num(c, node, args, kwargs):
    named = {k: _arg(args, kwargs, i, k, None) for i, k in enumerate(("nan", "posinf", "neginf"), 1)}
    return c.g.add("nan_to_num", [args[0]], c.meta(node), **{k: float(v) for k, v in named.items() if v is not None})


@handles("where")
def where(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    return c.g.add("where", args[:3], (dtype, shape))


@handles("masked_fill")
def masked_fill(c, node, args, kwargs):
    x, mask, value = args[:3]
    return c.g.add("where", [mask, value, x], c.meta(node))


@handles("lerp")
def lerp(c, node, args, kwargs):
    return c.g.add("lerp", args[:3], c.meta(node))


@handles("addcmul", "addcdiv")
def addcmul(c, node, args, kwargs):
    return c.g.add(str(node.target).split(".")[1], args[:3], c.meta(node), value=float(kwargs.get("value", 1)))


@handles("prelu", "_prelu_kernel")
def prelu(c, node, args, kwargs):
    x, w = args[0], args[1]
    if w.rank == 1 and x.rank > 1 and w.shape[0] > 1:
        w = c.view(w, [1, w.shape[0]] + [1] * (x.rank - 2))
    elif w.rank != x.rank:
        w = c.view(w, [1] * x.rank)
    positive = c.pointwise("gt", x, 0.0, dtype=torch.bool)
    return c.pointwise("where", positive, x, c.pointwise("mul", w, x, dtype=x.dtype), dtype=x.dtype)


@handles("glu")
def glu(c, node, args, kwargs):
    x = args[0]
    dim = _arg(args, kwargs, 1, "dim", -1) % x.rank
    half = x.shape[dim] // 2
    return c.pointwise("mul", c.slice(x, dim, 0, half), c.pointwise("sigmoid", c.slice(x, dim, half, 2 * half)))


# --- reductions ------------------------------------------------------------------------------------------------------
def _dims(args, kwargs, index=1):
    d = _arg(args, kwargs, index, "dim", None)
    if d is None:
        return None
    d = [d] if isinstance(d, int) else list(d)
    return d or None


@handles("sum", "mean", "amax", "amin", "logsumexp", "nansum")
def reduction(c, node, args, kwargs):
    op = str(node.target).split(".")[1]
    dtype, _ = c.meta(node)
    x = args[0]
    if op == "sum" and not x.dtype.is_floating_point and dtype != x.dtype:
        x = c.cast(x, dtype)
    if kwargs.get("dtype") is not None and x.dtype != kwargs["dtype"]:
        x = c.cast(x, kwargs["dtype"])
    return c.reduce(op, x, _dims(args, kwargs), _arg(args, kwargs, 2, "keepdim", False), dtype=dtype)


@handles("prod")
def prod(c, node, args, kwargs):
    dtype, _ = c.meta(node)
    x = c.cast(args[0], dtype)
    dims = _dims(args, kwargs) if "dim_int" in str(node.target) else None
    return c.reduce("prod", x, dims, _arg(args, kwargs, 2, "keepdim", False), dtype=dtype)


@handles("max", "min")
def max_min(c, node, args, kwargs):
    kind = str(node.target).split(".")[1]
    if str(node.target).endswith(".other"):
        return binary(kind + "imum")(c, node, args, kwargs)
    if str(node.target).endswith(".dim"):
        x = args[0]
        types = c.meta(node)
        if x.rank == 0:
            return x, c.g.add("full", types=types[1], size=[], value=0.0)
        return c.g.add(kind + "_dim", [x], types, dim=args[1] % x.rank, keepdim=bool(_arg(args, kwargs, 2, "keepdim", False)))
    return c.reduce("a" + kind, args[0], None)


@handles("argmax", "argmin")
def argmax(c, node, args, kwargs):
    dim = _arg(args, kwargs, 1, "dim", None)
    named = {} if dim is None else {"dim": dim % max(1, args[0].rank)}
    return c.g.add(str(node.target).split(".")[1], [args[0]], c.meta(node), keepdim=bool(_arg(args, kwargs, 2, "keepdim", False)), **named)


@handles("any", "all")
def any_all(c, node, args, kwargs):
    return c.reduce(str(node.target).split(".")[1], args[0], _dims(args, kwargs), _arg(args, kwargs, 2, "keepdim", False), dtype=torch.bool)


@handles("var", "std")
def var(c, node, args, kwargs):
    op = str(node.target).split(".")[1]
    correction = kwargs.get("correction", 1)
    dims = _dims(args, kwargs)
    keepdim = kwargs.get("keepdim", False)
    if not str(node.target).endswith("correction"):  # (x, unbiased) or (x, dim, unbiased, keepdim)
        if isinstance(args[1] if len(args) > 1 else None, bool):
            dims, correction = None, int(args[1])
        else:
            correction = int(_arg(args, kwargs, 2, "unbiased", True))
            keepdim = _arg(args, kwargs, 3, "keepdim", False)
    return c.reduce(op, args[0], dims, keepdim, correction=float(1 if correction is None else correction))


@handles("linalg_vector_norm", "norm")
def vector_norm(c, node, args, kwargs):
    dtype, _ = c.meta(node)
    order = _arg(args, kwargs, 1, "ord", 2)
    order = 2 if order is None else order
    if order == "fro":
        order = 2
    x = c.cast(args[0], dtype)
    return c.reduce("vector_norm", x, _dims(args, kwargs, 2), _arg(args, kwargs, 3, "keepdim", False), ord=float(order))


@handles("cumsum", "cumprod", "logcumsumexp")
def cumulative(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    x = c.cast(args[0], dtype)
    return c.g.add(str(node.target).split(".")[1], [x], (dtype, shape), dim=args[1] % max(1, x.rank))


@handles("cummax", "cummin")
def cummax(c, node, args, kwargs):
    return c.g.add(str(node.target).split(".")[1], [args[0]], c.meta(node), dim=args[1] % max(1, args[0].rank))


@handles("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(c, node, args, kwargs):
    dtype, shape = c.meta(node)
    x = c.cast(args[0], dtype) if kwargs.get("dtype") is not None else args[0]
    op = "log_softmax" if "log" in str(node.target) else "softmax"
    return c.g.add(op, [x], (dtype, shape), dim=args[1] % max(1, x.rank))


# --- losses ----------------------------------------------------------------------------------------------------------
REDUCE = {0: None, 1: "mean", 2: "sum"}


def reduced_loss(c, x, reduction):
    kind = REDUCE[int(reduction)]
    return x if kind is None else c.reduce(kind, x, None)


@handles("mse_loss")
def mse_loss(c, node, args, kwargs):
    d = c.pointwise("sub", args[0], args[1], dtype=c.meta(node)[0])
    return reduced_loss(c, c.pointwise("mul", d, d), _arg(args, kwargs, 2, "reduction", 1))


@handles("l1_loss")
def l1_loss(c, node, args, kwargs):
    d = c.pointwise("sub", args[0], args[1])
    return reduced_loss(c, c.pointwise("abs", d), _arg(args, kwargs, 2, "reduction", 1))


@handles("smooth_l1_loss", "huber_loss")
def smooth_l1(c, node, args, kwargs):
    huber = "huber" in str(node.target)
    beta = float(_arg(args, kwargs, 3, "delta" if huber else "beta", 1.0))
    d = c.pointwise("abs", c.pointwise("sub", args[0], args[1]))
    if beta == 0:
        return reduced_loss(c, d, _arg(args, kwargs, 2, "reduction", 1))
    squared = c.pointwise("mul", c.pointwise("mul", d, d), 0.5 if huber else 0.5 / beta)
    linear = c.pointwise("sub", d, 0.5 * beta)
    if huber:
        linear = c.pointwise("mul", linear, beta)
    small = c.pointwise("lt" if not huber else "le", d, beta, dtype=torch.bool)
    return reduced_loss(c, c.pointwise("where", small, squared, linear, dtype=d.dtype), _arg(args, kwargs, 2, "reduction", 1))


@handles("kl_div")
def kl_div(c, node, args, kwargs):
    x, target = args[0], args[1]
    reduction = _arg(args, kwargs, 2, "reduction", 1)
    if kwargs.get("log_target", False):
        loss = c.pointwise("mul", c.pointwise("exp", target), c.pointwise("sub", target, x))
    else:
        loss = c.pointwise("sub", c.pointwise("xlogy", target, target), c.pointwise("mul", target, x))
    return reduced_loss(c, loss, reduction)


@handles("binary_cross_entropy_with_logits")
def bce_logits(c, node, args, kwargs):
    x, target = args[0], args[1]
    weight, pos_weight = _arg(args, kwargs, 2, "weight", None), _arg(args, kwargs, 3, "pos_weight", None)
    log_sigmoid = c.pointwise("log_sigmoid", x)
    rest = c.pointwise("mul", c.pointwise("sub", 1.0, target), x)
    if pos_weight is not None:
        log_sigmoid = c.pointwise("mul", c.pointwise("add", c.pointwise("mul", c.pointwise("sub", pos_weight, 1.0), target), 1.0), log_sigmoid)
    loss = c.pointwise("sub", rest, log_sigmoid)
    if weight is not None:
        loss = c.pointwise("mul", loss, weight)
    return reduced_loss(c, loss, _arg(args, kwargs, 4, "reduction", 1))


def _class_view(c, w, rank):
    return c.view(w, [1, w.shape[0]] + [1] * (rank - 2)) if rank >= 2 else w


def nll(c, logp, target, weight, reduction, ignore_index):
    """Negative log likelihood with class indices: gather, mask, weighted mean, as torch.nn.functional.nll_loss."""
    dim = 1 if logp.rank > 1 else 0
    t = c.unsqueeze(target, dim)
    keep = c.pointwise("ne", t, int(ignore_index), dtype=torch.bool)
    safe = c.pointwise("where", keep, t, 0, dtype=t.dtype)
    picked = c.pointwise("neg", c.g.add("gather", [logp, safe], (logp.dtype, safe.shape), dim=dim))
    if weight is not None:
        w = c.g.add("gather", [c.expand(_class_view(c, weight, logp.rank), logp.shape), safe], (logp.dtype, safe.shape), dim=dim)
    else:
        w = None
    loss = picked if w is None else c.pointwise("mul", picked, w)
    loss = c.pointwise("where", keep, loss, 0.0, dtype=logp.dtype)
    kind = REDUCE[int(reduction)]
    if kind is None:
        return c.view(loss, [e for i, e in enumerate(loss.shape) if i != dim])
    total = c.reduce("sum", loss, None)
    if kind == "sum":
        return total
    count = c.cast(keep, logp.dtype) if w is None else c.pointwise("where", keep, w, 0.0, dtype=logp.dtype)
    return c.pointwise("div", total, c.reduce("sum", count, None))


@handles("cross_entropy_loss")
def cross_entropy(c, node, args, kwargs):
    x, target = args[0], args[1]
    weight = _arg(args, kwargs, 2, "weight", None)
    reduction = _arg(args, kwargs, 3, "reduction", 1)
    ignore = _arg(args, kwargs, 4, "ignore_index", -100)
    smoothing = float(_arg(args, kwargs, 5, "label_smoothing", 0.0))
    dim = 1 if x.rank > 1 else 0
    logp = c.g.add("log_softmax", [x], (x.dtype, x.shape), dim=dim)
    if target.dtype.is_floating_point:  # class probabilities
        if smoothing:
            target = c.pointwise("add", c.pointwise("mul", target, 1 - smoothing), smoothing / x.shape[dim])
        loss = c.pointwise("mul", logp, target)
        if weight is not None:
            loss = c.pointwise("mul", loss, _class_view(c, weight, x.rank))
        loss = c.pointwise("neg", c.reduce("sum", loss, [dim]))
        kind = REDUCE[int(reduction)]
        if kind == "mean":
            batch = math.prod(e for i, e in enumerate(x.shape) if i != dim)
            return c.pointwise("div", c.reduce("sum", loss, None), float(batch))
        return loss if kind is None else c.reduce("sum", loss, None)
    base = nll(c, logp, target, weight, reduction, ignore)
    if smoothing == 0:
        return base
    # (1 - e) nll + e / C * sum over classes, normalised like the nll term.
    t = c.unsqueeze(target, dim)
    keep = c.pointwise("ne", t, int(ignore), dtype=torch.bool)
    spread = logp if weight is None else c.pointwise("mul", logp, _class_view(c, weight, x.rank))
    smooth = c.pointwise("neg", c.reduce("sum", spread, [dim], True))
    smooth = c.pointwise("where", keep, smooth, 0.0, dtype=logp.dtype)
    kind = REDUCE[int(reduction)]
    if kind is None:
        smooth = c.view(smooth, base.shape)
    else:
        smooth = c.reduce("sum", smooth, None)
        if kind == "mean":
            if weight is None:
                count = c.cast(keep, logp.dtype)
            else:
                safe = c.pointwise("where", keep, t, 0, dtype=t.dtype)
                w = c.g.add("gather", [c.expand(_class_view(c, weight, x.rank), x.shape), safe], (logp.dtype, safe.shape), dim=dim)
                count = c.pointwise("where", keep, w, 0.0, dtype=logp.dtype)
            smooth = c.pointwise("div", smooth, c.reduce("sum", count, None))
    return c.pointwise("add", c.pointwise("mul", base, 1 - smoothing), c.pointwise("mul", smooth, smoothing / x.shape[dim]))


@handles("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(c, node, args, kwargs):
    return nll(c, args[0], args[1], _arg(args, kwargs, 2, "weight", None), _arg(args, kwargs, 3, "reduction", 1), _arg(args, kwargs, 4, "ignore_index", -100))

"""Random nodes of sources and pointwise ops, over their whole attribute space. SAMPLERS[op](s) adds one or more nodes
of that op to s.program and gives back the handles to look at."""

import math

import torch

from interp_source import INTS, sampler


# Sources ---------------------------------------------------------------------------------------------------------------------
@sampler("full")
def full(s, name):
    dtype = s.pick(torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
    return s.op(name, size=s.shape(), value=float(s.int(0, 1)) if dtype == torch.bool else float(s.int(0, 9)) if dtype != torch.float64 else s.pick(1.5, math.inf, -math.inf, math.nan, 1e300), dtype=dtype)


@sampler("arange")
def arange(s, name):
    if s.maybe():
        step = s.pick(-3, -1, 1, 2, 7)
        start = s.int(-5, 5)
        return s.op(name, start=float(start), end=float(start + s.int(0, 12) * (1 if step > 0 else -1)), step=float(step), dtype=s.pick(torch.int64, torch.int32))
    start, step = s.number(), s.pick(0.1, 0.25, -0.7, 1.0 / 3)
    return s.op(name, start=start, end=start + step * s.number(0.1, 20), step=step, dtype=torch.float64)


@sampler("eye")
def eye(s, name):
    return s.op(name, rows=s.int(0, 5), cols=s.int(0, 5), dtype=s.pick(torch.float64, torch.int64, torch.bool))


# Pointwise -------------------------------------------------------------------------------------------------------------------
DOMAINS = {"log": "positive", "log2": "positive", "log10": "positive", "log1p": "positive", "sqrt": "positive", "rsqrt": "positive",
           "asin": "unit", "acos": "unit", "atanh": "unit", "acosh": "positive", "floor": "wide", "ceil": "wide", "trunc": "wide",
           "frac": "wide", "relu": "normal", "hardswish": "wide", "hardsigmoid": "wide", "sinh": "normal", "erfc": "wide", "tanh": "wide"}


@sampler(*"exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
         "sigmoid log_sigmoid silu mish hardswish hardsigmoid floor ceil trunc frac".split())
def unary(s, name):
    return s.op(name, s.x(domain=DOMAINS.get(name, "normal") if s.maybe(0.8) else "normal"))


@sampler("neg", "abs", "sign", "relu")
def unary_any(s, name):
    return s.op(name, s.x(dtype=s.pick(torch.float64, *INTS[:4] if name != "relu" else (torch.float64,))))


@sampler("logical_not", "isnan", "isinf")
def unary_test(s, name):
    return s.op(name, s.x(dtype=s.pick(torch.float64, torch.int64, torch.bool) if name == "logical_not" else torch.float64))


@sampler("bitwise_not")
def bitwise_not(s, name):
    return s.op(name, s.x(dtype=s.pick(torch.bool, *INTS)))


@sampler("gelu")
def gelu(s, name):
    return s.op(name, s.x(domain=s.pick("normal", "wide")), approximate=s.pick("none", "tanh"))


@sampler("elu")
def elu(s, name):
    return s.op(name, s.x(), **({"alpha": s.number(0.1, 2), "scale": s.number(0.5, 2), "input_scale": s.number(0.5, 2)} if s.maybe() else {}))


@sampler("leaky_relu")
def leaky_relu(s, name):
    return s.op(name, s.x(), negative_slope=s.pick(0.01, 0.2, 0.0, -0.5, 1.5))


@sampler("softplus")
def softplus(s, name):
    return s.op(name, s.x(domain="wide"), beta=s.pick(1.0, 0.5, 3.0), threshold=s.pick(20.0, 2.0))


@sampler("hardshrink", "softshrink")
def shrink(s, name):
    return s.op(name, s.x(domain=s.pick("normal", "ties")), lambd=s.pick(0.5, 1.0, 0.0))


@sampler("threshold")
def threshold(s, name):
    return s.op(name, s.x(domain=s.pick("normal", "ties")), threshold=s.pick(0.5, 0.0, -1.0), value=s.number())


@sampler("round")
def round_(s, name):
    x = s.x(domain=s.pick("wide", "ties"))
    return s.op(name, x, **({"decimals": s.int(-2, 4)} if s.maybe() else {}))


@sampler("nan_to_num")
def nan_to_num(s, name):
    given = {k: v for k, v in {"nan": 0.25, "posinf": 3.0, "neginf": -4.5}.items() if s.maybe() or s.program.float_name != "f64"}
    return s.op(name, s.x(), **given)


@sampler("cast")
def cast(s, name):
    x = s.x(dtype=s.pick(torch.float64, torch.bool, *INTS))
    if x.t.is_floating_point() and not torch.isfinite(x.t).all():
        return s.op(name, x, dtype=torch.bool)  # to an integer it is undefined
    return s.op(name, x, dtype=s.pick(torch.float64, torch.bool, *(INTS if not x.t.is_floating_point() else INTS[:4])))


def pair(s, dtype=torch.float64, domain="normal", numbers=True, other=None, other_domain=None):
    """Two operands that broadcast together; one of them may be a number."""
    x = s.x(dtype=dtype, domain=domain)
    if numbers and s.maybe(0.25):
        number = s.pick(2, 3, 0, -1) if dtype != torch.float64 and dtype != torch.bool else s.pick(True, False) if dtype == torch.bool else s.pick(0.5, -1.25, 2.0, 3, 0)
        return x, number
    shape = list(x.t.shape)
    y = s.x(shape=s.broadcastable(shape), dtype=other or dtype, domain=other_domain or domain)
    return (y, x) if s.maybe(0.3) and not other and not other_domain else (x, y)


@sampler("add", "sub", "mul")
def arithmetic(s, name):
    dtype = s.pick(torch.float64, torch.float64, torch.float64, *INTS)
    x, y = pair(s, dtype)
    if name != "mul" and s.maybe(0.3):
        return s.op(name, x, y, alpha=float(s.pick(2, -1, 3)) if dtype != torch.float64 else s.number())
    if dtype == torch.float64 and s.maybe(0.2):
        x, y = s.x(), s.fresh([], dtype=torch.int64 if name == "sub" else s.pick(torch.int64, torch.bool))
    elif dtype == torch.float64 and isinstance(y, float) and s.maybe():
        x, y = y, x
    return s.op(name, x, y)


@sampler("div")
def div(s, name):
    mode = s.pick(None, "floor", "trunc")
    if mode and s.maybe(0.4):
        dtype = s.pick(*INTS)
        x = s.x(dtype=dtype)
        y = s.fresh(s.broadcastable(list(x.t.shape)), dtype=dtype, low=1, high=5)
        if dtype != torch.uint8 and s.maybe():
            (y,) = s.op("neg", y)
        return s.op(name, x, y, rounding_mode=mode)
    if mode is None and s.maybe(0.2):
        x = s.x(dtype=torch.int64)
        return s.op("div", x, s.fresh([], dtype=torch.float64, domain="positive"))
    x, y = pair(s, domain="wide" if mode else "normal", other_domain=s.pick("positive", "ties"), numbers=False)
    return s.op(name, x, y, **({"rounding_mode": mode} if mode else {}))


@sampler("pow")
def power(s, name):
    kind = s.pick("integer", "number", "tensor", "base")
    if kind == "integer":
        dtype = s.pick(*INTS)
        x = s.x(dtype=dtype)
        y = s.fresh(list(x.t.shape), dtype=dtype, low=0 if dtype == torch.uint8 or s.maybe() else -3, high=4) if s.maybe() else s.int(0, 4)
        return s.op(name, x, y)
    if kind == "number":
        return s.op(name, s.x(), s.pick(2, 3.0, 0.5, -0.5, -1.0, 1.7, 0.0, 2.0))
    if kind == "base":
        return s.op(name, s.pick(2.0, 0.3), s.x())
    return s.op(name, *pair(s, domain="positive", numbers=False))


@sampler("maximum", "minimum")
def extremes(s, name):
    return s.op(name, *pair(s, s.pick(torch.float64, torch.float64, torch.bool, *INTS)))


@sampler("fmod", "remainder")
def modulo(s, name):
    if s.maybe(0.4):
        dtype = s.pick(*INTS)
        x = s.x(dtype=dtype)
        y = s.fresh(s.broadcastable(list(x.t.shape)), dtype=dtype, low=1, high=5)
        if dtype != torch.uint8 and s.maybe():
            (y,) = s.op("neg", y)
        return s.op(name, x, y)
    return s.op(name, *pair(s, domain="wide", other_domain="normal", numbers=False)) if s.maybe() else s.op(name, s.x(domain="wide"), s.pick(1.5, -0.75))


@sampler("atan2", "hypot", "logaddexp")
def binary_float(s, name):
    return s.op(name, *pair(s, numbers=False))


@sampler("xlogy")
def xlogy(s, name):
    return s.op(name, *pair(s, domain=s.pick("normal", "ties"), other_domain=s.pick("positive", "ties"), numbers=False))


@sampler("eq", "ne", "lt", "le", "gt", "ge")
def compare(s, name):
    dtype = s.pick(torch.float64, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
    x, y = pair(s, dtype, domain=s.pick("ties", "normal"))
    if dtype == torch.int64 and s.maybe(0.3):
        y = 0.5
    return s.op(name, x, y)


@sampler("logical_and", "logical_or", "logical_xor")
def logical(s, name):
    dtype = s.pick(torch.float64, torch.int64, torch.bool)
    return s.op(name, *pair(s, dtype, domain="ties", numbers=False))


@sampler("bitwise_and", "bitwise_or", "bitwise_xor")
def bitwise(s, name):
    return s.op(name, *pair(s, s.pick(torch.bool, *INTS)))


@sampler("bitwise_left_shift", "bitwise_right_shift")
def shift(s, name):
    dtype = s.pick(*INTS)
    x = s.x(dtype=dtype)
    return s.op(name, x, s.fresh(s.broadcastable(list(x.t.shape)), dtype=dtype, low=0, high=s.pick(3, 9, 70)))


@sampler("where")
def where(s, name):
    dtype = s.pick(torch.float64, torch.float64, torch.int64, torch.bool)
    x = s.x(dtype=dtype)
    shape = list(x.t.shape)
    condition = s.x(shape=s.broadcastable(shape), dtype=torch.bool)
    y = s.x(shape=s.broadcastable(shape), dtype=dtype)
    if dtype == torch.float64 and s.maybe(0.3):
        y = s.pick(-math.inf, 0.0, 1.5)
    return s.op(name, condition, *((y, x) if s.maybe() else (x, y)))


@sampler("clamp")
def clamp(s, name):
    if s.maybe(0.3):
        dtype = s.pick(torch.int64, torch.int32, torch.int8)
        return s.op(name, s.x(dtype=dtype), *s.pick((-1, 2), (None, 1), (0, None), (3, -3)))
    x = s.x(domain=s.pick("normal", "wide"))
    shape = list(x.t.shape)
    if s.maybe(0.4):
        low, high = s.x(shape=s.broadcastable(shape)), s.x(shape=s.broadcastable(shape))
        return s.op(name, x, *s.pick((low, high), (None, high), (low, None)))
    return s.op(name, x, *s.pick((-1.0, 1.0), (0.0, None), (None, 0.5), (0, 6), (1.0, -1.0), (0.0, math.inf)))


@sampler("lerp")
def lerp(s, name):
    x = s.x()
    end = s.x(shape=s.broadcastable(list(x.t.shape)))
    return s.op(name, x, end, s.pick(0.0, 1.0, 0.3, 0.8, -2.0)) if s.maybe() else s.op(name, x, end, s.x(shape=s.broadcastable(list(x.t.shape))))


@sampler("addcmul", "addcdiv")
def addc(s, name):
    if name == "addcmul" and s.maybe(0.2):
        x = s.x(dtype=torch.int64)
        shape = list(x.t.shape)
        return s.op(name, x, s.x(shape=shape, dtype=torch.int64), s.x(shape=shape, dtype=torch.int64), value=float(s.int(-3, 3)))
    x = s.x()
    shape = list(x.t.shape)
    b = s.x(shape=s.broadcastable(shape), domain="positive" if name == "addcdiv" else "normal")
    return s.op(name, x, s.x(shape=s.broadcastable(shape)), b, **({"value": s.number()} if s.maybe() else {}))

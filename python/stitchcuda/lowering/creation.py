"""Operators that make tensors: fills, ranges, random numbers, dropout."""

import math

from ..ir import Immediate, Value
from .registry import op


def _fill(value):
    return lambda c, a: c.full(c.shape, value, c.dtype)


for _name, _value in {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
                      # The contents of `empty` are never read by a correct program.
                      "empty": 0, "empty_like": 0, "new_empty": 0, "empty_permuted": 0, "empty_strided": 0, "new_empty_strided": 0,
                      "zero": 0}.items():
    op(f"aten.{_name}")(_fill(_value))


@op("aten.full", "aten.full_like", "aten.new_full")
def full(c, a):
    return c.full(c.shape, a.fill_value, c.dtype)


@op("aten.fill.Scalar")
def fill(c, a):
    return c.full(c.shape, a.value, c.dtype)


@op("aten.fill.Tensor")
def fill_tensor(c, a):
    return c.expand(c.cast(a.value, c.dtype), c.shape)


@op("aten.scalar_tensor")
def scalar_tensor(c, a):
    return Immediate(c.full((), a.s, c.dtype).value, c.dtype)


@op("aten.arange")
def arange(c, a):
    start, end, step = a.get("start", 0), a.end, a.get("step", 1)
    return c.emit("arange", [], [(c.dtype, c.shape)], start=float(start), end=float(end), step=float(step))


@op("aten.linspace")
def linspace(c, a):
    """As PyTorch: counted from the start in the first half and from the end in the second."""
    n = c.shape[0]
    start, end = _number(c, a.start), _number(c, a.end)
    if n == 1:
        return c.full(c.shape, start, c.dtype)
    step = (end - start) / (n - 1) if n else 0.0
    steps = c.emit("arange", [], [(c.dtype, (n,))], start=0.0, end=float(n), step=1.0)
    up = c.pointwise("add", c.pointwise("mul", steps, step), start)
    back = c.pointwise("sub", float(n - 1), steps, dtype=c.dtype)
    down = c.pointwise("sub", end, c.pointwise("mul", back, step), dtype=c.dtype)
    return c.pointwise("where", c.pointwise("lt", steps, n // 2, dtype="b8"), up, down, dtype=c.dtype)


def _number(c, x):
    if isinstance(x, Immediate):
        return float(x.value)
    if not isinstance(x, (int, float)):
        c.fail("linspace with tensors as bounds depends on data and cannot be captured")
    return float(x)


@op("aten.eye")
def eye(c, a):
    return c.emit("eye", [], [(c.dtype, c.shape)], rows=c.shape[0], cols=c.shape[1])


# Random numbers: the draw becomes an input of the program, so that the program itself is a function ------------------------
def draw(c, kind, a, b):
    return c.lowering.random_input(kind, float(a), float(b), c.dtype, c.shape)


@op("aten.rand", "aten.rand_like")
def rand(c, a):
    return draw(c, "uniform", 0, 1)


@op("aten.uniform")
def uniform(c, a):
    return draw(c, "uniform", a.get("from", 0.0), a.to)


@op("aten.randn", "aten.randn_like")
def randn(c, a):
    return draw(c, "normal", 0, 1)


@op("aten.normal_functional", "aten.normal.float_float")
def normal(c, a):
    return draw(c, "normal", a.mean, a.std)


@op("aten.randint", "aten.randint_like")
def randint(c, a):
    return draw(c, "randint", a.get("low", 0), a.high)


@op("aten.bernoulli")
def bernoulli(c, a):
    """1 with probability p, from a uniform u: u >= 1 - p."""
    probability = a.get("p", a.x)
    if c.in_dropout:
        refuse_dropout(c, "")
    limit = c.pointwise("sub", 1.0, probability) if isinstance(probability, Value) else 1.0 - float(getattr(probability, "value", probability))
    return c.cast(c.pointwise("ge", draw_uniform(c), limit, dtype="b8"), c.dtype)


def draw_uniform(c):
    return c.lowering.random_input("uniform", 0.0, 1.0, "f32", c.shape)


# Dropout -------------------------------------------------------------------------------------------------------------------
def refuse_dropout(c, which):
    if not c.lowering.allow_dropout_input:
        c.fail(f"Dropout{which} is active because the module is in training mode; call .eval() on it before capture "
               "(or pass --train-dropout input to make the random mask an input of the program)")


def keep_mask(c, x, p, shape=None):
    refuse_dropout(c, f" with p={p:g}")
    u = c.lowering.random_input("uniform", 0.0, 1.0, "f32", x.shape if shape is None else shape)
    return c.pointwise("ge", u, float(p), dtype="b8")


def drop(c, x, p, mask):
    if p >= 1:
        return c.pointwise("mul", x, 0.0)
    return c.pointwise("mul", c.pointwise("mul", x, mask, dtype=x.dtype), 1.0 / (1.0 - p))


@op("aten.dropout")
def dropout(c, a):
    if not a.train or a.p == 0:
        return a.input
    return drop(c, a.input, a.p, keep_mask(c, a.input, a.p))


@op("aten.native_dropout")
def native_dropout(c, a):
    if a.train is False or a.p == 0:
        return a.input, c.full(a.input.shape, True, "b8")
    mask = keep_mask(c, a.input, a.p)
    return drop(c, a.input, a.p, mask), mask


@op("aten.feature_dropout")
def feature_dropout(c, a):
    """Whole channels at a time."""
    if not a.train or a.p == 0:
        return a.input
    shape = a.input.shape[:2] + (1,) * (a.input.rank - 2)
    return drop(c, a.input, a.p, keep_mask(c, a.input, a.p, shape))


@op("aten.alpha_dropout", "aten.feature_alpha_dropout")
def alpha_dropout(c, a):
    if not a.train or a.p == 0:
        return a.input
    shape = a.input.shape[:2] + (1,) * (a.input.rank - 2) if "feature" in str(c.target) else a.input.shape
    mask = keep_mask(c, a.input, a.p, shape)
    alpha = 1.7580993408473766
    scale = 1.0 / math.sqrt((alpha * alpha * a.p + 1) * (1 - a.p))
    kept = c.pointwise("where", mask, a.input, -alpha, dtype=a.input.dtype)
    return c.pointwise("add", c.pointwise("mul", kept, scale), alpha * a.p * scale)

"""Pointwise operators: arithmetic, comparisons, activations, casts."""

import math

import torch

from ..ir import FLOATS, Immediate, TORCH_DTYPES, Value
from .context import dtype_name
from .registry import op

# ATen packet -> IR op with the same single operand.
UNARY = {
    "neg": "neg", "negative": "neg", "abs": "abs", "absolute": "abs", "sign": "sign", "sgn": "sign", "exp": "exp", "exp2": "exp2",
    "special_exp2": "exp2", "expm1": "expm1", "special_expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p", "special_log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "reciprocal", "sin": "sin",
    "cos": "cos", "tan": "tan", "asin": "asin", "arcsin": "asin", "acos": "acos", "arccos": "acos", "atan": "atan",
    "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "arcsinh": "asinh", "acosh": "acosh",
    "arccosh": "acosh", "atanh": "atanh", "arctanh": "atanh", "erf": "erf", "special_erf": "erf", "erfc": "erfc",
    "special_erfc": "erfc", "sigmoid": "sigmoid", "special_expit": "sigmoid", "log_sigmoid": "log_sigmoid", "relu": "relu",
    "silu": "silu", "mish": "mish", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid", "logical_not": "logical_not",
    "bitwise_not": "bitwise_not", "isnan": "isnan", "isinf": "isinf", "frac": "frac",
}

# ATen packet -> IR op with the same two operands (self/other under whatever names).
BINARY = {
    "mul": "mul", "multiply": "mul", "maximum": "maximum", "minimum": "minimum", "fmod": "fmod", "remainder": "remainder",
    "atan2": "atan2", "arctan2": "atan2", "hypot": "hypot", "logaddexp": "logaddexp", "xlogy": "xlogy", "special_xlogy": "xlogy",
    "pow": "pow", "float_power": "pow", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "bitwise_left_shift": "bitwise_left_shift",
    "__lshift__": "bitwise_left_shift", "bitwise_right_shift": "bitwise_right_shift", "__rshift__": "bitwise_right_shift",
}

# These compute in the promoted dtype of their operands and give bool.
COMPARISONS = {
    "eq": "eq", "ne": "ne", "not_equal": "ne", "lt": "lt", "less": "lt", "le": "le", "less_equal": "le", "gt": "gt",
    "greater": "gt", "ge": "ge", "greater_equal": "ge", "logical_and": "logical_and", "logical_or": "logical_or",
    "logical_xor": "logical_xor",
}


def _first_two(a):
    operands = list(a.__dict__.items())
    named = dict(operands)
    # Binary schemas call their operands self/other, self/exponent, input/other ...; self was renamed to x and moved to the end.
    if "x" in named:
        first = named.pop("x")
        second = next(v for v in named.values())
        return first, second
    values = list(named.values())
    return values[0], values[1]


def _unary(ir_name):
    return lambda c, a: c.result(ir_name, a.x)


def _binary(ir_name):
    def lower(c, a):
        x, y = _first_two(a)
        return c.result(ir_name, x, y)
    return lower


def promoted(x, y):
    """torch.result_type of two operands (IR dtype name): 0-d tensors and numbers count less than tensors with dims."""
    def stand_in(v):
        return torch.empty((1,) * v.rank, dtype=TORCH_DTYPES[v.dtype], device="meta") if isinstance(v, (Value, Immediate)) else v
    return dtype_name(torch.result_type(stand_in(x), stand_in(y)))


def _comparison(ir_name):
    def lower(c, a):
        x, y = _first_two(a)
        if not ir_name.startswith("logical") and isinstance(x, Value) and isinstance(y, Value) and x.dtype != y.dtype:
            dtype = promoted(x, y)
            x, y = c.cast(x, dtype), c.cast(y, dtype)
        return c.result(ir_name, x, y)
    return lower


for _name, _ir in UNARY.items():
    op(f"aten.{_name}")(_unary(_ir))
for _name, _ir in BINARY.items():
    op(f"aten.{_name}")(_binary(_ir))
for _name, _ir in COMPARISONS.items():
    op(f"aten.{_name}")(_comparison(_ir))


@op("aten.max.other", "aten.min.other")
def max_other(c, a):
    return c.result("maximum" if "max" in str(c.target) else "minimum", a.x, a.other)


@op("aten.fmax", "aten.fmin")
def fmax(c, a):
    """As maximum/minimum, but a NaN loses to a number."""
    name = "maximum" if "fmax" in str(c.target) else "minimum"
    both = c.result(name, a.x, a.other)
    if c.dtype not in FLOATS:
        return both
    return c.result("where", c.pointwise("isnan", a.x, dtype="b8"), a.other,
                    c.result("where", c.pointwise("isnan", a.other, dtype="b8"), a.x, both))


@op("aten.add", "aten.sub", "aten.subtract")
def add(c, a):
    params = {} if a.get("alpha", 1) == 1 else {"alpha": float(a.alpha)}
    return c.result("add" if "add" in str(c.target) else "sub", a.x, a.other, **params)


@op("aten.rsub")
def rsub(c, a):
    params = {} if a.get("alpha", 1) == 1 else {"alpha": float(a.alpha)}
    return c.result("sub", a.other, a.x, **params)


@op("aten.div", "aten.divide", "aten.true_divide")
def div(c, a):
    mode = a.get("rounding_mode")
    return c.result("div", a.x, a.other, **({"rounding_mode": mode} if mode else {}))


@op("aten.floor_divide")
def floor_divide(c, a):
    return c.result("div", a.x, a.other, rounding_mode="floor")


@op("aten.square")
def square(c, a):
    return c.result("pow", a.x, 2)


@op("aten.positive", "aten.conj_physical", "aten._conj", "aten.real", "aten.resolve_conj", "aten.resolve_neg")
def identity(c, a):
    return a.x


@op("aten.floor", "aten.ceil", "aten.round", "aten.trunc", "aten.fix")
def rounding(c, a):
    if c.dtype not in FLOATS:
        return a.x
    name = str(c.target).split(".")[1].replace("fix", "trunc")
    decimals = a.get("decimals", 0)
    return c.result(name, a.x, **({"decimals": int(decimals)} if decimals else {}))


@op("aten.log_sigmoid_forward")
def log_sigmoid_forward(c, a):
    return c.result("log_sigmoid", a.x), c.lowering.missing("the buffer of log_sigmoid_forward")


@op("aten.gelu")
def gelu(c, a):
    return c.result("gelu", a.x, approximate=a.get("approximate", "none"))


@op("aten.elu")
def elu(c, a):
    return c.result("elu", a.x, alpha=float(a.alpha), scale=float(a.scale), input_scale=float(a.input_scale))


@op("aten.selu")
def selu(c, a):
    return c.result("elu", a.x, alpha=1.6732632423543772848170429916717, scale=1.0507009873554804934193349852946)


@op("aten.celu")
def celu(c, a):
    return c.result("elu", a.x, alpha=float(a.alpha), input_scale=1.0 / float(a.alpha))


@op("aten.leaky_relu")
def leaky_relu(c, a):
    return c.result("leaky_relu", a.x, negative_slope=float(a.negative_slope))


@op("aten.rrelu")
def rrelu(c, a):
    if a.training:
        c.fail("rrelu in training mode draws random slopes and cannot be captured; call .eval() on the module")
    return c.result("leaky_relu", a.x, negative_slope=(float(a.lower) + float(a.upper)) / 2)


@op("aten.softplus")
def softplus(c, a):
    return c.result("softplus", a.x, beta=float(a.beta), threshold=float(a.threshold))


@op("aten.hardshrink", "aten.softshrink")
def shrink(c, a):
    return c.result(str(c.target).split(".")[1], a.x, lambd=float(a.lambd))


@op("aten.threshold")
def threshold(c, a):
    return c.result("threshold", a.x, threshold=float(a.threshold), value=float(a.value))


@op("aten.prelu")
def prelu(c, a):
    weight = a.weight
    if weight.rank == 1 and a.x.rank > 1 and weight.shape[0] != 1:
        weight = c.view(weight, (1, weight.shape[0]) + (1,) * (a.x.rank - 2))
    elif weight.rank == 1 and weight.shape[0] == 1:
        weight = c.view(weight, (1,) * a.x.rank)
    return c.result("where", c.pointwise("gt", a.x, 0, dtype="b8"), a.x, c.pointwise("mul", a.x, weight))


@op("aten._prelu_kernel")
def prelu_kernel(c, a):
    return c.result("where", c.pointwise("gt", a.x, 0, dtype="b8"), a.x, c.pointwise("mul", a.x, a.weight))


@op("aten.relu6")
def relu6(c, a):
    return c.result("clamp", a.x, 0, 6)


@op("aten.hardtanh")
def hardtanh(c, a):
    return c.result("clamp", a.x, a.min_val, a.max_val)


@op("aten.clamp", "aten.clip")
def clamp(c, a):
    return c.result("clamp", a.x, a.get("min"), a.get("max"))


@op("aten.clamp_min")
def clamp_min(c, a):
    return c.result("clamp", a.x, a.min, None)


@op("aten.clamp_max")
def clamp_max(c, a):
    return c.result("clamp", a.x, None, a.max)


@op("aten.glu")
def glu(c, a):
    dim = c.dim(a.dim, a.x.rank)
    half = a.x.shape[dim] // 2
    gate = c.slice(a.x, dim, half, 2 * half)
    return c.result("mul", c.slice(a.x, dim, 0, half), c.pointwise("sigmoid", gate))


@op("aten.nan_to_num")
def nan_to_num(c, a):
    if c.dtype not in FLOATS:
        return a.x
    given = {k: float(getattr(a, k)) for k in ("nan", "posinf", "neginf") if getattr(a, k) is not None}
    return c.result("nan_to_num", a.x, **given)


@op("aten.isfinite")
def isfinite(c, a):
    if a.x.dtype not in FLOATS:
        return c.full(c.shape, True, "b8")
    return c.result("lt", c.pointwise("abs", a.x), math.inf)


@op("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(c, a):
    return c.result("where", boolean(c, a.condition), a.x, a.other)


@op("aten.masked_fill")
def masked_fill(c, a):
    return c.result("where", boolean(c, a.mask), a.value, a.x)


def boolean(c, x):
    return x if x.dtype == "b8" else c.cast(x, "b8")


@op("aten.lerp")
def lerp(c, a):
    return c.result("lerp", a.x, a.end, a.weight)


@op("aten.addcmul", "aten.addcdiv")
def addcmul(c, a):
    return c.result(str(c.target).split(".")[1], a.x, a.tensor1, a.tensor2, value=float(a.value))


@op("aten.copysign")
def copysign(c, a):
    """The sign bit decides; of a zero it is seen through 1/y."""
    magnitude = c.pointwise("abs", a.x, dtype=c.dtype)
    other = a.other
    if not isinstance(other, (Value, Immediate)):
        return c.result("mul", magnitude, math.copysign(1.0, other))
    negative = c.pointwise("lt", c.pointwise("div", 1.0, c.cast(other, c.dtype) if other.dtype not in FLOATS else other,
                                             dtype=c.dtype), 0, dtype="b8")
    negative = c.pointwise("logical_or", negative, c.pointwise("lt", other, 0, dtype="b8"), dtype="b8")
    return c.result("where", negative, c.pointwise("neg", magnitude), magnitude)


# Casts and copies ------------------------------------------------------------------------------------------------------
@op("aten._to_copy", "aten.to", "aten.type_as", "aten._autocast_to_reduced_precision", "aten._autocast_to_full_precision",
    "prims.convert_element_type")
def to(c, a):
    x = a.get("x", a.get("a"))
    return c.cast(x, c.dtype)


@op("aten.clone", "aten.contiguous", "aten.detach", "aten.alias", "aten.lift", "aten.lift_fresh", "aten.lift_fresh_copy",
    "aten.detach_copy", "aten.alias_copy")
def same(c, a):
    return a.x


@op("aten.copy")
def copy(c, a):
    return c.expand(c.cast(a.src, c.dtype), c.shape)

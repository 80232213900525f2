"""Random nodes of every op, over its whole attribute space. SAMPLERS[op](s) adds one or more nodes of that op to s.program and
gives back the handles to look at. `s.x(...)` draws operands: fresh tensors, or earlier results of the program."""

import math
import random

import torch

from interp_programs import Program

SAMPLERS = {}
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5]


def sampler(*names):
    def register(function):
        for name in names:
            SAMPLERS[name] = lambda s, n=name: function(s, n)
        return function
    return register


class Source:
    """reuse: how often an operand is an earlier result. special: how often a fresh float tensor has NaN, infinities and ties.
    empty: how often an extent is 0."""

    def __init__(self, seed, float_name="f64", reuse=0.0, special=0.0, empty=0.0):
        self.random, self.torch = random.Random(seed), torch.Generator().manual_seed(seed)
        self.program = Program(float_name)
        self.reuse, self.special, self.empty = reuse, special, empty
        self.pool = []

    # Random choices
    def maybe(self, p=0.5):
        return self.random.random() < p

    def pick(self, *options):
        return self.random.choice(options)

    def int(self, low, high):
        return self.random.randint(low, high)

    def number(self, low=-2.0, high=2.0):
        return self.random.uniform(low, high)

    def extent(self, most=6):
        return 0 if self.maybe(self.empty) else self.pick(1, *range(1, most + 1))

    def shape(self, low=0, high=4, most=5):
        return [self.extent(most) for _ in range(self.int(low, high))]

    # Tensors
    def fresh(self, shape, dtype=torch.float64, domain="normal", low=-4, high=4):
        def draw(f):
            return f(shape, generator=self.torch, dtype=torch.float64)
        if dtype == torch.bool:
            t = draw(torch.rand) < 0.5
        elif not dtype.is_floating_point:
            t = torch.randint(max(low, 0) if dtype == torch.uint8 else low, high + 1, shape, generator=self.torch).to(dtype)
        elif domain == "normal":
            t = draw(torch.randn)
            if self.maybe(self.special) and t.numel():
                flat = t.flatten()
                for _ in range(self.int(1, 4)):
                    flat[self.int(0, flat.numel() - 1)] = self.pick(*SPECIAL)
                t = flat.reshape(t.shape)
        elif domain == "finite":
            t = draw(torch.randn)
        elif domain == "wide":
            t = draw(torch.randn) * 8
        elif domain == "positive":
            t = draw(torch.rand) * 3 + 0.1
        elif domain == "unit":
            t = draw(torch.rand) * 1.9 - 0.95
        elif domain == "ties":  # few distinct values
            t = torch.round(draw(torch.randn) * 2) / 2
        else:
            raise AssertionError(domain)
        return self.program.leaf(t, weight=self.maybe(0.3))

    def x(self, shape=None, low=0, high=4, dtype=torch.float64, domain="normal", most=5):
        """A tensor of this shape, or of a rank in [low, high]."""
        if self.maybe(self.reuse):
            same = [h for h in self.pool if h.t.dtype == dtype]
            fits = [h for h in same if (list(h.t.shape) == list(shape) if shape is not None else low <= h.t.dim() <= high)]
            if fits and self.maybe(0.8):
                return self.into_domain(self.random.choice(fits), domain)
            if same:
                return self.into_domain(self.reshaped(self.random.choice(same), self.shape(low, high, most) if shape is None else list(shape)), domain)
        return self.fresh(self.shape(low, high, most) if shape is None else list(shape), dtype, domain)

    def reshaped(self, x, shape):
        """Elements of x, picked at random, in another shape."""
        n = x.t.numel()
        if n == 0:
            return self.fresh(shape, x.t.dtype)
        if math.prod(shape) != n:
            (flat,) = self.op("view", x, size=[n])
            (x,) = self.op("index_select", flat, indices(self, [math.prod(shape)], n), dim=0)
        return self.op("view", x, size=shape)[0]

    def into_domain(self, x, domain):
        if domain == "wide":
            return self.op("mul", x, 4.0)[0]
        if domain == "positive":
            return self.op("add", self.op("abs", x)[0], 0.1)[0]
        if domain == "unit":
            return self.op("mul", self.op("tanh", x)[0], 0.95)[0]
        if domain == "ties":
            return self.op("div", self.op("round", self.op("mul", x, 2.0)[0])[0], 2.0)[0]
        return x

    def broadcastable(self, shape):
        """A shape that broadcasts to `shape`."""
        cut = self.int(0, len(shape)) if self.maybe(0.4) else 0
        return [1 if self.maybe(0.25) else e for e in shape[cut:]]

    def dim(self, x):
        return self.int(0, max(x.t.dim() - 1, 0))

    def dims(self, x):
        n = x.t.dim()
        return sorted(self.random.sample(range(n), self.int(0, n))) if n else []

    def op(self, name, *operands, **params):
        out = self.program.op(name, *operands, **params)
        out = out if isinstance(out, tuple) else (out,)
        for h in out:
            # Values that no later result should depend on: they would drown everything else.
            if h.t.numel() and h.t.numel() < 5000 and torch.isfinite(h.t.double()).all() and h.t.double().abs().max() < 50:
                self.pool.append(h)
        return out


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


# Norms, contractions, convolutions ---------------------------------------------------------------------------------------------
def optional(s, shape, domain="finite"):
    return s.fresh(shape, domain=domain) if s.maybe(0.7) else None


@sampler("layer_norm", "rms_norm")
def last_dims_norm(s, name):
    x = s.x(low=1)
    shape = list(x.t.shape)[s.int(0, x.t.dim() - 1):]
    weight = optional(s, shape)
    if name == "rms_norm":
        return s.op(name, x, weight, normalized_shape=shape, eps=s.pick(1e-5, 1e-8, 0.1))
    return s.op(name, x, weight, optional(s, shape), normalized_shape=shape, eps=s.pick(1e-5, 1e-3))


@sampler("group_norm")
def group_norm(s, name):
    groups, per = s.int(1, 3), s.int(1, 3)
    c = groups * per
    x = s.x(shape=[s.int(1, 3), c] + [s.int(1, 4) for _ in range(s.int(1, 3))])
    return s.op(name, x, optional(s, [c]), optional(s, [c]), num_groups=groups, eps=s.pick(1e-5, 1e-2))


@sampler("batch_norm")
def batch_norm(s, name):
    c = s.int(1, 4)
    x = s.x(shape=[s.int(2, 4), c] + [s.int(1, 4) for _ in range(s.int(0, 3))])
    training = s.maybe(0.6)
    tracked = not training or s.maybe()
    mean, var = (s.fresh([c], domain="finite"), s.fresh([c], domain="positive")) if tracked else (None, None)
    return s.op(name, x, optional(s, [c]), optional(s, [c]), mean, var, training=training, momentum=s.pick(0.1, 0.9), eps=s.pick(1e-5, 1e-3))


@sampler("matmul")
def matmul(s, name):
    m, n, k = s.extent(9), s.extent(9), s.extent(9)
    batch = s.shape(0, 2, 3)
    a = [k] if s.maybe(0.2) else s.broadcastable(batch) + [m, k]
    b = [k] if s.maybe(0.2) else s.broadcastable(batch) + [k, n]
    dtype = torch.int64 if s.maybe(0.1) else torch.float64
    return s.op(name, s.x(shape=a, dtype=dtype), s.x(shape=b, dtype=dtype))


@sampler("linear")
def linear(s, name):
    x = s.x(low=1)
    out = s.int(1, 9)
    return s.op(name, x, s.fresh([out, x.t.shape[-1]]), optional(s, [out]))


@sampler("addmm", "baddbmm")
def addmm(s, name):
    batch = [] if name == "addmm" else [s.extent(3)]
    m, n, k = s.extent(7), s.extent(7), s.extent(7)
    c = s.x(shape=s.broadcastable(batch + [m, n]))
    scales = {"beta": s.pick(0.0, 0.5, 1.0, -2.0), "alpha": s.pick(1.0, 0.25, -1.5)} if s.maybe() else {}
    return s.op(name, c, s.x(shape=batch + [m, k]), s.x(shape=batch + [k, n]), **scales)


EQUATIONS = ["ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "ij->ji", "ij->", "ii->i", "ii->", "i,j->ij", "i,i->", "ijk->ik", "bij,bik->bjk",
             "abc,cd,db->ad", "ab,bc,cd->da", "bn,anm,bm->ba", "ij,kl->ijkl", "iij,j->i", "ab,ab->ab", "abcd->dcba", "ij,j->", "aab,bcc->ac"]


@sampler("einsum")
def einsum(s, name):
    equation = s.pick(*EQUATIONS)
    extents = {letter: s.extent(4) for letter in equation if letter.isalpha()}
    terms = [[extents[x] for x in term] for term in equation.split("->")[0].split(",")]
    if len(terms) > 1 and s.maybe(0.2):  # an extent of 1 is repeated
        terms[0] = [1 if equation[0] == equation[i] and equation.split(",")[0].count(equation[0]) == 1 else e for i, e in enumerate(terms[0])]
    return s.op(name, [s.fresh(shape) for shape in terms], equation=equation)


@sampler("convolution")
def convolution(s, name):
    n, groups = s.int(1, 3), s.pick(1, 1, 2, 3)
    most = {1: 9, 2: 7, 3: 4}[n]
    kernel, stride, dilation = ([s.int(1, high) for _ in range(n)] for high in (3, 3, 2))
    padding = [s.int(0, 2) for _ in range(n)]
    cin, cout = groups * s.int(1, 3), groups * s.int(1, 3)
    transposed = s.maybe(0.4)
    window = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    extents = [s.int(max(1, w - 2 * p), max(most, w)) for w, p in zip(window, padding)]
    output_padding = [0] * n
    if transposed:
        output_padding = [s.int(0, max(a, b) - 1) for a, b in zip(stride, dilation)]
        extents = [s.int(1, most) for _ in range(n)]
        padding = [min(p, ((e - 1) * st + w + o - 1) // 2) for p, e, st, w, o in zip(padding, extents, stride, window, output_padding)]
    weight = [cin, cout // groups] if transposed else [cout, cin // groups]
    return s.op(name, s.x(shape=[s.int(1, 2), cin] + extents), s.fresh(weight + kernel), optional(s, [cout]), stride=stride, padding=padding, dilation=dilation,
                transposed=transposed, output_padding=output_padding, groups=groups)


# Pooling and resampling ----------------------------------------------------------------------------------------------------------
def image(s, n, low=1, most=8, domain="normal", dtype=torch.float64):
    return s.x(shape=[s.int(1, 2), s.int(1, 3)] + [s.int(low, most if n < 3 else 5) for _ in range(n)], domain=domain, dtype=dtype)


@sampler("max_pool", "avg_pool")
def pool(s, name):
    n = s.int(1, 3)
    kernel, stride = ([s.int(1, high) for _ in range(n)] for high in (3, 3))
    dilation = [s.int(1, 2) if name == "max_pool" else 1 for _ in range(n)]
    padding = [s.int(0, k // 2) for k in kernel]
    low = max(d * (k - 1) + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding))
    if name == "avg_pool" and n == 3:
        low = max(kernel)  # PyTorch refuses less in 3d, although padding would make it fit
    x = image(s, n, low=max(low, 1), domain=s.pick("normal", "ties"))
    params = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": s.maybe()}
    if name == "max_pool":
        return s.op(name, x, dilation=dilation, results=s.pick(1, 2), **params)
    if n > 1 and s.maybe(0.3):
        params["divisor_override"] = s.pick(1, 5, -2)
    return s.op(name, x, count_include_pad=s.maybe(), **params)


@sampler("adaptive_avg_pool", "adaptive_max_pool")
def adaptive(s, name):
    n = s.int(1, 3)
    return s.op(name, image(s, n, domain=s.pick("normal", "ties")), output_size=[s.int(1, 9 if n < 3 else 4) for _ in range(n)])


def target(s, x, n):
    """Result extents and the scales text, as torch.nn.functional.interpolate derives them."""
    extents = list(x.t.shape)[2:]
    if s.maybe(0.4):
        return {"size": [s.int(1, 9 if n < 3 else 5) for _ in range(n)]}
    scales = [s.pick(2.0, 0.5, 1.5, 3.0, 0.7, 1.0, 1.3, 2.2) for _ in range(n)]
    size = [int(math.floor(e * f)) for e, f in zip(extents, scales)]
    return {"size": size, "scales": ",".join(map(repr, scales))} if min(size) > 0 else {"size": extents}


@sampler("upsample_nearest")
def nearest(s, name):
    n = s.int(1, 3)
    x = image(s, n)
    return s.op(name, x, **target(s, x, n))


@sampler("upsample_linear", "upsample_bicubic")
def resample(s, name):
    n = s.int(1, 3) if name == "upsample_linear" else 2
    # PyTorch on the CPU multiplies neighbours by a weight of 0, which turns infinity into NaN.
    x = image(s, n, domain="finite")
    return s.op(name, x, align_corners=s.maybe(), **target(s, x, n))


# Indexing, sorting ---------------------------------------------------------------------------------------------------------------
def indices(s, shape, extent, low=0):
    t = torch.randint(low, extent, shape, generator=s.torch) if extent else torch.zeros(shape, dtype=torch.int64)
    return s.program.leaf(t)


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


# Attention, recurrent layers -------------------------------------------------------------------------------------------------------
@sampler("scaled_dot_product_attention")
def attention(s, name):
    length, keys, e, ev = s.int(1, 6), s.int(1, 6), s.int(1, 5), s.int(1, 5)
    batch = [s.int(1, 3) for _ in range(s.int(0, 2))]
    gqa = len(batch) == 2 and s.maybe(0.4)
    q_batch = batch[:-1] + [batch[-1] * s.int(1, 3)] if gqa else batch
    # What becomes of NaN and infinity in a score differs between PyTorch's own kernels.
    q, k, v = (s.x(shape=shape, domain="finite") for shape in (q_batch + [length, e], batch + [keys, e], batch + [keys, ev]))
    params = {"enable_gqa": True} if gqa else {}
    if s.maybe(0.3):
        params["scale"] = s.pick(0.25, 1.0)
    mask = None
    kind = s.pick("none", "causal", "bool", "float", "empty row")
    if kind == "causal":
        params["is_causal"] = True
    elif kind != "none":
        shape = s.broadcastable(q_batch) + [length, keys] if s.maybe(0.7) else [1, keys] if s.maybe() else [length, keys]
        t = torch.rand(shape, generator=s.torch) < 0.7
        if kind == "empty row":
            t[..., s.int(0, t.shape[-2] - 1), :] = False
        if kind != "bool" and s.maybe(0.7):
            t = torch.where(t, torch.randn(shape, generator=s.torch, dtype=torch.float64), -math.inf)
        mask = s.program.leaf(t)
    return s.op(name, q, k, v, mask, **params)


@sampler("lstm", "gru", "rnn")
def recurrent(s, name):
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    layers, two, biases, first = s.int(1, 3), s.maybe(), s.maybe(0.7), s.maybe()
    directions = 2 if two else 1
    steps, batch, inputs, hidden = s.int(1, 5), s.int(1, 3), s.int(1, 4), s.int(1, 4)
    x = s.x(shape=[batch, steps, inputs] if first else [steps, batch, inputs])
    state = [s.x(shape=[layers * directions, batch, hidden]) for _ in range(2 if name == "lstm" else 1)]
    params = []
    for layer in range(layers):
        for _ in range(directions):
            width = inputs if layer == 0 else hidden * directions
            params += [s.fresh([gates * hidden, width]), s.fresh([gates * hidden, hidden])]
            params += [s.fresh([gates * hidden]), s.fresh([gates * hidden])] if biases else []
    extra = {"nonlinearity": s.pick("tanh", "relu")} if name == "rnn" else {}
    return s.op(name, x, *state, params, has_biases=biases, num_layers=layers, bidirectional=two, batch_first=first, **extra)

"""What the samplers draw from: random choices, and operands that are fresh tensors or earlier results of the program."""

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


def indices(s, shape, extent, low=0):
    t = torch.randint(low, extent, shape, generator=s.torch) if extent else torch.zeros(shape, dtype=torch.int64)
    return s.program.leaf(t)


def optional(s, shape, domain="finite"):
    return s.fresh(shape, domain=domain) if s.maybe(0.7) else None

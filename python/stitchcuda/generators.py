"""How tensors were made: watches random fills while user code builds inputs or a module, so that a bundle can say "uniform in
[0, 1)" instead of holding the bytes. Works under fake tensors. What it does not understand gets no generator."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class Made:
    """kind "normal" (mean a, stddev b), "uniform" [a, b), "randint" [a, b), "constant" a; structure: "", "lower", "upper",
    "symmetric" (last two dims) or "rows" (softmax over the last dim)."""

    def __init__(self, kind, a, b, structure=""):
        self.kind, self.a, self.b, self.structure = kind, float(a), float(b), structure

    def json(self, seed):
        out = {"kind": self.kind, "a": self.a, "b": self.b, "seed": seed}
        return {**out, "structure": self.structure} if self.structure else out

    def scaled(self, factor):
        if self.kind == "normal":
            return Made("normal", self.a * factor, self.b * abs(factor), self.structure)
        low, high = sorted((self.a * factor, self.b * factor))
        if self.kind == "constant":
            return Made("constant", self.a * factor, self.b, self.structure)
        return Made("uniform", low, high, self.structure) if self.kind == "uniform" else None

    def shifted(self, amount):
        if self.structure:
            return None
        keep_b = self.kind in ("normal", "constant")
        return Made(self.kind, self.a + amount, self.b if keep_b else self.b + amount)

    def with_structure(self, structure):
        return None if self.structure else Made(self.kind, self.a, self.b, structure)


def _number(v):
    return v if isinstance(v, (int, float)) and not isinstance(v, bool) else None


# Operators that fill their result (or, in place, their first argument). Each gives Made from the schema's arguments.
_FILLS = {
    "rand": lambda a: Made("uniform", 0, 1), "rand_like": lambda a: Made("uniform", 0, 1),
    "randn": lambda a: Made("normal", 0, 1), "randn_like": lambda a: Made("normal", 0, 1),
    "randint": lambda a: Made("randint", a.get("low", 0), a["high"]), "randint_like": lambda a: Made("randint", a.get("low", 0), a["high"]),
    "zeros": lambda a: Made("constant", 0, 0), "zeros_like": lambda a: Made("constant", 0, 0), "new_zeros": lambda a: Made("constant", 0, 0),
    "ones": lambda a: Made("constant", 1, 0), "ones_like": lambda a: Made("constant", 1, 0), "new_ones": lambda a: Made("constant", 1, 0),
    "full": lambda a: Made("constant", a["fill_value"], 0), "full_like": lambda a: Made("constant", a["fill_value"], 0),
    "uniform_": lambda a: Made("uniform", a["from"], a["to"]), "normal_": lambda a: Made("normal", a["mean"], a["std"]),
    "fill_": lambda a: Made("constant", a["value"], 0) if _number(a["value"]) is not None else None,
    "zero_": lambda a: Made("constant", 0, 0),
}


def _mul(made, a):
    factor = _number(a.get("other"))
    return made.scaled(factor) if factor is not None else None


def _div(made, a):
    factor = _number(a.get("other"))
    return made.scaled(1 / factor) if factor and a.get("rounding_mode") is None else None


def _add(made, a, sign=1):
    if isinstance(a.get("other"), torch.Tensor):
        return _plus_transposed(made, a, sign)
    amount = _number(a.get("other"))
    return made.shifted(sign * amount * a.get("alpha", 1)) if amount is not None else None


def _plus_transposed(made, a, sign):
    """A + A.T: symmetric. The sum's distribution is nearer the middle than the uniform one named here."""
    x, y = a["self"], a["other"]
    same = sign == 1 and a.get("alpha", 1) == 1 and x.untyped_storage()._cdata == y.untyped_storage()._cdata
    turned = x.dim() >= 2 and y.shape == x.mT.shape and y.stride() == x.mT.stride()
    doubled = made.scaled(2) if same and turned and made.kind in ("uniform", "normal") else None
    return doubled.with_structure("symmetric") if doubled else None


def _cast(made, a, result):
    if result.dtype == torch.bool:
        # randint(0, 2).bool() is a fair coin; other casts to bool lose the distribution.
        return made if made.kind == "randint" and (made.a, made.b) == (0, 2) or made.kind == "constant" and made.a in (0, 1) else None
    if not result.dtype.is_floating_point and made.kind in ("uniform", "normal"):
        return None
    return made


# Operators on a tensor with known origin, out of place: new storage.
_TRANSFORMS = {
    "mul": _mul, "div": _div, "add": _add, "sub": lambda m, a: _add(m, a, -1), "rsub": lambda m, a: _rsub(m, a), "neg": lambda m, a: m.scaled(-1),
    "clone": lambda m, a: m, "triu": lambda m, a: m.with_structure("upper") if a.get("diagonal", 0) == 0 else None,
    "tril": lambda m, a: m.with_structure("lower") if a.get("diagonal", 0) == 0 else None,
}
_IN_PLACE = {"mul_": _mul, "div_": _div, "add_": _add, "sub_": lambda m, a: _add(m, a, -1)}


def _rsub(made, a):
    negative = made.scaled(-1)
    return _add(negative, a) if negative else None


class Watch(TorchDispatchMode):
    """`made(tensor)` after user code ran inside tells how the tensor was filled."""

    def __init__(self):
        super().__init__()
        self.origins = {}  # storage -> Made or None
        self.kept = []     # tensors whose storages are known: a freed storage's identity could be used again

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._opname
        if func.namespace != "aten":
            return out
        a = {p.name: args[i] if i < len(args) else kwargs.get(p.name, p.default_value) for i, p in enumerate(func._schema.arguments)}
        first = next((v for v in args if isinstance(v, torch.Tensor)), None)
        if name in _FILLS:
            target = first if name.endswith("_") else out
            self._set(target, _FILLS[name](a))
        elif name in _IN_PLACE:
            made = self._origin(first)
            self._set(first, _IN_PLACE[name](made, a) if made else None)
        elif func._schema.is_mutable:
            for v in [*args, *kwargs.values()]:
                if isinstance(v, torch.Tensor):
                    self._set(v, None)
        elif isinstance(out, torch.Tensor) and first is not None:
            self._derived(name, a, first, out)
        return out

    def _derived(self, name, a, first, out):
        made = self._origin(first)
        if name in ("_softmax", "softmax"):
            if made is not None and a.get("dim") in (-1, out.dim() - 1):
                self._set(out, Made("uniform", 0, 1, "rows"))
        elif made is not None and name in ("_to_copy", "to"):
            self._set(out, _cast(made, a, out))
        elif made is not None and name in _TRANSFORMS and first.shape == out.shape:
            self._set(out, _TRANSFORMS[name](made, a))

    @staticmethod
    def _key(tensor):
        return tensor.untyped_storage()._cdata

    def _whole(self, tensor):
        return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()

    def _set(self, tensor, made):
        if isinstance(tensor, torch.Tensor):
            self.kept.append(tensor)
            # A fill of a part of a tensor leaves the whole with two origins.
            self.origins[self._key(tensor)] = made if self._whole(tensor) else None

    def _origin(self, tensor):
        return self.origins.get(self._key(tensor)) if tensor is not None else None

    def made(self, tensor):
        made = self._origin(tensor) if self._whole(tensor) else None
        # A transposed view of a triangular matrix has the other triangle.
        return None if made and made.structure and not tensor.is_contiguous() else made

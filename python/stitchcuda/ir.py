"""The IR as the capture worker writes it: a list of nodes in text form. The grammar and the op table live in src/ir."""

from __future__ import annotations

import json
import math

import torch

DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
}


def dtype_name(dtype: torch.dtype) -> str | None:
    return DTYPES.get(dtype)


def type_text(dtype: torch.dtype, shape) -> str:
    return f"{DTYPES[dtype]}[{','.join(str(int(e)) for e in shape)}]"


class Value:
    """One result of one node."""

    __slots__ = ("node", "output", "dtype", "shape")

    def __init__(self, node: int, output: int, dtype: torch.dtype, shape):
        self.node, self.output, self.dtype, self.shape = node, output, dtype, tuple(int(e) for e in shape)

    @property
    def rank(self) -> int:
        return len(self.shape)


def literal(v, many=()) -> str:
    if v is None:
        return "none"
    if isinstance(v, Value):
        return f"%{v.node}.{v.output}" if v.node in many else f"%{v.node}"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return str(v)
    if isinstance(v, float):
        if math.isnan(v):
            return "nan"
        if math.isinf(v):
            return "inf" if v > 0 else "-inf"
        s = repr(v)
        return s if any(c in s for c in ".en") else s + ".0"
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(literal(e, many) for e in v) + "]"
    raise TypeError(f"no literal for {type(v)}")


class Graph:
    """Nodes in order. `add` appends one and returns its value (or a tuple of values for several results)."""

    def __init__(self):
        self.nodes: list[dict] = []
        self.outputs: list[tuple[Value, dict]] = []
        self.scope = ""
        self.source = ""

    def add(self, op: str, args=(), types=None, name: str = "", **named):
        """types: one (dtype, shape) or a list of them."""
        many = isinstance(types, list)
        types = types if many else [types]
        index = len(self.nodes)
        self.nodes.append(dict(op=op, args=list(args), named=named, types=types, name=name, scope=self.scope, source=self.source))
        values = tuple(Value(index, k, d, s) for k, (d, s) in enumerate(types))
        return values if many else values[0]

    def drop_dead(self):
        live = {v.node for v, _ in self.outputs}
        for i in range(len(self.nodes) - 1, -1, -1):
            n = self.nodes[i]
            if n["op"] in ("input", "weight"):
                live.add(i)
            if i in live:
                live.update(v.node for v in self._operands(n))
        # Unused weights go too: they are no part of the program. Inputs stay: they are its signature.
        used = {v.node for i in live for v in self._operands(self.nodes[i])} | {v.node for v, _ in self.outputs}
        keep = [i for i in range(len(self.nodes)) if i in live and (self.nodes[i]["op"] != "weight" or i in used)]
        new = {old: k for k, old in enumerate(keep)}
        for i in keep:
            for v in self._operands(self.nodes[i]):
                v.node = -1 - new[v.node] if v.node >= 0 else v.node  # values are shared: rename each once
        for v, _ in self.outputs:
            v.node = -1 - new[v.node] if v.node >= 0 else v.node
        for i in keep:
            for v in self._operands(self.nodes[i]):
                v.node = -1 - v.node if v.node < 0 else v.node
        for v, _ in self.outputs:
            v.node = -1 - v.node if v.node < 0 else v.node
        self.nodes = [self.nodes[i] for i in keep]

    @staticmethod
    def _operands(node):
        for a in list(node["args"]) + list(node["named"].values()):
            for v in a if isinstance(a, (list, tuple)) else (a,):
                if isinstance(v, Value):
                    yield v

    def lines(self) -> list[str]:
        many = {i for i, n in enumerate(self.nodes) if len(n["types"]) > 1}
        out = []
        for i, n in enumerate(self.nodes):
            types = [type_text(d, s) for d, s in n["types"]]
            result = types[0] if len(types) == 1 else "(" + ", ".join(types) + ")"
            args = [literal(a, many) for a in n["args"]]
            while args and args[-1] == "none":
                args.pop()
            args += [f"{k}={literal(v, many)}" for k, v in n["named"].items() if v is not None]
            attributes = [f"{k}={json.dumps(n[k])}" for k in ("name", "scope", "source") if n[k]]
            out.append(f"%{i}: {result} = {n['op']}({', '.join(args)})" + (f" {{{', '.join(attributes)}}}" if attributes else ""))
        returned = []
        for v, attributes in self.outputs:
            returned.append(literal(v, many) + " {" + ", ".join(f"{k}={json.dumps(x)}" for k, x in attributes.items()) + "}")
        out.append("return " + ", ".join(returned))
        return out

"""The IR as Python objects, and its text form (docs/ir.md). No checking here: the C++ reader validates every bundle."""

import json
import math

import torch

DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b8": 1}
FLOATS = ("f64", "f32", "f16", "bf16")


class Value:
    """One result of one node."""

    __slots__ = ("node", "index")

    def __init__(self, node, index=0):
        self.node = node
        self.index = index

    @property
    def dtype(self):
        return self.node.types[self.index][0]

    @property
    def shape(self):
        return self.node.types[self.index][1]

    @property
    def rank(self):
        return len(self.shape)

    def __eq__(self, other):
        return isinstance(other, Value) and self.node is other.node and self.index == other.index

    def __hash__(self):
        return hash((id(self.node), self.index))


class Immediate:
    """A 0-d constant known at capture: written as a number where an op takes one, as a `full` node elsewhere."""

    __slots__ = ("value", "dtype")
    shape = ()
    rank = 0

    def __init__(self, value, dtype):
        self.value = value
        self.dtype = dtype


class Node:
    """operands: Value, number, None or a list of Value/None, in parameter order. params: everything else by name."""

    __slots__ = ("op", "operands", "params", "types", "name", "scope", "source")

    def __init__(self, op, operands, params, types, name="", scope="", source=""):
        self.op = op
        self.operands = operands
        self.params = params
        self.types = types
        self.name = name
        self.scope = scope
        self.source = source

    def values(self):
        for operand in self.operands:
            for v in operand if isinstance(operand, list) else [operand]:
                if isinstance(v, Value):
                    yield v


class Output:
    def __init__(self, value, name, mutates_weight=None, mutates_input=None):
        self.value = value
        self.name = name
        self.mutates_weight = mutates_weight
        self.mutates_input = mutates_input


class Graph:
    def __init__(self):
        self.inputs = []
        self.weights = []
        self.nodes = []
        self.outputs = []

    def reachable(self, outputs):
        """Names of the weights that these outputs are computed from."""
        return {n.name for n in self._live([o.value.node for o in outputs]).values() if n.op == "weight"}

    @staticmethod
    def _live(roots):
        live, stack = {}, list(roots)
        while stack:
            node = stack.pop()
            if id(node) not in live:
                live[id(node)] = node
                stack.extend(v.node for v in node.values())
        return live

    def remove_dead(self):
        """Drops nodes and weights that no output needs; inputs stay, they are the program's signature."""
        # A tensor written to stays in the program even if its old value is not read.
        kept = {o.mutates_weight for o in self.outputs if o.mutates_weight}
        live = self._live([o.value.node for o in self.outputs] + [w for w in self.weights if w.name in kept])
        self.nodes = [n for n in self.nodes if id(n) in live]
        self.weights = [w for w in self.weights if id(w) in live]

    def all_nodes(self):
        return self.inputs + self.weights + self.nodes

    def lines(self):
        ids = {id(n): i for i, n in enumerate(self.all_nodes())}
        out = [_node_text(n, i, ids) for i, n in enumerate(self.all_nodes())]
        parts = []
        for o in self.outputs:
            attributes = {"name": o.name, "mutates_weight": o.mutates_weight, "mutates_input": o.mutates_input}
            parts.append(_reference(o.value, ids) + _attributes(attributes))
        out.append("return " + ", ".join(parts))
        return out


def number_text(value):
    """A number as the text form wants it: a double never looks like an integer."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def type_text(dtype, shape):
    return f"{dtype}[{','.join(str(e) for e in shape)}]"


def _reference(value, ids):
    if value is None:
        return "none"
    many = len(value.node.types) > 1
    return f"%{ids[id(value.node)]}" + (f".{value.index}" if many else "")


def _operand_text(operand, ids):
    if isinstance(operand, list):
        return "[" + ", ".join(_reference(v, ids) for v in operand) + "]"
    if operand is None or isinstance(operand, Value):
        return _reference(operand, ids)
    return number_text(operand)


def _param_text(value):
    if value is None:
        return "none"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(number_text(v) for v in value) + "]"
    return number_text(value)


def _attributes(attributes):
    parts = [f"{key}={json.dumps(value)}" for key, value in attributes.items() if value]
    return " {" + ", ".join(parts) + "}" if parts else ""


def _node_text(node, index, ids):
    types = [type_text(*t) for t in node.types]
    head = types[0] if len(types) == 1 else "(" + ", ".join(types) + ")"
    operands = list(node.operands)
    while operands and operands[-1] is None:
        operands.pop()
    arguments = [_operand_text(o, ids) for o in operands]
    arguments += [f"{key}={_param_text(value)}" for key, value in node.params.items()]
    attributes = {"name": node.name, "scope": node.scope, "source": node.source}
    return f"%{index}: {head} = {node.op}({', '.join(arguments)}){_attributes(attributes)}"

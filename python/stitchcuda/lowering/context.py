"""What a handler sees of the node it lowers, and the ways to emit IR."""

import math

import torch

from ..errors import CaptureError
from ..ir import DTYPES, FLOATS, Graph, Immediate, Node, TORCH_DTYPES, Value


def dtype_name(dtype, where=""):
    name = DTYPES.get(dtype)
    if name is None:
        raise CaptureError("unsupported", f"Tensors of {dtype} cannot be captured{where}; use a real floating, integer or bool dtype.")
    return name


def broadcast(*shapes):
    return tuple(torch.broadcast_shapes(*shapes))


class Builder:
    """Appends IR nodes; folds what is trivially nothing (a view of the same shape, a cast to the same dtype)."""

    def __init__(self):
        self.graph = Graph()
        self.scope = ""
        self.source = ""

    def where(self):
        return f" at {self.source}" if self.source else ""

    def fail(self, message):
        raise CaptureError("unsupported", f"{message}{self.where()}.")

    def emit(self, op, operands, types, **params):
        """types: list of (dtype, shape). Returns one Value, or a tuple of them."""
        operands = [self._operand(o) for o in operands]
        node = Node(op, operands, params, [(d, tuple(s)) for d, s in types], "", self.scope, self.source)
        self.graph.nodes.append(node)
        values = tuple(Value(node, i) for i in range(len(types)))
        return values if len(values) > 1 else values[0]

    def _operand(self, o):
        if isinstance(o, Immediate):
            return o.value
        if isinstance(o, (tuple, list)):
            return [self.tensor(v) for v in o]
        if not (o is None or isinstance(o, (Value, int, float))):
            self.fail(f"The program uses {getattr(o, 'what', type(o).__name__)}, which cannot be captured")
        return o

    # Conversions ------------------------------------------------------------------------------------------------
    def tensor(self, x):
        """A Value for ops that take no immediates."""
        if isinstance(x, Immediate):
            return self.emit("full", [], [(x.dtype, ())], size=[], value=float(x.value))
        return x

    def cast(self, x, dtype):
        if isinstance(x, Immediate):
            return Immediate(convert_number(x.value, dtype), dtype)
        return x if x.dtype == dtype else self.emit("cast", [x], [(dtype, x.shape)])

    def view(self, x, shape):
        x = self.tensor(x)
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.node.op == "view" and isinstance(x.node.operands[0], Value):
            return self.view(x.node.operands[0], shape)
        return self.emit("view", [x], [(x.dtype, shape)], size=list(shape))

    def expand(self, x, shape):
        x = self.tensor(x)
        shape = tuple(shape)
        return x if x.shape == shape else self.emit("expand", [x], [(x.dtype, shape)], size=list(shape))

    def permute(self, x, dims):
        x = self.tensor(x)
        dims = [d % max(x.rank, 1) for d in dims]
        if dims == list(range(x.rank)):
            return x
        return self.emit("permute", [x], [(x.dtype, tuple(x.shape[d] for d in dims))], dims=dims)

    def slice(self, x, dim, start, end, step=1):
        x = self.tensor(x)
        extent = x.shape[dim]
        if (start, end, step) == (0, extent, 1):
            return x
        shape = list(x.shape)
        shape[dim] = max(0, math.ceil((end - start) / step))
        return self.emit("slice", [x], [(x.dtype, shape)], dim=dim, start=start, end=end, step=step)

    def select(self, x, dim, index):
        x = self.tensor(x)
        shape = x.shape[:dim] + x.shape[dim + 1:]
        return self.emit("select", [x], [(x.dtype, shape)], dim=dim, index=index % x.shape[dim])

    def cat(self, tensors, dim):
        tensors = [self.tensor(t) for t in tensors]
        if len(tensors) == 1:
            return tensors[0]
        shape = list(tensors[0].shape)
        shape[dim] = sum(t.shape[dim] for t in tensors)
        return self.emit("cat", [tensors], [(tensors[0].dtype, shape)], dim=dim)

    def pad(self, x, pad, mode="constant", value=0.0):
        x = self.tensor(x)
        if not any(pad):
            return x
        shape = list(x.shape)
        for i in range(len(pad) // 2):
            shape[-1 - i] += pad[2 * i] + pad[2 * i + 1]
        return self.emit("pad", [x], [(x.dtype, shape)], pad=list(pad), mode=mode, value=float(value))

    def pointwise(self, op, *operands, dtype=None, **params):
        """Result shape by broadcasting; dtype defaults to the first tensor operand's."""
        shape = broadcast(*[o.shape for o in operands if isinstance(o, (Value, Immediate))])
        first = next(o for o in operands if isinstance(o, (Value, Immediate)))
        return self.emit(op, operands, [(dtype or first.dtype, shape)], **params)

    def reduce(self, op, x, dims, keepdim, dtype=None, **params):
        """dims canonical and possibly empty (= all). A reduction of a scalar over nothing is the scalar."""
        x = self.tensor(x)
        gone = set(dims) if dims else set(range(x.rank))
        shape = tuple(1 if d in gone else e for d, e in enumerate(x.shape) if keepdim or d not in gone)
        return self.emit(op, [x], [(dtype or x.dtype, shape)], dims=sorted(dims), keepdim=bool(keepdim), **params)

    def full(self, shape, value, dtype):
        if len(shape) == 0:
            return Immediate(convert_number(value, dtype), dtype)
        return self.emit("full", [], [(dtype, shape)], size=list(shape), value=float(value))


class Context(Builder):
    """A Builder bound to the ATen node being lowered: `vals` are its results as fake tensors."""

    def __init__(self, lowering):
        super().__init__()
        self.lowering = lowering
        self.target = None
        self.vals = []
        self.in_dropout = False  # the ATen node comes from one of PyTorch's dropout functions

    # The result of the ATen node ----------------------------------------------------------------------------------
    @property
    def dtype(self):
        return dtype_name(self.vals[0].dtype, self.where())

    @property
    def shape(self):
        return tuple(self.vals[0].shape)

    def type_of(self, i):
        return dtype_name(self.vals[i].dtype, self.where()), tuple(self.vals[i].shape)

    def result(self, op, *operands, **params):
        """Emits the op that gives this node's (first) result."""
        return self.emit(op, operands, [self.type_of(0)], **params)

    def results(self, op, count, *operands, **params):
        return self.emit(op, operands, [self.type_of(i) for i in range(count)], **params)

    # Arguments ----------------------------------------------------------------------------------------------------
    def dim(self, d, rank):
        return int(d) % rank if rank else 0

    def dims(self, dims, rank):
        if dims is None:
            return []
        dims = [dims] if isinstance(dims, int) else dims
        return sorted(self.dim(d, rank) for d in dims) if rank else []

    def lower_torch(self, function, *args):
        """Lowers `function`, written with torch calls on tensors, as if the user had written it here."""
        return self.lowering.lower_function(function, args)


def convert_number(value, dtype):
    if dtype == "b8":
        return bool(value)
    if dtype in FLOATS:
        return float(torch.tensor(float(value), dtype=TORCH_DTYPES[dtype]).double())
    return int(value)

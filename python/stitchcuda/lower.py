"""Lowers one functional ATen graph (torch.export, functionalised) to the IR. Handlers are in ops_*.py; this file walks the graph."""

from __future__ import annotations

import operator

import torch

from . import ir
from .errors import unsupported

# Drawn by forward(): distribution and its two parameters, as in a bundle's generator.
RANDOM = {"aten.randn": ("normal", 0.0, 1.0), "aten.randn_like": ("normal", 0.0, 1.0), "aten.rand": ("uniform", 0.0, 1.0), "aten.rand_like": ("uniform", 0.0, 1.0)}

HANDLERS: dict[str, object] = {}  # op packet name, e.g. "aten.add" -> function(lowerer, fx node, args, kwargs)


def handles(*names):
    def register(function):
        for n in names:
            HANDLERS["aten." + n] = function
        return function

    return register


def packet_name(target) -> str:
    """"aten.add" for aten.add.Tensor; "" for anything that is no operator."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._opname}"
    return ""


class Lowerer:
    def __init__(self, graph_module, signature, state, constants, input_names):
        self.gm, self.signature = graph_module, signature
        self.state, self.constants = state, constants  # name -> tensor (possibly fake)
        self.g = ir.Graph()
        self.env: dict = {}
        self.weights: list[dict] = []  # name, tensor, parameter
        self.input_names = input_names
        self.inputs: list[ir.Value] = []
        self.random: list[dict] = []

    # --- values -----------------------------------------------------------------------------------------------------
    def get(self, a):
        """An fx argument as Value, scalar, list ... ."""
        if isinstance(a, torch.fx.Node):
            return self.env[a]
        if isinstance(a, (list, tuple)):
            return [self.get(x) for x in a]
        return a

    def meta(self, node):
        v = node.meta["val"]
        if isinstance(v, (tuple, list)):
            return [(x.dtype, tuple(x.shape)) for x in v if isinstance(x, torch.Tensor)]
        if not isinstance(v, torch.Tensor):
            raise unsupported(f"{node.target} gives a {type(v).__name__} instead of a tensor{self.where(node)}; such values cannot be captured.")
        return v.dtype, tuple(v.shape)

    def tensor(self, x, dtype=torch.float32) -> ir.Value:
        """A Value, making a full() of a plain number."""
        if isinstance(x, ir.Value):
            return x
        return self.g.add("full", types=(dtype, ()), size=[], value=float(x))

    def cast(self, x: ir.Value, dtype) -> ir.Value:
        return x if x.dtype == dtype else self.g.add("cast", [x], (dtype, x.shape))

    # Short cuts used by many handlers; shapes are given where they cannot be read off.
    def view(self, x, shape):
        shape = [int(e) for e in shape]
        return x if list(x.shape) == shape else self.g.add("view", [x], (x.dtype, shape), size=shape)

    def permute(self, x, dims):
        dims = [int(d) % max(1, x.rank) for d in dims]
        if dims == list(range(x.rank)):
            return x
        return self.g.add("permute", [x], (x.dtype, [x.shape[d] for d in dims]), dims=dims)

    def expand(self, x, shape):
        shape = [int(e) for e in shape]
        return x if list(x.shape) == shape else self.g.add("expand", [x], (x.dtype, shape), size=shape)

    def unsqueeze(self, x, dim):
        shape = list(x.shape)
        shape.insert(dim, 1)
        return self.view(x, shape)

    def slice(self, x, dim, start, end, step=1):
        shape = list(x.shape)
        if start == 0 and end == shape[dim] and step == 1:
            return x
        shape[dim] = (end - start + step - 1) // step
        return self.g.add("slice", [x], (x.dtype, shape), dim=dim, start=start, end=end, step=step)

    def pointwise(self, op, *args, dtype=None, **named):
        """A pointwise node; result shape by broadcasting, dtype of the first tensor unless given."""
        tensors = [a for a in args if isinstance(a, ir.Value)]
        shape = torch.broadcast_shapes(*[t.shape for t in tensors])
        return self.g.add(op, args, (dtype or tensors[0].dtype, shape), **named)

    def reduce(self, op, x, dims, keepdim=False, dtype=None, **named):
        dims = sorted(d % max(1, x.rank) for d in dims) if dims is not None else []
        gone = set(dims) if dims else set(range(x.rank))
        shape = [1 if i in gone else e for i, e in enumerate(x.shape) if keepdim or i not in gone]
        return self.g.add(op, [x], (dtype or x.dtype, shape), dims=list(dims), keepdim=bool(keepdim), **named)

    # --- walking ----------------------------------------------------------------------------------------------------
    def where(self, node) -> str:
        place = source_of(node)
        return f" (at {place})" if place else ""

    def run(self):
        specs = {s.arg.name: s for s in self.signature.input_specs if hasattr(s.arg, "name")}
        placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        self._inputs(placeholders, specs)
        self._random()
        self._weights(placeholders, specs)
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                raise unsupported(f"The program holds a submodule or control flow ({node.target}) that cannot be captured{self.where(node)}; rewrite it without torch.cond or while_loop.")
            elif node.op == "output":
                self._outputs(node)
        return self

    def _random(self):
        """Random tensors that forward() draws become inputs of their own, after the user's: whoever runs the program draws them, in this order,
        from the same distribution. Their bundle entry has a generator, and input_spec does not name them."""
        for node in self.gm.graph.nodes:
            if node.op == "call_function" and packet_name(node.target) in RANDOM:
                dtype, shape = self.meta(node)
                self._check(node.meta["val"], "a random tensor")
                kind, a, b = RANDOM[packet_name(node.target)]
                name = f"random{len(self.random)}"
                self.env[node] = self.g.add("input", types=(dtype, shape), name=name)
                self.random.append(dict(name=name, kind=kind, a=a, b=b, shape=shape, dtype=dtype))

    def _inputs(self, placeholders, specs):
        for node in placeholders:
            spec = specs.get(node.name)
            if spec is None or "USER_INPUT" not in str(spec.kind):
                continue
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                self.env[node] = value  # a number given as input is specialised by export
                continue
            self._check(value, node.name)
            name = self.input_names.get(node.name, node.name)
            v = self.g.add("input", types=(value.dtype, tuple(value.shape)), name=name)
            self.env[node] = v
            self.inputs.append(v)

    def _weights(self, placeholders, specs):
        for node in placeholders:
            spec = specs.get(node.name)
            if spec is None or "USER_INPUT" in str(spec.kind):
                continue
            parameter = "PARAMETER" in str(spec.kind)
            tensor = self.state.get(spec.target) if spec.target in self.state else self.constants.get(spec.target)
            if not isinstance(tensor, torch.Tensor):
                raise unsupported(f"The program reads \"{spec.target}\", which is no tensor; make it a buffer or a plain number.")
            from torch._subclasses.fake_tensor import FakeTensor

            if "CONSTANT" in str(spec.kind) and tensor.dim() == 0 and not isinstance(tensor, FakeTensor):
                self.env[node] = tensor.item()
                continue
            self._check(tensor, spec.target)
            self.env[node] = self.g.add("weight", types=(tensor.dtype, tuple(tensor.shape)), name=spec.target)
            self.weights.append(dict(name=spec.target, tensor=tensor, parameter=parameter))

    @staticmethod
    def _check(tensor, name):
        if tensor.dtype not in ir.DTYPES:
            raise unsupported(f"\"{name}\" has dtype {tensor.dtype}, which is not supported; use a real float, integer or bool type.")
        if any(not isinstance(e, int) for e in tensor.shape):
            raise unsupported(f"\"{name}\" has a dynamic shape {tuple(tensor.shape)}; export the program with fixed shapes.")
        if tensor.layout != torch.strided:
            raise unsupported(f"\"{name}\" is a sparse tensor; only dense tensors are supported.")

    def _call(self, node):
        if node.target is operator.getitem:
            self.env[node] = self.get(node.args[0])[node.args[1]]
            return
        name = packet_name(node.target)
        if node in self.env:  # a random tensor: already an input
            return
        handler = HANDLERS.get(name)
        if handler is None:
            raise unsupported(f"The operator {node.target} is not supported{self.where(node)}.")
        self.g.scope, self.g.source = scope_of(node), source_of(node)
        result = node.meta.get("val")
        for t in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(t, torch.Tensor) and t.dtype not in ir.DTYPES:
                raise unsupported(f"{node.target} gives dtype {t.dtype}{self.where(node)}, which is not supported.")
            if isinstance(t, torch.Tensor) and any(not isinstance(e, int) for e in t.shape):
                raise unsupported(f"{node.target} gives a shape that depends on data{self.where(node)}; only static shapes are supported.")
        self.env[node] = handler(self, node, [self.get(a) for a in node.args], {k: self.get(v) for k, v in node.kwargs.items()})

    def _outputs(self, node):
        self.user_outputs = 0
        for spec, value in zip(self.signature.output_specs, node.args[0]):
            kind = str(spec.kind)
            v = self.get(value)
            if "USER_INPUT_MUTATION" in kind:
                name = self.input_names.get(spec.target, spec.target)
                self.g.outputs.append((self._fresh(v), dict(name="new_" + name, mutates_input=name)))
            elif "MUTATION" in kind:
                self.g.outputs.append((self._fresh(v), dict(name="new_" + spec.target, mutates_weight=spec.target)))
            elif "USER_OUTPUT" in kind:
                if isinstance(v, ir.Value):
                    self.g.outputs.append((self._fresh(v), dict(name=f"output{self.user_outputs}")))
                    self.user_outputs += 1
                elif isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
                    # A tensor that became a plain number on the way (a 0-d constant).
                    t = self.tensor(v, value.meta["val"].dtype)
                    self.g.outputs.append((t, dict(name=f"output{self.user_outputs}")))
                    self.user_outputs += 1
            else:
                raise unsupported(f"The program has an output of kind {spec.kind}, which is not supported.")

    @staticmethod
    def _fresh(v):
        return ir.Value(v.node, v.output, v.dtype, v.shape)


def source_of(node) -> str:
    """"model.py:41" of the innermost user frame recorded for an fx node."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return ""
    place = ""
    for line in trace.split("\n"):
        line = line.strip()
        if line.startswith('File "') and ", line " in line:
            path, _, rest = line[6:].partition('", line ')
            if "/torch/" in path:
                continue
            place = f"{path.rsplit('/', 1)[-1]}:{rest.split(',')[0]}"
    return place


def scope_of(node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    return path.removeprefix("L['self'].").removeprefix("L['self']").replace("_modules.", "").strip(".")


# Registers all handlers.
from . import ops_heavy, ops_pointwise, ops_shape  # noqa: E402,F401

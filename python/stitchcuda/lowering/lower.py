"""Walks an exported program and builds the IR graph."""

import itertools
import operator
import os
import re
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from ..errors import CaptureError, is_user_file, one_line, detail_of
from ..ir import Immediate, Node, TORCH_DTYPES, Value
from . import registry
from .context import Context, dtype_name
from . import creation, embedding_bags, indexing, layers, movement, pointwise, pooling, reductions  # noqa: F401  (register handlers)

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

# Checks that hold for the captured shapes and dtypes by construction.
_IGNORED = {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten._assert_async.msg",
            "aten._assert_async.default", "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
            "aten._functional_assert_async.msg"}

_DYNAMIC = {
    "aten.nonzero.default": "the number of non-zero elements", "aten.masked_select.default": "the number of true elements",
    "aten.item.default": "a tensor's value", "aten._local_scalar_dense.default": "a tensor's value",
    "aten.unique_consecutive.default": "the number of distinct values", "aten._unique2.default": "the number of distinct values",
    "aten.unique_dim.default": "the number of distinct values", "aten.nonzero_numpy.default": "the number of non-zero elements",
}


def source_of(node):
    """'model.py:12': the innermost line of the user's own code that made this node."""
    frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or "") if is_user_file(f[0])]
    return f"{os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""


def scope_of(node):
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return re.sub(r"@\d+$", "", path)


class Missing:
    """Stands for a result that the IR does not compute (a forward pass never reads it)."""

    def __init__(self, what):
        self.what = what


class Lowering:
    depth = 0

    def __init__(self, allow_dropout_input=False):
        self.context = Context(self)
        self.allow_dropout_input = allow_dropout_input
        self.stateful = set()     # names of constants that the program changes: never immediates
        self.random_inputs = {}   # input name -> (generator kind, a, b): random draws of the forward pass
        self.weight_tensors = {}  # weight name -> tensor, for constants met on the way
        self.mutations = {}       # weight name -> new Value, for updates that the exported program does not show

    def missing(self, what):
        return Missing(what)

    def mutate(self, old, new):
        self.mutations[old.node.name] = new

    def add_leaf(self, kind, name, dtype, shape):
        node = Node(kind, [], {}, [(dtype, tuple(shape))], name)
        (self.context.graph.inputs if kind == "input" else self.context.graph.weights).append(node)
        return Value(node)

    def random_input(self, kind, a, b, dtype, shape):
        taken = {n.name for n in self.context.graph.inputs}
        name = next(n for n in (f"random{i}" for i in itertools.count()) if n not in taken)
        self.random_inputs[name] = (kind, a, b)
        return self.add_leaf("input", name, dtype, shape)

    def constant(self, name, tensor):
        """A tensor known at capture: an immediate if it is a number, else a weight."""
        dtype = dtype_name(tensor.dtype, self.context.where())
        if tensor.dim() == 0 and not isinstance(tensor, FakeTensor) and name not in self.stateful:
            return Immediate(tensor.item(), dtype)
        taken = {w.name for w in self.context.graph.weights}
        unique, i = name, 0
        while unique in taken:
            i += 1
            unique = f"{name}_{i}"
        self.weight_tensors[unique] = tensor
        return self.add_leaf("weight", unique, dtype, tensor.shape)

    # Values -------------------------------------------------------------------------------------------------------
    def run_graph(self, module, env):
        """Lowers the call nodes of an fx graph; env already holds its placeholders. Returns the mapped output."""
        for node in module.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return self._map(node.args[0], env)
            if node.op == "get_attr":
                env[node] = self._attribute(module, node.target)
                continue
            env[node] = self._call(module, node, env)
        raise CaptureError("internal", "The exported program has no output.")

    def _attribute(self, module, target):
        value = module
        for part in target.split("."):
            value = getattr(value, part)
        return self.constant(target, value) if isinstance(value, torch.Tensor) else value

    def _map(self, value, env):
        if isinstance(value, torch.fx.Node):
            return env[value]
        if isinstance(value, (list, tuple)):
            mapped = [self._map(v, env) for v in value]
            return tuple(mapped) if isinstance(value, tuple) else mapped
        if isinstance(value, dict):
            return {k: self._map(v, env) for k, v in value.items()}
        return value

    # Calls --------------------------------------------------------------------------------------------------------
    def _call(self, module, node, env):
        c = self.context
        c.source = source_of(node) or c.source
        c.scope = scope_of(node) or (c.scope if self.depth else "")
        c.in_dropout = "dropout" in (node.meta.get("stack_trace") or "") if not self.depth else c.in_dropout
        args, kwargs = self._map(node.args, env), self._map(node.kwargs, env)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._higher_order(module, node, args, kwargs)
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._python_call(node, args, kwargs)
        name = str(node.target)
        if name in _IGNORED:
            return None
        if name in _DYNAMIC:
            raise CaptureError("unsupported", f"The program uses {_DYNAMIC[name]}, which is known only while it runs, through "
                                              f"{name}{c.where()}; shapes and control flow must not depend on data.")
        vals = node.meta.get("val")
        c.vals = [v for v in (vals if isinstance(vals, (list, tuple)) else [vals]) if isinstance(v, torch.Tensor)]
        c.target = node.target
        for v in c.vals:
            self._check_static(name, v)
        handler = registry.find(node.target)
        if handler is None:
            return self._decompose(node.target, args, kwargs)
        return handler(c, self._bind(node.target, args, kwargs))

    def _check_static(self, name, val):
        if any(not isinstance(e, int) for e in val.shape):
            raise CaptureError("unsupported", f"The shape of the result of {name}{self.context.where()} depends on the data; "
                                              "only static shapes can be captured.")
        dtype_name(val.dtype, f" (result of {name}{self.context.where()})")

    def _python_call(self, node, args, kwargs):
        if any(isinstance(v, (Value, Immediate)) for v in args):
            raise CaptureError("unsupported", f"The call of {node.target} on a tensor's value{self.context.where()} cannot be captured.")
        return node.target(*args, **kwargs)

    def _higher_order(self, module, node, args, kwargs):
        name = node.target.name() if callable(getattr(node.target, "name", None)) else str(node.target)
        if name == "wrap_with_set_grad_enabled":
            inner, operands = args[1], args[2:]
        elif name == "wrap_with_autocast":
            inner, operands = args[4], args[5:]
        else:
            raise CaptureError("unsupported", f"The control-flow operator {name}{self.context.where()} cannot be captured; only straight "
                                              "programs can.")
        holes = [n for n in inner.graph.nodes if n.op == "placeholder"]
        return self.run_graph(inner, dict(zip(holes, operands)))

    @staticmethod
    def _bind(target, args, kwargs):
        values = {}
        for i, parameter in enumerate(target._schema.arguments):
            if i < len(args):
                values[parameter.name] = args[i]
            elif parameter.name in kwargs:
                values[parameter.name] = kwargs[parameter.name]
            else:
                values[parameter.name] = parameter.default_value
        if "self" in values:
            values["x"] = values.pop("self")
        return registry.Args(values)

    # Ops without a handler ----------------------------------------------------------------------------------------
    def _decompose(self, target, args, kwargs):
        if not decomposable(target):
            raise CaptureError("unsupported", f"The operator {target}{self.context.where()} cannot be captured: it has neither a row in "
                                              "the IR nor a decomposition.")

        def function(*tensors):
            rest = list(tensors)
            fill = lambda v: rest.pop(0) if isinstance(v, (Value, Immediate)) else v  # noqa: E731
            a, k = torch.utils._pytree.tree_map(fill, (args, kwargs), is_leaf=lambda v: isinstance(v, (Value, Immediate)))
            return target(*a, **k)

        leaves = torch.utils._pytree.tree_leaves((args, kwargs), is_leaf=lambda v: isinstance(v, (Value, Immediate)))
        tensors = [v for v in leaves if isinstance(v, (Value, Immediate))]
        return self.lower_function(function, tensors, only=target)

    def lower_function(self, function, args, only=None):
        """Traces `function` on fake tensors of the types of `args` (ir values) and lowers the trace in place."""
        if self.depth > 8:
            raise CaptureError("unsupported", f"The operator {only}{self.context.where()} cannot be captured: its decomposition does not end.")
        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes = [torch.empty(a.shape, dtype=TORCH_DTYPES[a.dtype]) for a in args]
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = make_fx(dispatch_functionalize(function), decomposition_table=decompositions(only), tracing_mode="real")(*fakes)
        except Exception as error:  # noqa: BLE001  (any failure of the decomposition means we cannot capture the op)
            raise CaptureError("unsupported", f"The operator {only}{self.context.where()} cannot be captured ({one_line(error)}).", detail_of(error)) from error
        if only is not None and any(n.target is only for n in traced.graph.nodes):
            raise CaptureError("unsupported", f"The operator {only}{self.context.where()} cannot be captured: it has neither a row in the "
                                              "IR nor a decomposition.")
        holes = [n for n in traced.graph.nodes if n.op == "placeholder"]
        c = self.context
        saved = c.vals, c.target, c.source, c.scope
        self.depth += 1
        try:
            return self.run_graph(traced, dict(zip(holes, args)))
        finally:
            self.depth -= 1
            c.vals, c.target, c.source, c.scope = saved


_tables = {}


def _base_table():
    if not _tables:
        from torch._decomp import core_aten_decompositions, decomposition_table
        table = dict(core_aten_decompositions().items())
        for target, function in decomposition_table.items():
            if isinstance(target, torch._ops.OpOverload):
                table.setdefault(target, function)
        _tables["all"] = {t: f for t, f in table.items() if registry.find(t) is None and not t._schema.is_mutable}
    return _tables["all"]


def decompositions(only):
    """Decompositions of everything we have no handler for, and of `only` itself."""
    return _base_table()


def decomposable(target):
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return target in _base_table() or target.has_kernel_for_dispatch_key(composite) or composite in target.py_kernels

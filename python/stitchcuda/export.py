"""torch.export of a module, and the lowering of the exported program to an IR graph."""

import contextlib
import inspect
import warnings

import torch
import torch.utils._pytree as pytree
from torch._C import DispatchKey
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from .errors import CaptureError, at_line, detail_of, one_line
from .ir import Output, Value
from .lowering.context import dtype_name
from .lowering.lower import Lowering


# Recurrent layers -----------------------------------------------------------------------------------------------------------
# PyTorch finds their result shapes by unrolling them over time (20 s for a 6-layer LSTM of 512 steps). The shapes are known.
def _sequence(x, h, bidirectional):
    return x.new_empty(tuple(x.shape[:-1]) + (h.shape[-1] * (2 if bidirectional else 1),))


def _lstm_shapes(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    return _sequence(input, hx[0], bidirectional), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _gru_shapes(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    return _sequence(input, hx, bidirectional), torch.empty_like(hx)


@contextlib.contextmanager
def _recurrent_shapes_only():
    from torch._decomp import decomposition_table
    aten = torch.ops.aten
    shapes = {aten.lstm.input: _lstm_shapes, aten.gru.input: _gru_shapes, aten.rnn_tanh.input: _gru_shapes,
              aten.rnn_relu.input: _gru_shapes}
    saved = [(op, dict(op.py_kernels), decomposition_table.get(op)) for op in shapes]
    for op, function in shapes.items():
        for key in [*op.py_kernels, DispatchKey.CompositeImplicitAutograd]:
            op.py_kernels[key] = function
        decomposition_table[op] = function
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels, decomposition in saved:
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
            if decomposition is None:
                decomposition_table.pop(op, None)
            else:
                decomposition_table[op] = decomposition


# Export -----------------------------------------------------------------------------------------------------------------------
def export(module, args, kwargs):
    """The functional ATen program of module(*args, **kwargs), with high-level operators kept whole."""
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its fused kernels exist for eager CPU/CUDA only
    try:
        with _recurrent_shapes_only(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, tuple(args), dict(kwargs), strict=False).run_decompositions({})
    except CaptureError:
        raise
    except Exception as error:  # noqa: BLE001  (user code runs in here: anything can happen)
        raise explain(error) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)


def functional(program):
    """The functional form of an already exported program."""
    with _recurrent_shapes_only(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run_decompositions({})


def explain(error):
    """The failure of an export as one sentence for the user."""
    name, text, detail = type(error).__name__, str(error), detail_of(error)
    where = _user_code_line(text) or at_line(error)
    if name in ("GuardOnDataDependentSymNode", "DataDependentOutputException", "UserError") or "data-dependent" in text:
        return CaptureError("unsupported", f"The program branches on a tensor's value{where}; only programs whose control flow does not "
                                           "depend on data can be captured (use torch.where).", detail)
    if name == "DynamicOutputShapeException":
        return CaptureError("unsupported", f"A result's shape depends on data{where}; only static shapes can be captured.", detail)
    if isinstance(error, NotImplementedError) or "Unsupported" in name:
        return CaptureError("unsupported", f"The program cannot be captured{where} ({one_line(error)}).", detail)
    if "device" in text and ("Unhandled FakeTensor Device Propagation" in text or "same device" in text):
        return CaptureError("bad_input", f"forward() mixes tensors of different devices{where}; keep all of them on the CPU for capture "
                                         f"({one_line(error)}).", detail)
    return CaptureError("bad_input", f"forward() fails{where} ({one_line(error)}).", detail)


def _user_code_line(text):
    """Export's messages quote the user's line as '  File "x.py", line 3, in forward'."""
    import os
    import re
    from .errors import is_user_file
    found = [f for f in re.findall(r'File "([^"]+)", line (\d+)', text) if is_user_file(f[0])]
    return f" at {os.path.basename(found[-1][0])}:{found[-1][1]}" if found else ""


# Lowering -----------------------------------------------------------------------------------------------------------------------
class Captured:
    """graph; weights: name -> (kind, tensor); random inputs; trees for arguments and results."""

    def __init__(self):
        self.graph = None
        self.weights = {}
        self.random_inputs = {}
        self.input_spec = None
        self.output_spec = None
        self.program = None


def lower_program(program, names, *, allow_dropout_input=False):
    """`names` maps a state-dict name to the first name of the same tensor (tied weights appear once)."""
    lowering = Lowering(allow_dropout_input)
    signature = program.graph_signature
    captured = Captured()
    captured.program = program
    env, inputs = _placeholders(program, lowering, names, captured)
    results = lowering.run_graph(program.graph_module, env)
    graph = lowering.context.graph
    user, mutated = _outputs(program, lowering, results, names, inputs)
    _require_tensor(user)
    graph.outputs = [Output(v, f"output{i}") for i, v in enumerate(v for v in user if isinstance(v, Value))] + mutated
    graph.remove_dead()
    captured.graph = graph
    for name, tensor in lowering.weight_tensors.items():
        captured.weights.setdefault(name, ("constant", tensor))
    captured.random_inputs = lowering.random_inputs
    captured.output_spec = _tree_of_results(program, user)
    captured.input_spec = _tree_of_inputs(program, inputs)
    del signature
    return captured


def _placeholders(program, lowering, names, captured):
    env, inputs = {}, {}
    holes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        node = holes[spec.arg.name]
        if spec.kind == InputKind.USER_INPUT:
            if isinstance(spec.arg, TensorArgument):
                env[node] = lowering.add_leaf("input", spec.arg.name, *_type_of(node, f"the input {spec.arg.name}"))
                inputs[spec.arg.name] = env[node]
            else:
                env[node] = spec.arg.value if isinstance(spec.arg, ConstantArgument) else node.meta.get("val")
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            env[node] = _weight(program, lowering, spec, node, names, captured)
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            env[node] = lowering.constant(spec.target, program.constants[spec.target])
        else:
            raise CaptureError("unsupported", f"The program takes {spec.arg.name}, a {spec.kind.name.lower()}, which cannot be captured.")
    return env, inputs


def _weight(program, lowering, spec, node, names, captured):
    name = names.get(spec.target, spec.target)
    existing = next((w for w in lowering.context.graph.weights if w.name == name), None)
    if existing is not None:
        return Value(existing)
    tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
    kind = "parameter" if spec.kind == InputKind.PARAMETER else "buffer"
    captured.weights[name] = (kind, tensor)
    return lowering.add_leaf("weight", name, *_type_of(node, f"the {kind} {name}"))


def _type_of(node, what):
    val = node.meta["val"]
    if any(not isinstance(e, int) for e in val.shape):
        raise CaptureError("unsupported", f"The shape of {what} is not static; give example inputs of a fixed shape.")
    if val.layout != torch.strided:
        raise CaptureError("unsupported", f"Sparse tensors cannot be captured: {what} is one.")
    return dtype_name(val.dtype, f" ({what})"), tuple(val.shape)


def _outputs(program, lowering, results, names, inputs):
    user, mutated = [], []
    for spec, value in zip(program.graph_signature.output_specs, results):
        if spec.kind == OutputKind.USER_OUTPUT:
            user.append(lowering.context.tensor(value) if not _is_plain(value) else value)
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            name = names.get(spec.target, spec.target)
            mutated.append(Output(lowering.context.tensor(value), f"new_{name}", mutates_weight=name))
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            mutated.append(Output(lowering.context.tensor(value), f"new_{spec.target}", mutates_input=spec.target))
        else:
            raise CaptureError("unsupported", f"The program returns a {spec.kind.name.lower()}, which cannot be captured.")
    done = {o.mutates_weight for o in mutated}
    mutated += [Output(v, f"new_{n}", mutates_weight=n) for n, v in lowering.mutations.items() if n not in done]
    return user, mutated


def _is_plain(value):
    return value is None or isinstance(value, (bool, int, float, str))


def _require_tensor(user):
    if not any(isinstance(v, Value) for v in user):
        raise CaptureError("bad_input", "forward() returns no tensor; return at least one.")


# Trees ----------------------------------------------------------------------------------------------------------------------------
class _Leaf:
    def __init__(self, tree):
        self.tree = tree


def _tree_of_results(program, user):
    leaves, count = [], 0
    for value in user:
        if isinstance(value, Value):
            leaves.append(_Leaf({"tensor": count}))
            count += 1
        else:
            leaves.append(_Leaf({"value": value}))
    return tree_json(pytree.tree_unflatten(leaves, program.call_spec.out_spec), "forward() returns")


def _tree_of_inputs(program, inputs):
    order = {name: i for i, name in enumerate(inputs)}
    leaves = []
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            tensor = isinstance(spec.arg, TensorArgument)
            leaves.append(_Leaf({"tensor": order[spec.arg.name]} if tensor else {"value": _json_scalar(getattr(spec.arg, "value", None))}))
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    tree = tree_json(tuple(args), "forward() takes")
    return {**tree, "kwargs": tree_json(dict(kwargs), "forward() takes")["dict"]} if kwargs else tree


def _json_scalar(value):
    return value if _is_plain(value) else str(value)


def tree_json(value, what):
    if isinstance(value, _Leaf):
        return value.tree
    if value is None:
        return {"value": None}
    if isinstance(value, dict):
        return {"dict": {str(k): tree_json(v, what) for k, v in value.items()}}
    if isinstance(value, tuple):
        return {"tuple": [tree_json(v, what) for v in value]}
    if isinstance(value, list):
        return {"list": [tree_json(v, what) for v in value]}
    raise CaptureError("unsupported", f"{what} a {type(value).__name__}, which cannot be captured; use tensors, tuples, lists and dicts.")


def positional(function, args, kwargs):
    """Moves keyword arguments to their place where forward() allows it."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return tuple(args), dict(kwargs)
    return tuple(bound.args), dict(bound.kwargs)

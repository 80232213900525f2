"""torch.export of a module, and the lowering of the exported program to an IR graph."""

import contextlib
import functools
import inspect
import os
import re
import warnings

import torch
import torch.utils._pytree as pytree
from torch._C import DispatchKey
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from .errors import CaptureError, at_line, detail_of, is_user_file, one_line
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


@contextlib.contextmanager
def _composites_of(program):
    """run_decompositions({}) keeps every composite operator by overriding all of PyTorch's (0.4 s); those of the program do."""
    import torch.export.exported_program as implementation
    name = "_collect_all_valid_cia_ops"
    original = getattr(implementation, name, None)
    if original is None:
        yield
        return
    present = {n.target for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)
               for n in m.graph.nodes if n.op == "call_function"}
    keep = {op for op in original() if op in present}
    setattr(implementation, name, lambda: keep)
    try:
        yield
    finally:
        setattr(implementation, name, original)


def _merge_shared_state(program):
    """A tensor that the module holds under several names becomes one input: PyTorch 2.11 cannot decompose a program that changes
    such a tensor ("expected compiled_fn to be GraphModule")."""
    graph, signature, first = program.graph_module.graph, program.graph_signature, {}
    holes = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    for spec in list(signature.input_specs):
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target)) if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) else None
        if tensor is None:
            continue
        kept = first.setdefault((id(tensor), spec.kind), spec)
        if kept is not spec:
            holes[spec.arg.name].replace_all_uses_with(holes[kept.arg.name])
            graph.erase_node(holes[spec.arg.name])
            signature.input_specs.remove(spec)
            program.state_dict.pop(spec.target, None)
    program.graph_module.recompile()


def _functional(program):
    _merge_shared_state(program)
    with _composites_of(program):
        return program.run_decompositions({})


# State kept in attributes ---------------------------------------------------------------------------------------------------
def state_tensors(module):
    """Every tensor a module holds under a name: parameters, buffers and plain attributes."""
    found = {}
    for prefix, part in module.named_modules():
        for holder in (part._parameters, part._buffers, vars(part)):
            for name, value in holder.items():
                if isinstance(value, torch.Tensor):
                    found[f"{prefix}.{name}" if prefix else name] = value
    return found


@contextlib.contextmanager
def _watched(module, assigned):
    """forward() returns (result, [new values of the attributes it assigned]) and `assigned` lists their names: torch.export
    itself drops such assignments (`self.hidden = ...`)."""
    original = module.forward
    own = "forward" in vars(module)

    @functools.wraps(original)
    def forward(*args, **kwargs):
        before = state_tensors(module)
        result = original(*args, **kwargs)
        after = state_tensors(module)
        assigned[:] = [name for name, value in after.items() if name in before and value is not before[name]]
        return (result, [after[name] for name in assigned]) if assigned else result

    module.forward = forward
    try:
        yield
    finally:
        if own:
            module.forward = original
        else:
            del module.forward


def _make_buffer(module, path):
    """A plain tensor attribute that forward() changes in place becomes a buffer (outside the state dict)."""
    prefix, _, name = path.rpartition(".")
    part = module.get_submodule(prefix)
    tensor = getattr(part, name)
    delattr(part, name)
    part.register_buffer(name, tensor, persistent=False)


# Export -----------------------------------------------------------------------------------------------------------------------
class Exported:
    def __init__(self, program, assigned=(), plain=()):
        self.program = program
        self.assigned = list(assigned)  # names of attributes whose new values are the program's last results
        self.plain = set(plain)         # names of tensors that are neither parameters nor buffers


def export(module, args, kwargs):
    """The functional ATen program of module(*args, **kwargs), with high-level operators kept whole."""
    registered = {n for n, _ in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]}
    plain = {name for name in state_tensors(module) if name not in registered}
    for _ in range(len(plain) + 1):
        try:
            program, assigned = _export_once(module, args, kwargs)
            return Exported(program, assigned, plain)
        except CaptureError as error:
            mutated = re.search(r"Constant (\S+) is mutated in the forward", error.message)
            if not mutated or mutated[1] not in plain:
                raise
            _make_buffer(module, mutated[1])
    raise CaptureError("internal", "The module's attributes cannot be captured.")


def _export_once(module, args, kwargs):
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its fused kernels exist for eager CPU/CUDA only
    assigned = []
    try:
        with _recurrent_shapes_only(), _watched(module, assigned), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = _functional(torch.export.export(module, tuple(args), dict(kwargs), strict=False))
            return program, assigned
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
        return Exported(_functional(program))


def aten_ops(exported):
    """Names of the distinct operators, "aten.linear.default", of an exported program, nested graphs included."""
    modules = [m for m in exported.program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return sorted({str(n.target) for m in modules for n in m.graph.nodes if isinstance(n.target, torch._ops.OpOverload)})


def explain(error):
    """The failure of an export as one sentence for the user."""
    name, text, detail = type(error).__name__, str(error), detail_of(error)
    where = _user_code_line(text) or at_line(error)
    if name in ("GuardOnDataDependentSymNode", "DataDependentOutputException", "UserError") or "data-dependent" in text:
        return CaptureError("unsupported", f"The program branches on a tensor's value{where}; only programs whose control flow does not "
                                           "depend on data can be captured (use torch.where).", detail)
    if name == "DynamicOutputShapeException":
        return CaptureError("unsupported", f"A result's shape depends on data{where}; only static shapes can be captured.", detail)
    unknown = re.search(r"Found <class '([^']+)'> in output", text)
    if unknown:
        return CaptureError("unsupported", f"forward() returns a {unknown[1].rpartition('.')[2]}, which cannot be captured; return tensors, "
                                           "numbers, tuples, lists and dicts.", detail)
    if isinstance(error, NotImplementedError) or "Unsupported" in name or ".numpy() is not supported" in text:
        return CaptureError("unsupported", f"The program cannot be captured{where} ({one_line(error)}).", detail)
    if "device" in text and ("Unhandled FakeTensor Device Propagation" in text or "same device" in text):
        return CaptureError("bad_input", f"forward() mixes tensors of different devices{where}; keep all of them on the CPU for capture "
                                         f"({one_line(error)}).", detail)
    return CaptureError("bad_input", f"forward() fails{where} ({one_line(error)}).", detail)


def _user_code_line(text):
    """Export's messages quote the user's line as '  File "x.py", line 3, in forward'."""
    found = [f for f in re.findall(r'File "([^"]+)", line (\d+)', text) if is_user_file(f[0])]
    return f" at {os.path.basename(found[-1][0])}:{found[-1][1]}" if found else ""


# Lowering -----------------------------------------------------------------------------------------------------------------------
class Captured:
    """graph; weights: name -> (kind, tensor); random inputs; trees for arguments and results; where the values of inputs
    (in order) and weights (by name) come from."""

    def __init__(self):
        self.graph = None
        self.weights = {}
        self.random_inputs = {}
        self.aten_ops = []
        self.input_spec = None
        self.output_spec = None
        self.input_made = []
        self.weight_made = {}


def lower_program(exported, names, *, allow_dropout_input=False):
    """`names` maps a state-dict name to the first name of the same tensor (tied weights appear once)."""
    program = exported.program
    lowering = Lowering(allow_dropout_input)
    lowering.stateful = set(exported.assigned)
    captured = Captured()
    env, inputs = _placeholders(exported, lowering, names, captured)
    results = lowering.run_graph(program.graph_module, env)
    graph = lowering.context.graph
    user, mutated = _outputs(exported, lowering, results, names)
    _require_tensor(user)
    user_outputs = [Output(v, f"output{i}") for i, v in enumerate(v for v in user if isinstance(v, Value))]
    read = graph.reachable([*user_outputs, *mutated])
    # A plain attribute that is written but never read is scratch space, not state.
    graph.outputs = user_outputs + [o for o in mutated if o.mutates_weight not in exported.plain or o.mutates_weight in read]
    graph.remove_dead()
    captured.graph = graph
    for name, tensor in lowering.weight_tensors.items():
        captured.weights.setdefault(name, ("constant", tensor))
    captured.random_inputs = lowering.random_inputs
    captured.output_spec = _tree_of_results(exported, user)
    captured.input_spec = _tree_of_inputs(program, inputs)
    return captured


def _placeholders(exported, lowering, names, captured):
    program = exported.program
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
            env[node] = _weight(exported, lowering, spec, node, names, captured)
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            env[node] = lowering.constant(spec.target, program.constants[spec.target])
            if isinstance(env[node], Value):
                captured.weights[env[node].node.name] = ("constant", program.constants[spec.target])
        else:
            raise CaptureError("unsupported", f"The program takes {spec.arg.name}, a {spec.kind.name.lower()}, which cannot be captured.")
    return env, inputs


def _weight(exported, lowering, spec, node, names, captured):
    name = names.get(spec.target, spec.target)
    existing = next((w for w in lowering.context.graph.weights if w.name == name), None)
    if existing is not None:
        return Value(existing)
    program = exported.program
    tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
    kind = "parameter" if spec.kind == InputKind.PARAMETER else "constant" if spec.target in exported.plain else "buffer"
    captured.weights[name] = (kind, tensor)
    return lowering.add_leaf("weight", name, *_type_of(node, f"the {kind} {name}"))


def _type_of(node, what):
    val = node.meta["val"]
    if any(not isinstance(e, int) for e in val.shape):
        raise CaptureError("unsupported", f"The shape of {what} is not static; give example inputs of a fixed shape.")
    if val.layout != torch.strided:
        raise CaptureError("unsupported", f"Sparse tensors cannot be captured: {what} is one.")
    return dtype_name(val.dtype, f" ({what})"), tuple(val.shape)


def _outputs(exported, lowering, results, names):
    """(forward()'s results in order, plain values included; outputs that carry a changed weight's or input's new value)."""
    user, mutated = [], {}
    tensor = lowering.context.tensor
    for spec, value in zip(exported.program.graph_signature.output_specs, results):
        if spec.kind == OutputKind.USER_OUTPUT:
            user.append(value if _is_plain(value) else tensor(value))
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            name = names.get(spec.target, spec.target)
            mutated[name] = Output(tensor(value), f"new_{name}", mutates_weight=name)
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            mutated["input " + spec.target] = Output(tensor(value), f"new_{spec.target}", mutates_input=spec.target)
        else:
            raise CaptureError("unsupported", f"The program returns a {spec.kind.name.lower()}, which cannot be captured.")
    for name, value in lowering.mutations.items():
        mutated.setdefault(name, Output(value, f"new_{name}", mutates_weight=name))
    # An assigned attribute's last value is the assigned one, whatever was done in place before.
    for name in reversed(exported.assigned):
        value, name = user.pop(), names.get(name, name)
        if any(w.name == name for w in lowering.context.graph.weights):
            mutated[name] = Output(value, f"new_{name}", mutates_weight=name)
    return user, list(mutated.values())


def _is_plain(value):
    return value is None or isinstance(value, (bool, int, float, str))


def _require_tensor(user):
    if not any(isinstance(v, Value) for v in user):
        raise CaptureError("bad_input", "forward() returns no tensor; return at least one.")


# Trees ----------------------------------------------------------------------------------------------------------------------------
class _Leaf:
    def __init__(self, tree):
        self.tree = tree


def _tree_of_results(exported, user):
    leaves, count = [], 0
    for value in user:
        if isinstance(value, Value):
            leaves.append(_Leaf({"tensor": count}))
            count += 1
        else:
            leaves.append(_Leaf({"value": value}))
    leaves += [None] * len(exported.assigned)
    tree = pytree.tree_unflatten(leaves, exported.program.call_spec.out_spec)
    return tree_json(tree[0] if exported.assigned else tree, "forward() returns")


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

"""Exports a module with torch.export and lowers the result. Works on fake tensors: nothing is computed and nothing large is allocated."""

from __future__ import annotations

import re
import traceback
import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from . import ir
from .errors import CaptureError, bad_input, unsupported
from .lower import HANDLERS, RANDOM, Lowerer, packet_name


class Captured:
    """A lowered program and what belongs to it."""

    def __init__(self, lowerer: Lowerer, mode: str, input_spec, output_spec):
        self.graph, self.weights, self.inputs, self.random = lowerer.g, lowerer.weights, lowerer.inputs, lowerer.random
        self.mode, self.input_spec, self.output_spec = mode, input_spec, output_spec

    def work(self):
        """(bytes of all values, arithmetic) as a rough guide to how long a run on the CPU takes."""
        total, flops = 0, 0.0
        for n in self.graph.nodes:
            for dtype, shape in n["types"]:
                count = 1
                for e in shape:
                    count *= e
                total += count * dtype.itemsize
                if n["op"] in ("linear", "convolution"):
                    w = n["args"][1]
                    per = 1
                    for e in w.shape[1:]:
                        per *= e
                    flops += 2.0 * count * per
                elif n["op"] in ("matmul", "addmm", "baddbmm"):
                    flops += 2.0 * count * n["args"][1 if n["op"] != "matmul" else 0].shape[-1]
                elif n["op"] in ("lstm", "gru", "rnn", "einsum", "scaled_dot_product_attention"):
                    flops += 200.0 * count
        return total, flops


def fake_pair(problem, seed):
    """Module and inputs as fake tensors; what cannot be built under fake tensors is built for real."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def attempt(make):
        try:
            with mode:
                made = make(seed)
            if not isinstance(made, torch.nn.Module) or not _hidden_fakes(made):
                return made
            return make(seed)  # the module keeps a tensor made in its constructor: it must be a real one
        except CaptureError:
            raise
        except Exception:  # noqa: BLE001 - the constructor reads a value: build it for real
            return make(seed)

    return attempt(problem.build), attempt(problem.inputs), mode


def _hidden_fakes(module) -> bool:
    """Does a module hold fake tensors that are neither parameters nor buffers?"""
    return any(isinstance(v, FakeTensor) for m in module.modules() for v in pytree.tree_leaves({k: x for k, x in vars(m).items() if not k.startswith("_")}))


def _as_fake(mode, values):
    return pytree.tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor) else x, values)


def check_inputs(values):
    for x in pytree.tree_leaves(values):
        if isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "cuda", "meta"):
            raise unsupported(f"An example input is on device {x.device}; give CPU or CUDA tensors.")
    devices = {x.device for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)}
    if len(devices) > 1:
        raise bad_input(f"The example inputs are on different devices ({', '.join(sorted(map(str, devices)))}); put all of them on one.")


def export(module, inputs, fake_mode=None):
    if fake_mode is not None:
        inputs = _as_fake(fake_mode, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, tuple(inputs), strict=False)
            return functional(program)
        except CaptureError:
            raise
        except Exception as e:  # noqa: BLE001
            raise translate(e, module) from e


def functional(program):
    """Functional ATen, high-level ops kept; ops without a handler are decomposed one by one until all have one."""
    program = program.run_decompositions({})
    for _ in range(4):
        table = {}
        for node in program.graph.nodes:
            name = packet_name(node.target) if node.op == "call_function" else ""
            if name and name not in HANDLERS and name not in RANDOM:
                rule = decomposition(node.target)
                if rule is not None:
                    table[node.target] = rule
        if not table:
            break
        program = program.run_decompositions(table)
    return program


def decomposition(op):
    from torch._decomp import decomposition_table

    if op in decomposition_table:
        return decomposition_table[op]
    if op._can_decompose():
        return lambda *a, **k: op.decompose(*a, **k)
    return None


def translate(e: Exception, module) -> CaptureError:
    """One sentence for the ways export fails."""
    text = str(e)
    first = text.strip().split("\n")[0][:240]
    detail = traceback.format_exc()
    place = _user_place(e, text)
    at = f" at {place}" if place else ""
    kind = type(e).__name__
    if "DataDependent" in kind or "data-dependent" in text or "GuardOnDataDependent" in kind or "Could not guard" in text:
        return unsupported(f"Control flow or a shape depends on tensor values{at}; rewrite it with torch.where or fixed shapes.", detail)
    if "different devices" in text or "same device" in text or "device mismatch" in text.lower() or "found two different devices" in text or "is not on the expected device" in text:
        return bad_input(f"Tensors on different devices meet{at} ({first}); move all of them to one device.", detail)
    if isinstance(e, RuntimeError) and ("dtype" in text or "expected m1 and m2" in text or "same dtype" in text or "scalar type" in text):
        return bad_input(f"Tensors of different dtypes meet{at} ({first}); convert them first.", detail)
    if isinstance(e, TypeError) and "forward()" in text:
        return bad_input(f"The inputs do not fit forward(): {first}; make get_inputs() return forward()'s arguments.", detail)
    if isinstance(e, NotImplementedError):
        return unsupported(f"The program uses something that cannot be captured{at}: {first}.", detail)
    return bad_input(f"The program fails on its example inputs{at} with {kind}: {first}.", detail)


def _user_place(e, text) -> str:
    """File and line of the user's code, from the traceback or from the message of export."""
    place = ""
    for frame in traceback.extract_tb(e.__traceback__):
        if "/torch/" not in frame.filename and "/stitchcuda/" not in frame.filename and "/lib/python" not in frame.filename and frame.filename != "<string>":
            place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    if place:
        return place
    for path, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        if "/torch/" not in path and "/stitchcuda/" not in path:
            place = f"{path.rsplit('/', 1)[-1]}:{line}"
    return place


def _tree(value, leaf):
    """How arguments or results nest, for docs/bundle.md's tree form."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, torch.Tensor):
        return {"tensor": leaf()}
    if isinstance(value, tuple):
        return {"tuple": [_tree(v, leaf) for v in value]}
    if isinstance(value, list):
        return {"list": [_tree(v, leaf) for v in value]}
    if isinstance(value, dict):
        return {"dict": {str(k): _tree(v, leaf) for k, v in value.items()}}
    if isinstance(value, torch.dtype) or isinstance(value, torch.device):
        return {"value": str(value)}
    raise unsupported(f"A {type(value).__name__} among the inputs or outputs cannot be captured; use tensors, numbers, tuples, lists and dicts.")


def _counter():
    n = -1

    def step():
        nonlocal n
        n += 1
        return n

    return step


def lower(program, inputs, training: bool) -> Captured:
    names = {}
    lowerer = Lowerer(program.graph_module, program.graph_signature, program.state_dict, program.constants, names)
    _state_of_buffers(program)
    lowerer.run()
    outputs = _output_tree(program)
    lowerer.g.drop_dead()
    used = {n["name"] for n in lowerer.g.nodes if n["op"] == "weight"}
    lowerer.weights = [w for w in lowerer.weights if w["name"] in used]
    return Captured(lowerer, "train" if training else "eval", _tree(tuple(inputs), _counter()), outputs)


def _state_of_buffers(program):
    """Non-persistent buffers are among the constants; nothing to do, but the lookup must find them."""
    for name, value in program.constants.items():
        program.state_dict.setdefault(name, value) if isinstance(value, torch.nn.Parameter) else None


def _output_tree(program):
    spec = program.call_spec.out_spec
    values = []
    nodes = {n.name: n for n in program.graph.nodes}
    for s in program.graph_signature.output_specs:
        if "USER_OUTPUT" not in str(s.kind):
            continue
        name = getattr(s.arg, "name", None)
        if name is not None and name in nodes:
            values.append(nodes[name].meta["val"])
        else:
            values.append(getattr(s.arg, "value", None))
    try:
        tree = pytree.tree_unflatten(values, spec)
    except Exception:  # noqa: BLE001
        tree = values[0] if len(values) == 1 else tuple(values)
    return _tree(tree, _counter())


__all__ = ["Captured", "FakeTensor", "check_inputs", "export", "fake_pair", "functional", "ir", "lower"]

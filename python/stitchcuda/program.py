"""One capture, from the target to the bundle on disk."""

import gc
import sys
import time

import torch
import torch.utils._pytree as pytree

from . import bundle, cost, problem as problems, reference
from .errors import CaptureError, at_line, detail_of, one_line
from .export import aten_ops, export, functional, lower_program, positional, state_tensors
from .generators import Made, Watch

_AUTO_WEIGHT_BYTES = 4 << 30


def progress(text):
    print(f"progress: {text}", file=sys.stderr, flush=True)


def capture_guarded(target, out, options):
    """{"ok": true, ...} or {"error": ...}; nothing escapes."""
    try:
        return {"ok": True, **capture(target, out, options)}
    except CaptureError as error:
        return {"error": error.as_json()}
    except KeyboardInterrupt:
        return {"error": {"kind": "environment", "message": "Capture was interrupted.", "detail": ""}}
    except MemoryError as error:
        message = f"Memory ran out during capture{at_line(error)}; use smaller inputs or --no-weights."
        return {"error": {"kind": "environment", "message": message, "detail": detail_of(error)}}
    except BaseException as error:  # noqa: BLE001
        return {"error": {"kind": "internal", "message": f"Capture failed ({one_line(error)}); please report it.", "detail": detail_of(error)}}


def capture(target, out, options):
    started = time.monotonic()
    progress(f"importing {target}")
    problem = problems.load(target, options.inputs)
    module, captured, real = _export(problem, options)
    graph = captured.graph
    moved, flops = cost.estimate(graph)
    expected = real and cost.is_small(graph) if options.expected == "auto" else options.expected == "yes"
    if expected and not real:
        raise CaptureError("bad_input", "Expected outputs need weights; drop --no-weights or --expected yes.")
    weights, cases = {}, []
    if real:
        stored = {w.name for w in graph.weights}
        weights = {name: t for name, (_, t) in captured.weights.items() if name in stored}
    for i in range(max(1, options.cases) if expected else 0):
        progress(f"running the module for case {i + 1} of {max(1, options.cases)}")
        cases.append((f"{i:03d}", reference.run_case(problem, module, captured, options.seed + i)))
    if out:
        progress("writing the bundle")
        bundle.write(out, _program_json(problem, module, captured, cases, real, options), weights, cases)
    gc.collect()
    return {"name": problem.name, "nodes": len(graph.nodes), "inputs": len(graph.inputs), "weights": len(graph.weights),
            "outputs": len(graph.outputs), "bytes": moved, "flops": flops, "has_weights": real, "expected": bool(expected),
            "random_inputs": list(captured.random_inputs), "ops": sorted({n.op for n in graph.nodes}), "aten_ops": captured.aten_ops,
            "seconds": round(time.monotonic() - started, 3)}


def _export(problem, options):
    """(module, captured program, whether the module's weights are real)."""
    dropout = options.train_dropout == "input"
    if problem.program is not None:
        progress("reading the exported program")
        exported = functional(problem.program)
        return problem.build(options.seed), _lower(exported, {}, dropout), not options.no_weights
    mode, watch = problems.new_fake_mode(), Watch()
    module = problems.build_fake(problem, mode, options.seed, watch)
    real = not options.no_weights and (options.weights or module is None or _weight_bytes(module) <= _AUTO_WEIGHT_BYTES)
    made = {} if module is None or real else {name: watch.made(t) for name, t in state_tensors(module).items()}
    if module is None or real:
        progress("building the module")
        module = problem.build(options.seed)
    if any(isinstance(p, torch.nn.parameter.UninitializedTensorMixin) for p in [*module.parameters(), *module.buffers()]):
        raise CaptureError("bad_input", "The module has lazy parameters, whose shapes are not known; call it once on example inputs in its constructor.")
    (args, kwargs), inputs_made = problems.fake_arguments(problem, mode, options.seed)
    args, kwargs = positional(module.forward, args, kwargs)
    leaves = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
    progress("exporting")
    exported = export(module, args, kwargs)
    progress("lowering")
    captured = _lower(exported, first_names(module), dropout)
    captured.input_made = [inputs_made.get(id(v)) for v in leaves]
    captured.weight_made = made
    return module, captured, real


def _lower(exported, names, dropout):
    """The captured program, which also knows the ATen operators met; an operator that cannot be lowered is met all the same."""
    ops = aten_ops(exported)
    try:
        captured = lower_program(exported, names, allow_dropout_input=dropout)
    except CaptureError as error:
        error.aten_ops = ops
        raise
    captured.aten_ops = ops
    return captured


def _weight_bytes(module):
    lazy = torch.nn.parameter.UninitializedTensorMixin
    return sum(t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers()] if not isinstance(t, lazy))


def first_names(module):
    """State-dict name -> the first name of the same tensor."""
    first, names = {}, {}
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            names[name] = first.setdefault(id(tensor), name)
    return names


def _program_json(problem, module, captured, cases, real, options):
    graph = captured.graph
    training = problem.program is None and module.training
    return {
        "format": "stitch", "version": 1, "name": problem.name, "mode": "train" if training else "eval",
        "origin": {"file": problem.file, "sha256": problem.sha256, "kind": problem.kind, "torch_version": torch.__version__,
                   "seed": options.seed},
        "precision": {"allow_tf32_matmul": torch.backends.cuda.matmul.allow_tf32, "allow_tf32_conv": torch.backends.cudnn.allow_tf32},
        "graph": graph.lines(), "inputs": _inputs_json(captured, options.seed), "weights": _weights_json(captured, options.seed),
        "input_spec": captured.input_spec, "output_spec": captured.output_spec, "cases": [name for name, _ in cases], "has_weights": real,
    }


def _inputs_json(captured, seed):
    out = []
    for i, node in enumerate(captured.graph.inputs):
        random = captured.random_inputs.get(node.name)
        made = Made(*random) if random else captured.input_made[i] if i < len(captured.input_made) else None
        entry = _tensor_json(node, made, seed + i)
        out.append({**entry, "random": True} if random else entry)
    return out


def _weights_json(captured, seed):
    out = []
    for i, node in enumerate(captured.graph.weights):
        kind = captured.weights[node.name][0]
        entry = _tensor_json(node, captured.weight_made.get(node.name), seed + 1000 + i)
        out.append({**entry, "parameter": kind == "parameter", "kind": kind})
    return out


def _tensor_json(node, made, seed):
    dtype, shape = node.types[0]
    return {"name": node.name, "dtype": dtype, "shape": list(shape), "generator": made.json(seed) if made else None}

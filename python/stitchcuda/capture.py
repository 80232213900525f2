"""The capture worker: python -m stitchcuda.capture TARGET -o X.stitch --result-file R.json

Progress goes to stderr, one line each. The result, one JSON object, goes to the file named by --result-file (stdout if none),
so that prints of the user's program cannot be taken for it. --batch captures many files in one process.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
import traceback

EXPECTED_BYTES, EXPECTED_FLOPS = 256 << 20, 2e10  # beyond this the module is not run unless asked for


def progress(text: str):
    print(f"progress: {text}", file=sys.stderr, flush=True)


def capture_program(problem, seed):
    """(captured, module and inputs are fake where possible)."""
    from . import export as ex

    if problem.kind == "pt2":
        program = ex.functional(problem.program)
        training = False
        return ex.lower(program, problem.inputs(seed), training)
    module, inputs, mode = ex.fake_pair(problem, seed)
    ex.check_inputs(inputs)
    program = ex.export(module, inputs, mode)
    return ex.lower(program, inputs, module.training)


def real_state(problem, seed):
    """The module built for real, and its tensors by the names export uses."""
    if problem.kind == "pt2":
        module = problem.program.module()
        return module, {**problem.program.state_dict, **problem.program.constants}
    module = problem.build(seed)
    state = {k: v for k, v in module.named_parameters(remove_duplicate=False)}
    state.update({k: v for k, v in module.named_buffers(remove_duplicate=False)})
    return module, state


def weights_of(captured, state, problem, seed):
    """Real tensors of the program's weights; constants lifted under fake tensors are taken from an export with real ones."""
    from torch._subclasses.fake_tensor import FakeTensor

    out, missing = {}, []
    for w in captured.weights:
        t = state.get(w["name"], w["tensor"])
        if isinstance(t, FakeTensor) or t.device.type == "meta":
            missing.append(w["name"])
        out[w["name"]] = t
    if missing:
        from . import export as ex

        program = ex.export(problem.build(seed), problem.inputs(seed))
        real = {**program.constants, **program.state_dict}
        for name in missing:
            out[name] = real[name]
    return out


def run_case(problem, captured, module, seed, with_expected):
    """Tensors of one case: inputs, and the outputs of a run on copies."""
    import torch
    from torch.utils import _pytree as pytree

    inputs = problem.inputs(seed)
    random_names = {r["name"] for r in captured.random}
    names = [n["name"] for n in captured.graph.nodes if n["op"] == "input" and n["name"] not in random_names]
    flat = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    tensors = {f"input.{n}": x for n, x in zip(names, flat)}
    # Random tensors: drawn here exactly as forward() will draw them from the same seed.
    torch.manual_seed(seed)
    for r in captured.random:
        draw = torch.randn if r["kind"] == "normal" else torch.rand
        tensors[f"input.{r['name']}"] = draw(r["shape"], dtype=r["dtype"])
    if not with_expected:
        return tensors
    torch.manual_seed(seed)
    own, given = copy.deepcopy(module) if problem.kind != "pt2" else module, copy.deepcopy(inputs)
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        result = own(*given)
    finally:
        torch.set_grad_enabled(before)
    results = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    state = {k: v for k, v in own.named_buffers(remove_duplicate=False)}
    state.update({k: v for k, v in own.named_parameters(remove_duplicate=False)})
    changed = dict(zip(names, [x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]))
    position = 0
    for _, attributes in captured.graph.outputs:
        if "mutates_weight" in attributes:
            tensors["expected." + attributes["name"]] = state[attributes["mutates_weight"]]
        elif "mutates_input" in attributes:
            tensors["expected." + attributes["name"]] = changed[attributes["mutates_input"]]
        else:
            tensors["expected." + attributes["name"]] = results[position]
            position += 1
    return tensors


def precision_flags():
    import torch

    return {"allow_tf32_matmul": bool(torch.backends.cuda.matmul.allow_tf32), "allow_tf32_conv": bool(torch.backends.cudnn.allow_tf32)}


def capture(target, out, seed=42, cases=1, expected=None, no_weights=False, inputs_attribute=None) -> dict:
    import torch

    from . import bundle
    from .problem import load

    started = time.time()
    progress("importing the program")
    problem = load(target, inputs_attribute)
    progress("exporting")
    captured = capture_program(problem, seed)
    size, flops = captured.work()
    if expected is None:
        expected = not no_weights and size < EXPECTED_BYTES and flops < EXPECTED_FLOPS
    weights, stored = None, {}
    if not no_weights:
        progress("building weights and inputs")
        module, state = real_state(problem, seed)
        weights = weights_of(captured, state, problem, seed)
        for i in range(cases):
            if expected:
                progress(f"running the module for case {i + 1} of {cases}")
            stored[f"{i:03d}"] = run_case(problem, captured, module, seed + i, expected)
    origin = {"file": problem.file, "sha256": problem.sha256, "kind": problem.kind, "torch_version": torch.__version__.split("+")[0], "seed": seed}
    program = bundle.program_json(captured, name=problem.name, origin=origin, precision=precision_flags(), cases=sorted(stored), has_weights=not no_weights)
    if out:
        progress("writing the bundle")
        bundle.write(out, program, weights, stored)
    return {"ok": True, "name": problem.name, "nodes": len(captured.graph.nodes), "inputs": len(program["inputs"]), "weights": len(program["weights"]),
            "bytes": size, "flops": flops, "expected": bool(expected), "seconds": round(time.time() - started, 3), "ops": sorted({n["op"] for n in captured.graph.nodes})}


def guarded(function, *args, **kwargs) -> dict:
    """The result of a capture, or its error as data."""
    from .errors import CaptureError

    try:
        return function(*args, **kwargs)
    except CaptureError as e:
        return {"error": {"kind": e.kind, "message": e.message, "detail": e.detail[-20000:]}}
    except MemoryError:
        return {"error": {"kind": "environment", "message": "Out of memory while capturing; use smaller inputs or --no-weights.", "detail": ""}}
    except OSError as e:
        kind = "environment"
        message = "The disk is full; free some space and run again." if e.errno == 28 else f"The system refused something while capturing: {e}."
        return {"error": {"kind": kind, "message": message, "detail": traceback.format_exc()[-20000:]}}
    except Exception as e:  # noqa: BLE001
        return {"error": {"kind": "internal", "message": f"Capture failed with {type(e).__name__}: {str(e).strip().splitlines()[0][:200] if str(e).strip() else ''}; please report it.",
                          "detail": traceback.format_exc()[-20000:]}}


def main():
    parser = argparse.ArgumentParser(prog="stitchcuda.capture")
    parser.add_argument("targets", nargs="+")
    parser.add_argument("-o", "--out", default="")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--expected", choices=["auto", "yes", "no"], default="auto")
    parser.add_argument("--no-weights", action="store_true")
    parser.add_argument("--inputs", default=None)
    parser.add_argument("--batch", action="store_true", help="many targets; -o names a folder; one result line each")
    parser.add_argument("--result-file", default="", help="where the answer goes (default: stdout)")
    a = parser.parse_args()
    # The user's program may print and may close stdout: keep the channel apart.
    channel = open(a.result_file, "w") if a.result_file else os.fdopen(os.dup(1), "w")
    if not a.result_file:
        os.dup2(2, 1)

    def emit(result):
        channel.write(json.dumps(result) + "\n")
        channel.flush()

    try:
        import torch  # noqa: F401
    except ImportError:
        emit({"error": {"kind": "environment", "message": "This Python has no PyTorch; run make setup.", "detail": sys.executable}})
        return
    options = dict(seed=a.seed, cases=a.cases, expected={"auto": None, "yes": True, "no": False}[a.expected], no_weights=a.no_weights, inputs_attribute=a.inputs)
    for target in a.targets:
        out = a.out
        if a.batch and a.out:
            out = os.path.join(a.out, os.path.splitext(os.path.basename(target))[0] + ".stitch")
        result = guarded(capture, target, out, **options)
        emit({**result, "target": target} if a.batch else result)


if __name__ == "__main__":
    main()

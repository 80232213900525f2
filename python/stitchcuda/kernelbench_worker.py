"""The process in which KernelBench's evaluator runs: see kernelbench_eval.py, which starts it.

The evaluator is imported from the checkout as it is. What happens around it:
  - packages that its modules import but that evaluating never uses are replaced while it is imported, if they are missing;
  - its torch.allclose calls are watched, because it reports an error's size only when the comparison fails;
  - with "inputs_on_device" its loaders give back functions that build inputs and modules on the device, under the same seeds, and one call
    of ModelNew is traced ("device_ms": milliseconds in own, vendor and framework kernels).
"""

import argparse
import contextlib
import copy
import functools
import gc
import importlib
import importlib.machinery
import inspect
import json
import math
import os
import re
import sys
import time
import traceback
import types

import torch

from stitchcuda import offline_models
from stitchcuda.device_share import Traced


# Loading the evaluator ----------------------------------------------------------------------------------------------------------
class _Missing:
    """Stands for a name of a package that is not installed. Using it is an error that says so."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.name} is not installed; evaluating should not need it.")


class _Model:
    """pydantic.BaseModel as far as KernelBench's result record uses it: annotated fields with defaults, set by keyword."""

    def __init__(self, **values):
        for kind in reversed(type(self).__mro__):
            for name in inspect.get_annotations(kind):
                setattr(self, name, copy.deepcopy(getattr(kind, name, None)))
        for name, value in values.items():
            setattr(self, name, value)


# kernelbench.eval imports requests and pydantic; importing the package runs kernelbench.utils, whose code that asks language models
# needs the rest. Of all these only pydantic's BaseModel takes part in an evaluation.
_REPLACED = {
    "requests": {}, "tqdm": {"tqdm": _Missing("tqdm")}, "openai": {"OpenAI": _Missing("openai")}, "litellm": {"completion": _Missing("litellm")},
    "dotenv": {"load_dotenv": lambda *args, **kwargs: False}, "pydantic": {"BaseModel": _Model},
}


@contextlib.contextmanager
def missing_packages_replaced():
    """Yields the names of the packages that had to be replaced."""
    missing = [name for name in _REPLACED if name not in sys.modules and importlib.util.find_spec(name) is None]
    for name in missing:
        module = types.ModuleType(name, "Not installed: replaced while KernelBench's evaluator is imported.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(_REPLACED[name])
        sys.modules[name] = module
    try:
        yield missing
    finally:
        for name in missing:
            sys.modules.pop(name, None)


class Refused(Exception):
    """The evaluator cannot be used; the text is one sentence."""


def load_evaluator(root):
    """(the module kernelbench.eval of the checkout, names of replaced packages)."""
    source = os.path.join(root, "src")
    if not os.path.isfile(os.path.join(source, "kernelbench", "eval.py")):
        raise Refused(f"{source} holds no kernelbench/eval.py; give --kernelbench-root a checkout of KernelBench.")
    sys.path.insert(0, source)
    with missing_packages_replaced() as replaced:
        try:
            module = importlib.import_module("kernelbench.eval")
        except Exception as error:  # noqa: BLE001  (it imports what it likes)
            traceback.print_exc()
            raise Refused(f"KernelBench's evaluator cannot be imported ({type(error).__name__}: {one_line(error)}).") from error
    if not callable(getattr(module, "eval_kernel_against_ref", None)):
        raise Refused(f"{module.__file__} has no eval_kernel_against_ref; another version of KernelBench is needed.")
    return module, replaced


def one_line(error):
    return " ".join(str(error).split())[:400] or type(error).__name__


# Watching the comparison ----------------------------------------------------------------------------------------------------------
class Comparisons:
    """What torch.allclose was asked during an evaluation."""

    def __init__(self):
        self.max_error = None
        self.tolerance = None
        self.passed = 0
        self.count = 0

    @contextlib.contextmanager
    def watch(self):
        original = torch.allclose

        @functools.wraps(original)
        def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
            close = original(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)
            self.count += 1
            self.passed += bool(close)
            self.tolerance = atol
            try:
                self.max_error = worst(self.max_error, largest_difference(input, other))
            except Exception as error:  # noqa: BLE001  (the size is only told, the verdict is KernelBench's)
                print(f"The size of the error could not be found ({one_line(error)}).", file=sys.stderr)
            return close

        torch.allclose = allclose
        try:
            yield
        finally:
            torch.allclose = original


def worst(a, b):
    return b if a is None or math.isnan(b) else a if math.isnan(a) else max(a, b)


def largest_difference(a, b, step=1 << 26):
    """max |a - b| in pieces, because outputs of several GB leave no room for temporaries. NaN where only one is finite."""
    if a.shape != b.shape:
        a, b = torch.broadcast_tensors(a, b)
    a, b = a.detach().reshape(-1), b.detach().reshape(-1)
    largest = 0.0
    for i in range(0, a.numel(), step):
        x, y = a[i:i + step], b[i:i + step]
        if not x.is_floating_point():
            x, y = x.double(), y.double()
        difference = (x - y).abs_()
        difference.masked_fill_(x == y, 0.0)  # equal infinities
        largest = worst(largest, difference.max().item())
    return largest


# Inputs and weights on the device -------------------------------------------------------------------------------------------------
class OnDevice:
    """Wraps what KernelBench's loaders return, so that tensors are created on the device. A constructor or get_inputs() that
    cannot work there runs on the CPU as usual; Model and ModelNew always go the same way, so that their weights agree."""

    def __init__(self, evaluator, device, seed):
        self.evaluator, self.device, self.seed = evaluator, torch.device(device), seed
        self.model_on_cpu = False
        self.traced = None  # the ModelNew whose call is traced

    @contextlib.contextmanager
    def applied(self):
        names = ("load_original_model_and_inputs", "load_custom_model")
        originals = {n: getattr(self.evaluator, n, None) for n in names}
        if not all(callable(f) for f in originals.values()):
            raise Refused("This version of KernelBench has no load_original_model_and_inputs and load_custom_model; drop --inputs-on-device.")

        def load_original(*args, **kwargs):
            loaded = originals[names[0]](*args, **kwargs)
            if loaded is None:
                return None
            model, init_inputs, inputs = loaded
            return self.construct(model), init_inputs, self.inputs(inputs)

        def load_custom(*args, **kwargs):
            model = originals[names[1]](*args, **kwargs)
            return None if model is None else self.trace(self.construct(model))

        setattr(self.evaluator, names[0], load_original)
        setattr(self.evaluator, names[1], load_custom)
        try:
            yield
        finally:
            for n, f in originals.items():
                setattr(self.evaluator, n, f)

    def trace(self, build):
        def make(*args, **kwargs):
            module = build(*args, **kwargs)
            if self.device.type == "cuda":
                self.traced = Traced(module)
            return module
        return make

    def construct(self, kind):
        def build(*args, **kwargs):
            if not self.model_on_cpu:
                try:
                    with self.device:
                        return kind(*args, **kwargs)
                except Exception as error:  # noqa: BLE001
                    if kind.__name__ == "ModelNew":
                        raise
                    print(f"{kind.__name__} is built on the CPU ({one_line(error)}).", file=sys.stderr)
                    self.model_on_cpu = True
                    self.evaluator.set_seed(self.seed)
            return kind(*args, **kwargs)
        return build

    def inputs(self, get_inputs):
        def make():
            try:
                with self.device:
                    return get_inputs()
            except Exception as error:  # noqa: BLE001
                print(f"get_inputs() runs on the CPU ({one_line(error)}).", file=sys.stderr)
                return get_inputs()
        return make


# One problem ----------------------------------------------------------------------------------------------------------------------
def custom_source(folder):
    """model_new.py as text. KernelBench runs a candidate's text without its path, so the text must name its folder."""
    with open(os.path.join(folder, "model_new.py"), encoding="utf-8") as f:
        text = f.read()
    return re.sub(r"^PROGRAM_FOLDER = .*$", lambda _: f"PROGRAM_FOLDER = {folder!r}", text, count=1, flags=re.M)


def evaluate(evaluator, request, device):
    with open(request["problem"], encoding="utf-8") as f:
        original = f.read()
    if offline_models.wanted_by(original):
        offline_models.install()
    wanted = {"seed_num": request["seed"], "num_correct_trials": request["trials"], "measure_performance": False, "verbose": False,
              "device": torch.device(device, torch.cuda.current_device()) if device == "cuda" else device, "backend": "cuda",
              "precision": torch.float32}
    known = inspect.signature(evaluator.eval_kernel_against_ref).parameters
    options = {k: v for k, v in wanted.items() if k in known}
    comparisons = Comparisons()
    on_device = OnDevice(evaluator, device, request["seed"]) if request["inputs_on_device"] else None
    with comparisons.watch(), on_device.applied() if on_device else contextlib.nullcontext():
        record = evaluator.eval_kernel_against_ref(original, custom_source(request["folder"]), **options)
    result = result_of(record, comparisons, request["trials"])
    if on_device and on_device.traced:
        result["device_ms"] = on_device.traced.shares
    return result


def result_of(record, comparisons, trials):
    error = comparisons.max_error
    finite = error is not None and math.isfinite(error)
    numbers = {"max_error": error if finite else None, "tolerance": comparisons.tolerance, "trials_passed": comparisons.passed, "trials": trials}
    if record is None:
        return {"compiled": False, "correct": False, "reason": "KernelBench's evaluator gave no result: a file or a lock was missing.", **numbers}
    correct = bool(record.correctness)
    reason = "" if correct else reason_of(record, comparisons, trials)
    return {"compiled": bool(record.compiled), "correct": correct, "reason": reason, **numbers}


def reason_of(record, comparisons, trials):
    metadata = record.metadata or {}
    if "compilation_error" in metadata:
        return f"model_new.py cannot be loaded ({metadata.get('compilation_error_name', 'error')}: {one_line(metadata['compilation_error'])})."
    if "runtime_error" in metadata:
        error = metadata["runtime_error"]
        kind = metadata.get("runtime_error_name", "error")
        # An exception object comes from outside the part that guards ModelNew's forward.
        if isinstance(error, BaseException) and not raised_by_model_new(error):
            return f"KernelBench's evaluator cannot run its own reference ({kind}: {one_line(error)})."
        return f"ModelNew raised {kind}: {one_line(error)}."
    issue = metadata.get("correctness_issue")
    if issue == "Output mismatch":
        size = "not a number" if comparisons.max_error is None or not math.isfinite(comparisons.max_error) else f"{comparisons.max_error:.3g}"
        return f"The outputs differ by up to {size} ({comparisons.passed} of {trials} trials passed)."
    return f"{one_line(issue)}." if issue else f"{comparisons.passed} of {trials} trials passed."


def raised_by_model_new(error):
    frame = error.__traceback__
    while frame is not None:
        if type(frame.tb_frame.f_locals.get("self")).__name__ == "ModelNew":
            return True
        frame = frame.tb_next
    return False


def serve(request, evaluator, device):
    started = time.monotonic()
    try:
        result = evaluate(evaluator, request, device)
    except Exception as error:  # noqa: BLE001  (the evaluator lets errors of its own clean-up through)
        traceback.print_exc()
        result = {"compiled": False, "correct": False, "reason": f"KernelBench's evaluator raised {type(error).__name__}: {one_line(error)}.",
                  "max_error": None, "tolerance": None, "trials_passed": 0, "trials": request["trials"]}
    result["seconds"] = round(time.monotonic() - started, 3)
    gc.collect()  # the evaluator's context refers to itself, and holds the weights
    result["unusable"] = not device_works(device)
    return result


def device_works(device):
    if device != "cuda":
        return True
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.ones(2, device="cuda").sum().item() == 2.0
    except Exception:  # noqa: BLE001
        return False


def hello(root, device):
    """(the evaluator, first line for the parent)."""
    if device == "cuda" and not torch.cuda.is_available():
        raise Refused("KernelBench's evaluator needs an NVIDIA GPU, and PyTorch finds none on this machine.")
    evaluator, replaced = load_evaluator(root)
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return evaluator, {"evaluator": evaluator.__file__, "torch": torch.__version__, "device": name, "packages_not_installed": replaced}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--answer-fd", type=int, required=True)
    parser.add_argument("--kernelbench-root", required=True)
    parser.add_argument("--device", required=True)
    options = parser.parse_args()
    answers = os.fdopen(options.answer_fd, "w", buffering=1)
    os.dup2(2, 1)  # the evaluator and the problems print; nobody must take that for an answer
    try:
        evaluator, first = hello(options.kernelbench_root, options.device)
    except Refused as refused:
        answers.write(json.dumps({"error": str(refused)}) + "\n")
        return 4
    answers.write(json.dumps(first) + "\n")
    for line in sys.stdin:
        result = serve(json.loads(line), evaluator, options.device)
        answers.write(json.dumps(result, allow_nan=False) + "\n")
        if result["unusable"]:
            answers.flush()
            os._exit(3)  # destructors would only fail on the broken context
    return 0


if __name__ == "__main__":
    sys.exit(main())

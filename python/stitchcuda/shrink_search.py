"""Finds the constants of a small-size twin: literals are made smaller step by step as long as the module still runs, calls the same
functions and gets cheaper, until it is cheap enough. Trials run on fake tensors; the result runs for real once. No randomness."""

import logging
import os
import re
import types
import warnings
import zlib

import torch
import torch.utils._pytree as pytree
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from . import problem as problems
from .errors import CaptureError
from .export import _gru_shapes, _lstm_shapes, positional
from .shrink import is_outside, literals, load

MAX_FLOPS = 32e6
MAX_ELEMENTS = 600e3       # written by all operators together
SIZES = [4096, 2048, 1024, 512, 256, 128, 96, 64, 48, 32, 24, 16, 12, 8]
SMALLEST_SCALED = 13       # smaller literals are kernel sizes, strides, numbers of layers ...: the structure
LARGE_BATCH = 256          # from here on it is a matrix's or a loop's extent like any other
_BATCH = re.compile(r"^(batch|batch_size|b|n)$", re.I)
_STRUCTURE = re.compile(r"kernel|stride|pad|dilat|group|head|patch|window|pool|layers", re.I)
_MISMATCH = re.compile(r"same reduction dim, but got \[\d+, (\d+)\] X \[(\d+), \d+\]")


class Measure:
    """What a forward pass on fake tensors costs, and which functions it calls."""

    def __init__(self):
        self.calls = set()
        self.flops = 0
        self.elements = 0
        self.inputs = 0

    def fits(self):
        return self.flops <= MAX_FLOPS and self.elements <= MAX_ELEMENTS and self.inputs <= MAX_ELEMENTS

    def total(self):
        return self.flops / MAX_FLOPS + (self.elements + self.inputs) / MAX_ELEMENTS


_RECURRENT = {"lstm": _lstm_shapes, "gru": _gru_shapes, "rnn_tanh": _gru_shapes, "rnn_relu": _gru_shapes}


class _Calls(TorchFunctionMode):
    def __init__(self, measure):
        super().__init__()
        self.measure = measure

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = resolve_name(func) or getattr(func, "__name__", "")
        self.measure.calls.add(name)
        shapes = _RECURRENT.get(name.rpartition(".")[2])
        if shapes is None or len(args) != 9:
            return func(*args, **(kwargs or {}))
        # PyTorch would unroll it over time.
        self.measure.flops += 2 * (args[0].numel() // args[0].shape[-1]) * sum(t.numel() for t in args[2] if t.dim() == 2)
        self.measure.elements += 4 * args[0].numel() // args[0].shape[-1] * args[1][0].shape[-1] * args[4]
        return shapes(*args)


class _Costs(TorchDispatchMode):
    def __init__(self, measure):
        super().__init__()
        self.measure = measure

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.measure.flops += count(*args, **(kwargs or {}), out_val=out)
        if not func.is_view:
            self.measure.elements += sum(t.numel() for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor))
        return out


class _Trial(problems.FileProblem):
    """The problem with some literals replaced."""

    def __init__(self, file, constants):
        problems.Problem.__init__(self, os.path.basename(file), file, "kernelbench")
        self.base = os.path.basename(file)
        scope = {"__name__": "stitch_twin", "__file__": file}
        problems.guarded(lambda: load(file, constants, scope), self.base, "cannot be imported")
        self.module = types.SimpleNamespace(**scope)
        if not hasattr(self.module, "Model") or not hasattr(self.module, "get_inputs"):
            raise CaptureError("bad_input", f"{self.base} is no KernelBench-style problem: it needs a class Model and a function get_inputs.")


def measure(file, constants):
    trial, mode, seen = _Trial(file, constants), problems.new_fake_mode(), Measure()
    module = problems.build_fake(trial, mode, 42, problems.Watch())
    if module is None:
        module = trial.build(42)
    (args, kwargs), _ = problems.fake_arguments(trial, mode, 42)
    args, kwargs = positional(module.forward, args, kwargs)
    seen.inputs = sum(t.numel() for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
    seen.inputs += sum(t.numel() for t in [*module.parameters(), *module.buffers()])
    with torch.no_grad(), mode, _Costs(seen), _Calls(seen):
        out = module(*args, **kwargs)
    if any(isinstance(t, torch.Tensor) and t.numel() == 0 for t in pytree.tree_leaves(out)):
        raise ValueError("an output has no elements")
    return seen


class Result:
    def __init__(self, constants, first, last):
        self.constants, self.first, self.last = constants, first, last

    def text(self):
        small = "" if self.last.fits() else " (larger than wanted)"
        return (f"{self.last.flops / 1e6:.1f} of {self.first.flops / 1e6:.0f} MFLOP, {self.last.elements / 1e3:.0f} of {self.first.elements / 1e3:.0f} "
                f"thousand elements{small}: {self.constants}")


class _Search:
    def __init__(self, file):
        self.file = file
        self.values = literals(file)
        self.constants = {}
        self.first = self.now = measure(file, {})
        self.tried = set()

    def value(self, key):
        return self.constants.get(key, self.values[key])

    def attempt(self, changes, repairs=3):
        """Takes the changes if the module still runs, calls the same functions and costs less."""
        trial = {**self.constants, **changes}
        mark = tuple(sorted(trial.items()))
        if mark in self.tried or all(self.value(k) == v for k, v in changes.items()):
            return False
        self.tried.add(mark)
        try:
            seen = measure(self.file, trial)
        except Exception as error:  # noqa: BLE001  (a wrong guess fails in any way)
            return repairs > 0 and self.repaired(changes, trial, str(error), repairs)
        if seen.calls != self.first.calls or seen.total() >= self.now.total():
            return False
        self.constants, self.now = trial, seen
        return True

    def repaired(self, changes, trial, message, repairs):
        """A linear layer that knows the size of its flattened input gets the new one."""
        sizes = _MISMATCH.search(message)
        if sizes is None:
            return False
        got, known = int(sizes[1]), int(sizes[2])
        holders = [k for k in self.values if k not in changes and trial.get(k, self.values[k]) == known]
        return len(holders) == 1 and self.attempt({**changes, holders[0]: got}, repairs - 1)

    def outside(self):
        return [k for k, v in self.values.items() if is_outside(k) and v >= SMALLEST_SCALED and not _STRUCTURE.search(k)]

    def odd(self, key, size):
        """Near `size`, but for half of all constants no multiple of what vector loads want; the same in every run."""
        choice = self.choice(key)
        return [size + 1, size] if choice == 0 else [size - 1, size] if choice == 1 else [size]

    def choice(self, key):
        return zlib.crc32(f"{os.path.basename(self.file)} {key}".encode()) % 4

    def batch(self):
        for key in [k for k, v in self.values.items() if is_outside(k) and _BATCH.match(k) and v > 3]:
            # A large one is often a matrix's extent: only in some programs it becomes small, so that rows stay long.
            named = key.lower().startswith("batch")
            if not (named or self.values[key] <= 32) or self.values[key] >= LARGE_BATCH and self.choice(key) >= (2 if self.first.flops == 0 else 1):
                continue
            for size in (3, 2):
                if self.attempt({key: size}):
                    break

    def sizes(self, keys, least=0):
        for size in SIZES:
            if size < least:
                return
            for key in sorted(keys, key=self.value, reverse=True):
                if self.now.fits():
                    return
                if self.value(key) > size:
                    any(self.attempt({key: s}) for s in self.odd(key, size))

    def together(self, keys):
        """Constants that must stay equal or in proportion: all are halved, as often as that works."""
        while not self.now.fits():
            halves = [{k: self.value(k) // 2 for k in keys if self.value(k) >= 2 * least and self.value(k) % 2 == 0} for least in (8, 4)]
            if not any(h and self.attempt(h) for h in halves):
                return

    def known_size(self, inner):
        """An image size that the module repeats, with the one literal (a window) that must divide what becomes of it."""
        for key in [k for k in self.outside() if k not in self.constants]:
            same = [k for k in self.values if self.values[k] == self.values[key]]
            for size in (64, 32):
                if len(same) > 1 and self.values[key] > size:
                    alone = {k: size for k in same}
                    windows = [k for k, v in self.values.items() if not is_outside(k) and 5 <= v < SMALLEST_SCALED]
                    if self.attempt(alone) or any(self.attempt({**alone, w: 4}) for w in windows):
                        break
        self.together(inner)
        for value in sorted({self.value(k) for k in inner}, reverse=True):  # widths apart from numbers of heads
            self.together([k for k in inner if self.value(k) == value])

    def run(self):
        self.batch()
        keys = self.outside()
        # Channels inside the module before images become so small that its last layers see single pixels.
        inner = [k for k, v in self.values.items() if not is_outside(k) and v >= SMALLEST_SCALED]
        self.sizes(keys, 64 if inner else 0)
        self.together(keys)
        if not self.now.fits():
            self.together(inner + keys)
            self.together(inner)
            self.sizes(keys)
        if not self.now.fits():
            self.known_size(inner)
        if not self.now.fits():  # heads, patches, layers too
            rest = [k for k, v in self.values.items() if is_outside(k) and v > 4]
            self.sizes(rest)
            for key in sorted(rest, key=self.value, reverse=True):
                for size in (6, 4, 2):
                    if not self.now.fits() and self.value(key) > size:
                        self.attempt({key: size})


def run_for_real(file, constants):
    """Raises if the twin does not run on the CPU or gives no finite number."""
    trial = _Trial(file, constants)
    module, (args, kwargs) = trial.build(42), trial.arguments(42)
    with torch.no_grad():
        out = module(*args, **kwargs)
    tensors = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    if not any(torch.isfinite(t).any() for t in tensors):
        raise ValueError("its outputs hold no finite number")


def shrink(file):
    """The Result for a problem file; the original constants where nothing smaller works."""
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # wrong guesses are expected
    warnings.simplefilter("ignore")
    search = _Search(file)
    search.run()
    ordered = {k: search.constants[k] for k in search.values if search.constants.get(k, search.values[k]) != search.values[k]}
    try:
        run_for_real(file, ordered)
    except Exception as error:  # noqa: BLE001
        raise CaptureError("bad_input", f"The small-size twin of {os.path.basename(file)} does not run ({error}).") from error
    return Result(ordered, search.first, search.now)

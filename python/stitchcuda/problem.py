"""Loading what the user wants captured: a KernelBench-style file, a `module:callable`, or an exported `.pt2`."""

import hashlib
import importlib
import importlib.util
import inspect
import os
import random
import sys

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import offline_models
from .errors import CaptureError, at_line, detail_of, one_line
from .generators import Watch


def set_seed(seed):
    torch.manual_seed(seed)
    random.seed(seed)


class Problem:
    """A module with its example inputs, built on demand under a seed, the way KernelBench seeds: before the constructor's
    arguments, before the constructor, and before the inputs."""

    program = None  # the torch.export program of a .pt2

    def __init__(self, name, file, kind):
        self.name = name
        self.file = file
        self.kind = kind
        self.sha256 = ""
        if file and os.path.isfile(file):
            with open(file, "rb") as f:
                self.sha256 = hashlib.sha256(f.read()).hexdigest()

    def build(self, seed):
        """The torch.nn.Module, in the mode its constructor leaves it."""
        raise NotImplementedError

    def arguments(self, seed):
        """forward()'s (positional, keyword) arguments."""
        raise NotImplementedError

    def inputs(self, seed):
        """forward()'s positional arguments."""
        return list(self.arguments(seed)[0])


def load(target, inputs_attribute=None):
    if target.endswith(".pt2"):
        return ExportedProblem(target)
    head, colon, attribute = target.rpartition(":")
    if colon and not os.path.exists(target):
        return CallableProblem(head, attribute, inputs_attribute)
    return FileProblem(target)


# Files ------------------------------------------------------------------------------------------------------------------------
def _import_file(file):
    if not os.path.exists(file):
        raise CaptureError("bad_input", f"{file} does not exist.")
    if os.path.isdir(file):
        raise CaptureError("bad_input", f"{file} is a folder; give a .py file, a .pt2 file or module:callable.")
    if not file.endswith(".py"):
        raise CaptureError("bad_input", f"{file} is no Python file; give a .py file, a .pt2 file or module:callable.")
    folder = os.path.dirname(os.path.abspath(file))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = "stitch_problem_" + hashlib.sha256(os.path.abspath(file).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with open(file, encoding="utf-8", errors="replace") as f:
        if offline_models.wanted_by(f.read()):
            offline_models.install()
    guarded(lambda: spec.loader.exec_module(module), os.path.basename(file), "cannot be imported")
    return module


def guarded(function, what, failure):
    """Runs user code; any failure is one sentence with the user's line."""
    try:
        return function()
    except CaptureError:
        raise
    except SyntaxError as error:
        name = os.path.basename(error.filename or what)
        raise CaptureError("bad_input", f"{name}, line {error.lineno}: {error.msg}.", detail_of(error)) from error
    except ModuleNotFoundError as error:
        raise CaptureError("environment", f"{what} needs the Python package {error.name}, which is not installed{at_line(error)}.",
                           detail_of(error)) from error
    except SystemExit as error:
        raise CaptureError("bad_input", f"{what} {failure}: it calls sys.exit{at_line(error)}.", detail_of(error)) from error
    except MemoryError as error:
        raise CaptureError("environment", f"{what} {failure}: memory ran out{at_line(error)}.", detail_of(error)) from error
    except Exception as error:  # noqa: BLE001
        raise CaptureError("bad_input", f"{what} {failure}{at_line(error)} ({one_line(error)}).", detail_of(error)) from error


class FileProblem(Problem):
    """A KernelBench-style file: class Model, get_inputs(), and get_init_inputs() where the constructor takes arguments."""

    def __init__(self, file):
        module = _import_file(file)
        self.base = os.path.basename(file)
        super().__init__(os.path.splitext(self.base)[0], file, "kernelbench")
        if not inspect.isclass(getattr(module, "Model", None)):
            raise CaptureError("bad_input", f"{self.base} defines no class Model; define one, or name a callable with {self.base}:callable.")
        if not callable(getattr(module, "get_inputs", None)):
            raise CaptureError("bad_input", f"{self.base} defines no function get_inputs; define one that returns forward()'s arguments.")
        self.module = module

    def build(self, seed):
        args, kwargs = self._init_arguments(seed)
        set_seed(seed)
        model = guarded(lambda: self.module.Model(*args, **kwargs), f"The constructor of Model in {self.base}", "fails")
        return _require_module(model, f"Model in {self.base}")

    def _init_arguments(self, seed):
        set_seed(seed)
        what = f"get_init_inputs() of {self.base}"
        init = getattr(self.module, "get_init_inputs", None)
        values = guarded(init, what, "fails") if callable(init) else []
        if isinstance(values, dict):
            return (), values
        if not isinstance(values, (list, tuple)):
            raise CaptureError("bad_input", f"{what} must return a list, not a {type(values).__name__}.")
        # KernelBench also allows [[arguments], {keyword arguments}].
        if len(values) == 2 and isinstance(values[0], (list, tuple)) and isinstance(values[1], dict):
            return tuple(values[0]), values[1]
        return tuple(values), {}

    def arguments(self, seed):
        set_seed(seed)
        what = f"get_inputs() of {self.base}"
        return as_arguments(guarded(self.module.get_inputs, what, "fails"), what)


def as_arguments(value, what):
    if isinstance(value, torch.Tensor):
        return (value,), {}
    if isinstance(value, dict):
        return (), dict(value)
    if isinstance(value, (list, tuple)):
        return tuple(value), {}
    raise CaptureError("bad_input", f"{what} must give a tensor, a list or tuple of arguments, or a dict of keyword arguments, "
                                    f"not a {type(value).__name__}.")


def _require_module(model, what):
    if not isinstance(model, torch.nn.Module):
        raise CaptureError("bad_input", f"{what} is no torch.nn.Module but a {type(model).__name__}.")
    return model


# module:callable ----------------------------------------------------------------------------------------------------------------
class _Function(torch.nn.Module):
    """A plain function of tensors as a module without parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class CallableProblem(Problem):
    """`module:attribute` or `file.py:attribute`: a module, a module class, a function that makes one, or a function of tensors."""

    def __init__(self, head, attribute, inputs_attribute):
        if head.endswith(".py"):
            module, file = _import_file(head), head
        else:
            if os.getcwd() not in sys.path:
                sys.path.insert(0, os.getcwd())
            module = guarded(lambda: importlib.import_module(head), f"The module {head}", "cannot be imported")
            file = getattr(module, "__file__", "") or ""
        super().__init__(attribute.rpartition(".")[2], file, "callable")
        self.what = f"{head}:{attribute}"
        self.thing = module
        for part in attribute.split("."):
            if not hasattr(self.thing, part):
                raise CaptureError("bad_input", f"{head} has no attribute {attribute}.")
            self.thing = getattr(self.thing, part)
        if not callable(self.thing):
            raise CaptureError("bad_input", f"{self.what} cannot be called; name a module, a class or a function.")
        names = [inputs_attribute] if inputs_attribute else ["get_inputs", "example_inputs"]
        self.example = next((getattr(module, n) for n in names if hasattr(module, n)), None)
        if self.example is None:
            raise CaptureError("bad_input", f"{head} has no {' or '.join(names)}; define example inputs there and name them with --inputs.")

    def build(self, seed):
        set_seed(seed)
        return _build_callable(self.thing, self.what)

    def arguments(self, seed):
        set_seed(seed)
        what = f"The example inputs of {self.what}"
        return as_arguments(guarded(self.example, what, "fail") if callable(self.example) else self.example, what)


def _build_callable(thing, what):
    if isinstance(thing, torch.nn.Module):
        return thing
    if inspect.isclass(thing) and issubclass(thing, torch.nn.Module):
        return guarded(thing, f"The constructor of {what}", "fails")
    parameters = inspect.signature(thing).parameters.values()
    if not any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) and p.default is p.empty for p in parameters):
        return _require_module(guarded(thing, what, "fails"), f"The result of {what}()")
    return _Function(thing)


# .pt2 -----------------------------------------------------------------------------------------------------------------------------
class ExportedProblem(Problem):
    """A file saved by torch.export.save."""

    def __init__(self, file):
        if not os.path.exists(file):
            raise CaptureError("bad_input", f"{file} does not exist.")
        super().__init__(os.path.splitext(os.path.basename(file))[0], file, "pt2")
        self.program = guarded(lambda: torch.export.load(file), os.path.basename(file), "cannot be read by torch.export.load")

    def build(self, seed):
        return self.program.module()

    def arguments(self, seed):
        if self.program.example_inputs is None:
            raise CaptureError("bad_input", f"{self.name}.pt2 holds no example inputs; export it again with example arguments.")
        args, kwargs = self.program.example_inputs
        return tuple(args), dict(kwargs)


# Fake tensors -----------------------------------------------------------------------------------------------------------------------
def build_fake(problem, mode, seed, watch):
    """The module with fake parameters, or None where its constructor needs real numbers."""
    try:
        with mode, watch:
            module = problem.build(seed)
    except Exception:  # noqa: BLE001  (whatever it is, the real construction will say it again)
        return None
    return module if not _hides_fake_tensors(module) else None


def _hides_fake_tensors(module):
    """Tensors that are neither parameters nor buffers are constants of the program: their values are needed."""
    for part in module.modules():
        for value in vars(part).values():
            for v in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(v, FakeTensor) and not isinstance(v, torch.nn.Parameter) and not _is_registered(module, v):
                    return True
    return False


def _is_registered(module, tensor):
    return any(t is tensor for t in [*module.parameters(), *module.buffers()])


def fake_arguments(problem, mode, seed):
    """(forward()'s arguments as fake tensors, their generators.Made by id). get_inputs() allocates nothing unless it needs
    numbers."""
    watch = Watch()
    try:
        with mode, watch:
            args, kwargs = problem.arguments(seed)
    except Exception:  # noqa: BLE001
        watch = Watch()
        with watch:
            args, kwargs = problem.arguments(seed)

    made = {}

    def fake(value):
        if not isinstance(value, torch.Tensor):
            return value
        fresh = value if isinstance(value, FakeTensor) else mode.from_tensor(value, static_shapes=True)
        made[id(fresh)] = watch.made(value)
        return fresh

    return pytree.tree_map(fake, (tuple(args), dict(kwargs))), made


def new_fake_mode():
    return FakeTensorMode(allow_non_fake_inputs=True)

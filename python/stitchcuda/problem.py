"""Loads what the user names: a KernelBench-style file, module:callable, or a .pt2 saved by torch.export.save."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback

import torch

from .errors import bad_input, unsupported


class Problem:
    """A module with its example inputs, built on demand under the user's seed."""

    kind = ""
    name = ""
    file = ""
    sha256 = ""

    def build(self, seed: int) -> torch.nn.Module:
        raise NotImplementedError

    def inputs(self, seed: int) -> list:
        raise NotImplementedError


def set_seed(seed: int) -> None:
    torch.manual_seed(seed)


def _user_frame(error: BaseException, file: str) -> str:
    """"file.py:12" of the innermost frame in the user's file, "" if there is none."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if os.path.abspath(frame.filename) == os.path.abspath(file):
            place = f"{os.path.basename(file)}:{frame.lineno}"
    return place


def _call(what: str, file: str, function, *args):
    try:
        return function(*args)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except Exception as e:  # noqa: BLE001 - the user's code may raise anything
        if _is_fake_failure(e):
            raise
        place = _user_frame(e, file)
        raise bad_input(f"{what} raised {type(e).__name__} at {place or file}: {_one_line(e)}; fix the file and run again.",
                        traceback.format_exc()) from e


def _is_fake_failure(e: BaseException) -> bool:
    return "FakeTensor" in type(e).__name__ or "DataDependent" in type(e).__name__ or "fake" in str(e).lower()


def _one_line(e: BaseException) -> str:
    text = str(e).strip().split("\n")[0]
    return text[:300]


def _load_file(path: str):
    if not os.path.exists(path):
        raise bad_input(f"{path} does not exist; check the path.")
    if os.path.isdir(path):
        raise bad_input(f"{path} is a folder; name a .py file, a .pt2 file or a .stitch bundle.")
    source = open(path, "rb").read()
    try:
        code = compile(source, path, "exec")
    except SyntaxError as e:
        raise bad_input(f"{path} is not valid Python: {e.msg} (line {e.lineno}).") from e
    except ValueError as e:
        raise bad_input(f"{path} is not a Python source file ({e}).") from e
    spec = importlib.util.spec_from_file_location("stitch_user_" + hashlib.sha256(path.encode()).hexdigest()[:12], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)

    def run():
        try:
            exec(code, module.__dict__)  # noqa: S102 - running the user's program is the job
        except ModuleNotFoundError as e:
            raise bad_input(f"{path} needs the Python package \"{e.name}\", which is not installed; install it and run again.",
                            traceback.format_exc()) from e

    from .errors import CaptureError

    try:
        run()
    except CaptureError:
        raise
    except SystemExit as e:
        raise bad_input(f"{path} exits while it is imported (exit code {e.code}); guard its main part with if __name__ == \"__main__\".") from e
    except Exception as e:  # noqa: BLE001
        raise bad_input(f"Importing {path} raised {type(e).__name__} at {_user_frame(e, path) or path}: {_one_line(e)}.",
                        traceback.format_exc()) from e
    return module, hashlib.sha256(source).hexdigest()


class FileProblem(Problem):
    kind = "kernelbench"

    def __init__(self, path: str):
        self.file = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.module, self.sha256 = _load_file(path)
        if not hasattr(self.module, "Model"):
            raise bad_input(f"{path} defines no class Model; name the module Model, or use module:callable.")
        if not inspect.isclass(self.module.Model) or not issubclass(self.module.Model, torch.nn.Module):
            raise bad_input(f"Model in {path} is not a torch.nn.Module class.")
        if not callable(getattr(self.module, "get_inputs", None)):
            raise bad_input(f"{path} defines no get_inputs(); add a function that returns the list of forward()'s arguments.")

    def build(self, seed):
        set_seed(seed)
        get_init = getattr(self.module, "get_init_inputs", None)
        init = _call("get_init_inputs()", self.file, get_init) if get_init else []
        if not isinstance(init, (list, tuple)):
            raise bad_input(f"get_init_inputs() in {self.file} must return a list of the constructor's arguments.")
        # KernelBench also allows [[], {keyword arguments}].
        args, kwargs = list(init), {}
        if len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):
            args, kwargs = list(init[0]), init[1]
        set_seed(seed)
        return _call("The constructor of Model", self.file, lambda: self.module.Model(*args, **kwargs))

    def inputs(self, seed):
        set_seed(seed)
        values = _call("get_inputs()", self.file, self.module.get_inputs)
        if not isinstance(values, (list, tuple)):
            raise bad_input(f"get_inputs() in {self.file} must return a list of forward()'s arguments, not {type(values).__name__}.")
        return list(values)


class _FunctionModule(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class CallableProblem(Problem):
    kind = "callable"

    def __init__(self, target: str, inputs_attribute: str | None):
        module_name, _, attribute = target.partition(":")
        if module_name.endswith(".py"):
            self.module, self.sha256 = _load_file(module_name)
        else:
            sys.path.insert(0, os.getcwd())
            try:
                self.module = importlib.import_module(module_name)
            except ModuleNotFoundError as e:
                raise bad_input(f"The module \"{e.name}\" cannot be imported; check the name in {target} or install the package.") from e
            except SyntaxError as e:
                raise bad_input(f"{e.filename} is not valid Python: {e.msg} (line {e.lineno}).") from e
            except Exception as e:  # noqa: BLE001
                raise bad_input(f"Importing {module_name} raised {type(e).__name__}: {_one_line(e)}.", traceback.format_exc()) from e
            path = getattr(self.module, "__file__", "") or ""
            self.sha256 = hashlib.sha256(open(path, "rb").read()).hexdigest() if path else ""
        self.file = getattr(self.module, "__file__", "") or module_name
        self.name = attribute.split(".")[-1] or module_name
        self.target = self.module
        for part in attribute.split("."):
            if not hasattr(self.target, part):
                raise bad_input(f"{module_name} has no \"{attribute}\"; check the name in {target}.")
            self.target = getattr(self.target, part)
        if not callable(self.target):
            raise bad_input(f"{target} is not callable; name a function, a module object or a module class.")
        names = [inputs_attribute] if inputs_attribute else ["get_inputs", "example_inputs"]
        self.source = next((getattr(self.module, n) for n in names if hasattr(self.module, n)), None)
        if self.source is None:
            raise bad_input(f"{module_name} has no {' or '.join(names)}; give example inputs with --inputs NAME (a list or a function that returns one).")

    def build(self, seed):
        set_seed(seed)
        target = self.target
        if inspect.isclass(target):
            target = _call(f"The constructor of {self.name}", self.file, target)
        return target if isinstance(target, torch.nn.Module) else _FunctionModule(target)

    def inputs(self, seed):
        set_seed(seed)
        values = _call("The example inputs", self.file, self.source) if callable(self.source) else self.source
        return list(values) if isinstance(values, (list, tuple)) else [values]


class ExportedProblem(Problem):
    kind = "pt2"

    def __init__(self, path: str):
        if not os.path.exists(path):
            raise bad_input(f"{path} does not exist; check the path.")
        self.file, self.name = path, os.path.splitext(os.path.basename(path))[0]
        self.sha256 = hashlib.sha256(open(path, "rb").read()).hexdigest()
        try:
            self.program = torch.export.load(path)
        except Exception as e:  # noqa: BLE001
            raise bad_input(f"{path} cannot be read as a program saved by torch.export.save ({type(e).__name__}: {_one_line(e)}).", traceback.format_exc()) from e
        if self.program.example_inputs is None:
            raise unsupported(f"{path} was saved without example inputs; export it again with example arguments.")

    def inputs(self, seed):
        args, kwargs = self.program.example_inputs
        if kwargs:
            raise unsupported(f"{self.file} takes keyword arguments; export it with positional arguments only.")
        return list(args)


def load(target: str, inputs_attribute: str | None = None) -> Problem:
    if target.endswith(".pt2"):
        return ExportedProblem(target)
    if ":" in target and not os.path.exists(target):
        return CallableProblem(target, inputs_attribute)
    if not target.endswith(".py") and not os.path.exists(target):
        raise bad_input(f"{target} is neither a file nor module:callable; name a .py file, a .pt2 file or module:callable.")
    if not target.endswith(".py"):
        raise bad_input(f"{target} is not a .py or .pt2 file.")
    return FileProblem(target)

"""Runs the user's module for real, on the CPU, to record expected outputs."""

import contextlib
import copy

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import CaptureError, at_line, detail_of, one_line
from .export import positional, state_tensors
from .problem import set_seed

aten = torch.ops.aten
_DRAWS = {aten.rand.default, aten.randn.default, aten.rand_like.default, aten.randn_like.default, aten.randint.default,
          aten.randint.low, aten.randint_like.default, aten.randint_like.low_dtype, aten.normal.float_float}


class _Draws(TorchDispatchMode):
    """Sees the random draws of a forward pass in order: they are inputs of the captured program. A dropout's draw is the
    uniform u of which it keeps the elements with u >= p."""

    def draw(self, shape, dtype, device, make):
        raise NotImplementedError

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (aten.bernoulli_.float, aten.bernoulli_.Tensor, aten.bernoulli.p, aten.bernoulli.default):
            one = args[0] if func is aten.bernoulli.default else args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            ones = self._uniform(args[0]) >= 1 - one
            return args[0].copy_(ones) if "_" in func._opname else ones.to(args[0].dtype)
        if func is aten.native_dropout.default and args[1] > 0 and args[2] is not False:
            mask = self._uniform(args[0]) >= args[1]
            return args[0] * mask * (1 / (1 - args[1]) if args[1] < 1 else 0.0), mask
        if func in _DRAWS:
            with torch.utils._python_dispatch._disable_current_modes():
                like = func(*args, **kwargs)
            return self.draw(like.shape, like.dtype, like.device, lambda: like)
        if func in (aten.uniform_.default, aten.normal_.default):
            target = args[0]
            return target.copy_(self.draw(target.shape, target.dtype, target.device, lambda: func(torch.empty_like(target), *args[1:], **kwargs)))
        return func(*args, **kwargs)

    def _uniform(self, like):
        return self.draw(like.shape, torch.float32, like.device, lambda: torch.rand(like.shape, device=like.device))


class Recorder(_Draws):
    """Lets forward() draw, and keeps what it drew."""

    def __init__(self):
        super().__init__()
        self.draws = []

    def draw(self, shape, dtype, device, make):
        value = make()
        self.draws.append(value.clone())
        return value


class Replay(_Draws):
    """Gives forward() the numbers it is to draw."""

    def __init__(self, draws):
        super().__init__()
        self.left = list(draws)

    def draw(self, shape, dtype, device, make):
        if not self.left or tuple(self.left[0].shape) != tuple(shape):
            raise CaptureError("unsupported", "forward() draws other random numbers than when it was captured; capture it again.")
        return self.left.pop(0).to(device=device, dtype=dtype)


def run_case(problem, module, captured, seed):
    """One case: {"input.NAME": tensor, "expected.NAME": tensor}. The module's own state is left as it was."""
    args, kwargs = positional(module.forward, *problem.arguments(seed))
    own = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (tuple(args), dict(kwargs)))
    names = [n.name for n in captured.graph.inputs if n.name not in captured.random_inputs]
    case = {f"input.{name}": t for name, t in zip(names, _tensors((tuple(args), dict(kwargs))))}
    recorder = Recorder()
    set_seed(seed)
    with _scratch_copy(module) as model:
        try:
            with torch.no_grad(), recorder:
                result = model(*own[0], **own[1])
        except Exception as error:  # noqa: BLE001
            raise CaptureError("bad_input", f"forward() fails{at_line(error)} ({one_line(error)}).", detail_of(error)) from error
        if len(recorder.draws) != len(captured.random_inputs):
            raise CaptureError("unsupported", "The random draws of forward() do not agree with the captured program; pass --expected no.")
        case.update({f"input.{name}": t for name, t in zip(captured.random_inputs, recorder.draws)})
        case.update(_expected(captured, model, result, dict(zip(names, _tensors(own)))))
    _check(captured.graph, case)
    return case


def _tensors(tree):
    return [v for v in pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


@contextlib.contextmanager
def _scratch_copy(module):
    """A module to run: a copy, or, where it cannot be copied, the module itself with its state put back afterwards."""
    try:
        twin = copy.deepcopy(module)
    except Exception:  # noqa: BLE001  (old-style weight_norm, modules that hold files or locks ...)
        twin = None
    if twin is not None:
        yield twin
        return
    saved = {name: (t, t.detach().clone()) for name, t in state_tensors(module).items()}
    try:
        yield module
    finally:
        with torch.no_grad():
            for name, (tensor, value) in saved.items():
                prefix, _, attribute = name.rpartition(".")
                part = module.get_submodule(prefix)
                if attribute in part._buffers or attribute in vars(part):
                    setattr(part, attribute, tensor)
                if tensor.is_leaf:
                    tensor.copy_(value)


def _expected(captured, model, result, inputs):
    outputs = captured.graph.outputs
    user = [o for o in outputs if not o.mutates_weight and not o.mutates_input]
    leaves = _tensors(result)
    if len(leaves) != len(user):
        raise CaptureError("unsupported", f"forward() returned {len(leaves)} tensors when run, but {len(user)} when captured.")
    expected = {f"expected.{o.name}": t.detach().clone() for o, t in zip(user, leaves)}
    state = state_tensors(model)
    for o in outputs:
        if o.mutates_weight:
            expected[f"expected.{o.name}"] = state[o.mutates_weight].detach().clone()
        elif o.mutates_input:
            expected[f"expected.{o.name}"] = inputs[o.mutates_input]
    return expected


def _check(graph, case):
    for o in graph.outputs:
        got = tuple(case[f"expected.{o.name}"].shape)
        if got != o.value.shape:
            raise CaptureError("internal", f"{o.name} has shape {got} when run, but {o.value.shape} when captured.")

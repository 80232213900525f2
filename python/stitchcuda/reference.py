"""Runs the user's module for real, on the CPU, to record expected outputs."""

import copy

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import CaptureError, at_line, detail_of, one_line
from .export import state_tensors
from .problem import set_seed

aten = torch.ops.aten
_DRAWS = {aten.rand.default, aten.randn.default, aten.rand_like.default, aten.randn_like.default, aten.randint.default,
          aten.randint.low, aten.randint_like.default, aten.randint_like.low_dtype, aten.normal.float_float}


class _Recorder(TorchDispatchMode):
    """Records the random draws of a forward pass in order: they are inputs of the captured program."""

    def __init__(self):
        super().__init__()
        self.draws = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is aten.bernoulli_.float:  # dropout: keep where u >= 1 - keep probability
            keep = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            u = torch.rand(args[0].shape)
            self.draws.append(u)
            return args[0].copy_(u >= 1 - keep)
        out = func(*args, **kwargs)
        if func in _DRAWS or func in (aten.uniform_.default, aten.normal_.default):
            self.draws.append(out.clone())
        return out


def run_case(problem, module, captured, seed):
    """One case: {"input.NAME": tensor, "expected.NAME": tensor}. The module's own state is left as it was."""
    args, kwargs = problem.arguments(seed)
    model = _copy_of(module)
    own = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (tuple(args), dict(kwargs)))
    names = [n.name for n in captured.graph.inputs if n.name not in captured.random_inputs]
    tensors = [v for v in pytree.tree_leaves((tuple(args), dict(kwargs))) if isinstance(v, torch.Tensor)]
    case = {f"input.{name}": t for name, t in zip(names, tensors)}
    recorder = _Recorder()
    set_seed(seed)
    try:
        with torch.no_grad(), recorder:
            result = model(*own[0], **own[1])
    except Exception as error:  # noqa: BLE001
        raise CaptureError("bad_input", f"forward() fails{at_line(error)} ({one_line(error)}).", detail_of(error)) from error
    if len(recorder.draws) != len(captured.random_inputs):
        raise CaptureError("unsupported", "The random draws of forward() do not agree with the captured program; pass --expected no.")
    case.update({f"input.{name}": t for name, t in zip(captured.random_inputs, recorder.draws)})
    case.update(_expected(captured, model, result, dict(zip(names, [v for v in pytree.tree_leaves(own) if isinstance(v, torch.Tensor)]))))
    _check(captured.graph, case)
    return case


def _copy_of(module):
    try:
        return copy.deepcopy(module)
    except Exception:  # noqa: BLE001
        raise CaptureError("unsupported", "The module cannot be copied (copy.deepcopy fails), so its reference outputs cannot be "
                                          "recorded; pass --expected no.") from None


def _expected(captured, model, result, inputs):
    outputs = captured.graph.outputs
    user = [o for o in outputs if not o.mutates_weight and not o.mutates_input]
    leaves = [v for v in pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]
    if len(leaves) != len(user):
        raise CaptureError("unsupported", f"forward() returned {len(leaves)} tensors when run, but {len(user)} when captured.")
    expected = {f"expected.{o.name}": t for o, t in zip(user, leaves)}
    state = state_tensors(model)
    for o in outputs:
        if o.mutates_weight:
            expected[f"expected.{o.name}"] = state[o.mutates_weight]
        elif o.mutates_input:
            expected[f"expected.{o.name}"] = inputs[o.mutates_input]
    return expected


def _check(graph, case):
    for o in graph.outputs:
        got = tuple(case[f"expected.{o.name}"].shape)
        if got != o.value.shape:
            raise CaptureError("internal", f"{o.name} has shape {got} when run, but {o.value.shape} when captured.")

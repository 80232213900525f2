"""Captures a small module in this process and compares the IR's values with the module's own."""

import copy
import os
import sys

import torch
import torch.utils._pytree as pytree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

import ir_eval  # noqa: E402
from stitchcuda.export import export, lower_program, positional, state_tensors  # noqa: E402
from stitchcuda.problem import new_fake_mode  # noqa: E402
from stitchcuda.program import first_names  # noqa: E402


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def lower(module, *args, **options):
    module = module if isinstance(module, torch.nn.Module) else Function(module)
    mode = new_fake_mode()
    fake = pytree.tree_map(lambda v: mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v, args)
    positional_args, kwargs = positional(module.forward, fake, {})
    return lower_program(export(module, positional_args, kwargs), first_names(module), **options)


def check(module, *args, tolerance=1e-5, **options):
    """Captures module(*args), evaluates the IR, compares results, changed buffers and changed inputs. Returns the program."""
    module = module if isinstance(module, torch.nn.Module) else Function(module)
    captured = lower(module, *args, **options)
    program = ir_eval.Program(captured.graph.lines())
    weights = {name: t.detach().clone() for name, (_, t) in captured.weights.items()}
    names = [n.name for n in captured.graph.inputs]
    tensors = [t.clone() for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
    got = program.run(dict(zip(names, tensors)), weights)
    own, given = copy.deepcopy(module), copy.deepcopy(args)
    with torch.no_grad():
        result = own(*given)
    expected = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    changed = dict(zip(names, [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]))
    state, user = state_tensors(own), 0
    for output in captured.graph.outputs:
        if output.mutates_weight:
            want = state[output.mutates_weight]
        elif output.mutates_input:
            want = changed[output.mutates_input]
        else:
            want, user = expected[user], user + 1
        torch.testing.assert_close(got[output.name], want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert user == len(expected)
    return program

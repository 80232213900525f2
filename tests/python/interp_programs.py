"""Programs that are built and evaluated in PyTorch at the same time, and run by the interpreter many at once."""

import math
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

from interp_torch import OPS  # noqa: E402
from stitchcuda.ir import DTYPES, Graph, Node, Output, TORCH_DTYPES, Value  # noqa: E402

# Ops whose results are elements of their operands.
COPIES = set("cast where view permute expand slice select cat pad flip roll repeat unfold tril triu diagonal slice_scatter select_scatter "
             "upsample_nearest gather index_select embedding index scatter topk sort full arange eye".split())
# Ops that do not round: no noise is added to their operands and results.
EXACT = COPIES | set("neg abs sign relu floor ceil round trunc logical_not bitwise_not isnan isinf nan_to_num maximum minimum eq ne lt le gt ge "
                     "logical_and logical_or logical_xor clamp hardshrink threshold amax amin any all argmax argmin max_dim min_dim cummax "
                     "cummin max_pool adaptive_max_pool fmod remainder frac".split())


def is_exact(name, params):
    return name in EXACT or params.get("rounding_mode") is not None


class Handle:
    """A value of a program: its place in the IR and PyTorch's result."""

    def __init__(self, value, tensor):
        self.value, self.t = value, tensor


class Program:
    def __init__(self, float_name="f64"):
        """float_name: the dtype written for float64 tensors; the interpreter computes in fp64 whatever it says."""
        self.graph, self.float_name = Graph(), float_name
        self.leaves, self.steps, self.count = {}, [], 0  # steps: (node, op, operands, params) for evaluating again

    def _type(self, t):
        name = DTYPES[t.dtype]
        return (self.float_name if name == "f64" else name), tuple(t.shape)

    def leaf(self, tensor, weight=False):
        name = f"t{len(self.leaves)}"
        if tensor.dtype == torch.float64 and self.float_name != "f64":
            tensor = tensor.to(TORCH_DTYPES[self.float_name]).double()
        node = Node("weight" if weight else "input", [], {}, [self._type(tensor)], name)
        (self.graph.weights if weight else self.graph.inputs).append(node)
        self.leaves[name] = (node, tensor)
        return Handle(Value(node), tensor)

    def op(self, name, *operands, **params):
        """Returns a Handle, or a tuple of them. `dtype` and `results` tell PyTorch what the IR says with its types."""
        operands = list(operands)
        out = OPS[name]([_tensors(o) for o in operands], params)
        many = isinstance(out, tuple)
        out = out if many else (out,)
        written = {k: v for k, v in params.items() if k not in ("dtype", "results")}
        node = Node(name, [_values(o) for o in operands], written, [self._type(t) for t in out])
        self.graph.nodes.append(node)
        self.steps.append((node, name, operands, params))
        handles = tuple(Handle(Value(node, i), t) for i, t in enumerate(out))
        return handles if many else handles[0]

    def output(self, handle):
        self.graph.outputs.append(Output(handle.value, f"y{len(self.graph.outputs)}"))

    def outputs(self):
        return self._evaluate(lambda t: t, lambda t: t)

    def noisy_outputs(self, size, generator, negative):
        """The outputs with a relative error of up to `size` in every operand and result of an op that rounds. PyTorch's own
        kernels do not agree on the sign of a zero that they compute, so that is noise too: -0 with the probability `negative`."""
        def operand(t):
            if not isinstance(t, torch.Tensor) or not t.is_floating_point():
                return [operand(v) for v in t] if isinstance(t, list) else t
            return t * (1 + size * (2 * torch.rand(t.shape, generator=generator, dtype=t.dtype) - 1))

        def zeros(t):
            if not t.is_floating_point():
                return t
            return torch.where(t == 0, torch.where(torch.rand(t.shape, generator=generator) < negative, -0.0, 0.0), t)
        return self._evaluate(operand, zeros)

    def _evaluate(self, noise, zeros):
        """noise: applied to operands and results of ops that round. zeros: to all results that are no copies."""
        tensors = {id(n): (t,) for n, t in self.leaves.values()}

        def find(o):
            if isinstance(o, list):
                return [find(v) for v in o]
            return tensors[id(o.value.node)][o.value.index] if isinstance(o, Handle) else o
        for node, name, operands, params in self.steps:
            given = [find(o) for o in operands]
            rounds = not is_exact(name, params)
            out = OPS[name](noise(given) if rounds else given, params)
            out = list(out) if isinstance(out, tuple) else [out]
            out = noise(out) if rounds else out
            tensors[id(node)] = out if name in COPIES else [zeros(t) for t in out]
        return [tensors[id(o.value.node)][o.value.index] for o in self.graph.outputs]

    def text(self):
        return "\n".join(self.graph.lines()) + "\n"


def _tensors(o):
    return [_tensors(v) for v in o] if isinstance(o, list) else o.t if isinstance(o, Handle) else o


def _values(o):
    return [_values(v) for v in o] if isinstance(o, list) else o.value if isinstance(o, Handle) else o


def interpreter():
    """The stitch_interpret program, beside the stitchcuda that is being tested."""
    build = os.path.dirname(os.environ.get("STITCHCUDA_BINARY", "")) or os.path.join(ROOT, "build")
    path = os.path.join(build, "stitch_interpret")
    assert os.path.exists(path), f"{path} is missing; build it with: cmake --build {build} --target stitch_interpret"
    return path


def run(programs, *flags):
    """[Program] -> [list of output tensors (f64 or i64), or the error message]."""
    with tempfile.TemporaryDirectory() as folder:
        text, tensors = os.path.join(folder, "programs"), os.path.join(folder, "in.safetensors")
        with open(text, "w", encoding="utf-8") as f:
            f.writelines(f"# program {i}\n{p.text()}" for i, p in enumerate(programs))
        save_file({f"{i}/{name}": t.to(TORCH_DTYPES[node.types[0][0]]).clone().contiguous() for i, p in enumerate(programs)
                   for name, (node, t) in p.leaves.items()}, tensors)
        out = os.path.join(folder, "out.safetensors")
        done = subprocess.run([interpreter(), "batch", text, tensors, "-o", out, *flags], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        errors = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        found = load_file(out)
    return [errors.get(str(i)) or [found[f"{i}/{o.name}"] for o in p.graph.outputs] for i, p in enumerate(programs)]


def tolerance(program, want, relative, generator, noise=2.0 ** -52):
    """Absolute errors allowed per output: `relative` to its largest element, and what noise in the last bit of every input and
    every intermediate result can do (five draws); infinity where noise decides an integer or whether there is a number."""
    allowed = []
    for t in want:
        finite = t[torch.isfinite(t)].abs() if t.is_floating_point() else t.new_zeros(0)
        allowed.append(torch.full(t.shape, relative * (finite.max().item() if finite.numel() else 0.0), dtype=torch.float64))
    for negative in (0, 1, 0.5, 0.5, 0.5):
        for a, t, noisy in zip(allowed, want, program.noisy_outputs(noise, generator, negative)):
            if t.is_floating_point():
                a += 20 * torch.nan_to_num((noisy - t).abs(), nan=0.0, posinf=0.0)
                both = torch.isfinite(noisy) & torch.isfinite(t)
                a[~(both | (noisy == t) | (noisy.isnan() & t.isnan()))] = math.inf
            else:
                a[noisy != t] = math.inf
    return allowed


def mismatch(got, want, allowed):
    """None if equal. Finite floats may differ by `allowed` (a tensor of absolute errors), NaN, infinity and integers may not,
    except where `allowed` is infinite."""
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)} instead of {tuple(want.shape)}"
    if not want.is_floating_point():
        return None if ((got == want) | allowed.isinf()).all() else f"{got} instead of {want}"
    finite = torch.isfinite(want)
    same = torch.where(finite, torch.isfinite(got), (got == want) | (got.isnan() & want.isnan()))
    if not (same | allowed.isinf()).all():
        return f"{got} instead of {want}"
    if not finite.any():
        return None
    error = torch.where(finite & torch.isfinite(got), (got - want).abs(), 0.0)
    worst = (error - allowed).flatten().argmax()
    if (error <= allowed).all():
        return None
    return f"{got.flatten()[worst].item()!r} instead of {want.flatten()[worst].item()!r} at {worst.item()} of {tuple(want.shape)}"

"""Every op of the table against PyTorch in float64: random attributes and shapes, special values, empty tensors."""

import os
import re

import pytest
import torch

from interp_programs import ROOT, mismatch, run, tolerance
from interp_samplers import SAMPLERS, Source

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")
CASES = int(os.environ.get("STITCH_INTERP_CASES", "12"))  # per op and kind

# Error relative to the largest element of the result that is allowed beside the noise of the inputs' last bits.
RELATIVE = 1e-14


@pytest.fixture(autouse=True)
def float64_default():
    old, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # the tensors are tiny
    yield
    torch.set_default_dtype(old)
    torch.set_num_threads(threads)


def table():
    text = open(os.path.join(ROOT, "src", "ir", "ops.cpp"), encoding="utf-8").read()
    rows = text[text.index("kRows[]"):]
    return [n for n in re.findall(r'\{"(\w+)", \w+,?\s', rows[:rows.index("};")]) if n not in ("input", "weight")]


def test_every_op_has_a_sampler():
    assert len(table()) > 150
    assert set(table()) == set(SAMPLERS)


def build(op, seed, **kind):
    s = Source(seed, **kind)
    handles = SAMPLERS[op](s)
    for h in handles:
        s.program.output(h)
    return s.program if handles else None


KINDS = {"plain": {}, "special": {"special": 0.8}, "empty": {"empty": 0.15, "special": 0.2}, "f32": {"float_name": "f32"}}


@pytest.mark.parametrize("op", sorted(SAMPLERS))
def test_op(op):
    programs = []
    for k, (kind, options) in enumerate(KINDS.items()):
        for i in range(CASES):
            p = build(op, 1000 * k + i, **options)
            if p:
                programs.append((f"{kind} {i}", p))
    assert len(programs) >= CASES
    noise = torch.Generator().manual_seed(1)
    for (label, p), got in zip(programs, run([p for _, p in programs])):
        assert not isinstance(got, str), f"{label}: {got}\n{p.text()}"
        wants = p.outputs()
        for name, value, want, allowed in zip(p.graph.outputs, got, wants, tolerance(p, wants, RELATIVE, noise)):
            wrong = mismatch(value, want, allowed)
            assert wrong is None, f"{label} {name.name}: {wrong}\n{p.text()}" + "".join(f"{n} = {t}\n" for n, (_, t) in p.leaves.items())

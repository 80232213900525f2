"""The examples at their small sizes, end to end on the host target: captured, planned, coded, built, verified, and a drop-in."""

import json
import os
import re
import subprocess

import pytest
import torch

from test_golden_run import BINARY, ROOT, load

EXAMPLES = os.path.join(ROOT, "examples")
# Of each example: the skills that must have written tasks, and how many tasks its small size takes at most (views left out).
EXPECTED = {
    "llama_block": ({"reduction", "gemm", "attention"}, 10),
    "convnext_block": ({"convolution", "reduction", "gemm"}, 8),
    "whisper_encoder_layer": ({"convolution", "reduction", "gemm", "attention"}, 11),
    "mlp_mixer": ({"convolution", "reduction", "gemm"}, 16),
    "unet": ({"convolution", "reduction", "pointwise"}, 32),
    "dlrm": ({"gemm", "pointwise"}, 8),
    "dit_block": ({"reduction", "gemm", "attention"}, 17),
    "tcn": ({"reduction", "convolution"}, 15),
}
IN_CI = ("llama_block", "dlrm", "tcn")


def test_every_example_has_a_small_size_and_a_test():
    full = {f[:-3] for f in os.listdir(EXAMPLES) if f.endswith(".py") and "SIZES = {" in open(os.path.join(EXAMPLES, f), encoding="utf-8").read()}
    small = {f[:-3] for f in os.listdir(os.path.join(EXAMPLES, "small")) if f.endswith(".py")}
    assert full == small == set(EXPECTED)


def skills_used(kernels):
    return set(re.findall(r"\(skill: (\w+)\)$", kernels, re.MULTILINE))


@pytest.mark.parametrize("name", [n if n in IN_CI else pytest.param(n, marks=pytest.mark.nightly) for n in EXPECTED])
def test_small_example_becomes_a_verified_drop_in(name, tmp_path):
    source, out = os.path.join(EXAMPLES, "small", name + ".py"), tmp_path / "out"
    run = subprocess.run([BINARY, "run", source, "--target", "host", "--json", "--out", str(out)], capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr[-2000:]
    verdict = json.loads(run.stdout.splitlines()[-1])
    assert verdict["valid"] and verdict["correct"] and verdict["precision"]["kernelbench"]["allclose"]

    skills, most_tasks = EXPECTED[name]
    used = skills_used((out / "kernels.cu").read_text())
    assert skills <= used and "generic" not in used, used
    tasks = [t for t in json.loads((out / "plan.json").read_text())["tasks"] if t["kind"] != "alias"]
    assert len(tasks) <= most_tasks and all(t["kind"] != "generic" for t in tasks), [t["name"] for t in tasks]

    reference, new = load(source, "reference"), load(out / "model_new.py", "model_new")
    torch.manual_seed(42)
    original = reference.Model(*reference.get_init_inputs())
    torch.manual_seed(42)
    drop_in = new.ModelNew(*reference.get_init_inputs())
    inputs = reference.get_inputs()
    with torch.no_grad():
        torch.testing.assert_close(drop_in(*inputs), original(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EXPECTED)
def test_full_size_runs_in_pytorch_on_fake_tensors(name):
    """The sizes fit together, without computing anything."""
    module = load(os.path.join(EXAMPLES, name + ".py"), name)
    with torch._subclasses.FakeTensorMode():
        result = module.Model(*module.get_init_inputs())(*module.get_inputs())
    assert all(extent > 0 for extent in result.shape) and result.dtype == torch.float32

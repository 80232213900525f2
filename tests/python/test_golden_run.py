"""Golden end-to-end runs on the host target: a captured example becomes a verified program, and its ModelNew stands in for the original module."""

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess

import pytest
import torch

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
BINARY = os.environ.get("STITCHCUDA_BINARY", os.path.join(ROOT, "build", "stitchcuda"))


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["conv_bn_relu", "lstm_classifier"])
def test_example_becomes_a_verified_drop_in(example, tmp_path):
    out = tmp_path / "out"
    run = subprocess.run([BINARY, "run", os.path.join(ROOT, "examples", example + ".stitch"), "--target", "host", "--json", "--out", str(out)],
                         capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-2000:]
    verdict = json.loads(run.stdout.splitlines()[-1])
    assert verdict["valid"] and verdict["correct"] and verdict["latency_ms"] is None
    assert verdict["cost"]["build_seconds"] > 0 and "TF32" not in run.stderr and "tf32" not in run.stdout
    assert {g["name"]: g["state"] for g in verdict["guards"]}["stored_cases"] == "passed"
    for name in ("plan.json", "kernels.cu", "program.cpp", "program_host.so", "model_new.py", "verdict.json", "events.jsonl", "report.html"):
        assert (out / name).exists(), name

    reference, new = load(os.path.join(ROOT, "examples", example + ".py"), "reference"), load(out / "model_new.py", "model_new")
    torch.manual_seed(42)
    original = reference.Model(*reference.get_init_inputs())
    torch.manual_seed(42)
    drop_in = new.ModelNew(*reference.get_init_inputs())
    assert list(drop_in.state_dict()) == list(original.state_dict())
    inputs = reference.get_inputs()
    with torch.no_grad():
        expected, got = original(*inputs), drop_in(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    for name, tensor in original.state_dict().items():  # buffers changed in place too
        torch.testing.assert_close(drop_in.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="must be"):
        drop_in(torch.zeros(1))
    # A process may hold many programs: each is a library of its own, and none may need thread-local memory reserved at start.
    for k in range(40):
        ctypes.CDLL(shutil.copy(out / "program_host.so", tmp_path / f"program_{k}.so"))

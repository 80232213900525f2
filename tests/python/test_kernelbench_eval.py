"""kernelbench_eval with a stand-in for KernelBench's evaluator that compares on the CPU: the loading, the child processes, the reasons."""

import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BINARY = os.environ.get("STITCHCUDA_BINARY", os.path.join(ROOT, "build", "stitchcuda"))

UTILS = """
from dotenv import load_dotenv
load_dotenv()
from tqdm import tqdm
from openai import OpenAI
from litellm import completion
"""

EVALUATOR = """
import requests
import torch
from pydantic import BaseModel
from . import utils


class Record(BaseModel):
    compiled: bool = False
    correctness: bool = False
    metadata: dict = {}


def set_seed(seed):
    torch.manual_seed(seed)


def load_original_model_and_inputs(source, context):
    exec(source, context)
    return context["Model"], context["get_init_inputs"], context["get_inputs"]


def load_custom_model(source, context, build_directory=None):
    try:
        exec(source, context)
    except SyntaxError:
        return None
    return context.get("ModelNew")


def eval_kernel_against_ref(original_model_src, custom_model_src, seed_num=42, num_correct_trials=1, device="cuda", precision=torch.float32):
    context = {}
    Model, get_init_inputs, get_inputs = load_original_model_and_inputs(original_model_src, context)
    set_seed(seed_num)
    arguments = get_init_inputs()
    set_seed(seed_num)
    original = Model(*arguments)
    try:
        custom = load_custom_model(custom_model_src, context)
    except Exception as e:
        return Record(compiled=False, metadata={"compilation_error": e, "compilation_error_name": type(e).__name__})
    if custom is None:
        return Record(compiled=False, metadata={"compilation_error": "no ModelNew", "compilation_error_name": "SyntaxError"})
    set_seed(seed_num)
    new = custom(*arguments)
    passed, metadata = 0, {}
    try:
        with torch.no_grad():
            for trial in range(num_correct_trials):
                set_seed(trial)
                inputs = [x.to(precision) if isinstance(x, torch.Tensor) else x for x in get_inputs()]
                wanted = original(*inputs)
                try:
                    got = new(*inputs)
                    if torch.allclose(wanted, got, atol=1e-4, rtol=1e-4):
                        passed += 1
                    else:
                        metadata["correctness_issue"] = "Output mismatch"
                except Exception as e:
                    return Record(compiled=True, metadata={"runtime_error": str(e), "runtime_error_name": type(e).__name__})
    except Exception as e:
        return Record(compiled=True, metadata={"runtime_error": e, "runtime_error_name": type(e).__name__})
    return Record(compiled=True, correctness=passed == num_correct_trials, metadata=metadata)
"""

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layer = nn.Linear(features, 3)

    def forward(self, x, mask):
        return torch.relu(self.layer(x)) * mask

def get_inputs():
    return [torch.rand(4, 5), torch.randint(0, 2, (4, 3)).bool()]

def get_init_inputs():
    return [5]
"""

# A candidate by hand: a module whose forward is the body given.
NEW = """
import os, sys, time
import torch, torch.nn as nn
PROGRAM_FOLDER = "nowhere"

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layer = nn.Linear(features, 3)

    def forward(self, x, mask):
        right = torch.relu(self.layer(x)) * mask
        {body}
"""


@pytest.fixture
def root(tmp_path):
    package = tmp_path / "root" / "src" / "kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import utils\n")
    (package / "utils.py").write_text(UTILS)
    (package / "eval.py").write_text(EVALUATOR)
    level = tmp_path / "root" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for number in range(1, 9):
        (level / f"{number}_Layer.py").write_text(PROBLEM)
    return tmp_path / "root"


def candidate(tmp_path, name, body=None, text=None):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "model_new.py").write_text(text if text is not None else NEW.format(body=body))
    return folder


def evaluate(root, out, *arguments):
    command = [sys.executable, "-m", "stitchcuda.kernelbench_eval", "--kernelbench-root", str(root), "--out", str(out), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")})


@pytest.mark.parametrize("on_device", [False, True])
def test_each_problem_gets_its_verdict_and_its_reason(root, tmp_path, on_device):
    folders = {
        "1/1": candidate(tmp_path, "right", "return right + 1e-6"),
        "1/2": candidate(tmp_path, "wrong", "return right + 0.5"),
        "1/3": candidate(tmp_path, "crash", "os.abort()"),
        "1/4": candidate(tmp_path, "raises", "raise ValueError('no kernel image')"),
        "1/5": candidate(tmp_path, "syntax", text="def ("),
        "1/6": candidate(tmp_path, "hangs", "time.sleep(600)"),
        "1/7": tmp_path / "missing",
        "1/8": candidate(tmp_path, "last", "print('{}'); return right"),
    }
    out = tmp_path / "result.json"
    run = evaluate(root, out, "--device", "cpu", "--trials", 3, "--timeout", 20, *(["--inputs-on-device"] if on_device else []),
                   *[f"{k}={v}" for k, v in folders.items()])
    assert run.returncode == 0, run.stderr
    report = json.loads(out.read_text())
    results = report["results"]
    assert list(results) == list(folders)
    assert [k for k, r in results.items() if r["correct"]] == ["1/1", "1/8"]
    assert 5e-7 < results["1/1"]["max_error"] < 2e-6 and results["1/1"]["tolerance"] == 1e-4 and results["1/1"]["trials_passed"] == 3
    assert results["1/2"]["compiled"] and "differ by up to 0.5 (0 of 3" in results["1/2"]["reason"]
    assert "died (signal SIGABRT)" in results["1/3"]["reason"]
    assert "ModelNew raised ValueError: no kernel image." == results["1/4"]["reason"] and results["1/4"]["compiled"]
    assert not results["1/5"]["compiled"] and "cannot be loaded (SyntaxError" in results["1/5"]["reason"]
    assert "did not end within 20 s" in results["1/6"]["reason"]
    assert "holds no model_new.py" in results["1/7"]["reason"]
    assert all(r["seconds"] >= 0 for r in results.values())


def test_a_reference_that_the_evaluator_cannot_run_is_told_apart(root, tmp_path):
    (root / "KernelBench" / "level1" / "1_Layer.py").write_text(PROBLEM.replace("* mask", "* mask[torch.zeros(1).to(mask.dtype)]"))
    out = tmp_path / "result.json"
    run = evaluate(root, out, "--device", "cpu", f"1/1={candidate(tmp_path, 'right', 'return right')}")
    assert run.returncode == 0
    result = json.loads(out.read_text())["results"]["1/1"]
    assert not result["correct"] and "cannot run its own reference (IndexError" in result["reason"]


def test_the_written_module_passes(root, tmp_path):
    """A real model_new.py on the host target. The evaluator runs its text from nowhere, and gives the boolean mask as floats."""
    folder = tmp_path / "program"
    problem = root / "KernelBench" / "level1" / "1_Layer.py"
    run = subprocess.run([BINARY, "run", str(problem), "--target", "host", "--out", str(folder)], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    moved = tmp_path / "moved"
    folder.rename(moved)
    out = tmp_path / "result.json"
    run = evaluate(root, out, "--device", "cpu", f"1/1={moved}")
    result = json.loads(out.read_text())["results"]["1/1"]
    assert result["correct"], (result, run.stderr)
    assert result["max_error"] < 1e-5


@pytest.mark.parametrize("arguments, message", [
    (["1/1"], "is not LEVEL/ID=FOLDER"),
    (["1/99=x"], "0 files for problem 99"),
    (["7/1=x"], "level7 does not exist"),
    (["1/1=x", "1/1=x"], "given twice"),
    (["--trials", "0", "1/1=x"], "--trials must be at least 1"),
])
def test_bad_arguments_are_one_sentence(root, tmp_path, arguments, message):
    run = evaluate(root, tmp_path / "result.json", "--device", "cpu", *arguments)
    assert run.returncode == 2 and message in run.stderr and len(run.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "result.json").exists()


def test_no_gpu_is_one_sentence(root, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    run = evaluate(root, tmp_path / "result.json", f"1/1={candidate(tmp_path, 'right', 'return right')}")
    assert run.returncode == 4 and "needs an NVIDIA GPU" in run.stderr and len(run.stderr.strip().splitlines()) == 1


def test_a_checkout_without_the_evaluator_is_one_sentence(root, tmp_path):
    (root / "src" / "kernelbench" / "eval.py").write_text("import not_installed_anywhere\n")
    run = evaluate(root, tmp_path / "result.json", "--device", "cpu", f"1/1={candidate(tmp_path, 'right', 'return right')}")
    assert run.returncode == 4 and "cannot be imported (ModuleNotFoundError: No module named 'not_installed_anywhere')" in run.stderr
    (root / "src" / "kernelbench" / "eval.py").unlink()
    run = evaluate(root, tmp_path / "result.json", "--device", "cpu", f"1/1={tmp_path / 'right'}")
    assert run.returncode == 4 and "holds no kernelbench/eval.py" in run.stderr

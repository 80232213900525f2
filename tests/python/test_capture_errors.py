"""Every way a program can be wrong gives one clear sentence and the right kind, and leaves nothing behind."""

import argparse
import json
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import capture_case
from stitchcuda import program
from stitchcuda.errors import CaptureError

GOOD = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(2, 4)]
"""


def with_forward(body, inputs="[torch.randn(2, 4)]"):
    lines = "\n".join("        " + line for line in body.split("\n"))
    return f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n{lines}\ndef get_inputs():\n    return {inputs}\n"


# name: (text of model.py, kind, parts of the message)
FILES = {
    "syntax": ("import torch\nclass Model(torch.nn.Module:\n    pass\n", "bad_input", ["model.py, line 2"]),
    "no_model": ("x = 1\n", "bad_input", ["no class Model"]),
    "model_no_class": ("Model = 3\ndef get_inputs(): return []\n", "bad_input", ["no class Model"]),
    "model_no_module": ("class Model: pass\ndef get_inputs(): return []\n", "bad_input", ["no torch.nn.Module"]),
    "no_get_inputs": (GOOD.split("def get_inputs")[0], "bad_input", ["no function get_inputs"]),
    "import_raises": ("raise ValueError('bad day')\n", "bad_input", ["cannot be imported", "model.py:1", "bad day"]),
    "missing_package": ("import torch\nimport no_such_package_here\n", "environment", ["no_such_package_here", "model.py:2"]),
    "exits": ("import sys\nsys.exit(3)\n", "bad_input", ["sys.exit", "model.py:2"]),
    "get_inputs_raises": (GOOD.replace("return [torch.randn(2, 4)]", "raise RuntimeError('none left')"), "bad_input", ["get_inputs()", "none left", "model.py:10"]),
    "get_inputs_gives_number": (GOOD.replace("[torch.randn(2, 4)]", "7"), "bad_input", ["get_inputs()", "int"]),
    "init_inputs_raise": (GOOD + "def get_init_inputs():\n    return 1 / 0\n", "bad_input", ["get_init_inputs()", "ZeroDivisionError", "model.py:12"]),
    "init_inputs_no_list": (GOOD + "def get_init_inputs():\n    return 3\n", "bad_input", ["get_init_inputs()", "must return a list"]),
    "constructor_raises": (GOOD.replace("self.linear = ", "raise KeyError('width')\n        self.linear = "), "bad_input", ["constructor of Model", "width", "model.py:6"]),
    "constructor_arguments": (GOOD + "def get_init_inputs():\n    return [1, 2]\n", "bad_input", ["constructor of Model", "TypeError"]),
    "wrong_shapes": (GOOD.replace("randn(2, 4)", "randn(2, 5)"), "bad_input", ["forward() fails", "model.py:8"]),
    "too_few_inputs": (GOOD.replace("[torch.randn(2, 4)]", "[]"), "bad_input", ["forward()", "x"]),
    "wrong_dtypes": (with_forward("return x @ torch.zeros(4, 2, dtype=torch.float64)"), "bad_input", ["forward() fails", "model.py:4"]),
    "branch": (with_forward("if x.sum() > 0:\n    return x\nreturn x + 1"), "unsupported", ["branches on a tensor's value", "model.py:4"]),
    "loop": (with_forward("while x.max() > 1:\n    x = x / 2\nreturn x"), "unsupported", ["branches on a tensor's value", "model.py:4"]),
    "item": (with_forward("return x * x.sum().item()"), "unsupported", ["a tensor's value", "model.py:4"]),
    "nonzero": (with_forward("return torch.nonzero(x)"), "unsupported", ["nonzero", "model.py:4"]),
    "mask_index": (with_forward("return x[x > 0]"), "unsupported", ["depends on the data", "model.py:4"]),
    "unique": (with_forward("return torch.unique(x)"), "unsupported", ["model.py:4"]),
    "complex": (with_forward("return torch.fft.fft(x)"), "unsupported", ["complex", "model.py:4"]),
    "complex_input": (with_forward("return x.abs()", "[torch.randn(2, 4, dtype=torch.complex64)]"), "unsupported", ["complex64", "the input x"]),
    "no_tensor": (with_forward("return 3"), "bad_input", ["returns no tensor"]),
    "returns_object": ("class Box:\n    pass\n" + with_forward("box = Box()\nbox.x = x\nreturn box"), "unsupported", ["Box"]),
    "unsupported_op": (with_forward("return torch.linalg.svdvals(x)"), "unsupported", ["svd", "model.py:4"]),
    "numpy": (with_forward("return torch.from_numpy(x.numpy() * 2)"), "unsupported", ["model.py:4"]),
    "forward_raises": (with_forward("raise ValueError('not today')"), "bad_input", ["forward() fails", "not today", "model.py:4"]),
    "dropout": (with_forward("return torch.nn.functional.dropout(x, 0.3)"), "unsupported", ["p=0.3", ".eval()", "model.py:4"]),
    "attention_dropout": (with_forward("x = x.view(1, 1, 2, 4)\nreturn torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)"),
                          "unsupported", ["dropout_p=0.1", "model.py:5"]),
    "bytes_view": (with_forward("return x.view(torch.int32)"), "unsupported", ["another dtype", "model.py:4"]),
    "strided": (with_forward("return torch.as_strided(x, (2, 2), (1, 2))"), "unsupported", ["as_strided", "model.py:4"]),
    "randperm": (with_forward("return x[torch.randperm(2)]"), "unsupported", ["randperm", "model.py:4"]),
}


def options(**changes):
    values = dict(inputs=None, seed=42, cases=1, expected="auto", no_weights=False, weights=False, train_dropout="refuse")
    return argparse.Namespace(**{**values, **changes})


def capture(tmp_path, text, target="{file}", name="model.py", **changes):
    file = tmp_path / name
    file.write_text(text)
    return program.capture_guarded(target.format(file=file), str(tmp_path / "out.stitch"), options(**changes))


@pytest.mark.parametrize("name", FILES)
def test_error(name, tmp_path):
    text, kind, parts = FILES[name]
    outcome = capture(tmp_path, text)
    assert "error" in outcome, outcome
    message = outcome["error"]["message"]
    assert outcome["error"]["kind"] == kind, message
    for part in parts:
        assert part in message, message
    assert "\n" not in message and message.rstrip().endswith(".")
    assert sorted(os.listdir(tmp_path)) in (["model.py"], ["__pycache__", "model.py"])


@pytest.mark.parametrize("target, part", [
    ("nowhere.py", "does not exist"), ("model.txt", "does not exist"), ("/tmp", "is a folder"), ("nowhere.pt2", "does not exist"),
    ("no_such_module_here:f", "no_such_module_here"), (__file__ + ":no_such_thing", "no attribute no_such_thing"),
    (__file__ + ":GOOD", "cannot be called"),
])
def test_wrong_target(target, part, tmp_path):
    outcome = program.capture_guarded(target, str(tmp_path / "out.stitch"), options())
    assert outcome["error"]["kind"] in ("bad_input", "environment")
    assert part in outcome["error"]["message"]


def test_callable_needs_inputs(tmp_path):
    outcome = capture(tmp_path, "import torch\ndef f(x): return x\n", "{file}:f")
    assert "get_inputs or example_inputs" in outcome["error"]["message"]
    outcome = capture(tmp_path, "import torch\ndef f(x): return x\n", "{file}:f", inputs="mine")
    assert "has no mine" in outcome["error"]["message"]


def test_damaged_pt2(tmp_path):
    (tmp_path / "x.pt2").write_bytes(b"PK\x03\x04 no archive")
    outcome = program.capture_guarded(str(tmp_path / "x.pt2"), str(tmp_path / "out.stitch"), options())
    assert outcome["error"]["kind"] == "bad_input" and "torch.export.load" in outcome["error"]["message"]


def test_output_that_is_no_bundle_is_not_replaced(tmp_path):
    home = tmp_path / "out.stitch"
    home.mkdir()
    (home / "thesis.txt").write_text("years")
    outcome = capture(tmp_path, GOOD)
    assert outcome["error"]["kind"] == "bad_input" and "no .stitch folder" in outcome["error"]["message"]
    assert (home / "thesis.txt").read_text() == "years"


def test_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "model.py").write_text(GOOD)
    outcome = program.capture_guarded(str(tmp_path / "model.py"), str(tmp_path / "file" / "out.stitch"), options())
    assert outcome["error"]["kind"] == "environment" and "cannot be written" in outcome["error"]["message"]


def test_expected_needs_weights(tmp_path):
    outcome = capture(tmp_path, GOOD, no_weights=True, expected="yes")
    assert outcome["error"]["kind"] == "bad_input" and "--no-weights" in outcome["error"]["message"]


def test_rrelu_and_recurrent_dropout_in_training_mode():
    with pytest.raises(CaptureError, match="rrelu"):
        capture_case.lower(lambda x: F.rrelu(x, training=True), torch.randn(3))
    with pytest.raises(CaptureError, match="LSTM with dropout=0.5"):
        capture_case.lower(torch.nn.LSTM(4, 5, num_layers=2, dropout=0.5), torch.randn(6, 2, 4))
    with pytest.raises(CaptureError, match="proj_size"):
        capture_case.lower(torch.nn.LSTM(4, 5, proj_size=2), torch.randn(6, 2, 4))


# The command -----------------------------------------------------------------------------------------------------------------
def run(*arguments, **more):
    environment = {**os.environ, "PYTHONPATH": os.path.join(capture_case.ROOT, "python")}
    return subprocess.run([sys.executable, "-m", "stitchcuda.capture", *map(str, arguments)], capture_output=True, text=True, env=environment, **more)


def test_prints_of_the_program_do_not_reach_the_result(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("import os\nprint('{\"ok\": true}')\nos.system('echo from a child')\n" + GOOD.replace("return self", "print('in forward'); return self"))
    done = run(file, "-o", tmp_path / "out.stitch")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1 and json.loads(lines[0])["ok"] is True
    assert "in forward" in done.stderr and "from a child" in done.stderr and "progress: " in done.stderr


def test_batch_isolates_failures(tmp_path):
    files = {"good": GOOD, "crash": "import os\nos.kill(os.getpid(), 11)\n", "hang": "import time\ntime.sleep(1000)\n",
             "exit": "import os\nos._exit(0)\n", "global": "import torch\ntorch.set_default_dtype(torch.float64)\n" + GOOD, "again": GOOD}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    result = tmp_path / "result.jsonl"
    done = run("--batch", *[tmp_path / f"{n}.py" for n in files], "-o", tmp_path / "out", "--timeout", "20", "--result-file", result)
    assert done.returncode == 1
    outcomes = [json.loads(line) for line in result.read_text().splitlines()]
    assert [os.path.basename(o["target"]) for o in outcomes] == [f"{n}.py" for n in files]
    by_name = dict(zip(files, outcomes))
    assert by_name["good"]["ok"] and by_name["global"]["ok"] and by_name["again"]["ok"]
    assert "signal 11" in by_name["crash"]["error"]["message"]
    assert "did not finish in 20 s" in by_name["hang"]["error"]["message"]
    assert "ended the Python process" in by_name["exit"]["error"]["message"]
    # A setting changed by one program must not leak into the next.
    dtypes = [json.loads((tmp_path / "out" / f"{n}.stitch" / "program.json").read_text())["inputs"][0]["dtype"] for n in ("global", "again")]
    assert dtypes == ["f64", "f32"]

"""Whole programs: arguments and results, state, tied weights, random draws, fake capture of huge shapes, generators, .pt2."""

import argparse
import json
import os
import resource
import subprocess
import sys

import pytest
import torch
import torch.nn as nn

import capture_case
import ir_eval
from stitchcuda import program
from stitchcuda.lowering import lower as lowering
from stitchcuda.lowering import registry

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def options(**changes):
    values = dict(inputs=None, seed=42, cases=1, expected="auto", no_weights=False, weights=False, train_dropout="refuse")
    return argparse.Namespace(**{**values, **changes})


def captured(tmp_path, text, target="{file}", **changes):
    """Captures the file and returns (program.json, folder); with cases, the IR must give their expected values."""
    file = tmp_path / "model.py"
    file.write_text(HEADER + text)
    out = tmp_path / "out.stitch"
    outcome = program.capture_guarded(target.format(file=file), str(out), options(**changes))
    assert "ok" in outcome, outcome["error"]
    content = json.loads((out / "program.json").read_text())
    for name, got, want in ir_eval.evaluate_bundle(out) if content["cases"] else []:
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, msg=lambda m: f"{name}: {m}")
    return content, out


def ops(content):
    return ir_eval.Program(content["graph"]).ops()


def outputs(content):
    return [attributes for _, attributes in ir_eval.Program(content["graph"]).outputs]


# The tables --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(registry.HANDLERS))
def test_handlers_name_operators_that_exist(name):
    namespace, packet, *overload = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet)
    assert not overload or hasattr(found, overload[0])


def test_what_has_a_handler_is_never_decomposed():
    assert not [t for t in lowering.decompositions(None) if registry.find(t)]


# Arguments and results -----------------------------------------------------------------------------------------------------------
def test_nested_arguments_and_results(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def forward(self, x, pair, scale, options=None, *, flag=True):
        a, (b, c) = pair
        return {"sum": x + a, "parts": [b * scale, (c, None)], "n": 3, "flag": flag}
def get_inputs():
    return [torch.randn(2, 3), (torch.randn(3), [torch.randn(2), torch.randn(1)]), 2.5]
""")
    assert content["input_spec"] == {"tuple": [{"tensor": 0}, {"tuple": [{"tensor": 1}, {"list": [{"tensor": 2}, {"tensor": 3}]}]}, {"value": 2.5}]}
    assert content["output_spec"] == {"dict": {"sum": {"tensor": 0}, "parts": {"list": [{"tensor": 1}, {"tuple": [{"tensor": 2}, {"value": None}]}]},
                                               "n": {"value": 3}, "flag": {"value": True}}}
    assert [i["name"] for i in content["inputs"]][0] == "x" and len(content["inputs"]) == 4


def test_keyword_arguments(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def forward(self, x, y, *, z):
        return x - y * z
def get_inputs():
    return {"y": torch.randn(3), "x": torch.randn(3), "z": torch.randn(3)}
""")
    assert content["input_spec"] == {"tuple": [{"tensor": 0}, {"tensor": 1}], "kwargs": {"z": {"tensor": 2}}}
    assert [i["name"] for i in content["inputs"]] == ["x", "y", "z"]


def test_results_that_are_arguments_or_repeat(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def forward(self, x):
        y = x * 2
        return x, y, y.view(-1), y
def get_inputs():
    return [torch.randn(2, 3)]
""")
    lines = content["graph"]
    assert lines[-1].startswith('return %0 {name="output0"}, %1 {name="output1"}')
    assert len(outputs(content)) == 4


def test_changed_arguments_are_outputs(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def forward(self, x, y):
        x.mul_(2)
        y[0] = x[1]
        return x + y
def get_inputs():
    return [torch.randn(2, 3), torch.randn(2, 3)]
""")
    assert [(o["name"], o.get("mutates_input")) for o in outputs(content)] == [("output0", None), ("new_x", "x"), ("new_y", "y")]


# Weights and state ------------------------------------------------------------------------------------------------------------------
def test_tied_weights_appear_once(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.embedding.weight
    def forward(self, i):
        return self.out(self.embedding(i))
def get_inputs():
    return [torch.randint(0, 10, (2, 3))]
""")
    assert [(w["name"], w["parameter"]) for w in content["weights"]] == [("embedding.weight", True)]
    assert ops(content) == ["embedding", "linear"]


def test_kinds_of_weights(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.randn(3))
        self.unused = nn.Parameter(torch.randn(3))
        self.register_buffer("b", torch.randn(3))
        self.register_buffer("hidden_buffer", torch.randn(3), persistent=False)
        self.plain = torch.randn(3)
        self.number = torch.tensor(2.0)
    def forward(self, x):
        return x * self.p + self.b * self.hidden_buffer + self.plain * self.number + torch.tensor([1.0, 2.0, 3.0])
def get_inputs():
    return [torch.randn(3)]
""")
    kinds = {w["name"]: w["kind"] for w in content["weights"]}
    assert {"p": "parameter", "b": "buffer", "hidden_buffer": "buffer", "plain": "constant"}.items() <= kinds.items()
    assert "unused" not in kinds and "number" not in kinds and list(kinds.values()).count("constant") == 2
    assert [w["parameter"] for w in content["weights"]] == [k == "parameter" for k in kinds.values()]


def test_state_in_attributes(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.randn(2, 4)
        self.steps = torch.tensor(0)
        self.scratch = torch.zeros(1)
        self.cell = nn.Linear(8, 4)
    def forward(self, x):
        self.scratch = x * 2
        self.steps = self.steps + 1
        self.hidden = torch.tanh(self.cell(torch.cat([x, self.hidden], 1)))
        return self.hidden * self.steps
def get_inputs():
    return [torch.randn(2, 4)]
""")
    assert {o.get("mutates_weight") for o in outputs(content)} == {None, "hidden", "steps"}


def test_buffer_changed_in_place(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
    def forward(self, x):
        self.total += x.sum(0)
        return x - self.total
def get_inputs():
    return [torch.randn(2, 3)]
""")
    assert outputs(content)[1] == {"name": "new_total", "mutates_weight": "total"}


def test_mode_is_the_modules(tmp_path):
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        {}
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(4, 3)]
"""
    content, _ = captured(tmp_path, text.format("pass"))
    assert content["mode"] == "train"
    assert [o.get("mutates_weight") for o in outputs(content)] == [None, "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    content, _ = captured(tmp_path, text.format("self.eval()"))
    assert content["mode"] == "eval" and len(outputs(content)) == 1


def test_module_that_cannot_be_copied(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.weight_norm(nn.Conv1d(2, 3, 3))
        self.norm = nn.BatchNorm1d(3)
    def forward(self, x):
        return self.norm(self.conv(x))
def get_inputs():
    return [torch.randn(2, 2, 6)]
""", cases=2)
    assert {"conv.weight_g", "conv.weight_v"} <= {w["name"] for w in content["weights"]}


def test_lazy_parameters(tmp_path):
    (tmp_path / "model.py").write_text(HEADER + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.LazyLinear(3)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(2, 4)]
""")
    outcome = program.capture_guarded(str(tmp_path / "model.py"), str(tmp_path / "out.stitch"), options())
    assert outcome["error"]["kind"] == "bad_input" and "lazy parameters" in outcome["error"]["message"]


FEATURES = {
    "no_grad": ("y = self.linear(x)\n        with torch.no_grad():\n            z = self.linear(y) * 2\n        return z + y", ["linear", "linear", "mul", "add"]),
    "autocast": ("with torch.autocast('cpu', torch.bfloat16):\n            y = self.linear(x)\n        return y.float()", ["cast", "cast", "cast", "linear", "cast"]),
    "checkpoint": ("return torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)", ["linear"]),
    "scripted": ("return scripted(self.linear(x))", ["linear", "mul", "add"]),
    "autograd_function": ("return Swish.apply(self.linear(x))", ["linear", "sigmoid", "mul"]),
    "transposed_weight": ("return x @ self.linear.weight.T + torch.addmm(self.linear.bias, x, self.linear.weight.t())", ["linear", "linear", "add"]),
}


@pytest.mark.parametrize("name", FEATURES)
def test_feature(name, tmp_path):
    body, expected_ops = FEATURES[name]
    file = tmp_path / "model.py"
    file.write_text(HEADER + f"""
import torch.utils.checkpoint
@torch.jit.script
def scripted(x):
    return x * 2 + 1
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.sigmoid(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        {body}
def get_inputs():
    return [torch.randn(2, 4)]
""")
    outcome = program.capture_guarded(str(file), str(tmp_path / "out.stitch"), options())
    assert "ok" in outcome, outcome["error"]
    for _, got, want in ir_eval.evaluate_bundle(tmp_path / "out.stitch"):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert ops(json.loads((tmp_path / "out.stitch" / "program.json").read_text())) == expected_ops


# Random draws ------------------------------------------------------------------------------------------------------------------------
def test_random_draws_become_inputs(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def forward(self, x):
        noise = torch.randn(2, 3) + torch.rand_like(x) + torch.empty(3).uniform_(-1, 1)
        return x + noise, torch.bernoulli(torch.full((4,), 0.3))
def get_inputs():
    return [torch.randn(2, 3)]
""")
    drawn = [i for i in content["inputs"] if i.get("random")]
    assert [(i["generator"]["kind"], i["generator"]["a"], i["generator"]["b"]) for i in drawn] == [
        ("normal", 0, 1), ("uniform", 0, 1), ("uniform", -1, 1), ("uniform", 0, 1)]
    assert content["input_spec"] == {"tuple": [{"tensor": 0}]}


def test_dropout_mask_as_input(tmp_path):
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.drop2 = nn.Dropout(0.3), nn.Dropout2d(0.5)
    def forward(self, x):
        return self.drop(x) + self.drop2(x)
def get_inputs():
    return [torch.randn(2, 3, 4, 5)]
"""
    content, _ = captured(tmp_path, text, train_dropout="input")
    assert [i["shape"] for i in content["inputs"]] == [[2, 3, 4, 5], [2, 3, 4, 5], [2, 3, 1, 1]]


# Kinds of targets -----------------------------------------------------------------------------------------------------------------------
def test_callables(tmp_path):
    text = """
def relu_twice(x, y=None):
    return torch.relu(x) * 2
def make():
    return nn.Linear(3, 2)
class Net(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
net = nn.Linear(3, 2).eval()
example_inputs = torch.randn(2, 3)
def others():
    return [torch.randn(4, 3)]
"""
    assert ops(captured(tmp_path, text, "{file}:relu_twice")[0]) == ["relu", "mul"]
    for name in ("make", "Net", "net"):
        content, _ = captured(tmp_path, text, "{file}:" + name)
        assert ops(content) == ["linear"] and content["origin"]["kind"] == "callable" and content["name"] == name
    assert content["mode"] == "eval"
    content, _ = captured(tmp_path, text, "{file}:net", inputs="others")
    assert content["inputs"][0]["shape"] == [4, 3]


def test_module_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets_for_test.py").write_text(HEADER + "def f(x):\n    return x + 1\ndef get_inputs():\n    return [torch.randn(3)]\n")
    content, _ = captured(tmp_path, "", "nets_for_test:f")
    assert ops(content) == ["add"] and content["origin"]["file"].endswith("nets_for_test.py")


def test_exported_program(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
    torch.export.save(torch.export.export(net, (torch.randn(1, 2, 6, 6),)), tmp_path / "net.pt2")
    content, _ = captured(tmp_path, "", str(tmp_path / "net.pt2"))
    assert ops(content) == ["convolution", "batch_norm", "relu"] and content["origin"]["kind"] == "pt2"


def test_constructor_arguments(tmp_path):
    text = """
class Model(nn.Module):
    def __init__(self, n, bias=True):
        super().__init__()
        self.linear = nn.Linear(n, 2, bias=bias)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(2, 5)]
def get_init_inputs():
    return @
"""
    for form in ("[5, False]", "[[5], {'bias': False}]", "{'n': 5, 'bias': False}"):
        content, _ = captured(tmp_path, text.replace("@", form))
        assert [w["name"] for w in content["weights"]] == ["linear.weight"]


# Constructors that need real numbers -------------------------------------------------------------------------------------------------------
def test_constructor_that_reads_a_number(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = [r.item() for r in torch.linspace(0, 0.5, 3)]
    def forward(self, x):
        return x * self.rates[1]
def get_inputs():
    return [torch.randn(3)]
""", no_weights=True)
    assert ops(content) == ["mul"] and ", 0.25)" in content["graph"][1]


# Seeds, cases, sizes ----------------------------------------------------------------------------------------------------------------------
LINEAR = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(2, 4)]
"""


def test_seed_and_cases(tmp_path):
    from safetensors.torch import load_file
    _, out = captured(tmp_path, LINEAR, cases=2, seed=7)
    torch.manual_seed(7)
    assert torch.equal(load_file(out / "weights.safetensors")["linear.weight"], nn.Linear(4, 3).weight)
    torch.manual_seed(7)
    assert torch.equal(load_file(out / "cases" / "000.safetensors")["input.x"], torch.randn(2, 4))
    torch.manual_seed(8)
    assert torch.equal(load_file(out / "cases" / "001.safetensors")["input.x"], torch.randn(2, 4))


def test_capture_again_replaces_and_leaves_nothing_beside(tmp_path):
    captured(tmp_path, LINEAR)
    content, out = captured(tmp_path, LINEAR, no_weights=True)
    assert content["has_weights"] is False and os.listdir(out) == ["program.json"]
    assert sorted(n for n in os.listdir(tmp_path) if n != "__pycache__") == ["model.py", "out.stitch"]


def test_precision_flags_of_the_program(tmp_path):
    try:
        content, _ = captured(tmp_path, "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.allow_tf32 = False\n" + LINEAR)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
    assert content["precision"] == {"allow_tf32_matmul": True, "allow_tf32_conv": False}


def test_generators(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.randn(4) * 0.1)
        self.odd = nn.Parameter(torch.randn(4).abs())
        self.norm = nn.LayerNorm(4)
    def forward(self, x, up, sym, coin, rows, labels, odd):
        return self.norm(self.linear(x)) * self.scale + self.odd + up.sum() + sym.sum() + coin.sum() + rows.sum() + labels.sum() + odd.sum()
def get_inputs():
    a = torch.rand(4, 4)
    return [torch.rand(3, 16) * 2 - 1, torch.triu(torch.randn(4, 4)), (a + a.T) / 2, torch.randint(0, 2, (3,)).bool(),
            torch.rand(3, 5).softmax(-1), torch.randint(0, 9, (3,)), torch.rand(3) ** 2]
""", no_weights=True)

    def short(entry):
        g = entry["generator"]
        return g and (g["kind"], round(g["a"], 6), round(g["b"], 6), g.get("structure", ""))

    assert [short(i) for i in content["inputs"]] == [
        ("uniform", -1, 1, ""), ("normal", 0, 1, "upper"), ("uniform", 0, 1, "symmetric"), ("randint", 0, 2, ""),
        ("uniform", 0, 1, "rows"), ("randint", 0, 9, ""), None]
    made = {w["name"]: short(w) for w in content["weights"]}
    assert made == {"linear.weight": ("uniform", -0.25, 0.25, ""), "linear.bias": ("uniform", -0.25, 0.25, ""), "scale": ("normal", 0, 0.1, ""),
                    "odd": None, "norm.weight": ("constant", 1, 0, ""), "norm.bias": ("constant", 0, 0, "")}


HUGE = HEADER + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(65536, 65536)
        self.lstm = nn.LSTM(65536, 4096, num_layers=2)
    def forward(self, x):
        return self.lstm(torch.relu(self.up(x)))[0].softmax(-1)
def get_inputs():
    return [torch.rand(2048, 64, 65536)]
"""


def test_huge_shapes_cost_no_memory_and_little_time(tmp_path):
    """17 GB of weights and a 34 GB input: the worker must stay below 2 GB."""
    (tmp_path / "huge.py").write_text(HUGE)
    environment = {**os.environ, "PYTHONPATH": os.path.join(capture_case.ROOT, "python")}
    done = subprocess.run([sys.executable, "-m", "stitchcuda.capture", "--no-weights", str(tmp_path / "huge.py"), "-o", str(tmp_path / "out.stitch")],
                          capture_output=True, text=True, env=environment, timeout=300)
    outcome = json.loads(done.stdout)
    assert outcome.get("ok"), outcome
    assert outcome["bytes"] > 30e9 and outcome["expected"] is False
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 << 20  # KiB


def test_large_programs_are_not_run(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def forward(self, x):
        return x @ x
def get_inputs():
    return [torch.rand(2000, 2000)]
""")
    assert content["cases"] == [] and content["has_weights"] is True


def test_state_under_two_names_that_changes(tmp_path):
    content, _ = captured(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)
        self.also = self.norm
    def forward(self, x):
        return self.also(self.norm(x))
def get_inputs():
    return [torch.randn(6, 5)]
""")
    assert [w["name"] for w in content["weights"]] == ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert [o.get("mutates_weight") for o in outputs(content)][1:] == ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]

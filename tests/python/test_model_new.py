"""ModelNew behaves as the module it replaces, call after call: state, arguments, results, copies. Host target, so no GPU."""

import copy
import importlib.util
import os
import subprocess
import textwrap

import pytest
import torch
import torch.utils._pytree as pytree

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BINARY = os.environ.get("STITCHCUDA_BINARY", os.path.join(ROOT, "build", "stitchcuda"))
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pair:
    """The original module and ModelNew, built under the same seed."""

    def __init__(self, folder, text, name=None):
        file = folder / "model.py"
        file.write_text(HEAD + textwrap.dedent(text))
        target = f"{file}:{name}" if name else str(file)
        run = subprocess.run([BINARY, "run", target, "--target", "host", "--out", str(folder / "out")], capture_output=True, text=True, timeout=900)
        assert run.returncode == 0, run.stderr[-3000:] + run.stdout[-2000:]
        self.file, self.written = load(file, "reference"), load(folder / "out" / "model_new.py", "model_new")
        arguments = getattr(self.file, "get_init_inputs", list)()
        if name is None:
            torch.manual_seed(7)
            self.original = self.file.Model(*arguments)
        torch.manual_seed(7)
        self.new = self.written.ModelNew(*arguments)

    def inputs(self, seed):
        torch.manual_seed(seed)
        value = self.file.get_inputs()
        return ([], value) if isinstance(value, dict) else (list(value), {})

    def compare(self, seed, tolerance=1e-5):
        args, kwargs = self.inputs(seed)
        own_args, own_kwargs = copy.deepcopy((args, kwargs))
        torch.manual_seed(seed)
        with torch.no_grad():
            want = self.original(*args, **kwargs)
        torch.manual_seed(seed)
        got = self.new(*own_args, **own_kwargs)
        same(got, want, tolerance)
        same((own_args, own_kwargs), (args, kwargs), tolerance)  # what forward() changes in place, and nothing else
        assert list(self.new.state_dict()) == list(self.original.state_dict())
        same(dict(self.new.state_dict()), dict(self.original.state_dict()), tolerance)
        return got


def same(got, want, tolerance):
    leaves, spec = pytree.tree_flatten(got)
    wanted, wanted_spec = pytree.tree_flatten(want)
    assert spec == wanted_spec
    for g, w in zip(leaves, wanted):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance)
        else:
            assert type(g) is type(w) and g == w


@pytest.fixture(scope="module")
def stateful(tmp_path_factory):
    return Pair(tmp_path_factory.mktemp("stateful"), """
        class Model(nn.Module):
            def __init__(self, features):
                super().__init__()
                self.norm = nn.BatchNorm1d(features)
                self.also_norm = self.norm                       # one module under two names
                self.drop = nn.Dropout(p=0.0)
                self.weight = nn.Parameter(torch.randn(features, features) / 4)
                self.tied = self.weight                          # one parameter under two names
                self.register_buffer("average", torch.zeros(features))
                self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
                self.register_buffer("scratch", torch.ones(features), persistent=False)
                self.hidden = torch.randn(6, features)           # state outside the state dict
                self.scale = torch.rand(features) + 0.5          # a constant outside the state dict

            def forward(self, x):
                x = self.drop(self.norm(x)) @ self.weight
                self.hidden = torch.tanh(self.hidden + x) * self.scale
                self.average.mul_(0.9).add_(self.hidden.mean(0), alpha=0.1)
                self.calls += 1
                self.scratch.add_(self.average)
                return self.hidden @ self.tied.T, self.average * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), self.scratch

        def get_inputs():
            return [torch.randn(6, 5)]

        def get_init_inputs():
            return [5]
    """)


def test_state_changes_as_in_the_original(stateful):
    for seed in range(3):
        stateful.compare(seed)
        same(stateful.new.scratch, stateful.original.scratch, 1e-5)
    assert stateful.new.calls.item() == 3 and stateful.original.calls.item() == 3
    assert stateful.new.tied is stateful.new.weight and stateful.new.also_norm is stateful.new.norm


def test_new_weights_are_seen(stateful):
    stateful.compare(10)
    with torch.no_grad():
        for module in (stateful.original, stateful.new):
            module.weight.mul_(0.5)
    stateful.compare(11)
    state = {k: v + 1 if v.is_floating_point() else v for k, v in stateful.original.state_dict().items()}
    stateful.original.load_state_dict(state)
    stateful.new.load_state_dict(state)
    stateful.compare(12)
    for module in (stateful.original, stateful.new):
        module.norm.weight = nn_parameter(module.norm.weight * 3)
    stateful.compare(13)


def nn_parameter(t):
    return torch.nn.Parameter(t.detach().clone())


def test_a_copy_has_its_own_state(stateful):
    stateful.compare(20)
    original, new = copy.deepcopy(stateful.original), copy.deepcopy(stateful.new)
    stateful.compare(21)
    kept = stateful.original, stateful.new
    stateful.original, stateful.new = original, new
    try:
        stateful.compare(21)
    finally:
        stateful.original, stateful.new = kept


def test_the_other_mode_is_refused(stateful):
    stateful.new.eval()
    with pytest.raises(RuntimeError, match="made from the module in train mode"):
        stateful.new(*stateful.inputs(0)[0])
    stateful.new.train()
    stateful.compare(30)


def test_views_and_strided_inputs(stateful):
    base = torch.randn(6 * 5 + 1)
    for x in (base[1:].view(6, 5), torch.randn(5, 6).T, torch.randn(6, 10)[:, ::2], torch.randn(1, 5).expand(6, 5)):
        with torch.no_grad():
            same(stateful.new(x), stateful.original(x), 1e-5)


def test_wrong_inputs_are_refused(stateful):
    for x in (torch.randn(5, 6), torch.randn(6, 5).double(), torch.zeros(6, 5, dtype=torch.int64)):
        with pytest.raises(RuntimeError, match="must be f32"):
            stateful.new(x)
    with pytest.raises(TypeError, match="forward"):
        stateful.new()
    with pytest.raises(TypeError, match="forward"):
        stateful.new(torch.randn(6, 5), torch.randn(6, 5))


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    return Pair(tmp_path_factory.mktemp("arguments"), """
        class Model(nn.Module):
            def __init__(self, width, *, gain=2.0):
                super().__init__()
                self.embed = nn.Embedding(7, width)
                self.out = nn.Linear(width, 7, bias=False)
                self.out.weight = self.embed.weight              # tied
                self.gain = gain
                self.frozen = nn.BatchNorm1d(width).eval()       # a part in another mode than the whole

            def forward(self, tokens, bias=None, scale=1.0, *, pair, causal=True, extra=None):
                x = self.frozen(self.embed(tokens).mean(1)) * scale * self.gain
                if bias is not None:
                    x = x + bias
                left, right = pair["left"], pair["right"][0]
                left.add_(1.0)                                   # changes its argument
                if causal:
                    x = x + left - right
                y = self.out(x)
                return {"logits": y, "parts": [x, (left, None)], "causal": causal, "count": 3, "same": y}

        def get_inputs():
            return {"tokens": torch.randint(0, 7, (3, 4)), "scale": 0.5, "pair": {"left": torch.randn(3, 8), "right": [torch.randn(8)]}}

        def get_init_inputs():
            return [8]
    """)


def test_nested_arguments_and_results(arguments):
    for seed in range(3):
        out = arguments.compare(seed)
        assert list(out) == ["logits", "parts", "causal", "count", "same"]
    assert arguments.new.out.weight is arguments.new.embed.weight
    assert arguments.new.training and not arguments.new.frozen.training


def test_arguments_by_place_and_spelled_out_defaults(arguments):
    (_, kwargs), new = arguments.inputs(5), arguments.new
    tokens, pair = kwargs["tokens"], kwargs["pair"]
    want = arguments.original(tokens, None, 0.5, pair=copy.deepcopy(pair))
    same(new(tokens, None, 0.5, pair=copy.deepcopy(pair)), want, 1e-5)
    same(new(tokens, scale=0.5, causal=True, extra=None, pair=copy.deepcopy(pair)), want, 1e-5)
    same(new(tokens.to(torch.float32), scale=0.5, pair=copy.deepcopy(pair)), want, 1e-5)  # whole numbers, as KernelBench gives them


@pytest.mark.parametrize("change, message", [
    ({"scale": 0.25}, '"scale" = 0.5, but it is 0.25'),
    ({"causal": False}, "causal"),
    ({"bias": torch.ones(8)}, '"bias"'),
    ({"extra": 1}, 'without "extra"'),
    ({"pair": {"left": torch.ones(3, 8), "right": []}}, "must hold 1 values"),
    ({"pair": {"left": torch.ones(3, 8), "wrong": [torch.ones(8)]}}, "must hold a value for 'right'"),
    ({"pair": {"left": 1.0, "right": [torch.ones(8)]}}, "must be a tensor"),
    ({"tokens": torch.full((3, 4), 0.5)}, '"tokens" must be i64'),
])
def test_other_arguments_than_captured_are_refused(arguments, change, message):
    _, kwargs = arguments.inputs(5)
    with pytest.raises(RuntimeError, match=message):
        arguments.new(**{**kwargs, **change})


def test_recurrent_states_random_numbers_and_constants(tmp_path):
    pair = Pair(tmp_path, """
        class Model(nn.Module):
            def __init__(self, sizes):
                super().__init__()
                self.layers = nn.ModuleList(nn.LSTM(a, b, batch_first=True) for a, b in zip(sizes, sizes[1:]))
                self.noise = 0.25

            def forward(self, x, state=None):
                if state is None:
                    state = [(torch.randn(1, x.size(0), l.hidden_size), torch.zeros(1, x.size(0), l.hidden_size)) for l in self.layers]
                new = []
                for layer, s in zip(self.layers, state):
                    x, s = layer(x, s)
                    new.append(s)
                return x + self.noise * torch.rand(3) + torch.arange(3), tuple(new)

        def get_inputs():
            return [torch.randn(2, 5, 4)]

        def get_init_inputs():
            return [[4, 6, 3]]
    """)
    for seed in range(3):
        pair.compare(seed)


def test_a_function_and_a_factory(tmp_path):
    (tmp_path / "f").mkdir()
    pair = Pair(tmp_path / "f", """
        def blend(x, y, amount=0.5):
            return torch.lerp(x, y, amount), x.softmax(-1)

        def get_inputs():
            return [torch.randn(3, 9), torch.randn(3, 9)]
    """, "blend")
    pair.original = pair.file.blend
    args, _ = pair.inputs(0)
    same(pair.new(*args), pair.original(*args), 1e-5)
    (tmp_path / "g").mkdir()
    pair = Pair(tmp_path / "g", """
        torch.rand(3)  # a draw while the file is loaded must not shift the weights

        def make():
            return nn.Sequential(nn.Linear(9, 4), nn.GELU(), nn.Linear(4, 2))

        def get_inputs():
            return [torch.randn(3, 9)]
    """, "make")
    torch.manual_seed(7)
    pair.original = pair.file.make()
    for seed in range(3):
        pair.compare(seed)

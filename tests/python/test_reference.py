"""The verifier's PyTorch process: fp64 answers, answers in the model's own precision, and state that starts afresh."""

import hashlib

import pytest
import torch

from stitchcuda.baseline import Reference, Refused, rotate_into

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.hidden = torch.zeros(8, width)

    def forward(self, x):
        print("a model may print")
        self.hidden = self.hidden + 1
        return self.norm(self.linear(x)) + torch.ones(1) + self.hidden

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [16]
"""


def request(path, **changes):
    output = {"name": "output0", "dtype": "f32", "shape": [8, 16], "kind": "user", "target": ""}
    state = [{"name": n, "dtype": "f32", "shape": s, "kind": "mutates_weight", "target": t} for n, s, t in
             [("mean", [16], "norm.running_mean"), ("hidden", [8, 16], "hidden")]]
    base = {"source": str(path), "kind": "kernelbench", "name": "model", "sha256": hashlib.sha256(MODEL.encode()).hexdigest(), "weights": "",
            "inputs": [{"name": "x", "dtype": "f32", "shape": [8, 16]}], "outputs": [output, *state], "precision": "fp32", "tf32_matmul": False,
            "tf32_conv": True, "mode": "train", "seed": 42, "device": "cpu"}
    return {**base, **changes}


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    r = Reference()
    r.load(request(path))
    return r


def test_answers_repeat_because_state_starts_afresh(reference):
    x = [torch.randn(8, 16)]
    first, again = reference.exact(x), reference.exact(x)
    own = [reference.approximate(x, 0, 0.0) for _ in range(2)]
    for a, b in [*zip(first, again), *zip(*own)]:
        assert torch.equal(a, b)
    assert first[0].dtype == torch.float64 and own[0][0].dtype == torch.float32
    assert 1e-9 < (first[0] - own[0][0]).abs().max() < 1e-4
    assert torch.equal(first[2], torch.ones(8, 16, dtype=torch.float64))


def test_draws_differ_by_rounding_only(reference):
    x = [torch.randn(8, 16)]
    plain, moved = reference.approximate(x, 0, 2.0 ** -24)[0], reference.approximate(x, 1, 2.0 ** -24)[0]
    assert 0 < (plain - moved).abs().max() < 1e-4


def test_weights_are_the_values_before_any_call(reference):
    reference.approximate([torch.randn(8, 16)], 0, 0.0)
    mean, hidden, weight = reference.weights_of(["norm.running_mean", "hidden", "linear.weight"])
    assert not mean.any() and not hidden.any() and weight.shape == (16, 16)
    with pytest.raises(Refused, match="no tensor named nonsense"):
        reference.weights_of(["nonsense"])


def test_a_baseline_is_timed(reference):
    reference.baseline({"mode": "eager"})
    assert all(t > 0 for t in reference.time_calls("eager", [torch.randn(8, 16)], 3, 1024))
    with pytest.raises(Refused, match="warp_speed"):
        reference.baseline({"mode": "warp_speed"})


def test_rotation():
    source, target = torch.arange(6).reshape(2, 3), torch.empty(2, 3, dtype=torch.int64)
    for distance in (0, 1, 5, 6, 13):
        rotate_into(target, source, distance)
        assert torch.equal(target.reshape(-1), source.reshape(-1).roll(distance))


ROWS = MODEL.replace("return self.norm(self.linear(x)) + torch.ones(1) + self.hidden", "return x * 1.0, x.sum()")


def test_draws_disturb_elements_and_whole_rows_in_turn(tmp_path):
    path = tmp_path / "rows.py"
    path.write_text(ROWS)
    r = Reference()
    outputs = [{"name": "y", "dtype": "f32", "shape": [8, 16], "kind": "user", "target": ""}, {"name": "s", "dtype": "f32", "shape": [], "kind": "user", "target": ""}]
    r.load(request(path, sha256="", outputs=outputs))
    for draw in range(1, 5):
        factors = r.approximate([torch.ones(8, 16)], draw, 1e-3)[0]
        assert 0 < (factors - 1).abs().max() <= 2.001e-3
        within, across = (factors - factors[:, :1]).abs().max(), (factors - factors[:1]).abs().max()
        assert across > 0 and (within > 0) == (draw % 2 == 1)


CENTRED = MODEL.replace("return self.norm(self.linear(x)) + torch.ones(1) + self.hidden", "return (x - x.mean(0)) @ self.linear.weight, self.CONV(x)")
CONV = "torch.nn.functional.conv1d((x - x.mean(0)).t()[None], self.linear.weight[:, :, None])"


def test_rounding_inside_breaks_what_holds_for_any_weights(tmp_path):
    """A mean of zero stays zero behind a product, whatever input and weights; only rounding of the product's operand moves it."""
    path = tmp_path / "centred.py"
    path.write_text(CENTRED.replace("self.CONV(x)", CONV))
    r = Reference()
    outputs = [{"name": n, "dtype": "f32", "shape": s, "kind": "user", "target": ""} for n, s in [("product", [8, 16]), ("conv", [1, 16, 8])]]
    r.load(request(path, sha256="", outputs=outputs))
    x = [torch.randn(8, 16)]
    for draw in range(5):
        product, conv = r.approximate(x, draw, 1e-3)
        means = product.mean(0).abs().max(), conv.mean(2).abs().max()
        assert all(m < 1e-6 if draw == 0 else 1e-5 < m < 1e-2 for m in means), (draw, means)

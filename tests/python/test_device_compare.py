"""The device's comparison rule on the cases that decide verdicts (the C++ twin is tested in tests/verify/compare_test.cpp)."""

import json
import math
import pathlib

import pytest
import torch

from stitchcuda import device_compare
from stitchcuda.device_compare import all_close, block_size, compare

F32 = (1e-4, 2e-5)
NAN_POISON, FINITE_POISON = 0xFFFF, 0x5A5A


def pair(shape=(64, 300), seed=0):
    exact = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return exact.to(torch.float32), exact


def test_rounding_passes_and_its_size_is_reported():
    got, exact = pair()
    r = compare("y", got, exact, [], F32, NAN_POISON)
    assert r.ok and r.wrong == 0 and 0 < r.max_error < 1e-6 and 0 < r.norm_error < 1e-7


def test_one_wrong_element_is_found_with_its_place():
    got, exact = pair()
    got[3, 7] += 0.01
    r = compare("y", got, exact, [], F32, NAN_POISON)
    assert not r.ok and r.wrong == 1 and r.first["index"] == 3 * 300 + 7 and not r.first["unwritten"]


@pytest.mark.parametrize("poison,dtype", [(NAN_POISON, torch.float32), (FINITE_POISON, torch.float32), (NAN_POISON, torch.float16), (FINITE_POISON, torch.int64),
                                          (FINITE_POISON, torch.int8), (FINITE_POISON, torch.bool)])
def test_unwritten_elements_are_counted(poison, dtype):
    exact = torch.ones(6, 50, dtype=torch.float64 if dtype.is_floating_point else torch.int64)
    got = exact.to(dtype).clone()
    raw = got.view(-1).view(torch.uint8)
    pattern = torch.tensor([poison & 0xFF, poison >> 8], dtype=torch.uint8).repeat(raw.numel() // 2)
    raw[-10 * got.element_size():] = pattern[-10 * got.element_size():]
    r = compare("y", got, exact, [], (1e-2, 1e-2), poison)
    assert not r.ok and r.wrong == 10 and r.unwritten == 10


def test_many_small_deviations_fail_by_the_norm():
    got, exact = pair()
    r = compare("y", (exact * (1 + 9e-5)).to(torch.float32), exact, [], F32, NAN_POISON)
    assert not r.ok and r.wrong == 0 and r.norm_error > 2e-5


def test_a_huge_row_excuses_nothing_elsewhere():
    got, exact = pair()
    exact[0] *= 1e9
    got = exact.to(torch.float32)
    got[5, 5] += 0.01
    assert not compare("y", got, exact, [], F32, NAN_POISON).ok


def test_the_references_own_error_excuses_as_much():
    got, exact = pair()
    reference = got.clone()
    reference[2, 2] += 0.01
    got[2, 2] -= 0.015
    r = compare("y", got, exact, [reference], F32, NAN_POISON)
    assert r.ok and r.forgiven == 1 and r.has_reference and r.reference_max_error > 1e-3
    got[2, 2] -= 0.02
    assert not compare("y", got, exact, [reference], F32, NAN_POISON).ok


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_values_must_agree(value):
    got, exact = pair()
    got[1, 1] = value
    r = compare("y", got, exact, [], F32, FINITE_POISON)
    assert not r.ok and r.nonfinite_wrong == 1
    exact[1, 1] = value
    assert compare("y", got, exact, [], F32, FINITE_POISON).ok
    got[1, 1] = 1.0
    assert not compare("y", got, exact, [], F32, FINITE_POISON).ok


def test_overflow_of_the_outputs_type_is_infinity():
    exact = torch.full((4, 300), 7e4, dtype=torch.float64)
    got = torch.full((4, 300), math.inf, dtype=torch.float16)
    assert compare("y", got, exact, [], (1e-2, 2e-3), NAN_POISON).ok


def test_ties_of_integers_are_forgiven_only_where_a_reference_flips_too():
    exact = torch.arange(600).reshape(2, 300)
    got, reference = exact.clone(), exact.clone()
    got[0, 5] = reference[0, 5] = 9
    assert compare("y", got, exact, [reference], F32, NAN_POISON).forgiven == 1
    got[0, 6] = 9
    assert not compare("y", got, exact, [reference], F32, NAN_POISON).ok


def test_blocks_and_empty_outputs():
    assert [block_size(s) for s in [(), (5,), (4, 300), (10, 20, 30), (0, 4)]] == [1, 5, 300, 600, 1]
    empty = torch.empty(0, 4)
    assert compare("y", empty, empty.double(), [], F32, NAN_POISON).ok


@pytest.mark.parametrize("scale", [0.0, 1e-7, 3e-5, 2e-4])
def test_the_quick_way_and_the_long_way_agree(scale):
    _, exact = pair((50, 8, 40))
    got = (exact + scale * torch.randn(exact.shape, dtype=torch.float64)).to(torch.float32)
    quick = compare("y", got, exact, [], F32, NAN_POISON)
    long = compare("y", got, exact, [exact], F32, NAN_POISON)  # a reference without an error of its own excuses nothing
    assert quick.ok == long.ok and quick.wrong == long.wrong
    assert quick.max_error == pytest.approx(long.max_error) and quick.norm_error == pytest.approx(long.norm_error)


def test_kernelbench_rule():
    got, exact = pair()
    assert all_close(got, exact, 1e-4)[0]
    got[0, 0] = math.nan
    assert not all_close(got, exact, 1e-4)[0]


CHAOTIC = json.loads((pathlib.Path(__file__).resolve().parents[1] / "data/chaotic_cases.json").read_text())


def add_one(values, start, count):
    values.view(-1)[(start + 7919 * torch.arange(count)) % values.numel()] += 1.0


def wave(shape):
    return torch.sin(0.7 * torch.arange(math.prod(shape), dtype=torch.float64) + 0.3).reshape(shape)


class Chaotic:
    """A reference whose own draws go wrong in a few elements, others each time."""

    def __init__(self, outputs):
        self.cases, self.device = outputs, torch.device("cpu")
        self.outputs = [{"name": f"y{k}", "dtype": "i64" if "exact" in o else "f32"} for k, o in enumerate(outputs)]

    def wait(self):
        pass

    def exact(self):
        return [torch.tensor([o["exact"]]) if "exact" in o else wave(o["shape"]) for o in self.cases]

    def approximate(self, inputs, number, roundoff):
        draw = self.exact()
        for o, value in zip(self.cases, draw):
            if "exact" not in o:
                add_one(value, 104729 * number, o["lost"])
        return draw

    def answers(self):
        got = []
        for o in self.cases:
            if "got" in o:
                got.append(torch.tensor([o["got"]]))
                continue
            value = (wave(o["shape"]) * (1 + o.get("scale", 0))).to(torch.float32)
            add_one(value, 1000003, o["wrong"])
            value.view(-1).view(torch.uint8)[:4 * o.get("unwritten", 0)] = 0xFF
            got.append(value)
        return got


@pytest.mark.parametrize("case", CHAOTIC["cases"], ids=lambda c: c["name"])
def test_a_lost_reference_excuses_as_many_elements_and_no_precision_nor_integers(case):
    from stitchcuda.device_checks import DeviceChecks
    reference = Chaotic(case["outputs"])
    results = DeviceChecks(reference, {}, None)._judge(reference.answers(), reference.exact(), [], tuple(CHAOTIC["tolerance"]), NAN_POISON, 2.0 ** -24, False)
    assert all(r.ok for r in results) == case["ok"]
    assert not case["ok"] or all(r.wrong == 0 for r in results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("case", ["plain", "zero rows", "tiny", "huge row", "wrong", "nan", "inf", "negative zero", "one outlier", "nan expected"])
def test_the_short_way_gives_what_the_long_way_gives(dtype, case, monkeypatch):
    generator = torch.Generator().manual_seed(7)
    exact = torch.randn(40, 300, generator=generator, dtype=torch.float64)
    if case == "zero rows":
        exact[3:9] = 0
    if case == "tiny":
        exact[5] *= 1e-42
    if case == "huge row":
        exact[2] *= 1e4
    if case == "negative zero":
        exact[1] = -0.0
    got = exact.to(dtype)
    if dtype == torch.float64:
        got = exact * (1 + 1e-12 * torch.randn(exact.shape, generator=generator, dtype=torch.float64))
    if case == "wrong":
        got[7, 7] += 1
    if case == "nan":
        got[7, 7] = math.nan
    if case == "inf":
        got[7, 7] = math.inf
    if case == "one outlier":
        got[30, 299] *= 1 + 4e-3 if dtype != torch.float32 else 1 + 8e-5
    if case == "nan expected":
        exact[0, 0] = got[0, 0] = math.nan
    monkeypatch.setattr(device_compare, "CHUNK", 1500)  # several chunks: what earlier ones showed narrows the search in later ones
    short = compare("y", got, exact, [], F32, NAN_POISON)
    monkeypatch.setattr(device_compare, "_plain_chunk", lambda *a: None)
    long = compare("y", got, exact, [], F32, NAN_POISON)
    for name in ("ok", "norm_ok", "wrong", "unwritten", "nonfinite_wrong", "forgiven", "first", "has_reference"):
        assert str(getattr(short, name)) == str(getattr(long, name)), name
    for name in ("max_error", "norm_error", "max_abs_error"):
        assert getattr(short, name) == pytest.approx(getattr(long, name), rel=1e-12), name


def test_digests_of_any_number_of_outputs():
    from stitchcuda.device_memory import digest
    many = [torch.full((3,), float(k)) for k in range(300)]  # a train-mode network returns the new state of every norm
    assert digest(many) == digest([t.clone() for t in many])
    changed = [t.clone() for t in many]
    changed[250][1] += 1
    assert digest(changed) != digest(many) != digest([many[1], many[0], *many[2:]])

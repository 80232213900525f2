"""Small-size twins: shapes scaled down automatically, verified on the host target. Own problem files always; KernelBench's own with
STITCHCUDA_KERNELBENCH_ROOT set to a checkout (nightly; --sample N takes about N of them)."""

import glob
import json
import os
import subprocess

import pytest

from stitchcuda import shrink
from stitchcuda.shrink_search import measure, shrink as find_twin

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("STITCHCUDA_BINARY", os.path.join(HERE, "..", "..", "build", "stitchcuda"))
KERNELBENCH = os.environ.get("STITCHCUDA_KERNELBENCH_ROOT", "")
TWINS = os.path.join(HERE, "data", "kernelbench_twins.json")
OWN = sorted(glob.glob(os.path.join(HERE, "problems", "*.py")))


def verify(twin, out):
    run = subprocess.run([BINARY, "run", str(twin), "--target", "host", "--json", "--out", str(out)], capture_output=True, text=True, timeout=1800)
    assert run.stdout.strip(), run.stderr[-3000:]
    verdict = json.loads(run.stdout.splitlines()[-1])
    assert verdict["valid"] and verdict["correct"], (verdict.get("sentence"), run.stderr[-2000:])
    assert run.returncode == 0


@pytest.mark.parametrize("file", OWN, ids=[os.path.basename(f)[:-3] for f in OWN])
def test_the_twin_of_an_own_problem_is_verified(file, tmp_path):
    result = find_twin(file)
    assert result.last.fits(), result.text()
    assert result.last.calls == result.first.calls
    twin = tmp_path / os.path.basename(file)
    shrink.write(str(twin), shrink.twin_text(file, result.constants))
    verify(twin, tmp_path / "out")


def test_a_twin_is_the_same_every_time(tmp_path):
    file = os.path.join(HERE, "problems", "residual_norm_block.py")
    first, second = find_twin(file), find_twin(file)
    assert first.constants == second.constants and first.constants["batch_size"] == 3
    assert "kernel_size" not in first.constants  # the structure stays


def test_sizes_inside_the_module_shrink_together():
    file = os.path.join(HERE, "problems", "patch_pyramid.py")
    constants = find_twin(file).constants
    full = measure(file, {})
    assert any(k.startswith("Model.__init__#") for k in constants) and measure(file, constants).flops < full.flops / 20


def test_literals_are_named_by_their_place(tmp_path):
    file = tmp_path / "p.py"
    file.write_text("a = 2 * 3\nb, c = 4, 5\nd = (6, 7.0, 8)\ne = a + 9\nflag = True\n"
                    "class M:\n    def f(self, x=10):\n        return x[:, -1], 11 * 2\n"
                    "def get_inputs():\n    return [a, 12, 'thirteen', d[0]]\n")
    assert shrink.literals(str(file)) == {"a": 6, "b": 4, "c": 5, "d[0]": 6, "d[2]": 8, "e~0": 9, "M.f#0": 10, "M.f#1": -1, "M.f#2": 22,
                                          "get_inputs#0": 12, "get_inputs#1": 0}
    scope = shrink.load(str(file), {"a": 1, "d[2]": 80, "M.f#2": 3, "get_inputs#0": 120}, {})
    assert scope["a"] == 1 and scope["e"] == 10 and scope["d"] == (6, 7.0, 80) and scope["get_inputs"]() == [1, 120, "thirteen", 6]
    with pytest.raises(ValueError, match="has no literal gone"):
        shrink.load(str(file), {"gone": 1}, {})


def kernelbench_problems(config):
    if not KERNELBENCH:
        return [pytest.param(None, None, marks=pytest.mark.skip(reason="STITCHCUDA_KERNELBENCH_ROOT names no checkout of KernelBench"))]
    with open(TWINS, encoding="utf-8") as f:
        twins = json.load(f)
    files = shrink.problems(KERNELBENCH)
    keys = [k for k in files if k in twins]
    sample = config.getoption("--sample")
    if sample:
        keys = keys[::max(1, len(keys) // sample)]
    return [pytest.param(files[k], twins[k], id=k) for k in keys]


def pytest_generate_tests(metafunc):
    if "problem" in metafunc.fixturenames:
        metafunc.parametrize("problem, constants", kernelbench_problems(metafunc.config))


@pytest.mark.nightly
def test_the_twin_of_a_kernelbench_problem_is_verified(problem, constants, tmp_path):
    twin = tmp_path / os.path.basename(problem)
    shrink.write(str(twin), shrink.twin_text(problem, constants))
    verify(twin, tmp_path / "out")


@pytest.mark.nightly
@pytest.mark.skipif(not KERNELBENCH, reason="STITCHCUDA_KERNELBENCH_ROOT names no checkout of KernelBench")
def test_every_problem_has_a_twin():
    with open(TWINS, encoding="utf-8") as f:
        twins = json.load(f)
    assert list(twins) == list(shrink.problems(KERNELBENCH))

"""`stitchcuda suite kernelbench` as a user calls it, on planted folders."""

import json
import os
import signal
import subprocess
import time

import pytest

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
BINARY = os.environ.get("STITCHCUDA_BINARY", os.path.join(ROOT, "build", "stitchcuda"))

GOOD = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(3, 5)]
"""


@pytest.fixture
def kernelbench(tmp_path):
    """A function that writes problem files and returns the checkout's root."""
    folder = tmp_path / "kb" / "KernelBench" / "level1"
    folder.mkdir(parents=True)

    def plant(**files):
        for name, text in files.items():
            (folder / f"{name.lstrip('p')}.py").write_text(text)
        return tmp_path / "kb"

    return plant


def command(root, out, *more, step="code"):
    return [BINARY, "suite", "kernelbench", "--kernelbench-root", str(root), "--level", "1", "--step", step, "--out", str(out), "--jobs", "1", *more]


def run(*args, **kwargs):
    return subprocess.run(command(*args, **kwargs), capture_output=True, text=True, timeout=600)


def test_the_last_line_is_the_summary_and_failures_are_told(kernelbench, tmp_path):
    root = kernelbench(p1_Good=GOOD, p2_Bad="import a_package_that_nobody_has\n")
    done = run(root, tmp_path / "out", "--json")
    assert done.returncode == 1
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["problems"], summary["captured"], summary["coded"], summary["failed"]) == (2, 1, 1, 1)
    assert summary["machine"]["cores"] >= 1 and summary["commit"]
    assert "level1/002_Bad failed" in done.stderr and "a_package_that_nobody_has" in done.stderr
    whole = json.loads((tmp_path / "out" / "suite.json").read_text())
    assert whole["summary"] == summary and [r["coded"] for r in whole["rows"]] == [True, None]
    assert run(root, tmp_path / "out", "--problems", "1").returncode == 0


@pytest.mark.parametrize("arguments, text", [
    (["--kernelbench-root", "/nowhere"], "no checkout of KernelBench"),
    (["--problems", "9-1"], "no list of problems"),
    (["--problems", "77"], "--problems"),
    (["--level", "8"], "level8"),
])
def test_bad_arguments_are_one_sentence(kernelbench, tmp_path, arguments, text):
    given = dict(zip(arguments[::2], arguments[1::2]))
    base = {"--kernelbench-root": str(kernelbench(p1_Good=GOOD)), "--level": "1", "--out": str(tmp_path / "out"), **given}
    done = subprocess.run([BINARY, "suite", "kernelbench", *[part for pair in base.items() for part in pair]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert text in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def processes_that_mention(text):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if text.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def test_an_interrupted_run_goes_on_where_it_was(kernelbench, tmp_path):
    flag = tmp_path / "reached"
    waits = f"import os, signal\nif not os.path.exists({str(flag)!r}):\n    open({str(flag)!r}, 'w').close()\n    signal.pause()\n"
    root = kernelbench(p1_First=GOOD, p2_Second=waits + GOOD)
    out = tmp_path / "out"
    process = subprocess.Popen(command(root, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not flag.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "go on" in stderr
    deadline = time.monotonic() + 60
    while processes_that_mention(str(tmp_path)):  # the worker and the child that captures
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first = out / "level1" / "001_First" / "program.stitch" / "program.json"
    stamp = first.stat().st_mtime_ns
    assert not (out / "level1" / "002_Second" / "program.stitch").exists()
    assert run(root, out).returncode == 0
    assert first.stat().st_mtime_ns == stamp
    assert not [p for p in out.rglob("*") if p.name.endswith(".tmp") or p.name.startswith(".program.stitch.")]


def test_verify_checks_a_program_against_its_bundle(kernelbench, tmp_path):
    root, out = kernelbench(p1_Good=GOOD), tmp_path / "out"
    done = run(root, out, "--target", "host", step="verify")
    if "nvcc" in done.stderr:
        pytest.skip("no nvcc on this machine")
    assert done.returncode == 0, done.stderr + done.stdout
    folder = out / "level1" / "001_Good"
    again = subprocess.run([BINARY, "verify", str(folder), "--target", "host", "--json", "--out", str(tmp_path / "verdict.json")],
                           capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr
    verdict = json.loads(again.stdout.splitlines()[-1])
    assert verdict["valid"] and verdict["correct"] and verdict["target"] == "host"
    assert json.loads((tmp_path / "verdict.json").read_text()) == verdict
    missing = subprocess.run([BINARY, "verify", str(folder), "--bundle", str(tmp_path / "none.stitch")], capture_output=True, text=True, timeout=60)
    assert missing.returncode == 2 and "none.stitch" in missing.stderr

"""The command line when things go wrong: one sentence on stderr, the right exit code, nothing half-written. And when a run is killed."""

import concurrent.futures
import fcntl
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("STITCHCUDA_BINARY", ROOT / "build/stitchcuda"))
INTERNAL_WORDS = ("Traceback", "terminate called", "json.exception", "filesystem error", "nternal error", "please report")
BAD, UNSUPPORTED, ENVIRONMENT = 2, 3, 4


# Calling ---------------------------------------------------------------------------------------------------------------------------
class Cli:
    """The binary with a data folder of its own."""

    def __init__(self, home):
        self.env = {**os.environ, "STITCHCUDA_HOME": str(home), "STITCHCUDA_PYTHON": sys.executable}
        self.env.pop("STITCHCUDA_LOG", None)

    def __call__(self, *args, cwd=None, stdout=subprocess.PIPE, timeout=300, **env):
        return subprocess.run([BINARY, *map(str, args)], env={**self.env, **env}, cwd=cwd, stdout=stdout, stderr=subprocess.PIPE,
                              text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)

    def fails(self, code, *args, parts=(), **options):
        return sentence(self(*args, **options), code, parts)


def sentence(r, code, parts=()):
    """The one line on stderr of a failed call."""
    lines = r.stderr.splitlines()
    assert r.returncode == code, (r.returncode, r.stdout, r.stderr)
    assert len(lines) == 1 and lines[0].startswith("stitchcuda: "), r.stderr
    assert len(lines[0]) > 25 and lines[0].rstrip().endswith("."), lines[0]
    assert not any(word in r.stderr + (r.stdout or "") for word in INTERNAL_WORDS), r.stderr
    for part in parts:
        assert part in lines[0], lines[0]
    return lines[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def cli(home):
    return Cli(home)


def contents(folder):
    """Every path below, with bytes of files: to see that nothing changed."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(pathlib.Path(folder).rglob("*"))}


# Programs ---------------------------------------------------------------------------------------------------------------------------
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


def forward(body, inputs="torch.randn(2, 4)"):
    return GOOD.replace("return self.linear(x)", body).replace("torch.randn(2, 4)", inputs)


FAKE = '{"ok": true, "error": {"kind": "internal", "message": "fake"}}'
PROGRAMS = {  # name: (text, exit code, parts of the sentence)
    "syntax": ("class Model(:\n", BAD, ["syntax.py, line 1"]),
    "no_model": ("x = 1\n", BAD, ["no class Model"]),
    "no_get_inputs": (GOOD.split("def get_inputs")[0], BAD, ["get_inputs"]),
    "get_inputs_raises": (GOOD.replace("return [torch.randn(2, 4)]", "raise ValueError('two\\nlines')"), BAD, ["get_inputs()", "two"]),
    "constructor_raises": (GOOD.replace("super()", "raise KeyError('width'); super()"), BAD, ["constructor", "width"]),
    "missing_package": ("import no_such_package_here\n" + GOOD, ENVIRONMENT, ["no_such_package_here"]),
    "fft": (forward("return torch.fft.fft(x)"), UNSUPPORTED, ["complex", "fft.py:8"]),
    "branch": (forward("return x if x.sum() > 0 else -x"), UNSUPPORTED, ["value", "branch.py:8"]),
    "nonzero": (forward("return torch.nonzero(x)"), UNSUPPORTED, ["nonzero.py:8"]),
    "dtypes": (forward("return self.linear(x)", "torch.ones(2, 4, dtype=torch.int64)"), BAD, ["forward() fails", "dtypes.py:8"]),
    "devices": (forward("return self.linear(x) + torch.ones(3, device='meta')"), BAD, ["devices.py:8"]),
    "arguments": (GOOD.replace("[torch.randn(2, 4)]", "[torch.randn(2, 4), 1, 2]"), BAD, ["forward()"]),
    "exits": ("import sys\nsys.exit(0)\n", BAD, ["sys.exit"]),
    "os_exits": (f"import os\nprint('{FAKE}', flush=True)\nos._exit(0)\n", BAD, ["without an answer"]),
    "writes_answer": (f"import os, sys\nopen(sys.argv[sys.argv.index('--result-file') + 1], 'w').write('[1]')\nos._exit(0)\n", BAD, []),
}
NOISY = f"import sys\nprint('{FAKE}')\nsys.stderr.write('progress: fake\\n' + 'x' * 3000000)\nprint('y' * 3000000)\n" + GOOD


@pytest.fixture(scope="module")
def captures(cli, tmp_path_factory):
    """All programs captured, two at a time, each into a folder of its own: name -> (result, what the folder holds)."""
    base = tmp_path_factory.mktemp("programs")

    def one(name, text):
        folder = base / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        r = cli("capture", folder / f"{name}.py", "-o", folder / "new" / "x.stitch")
        return r, sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "__pycache__" not in p.parts)

    texts = {name: text for name, (text, _, _) in PROGRAMS.items()} | {"noisy": NOISY}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = {name: pool.submit(one, name, text) for name, text in texts.items()}
        return {name: f.result() for name, f in done.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_program(name, captures):
    result, left = captures[name]
    sentence(result, *PROGRAMS[name][1:])
    assert left == [f"{name}.py"]


def test_a_program_that_prints_does_not_confuse(captures):
    result, left = captures["noisy"]
    assert result.returncode == 0 and "1 operations" in result.stdout, (result.stdout, result.stderr[-500:])
    assert "fake" not in result.stdout + result.stderr
    assert "new/x.stitch/program.json" in left


def test_run_of_a_wrong_program_leaves_the_folder_as_it_was(cli, tmp_path):
    (tmp_path / "bad.py").write_text(PROGRAMS["no_model"][0])
    cli.fails(BAD, "run", "bad.py", "--target", "host", "--out", "a/b/c", cwd=tmp_path, parts=["no class Model"])
    assert not (tmp_path / "a").exists()
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.pt2").write_bytes(b"PK\x03\x04 no archive")
    cli.fails(BAD, "run", "x.pt2", "--target", "host", "--out", "empty", cwd=tmp_path, parts=["x.pt2"])
    assert os.listdir(tmp_path / "empty") == []


@pytest.mark.parametrize("args, parts", [
    (["run", "nowhere.py"], ["nowhere.py does not exist"]), (["run", "nowhere.stitch"], ["does not exist"]), (["run", ""], ["empty"]),
    (["run", "n" * 300 + ".py"], ["name too long"]), (["capture", "nowhere.pt2", "-o", "x.stitch"], ["does not exist"]),
    (["run"], ["input"]), (["run", "x.py", "--no-such-flag"], ["--no-such-flag"]), (["run", "x.py", "--tar\nget"], ["--tar get"]),
    (["run", "x.py", "--target", "moon"], ["moon"]), (["run", "x.py", "--seed", "one"], ["seed"]), (["run", "x.py", "--precision", "fp7"], ["fp7"]),
    (["run", ROOT / "README.md", "--device", "abacus"], ["abacus"]), (["capture", "x.py"], ["out"]), (["capture", "x.py", "-o", "y", "--cases", "0"], ["cases"]),
    (["fly"], ["fly"]), ([], ["subcommand"]), (["runs"], ["subcommand"]), (["runs", "show", "99999"], ["no run 99999"]), (["runs", "show", "x"], ["x"]),
    (["runs", "diff", "1"], ["ids"]), (["runs", "list", "--limit", "-3"], ["limit"]),
])
def test_wrong_command(args, parts, cli, tmp_path):
    cli.fails(BAD, *args, cwd=tmp_path, parts=parts, STITCHCUDA_PYTHON="/nonexistent")  # found before Python is needed
    assert os.listdir(tmp_path) == []


# Bundles -----------------------------------------------------------------------------------------------------------------------------
def tensors(file, change):
    """Rewrites a safetensors file; `change` gets the header and the bytes after it."""
    raw = pathlib.Path(file).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), bytearray(raw[8 + size:])
    change(header, data)
    text = json.dumps(header).encode()
    pathlib.Path(file).write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


def cut(name, part):
    def damage(b):
        raw = (b / name).read_bytes()
        (b / name).write_bytes(raw[:int(len(raw) * part)])
    return damage


def edit(change):
    def damage(b):
        j = json.loads((b / "program.json").read_text())
        change(j)
        (b / "program.json").write_text(json.dumps(j))
    return damage


def line(at, old, new):
    def change(j):
        assert old in j["graph"][at]
        j["graph"][at] = j["graph"][at].replace(old, new)
    return edit(change)


def weights(change):
    return lambda b: tensors(b / "weights.safetensors", change)


def nan(header, data):
    at = header["up.bias"]["data_offsets"][0]
    data[at:at + 4] = struct.pack("<f", float("nan"))


def wrong_size(header, _):
    header["up.bias"]["shape"] = [64]


def wrong_type(header, _):
    header["up.bias"]["dtype"] = "I32"


def link(name, to):
    def damage(b):
        (b / name).unlink()
        (b / name).symlink_to(to)
    return damage


BUNDLES = {  # name: (damage, exit code, parts of the sentence)
    "program_cut": (cut("program.json", 0.6), BAD, ["program.json"]),
    "program_empty": (cut("program.json", 0), BAD, ["program.json"]),
    "program_missing": (lambda b: (b / "program.json").unlink(), BAD, ["program.json"]),
    "weights_cut": (cut("weights.safetensors", 0.5), BAD, ["weights.safetensors", "cut off"]),
    "weights_cut_in_header": (cut("weights.safetensors", 0.001), BAD, ["weights.safetensors", "cut off"]),
    "weights_missing": (lambda b: (b / "weights.safetensors").unlink(), BAD, ["weights.safetensors"]),
    "case_cut": (cut("cases/000.safetensors", 0.5), BAD, ["000.safetensors", "cut off"]),
    "wrong_size": (weights(wrong_size), BAD, ["up.bias", "bytes"]),
    "wrong_type": (weights(wrong_type), BAD, ["up.bias", "i32"]),
    "nan": (weights(nan), BAD, ["up.bias", "NaN"]),
    "case_path": (edit(lambda j: j.update(cases=["../x"])), BAD, ["no plain name"]),
    "case_number": (edit(lambda j: j.update(cases=[3])), BAD, ["no plain name"]),
    "weights_link": (link("weights.safetensors", ROOT / "examples/softmax_mlp.stitch/weights.safetensors"), BAD, ["leads out"]),
    "program_link": (link("program.json", "/etc/passwd"), BAD, ["leads out"]),
    "case_link": (link("cases/000.safetensors", "/dev/zero"), BAD, ["leads out"]),
    "pipe": (lambda b: ((b / "weights.safetensors").unlink(), os.mkfifo(b / "weights.safetensors")), BAD, ["no plain file"]),
    "version_99": (edit(lambda j: j.update(version=99)), UNSUPPORTED, ["99", "newer"]),
    "version_text": (edit(lambda j: j.update(version="1")), BAD, ["version"]),
    "unknown_op": (line(6, "gelu(", "teleport("), UNSUPPORTED, ["teleport"]),
    "forward_reference": (line(5, "%0,", "%7,"), BAD, ["%7"]),
    "self_reference": (line(6, "gelu(%5", "gelu(%6"), BAD, ["%6"]),
    "wrong_shape": (line(5, "f32[32,128]", "f32[32,127]"), BAD, ["32"]),
    "huge_shape": (line(0, "f32[32,64]", "f32[9000000000000000000,9]"), BAD, []),
    "graph_no_list": (edit(lambda j: j.update(graph={"a": 1})), BAD, ["graph"]),
    "not_an_object": (lambda b: (b / "program.json").write_text("[]"), BAD, ["program.json"]),
    "deep": (lambda b: (b / "program.json").write_text("[" * 100000), BAD, ["program.json"]),
    "binary": (lambda b: (b / "program.json").write_bytes(bytes(range(256))), BAD, ["program.json"]),
}


def bundle(tmp_path, name="p"):
    return pathlib.Path(shutil.copytree(ROOT / "examples/softmax_mlp.stitch", tmp_path / f"{name}.stitch"))


@pytest.mark.parametrize("name", BUNDLES)
def test_damaged_bundle(name, cli, tmp_path):
    damage, code, parts = BUNDLES[name]
    damage(bundle(tmp_path))
    cli.fails(code, "run", "p.stitch", "--target", "host", "--out", "out/p", cwd=tmp_path, parts=parts, STITCHCUDA_PYTHON="/nonexistent")
    assert os.listdir(tmp_path) == ["p.stitch"]


# The machine ---------------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs: disk(options) mounts it or changes it; visible skip without the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = []

    def disk(options):
        extra = "remount," if mounted else ""
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", extra + options, "tmpfs", str(place)], capture_output=True, text=True)
        if r.returncode:
            pytest.skip(f"needs the right to mount a tmpfs: {r.stderr.strip()}")
        mounted.append(place)
        return place

    yield disk
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_disk(cli, small_disk, tmp_path):
    disk = small_disk("size=64k")
    (disk / "filler").write_bytes(b"x" * 65536)
    (tmp_path / "good.py").write_text(GOOD)
    cli.fails(ENVIRONMENT, "run", bundle(tmp_path), "--target", "host", "--out", disk / "o", parts=["full"])
    cli.fails(ENVIRONMENT, "capture", tmp_path / "good.py", "-o", disk / "x.stitch", parts=["full"])
    assert os.listdir(disk) == ["filler"]


def test_disk_that_fills_up_in_the_middle(cli, small_disk, tmp_path):
    disk = small_disk("size=36k")
    call = ["run", bundle(tmp_path), "--target", "host", "--out", disk / "o"]
    cli.fails(ENVIRONMENT, *call, parts=["full"])
    finished = {e["step"] for e in events(disk / "o") if e["event"] == "step_finished"}
    assert finished and not temporary_files(disk)
    small_disk("size=200m")
    r = cli(*call)
    assert r.returncode == 0, r.stdout + r.stderr
    assert finished <= {e["step"] for e in events(disk / "o") if e["event"] == "step_skipped"}


def test_read_only_disk(cli, small_disk, tmp_path):
    disk = small_disk("size=64k")
    small_disk("ro,size=64k")
    (tmp_path / "good.py").write_text(GOOD)
    cli.fails(ENVIRONMENT, "run", bundle(tmp_path), "--target", "host", "--out", disk / "o", parts=[str(disk)])
    cli.fails(ENVIRONMENT, "capture", tmp_path / "good.py", "-o", disk / "x.stitch", parts=[str(disk)])
    assert os.listdir(disk) == []


def test_output_place_that_is_taken(cli, tmp_path):
    call = ["run", bundle(tmp_path), "--target", "host", "--out"]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "home" / "include").mkdir(parents=True)
    (tmp_path / "home" / "include" / "thesis.h").write_text("years")
    before = contents(tmp_path)
    cli.fails(BAD, *call, tmp_path / "file", parts=["file"])
    cli.fails(BAD, *call, tmp_path / "file" / "below", parts=["file"])
    cli.fails(BAD, *call, tmp_path / ("n" * 300), parts=["name too long"])
    cli.fails(BAD, *call, tmp_path / "home", parts=["home", "--out"])
    cli.fails(BAD, *call, call[1], parts=["--out"])  # into the bundle itself
    assert contents(tmp_path) == before


def test_folder_in_use(cli, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with open(out / ".lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        cli.fails(ENVIRONMENT, "run", bundle(tmp_path), "--target", "host", "--out", out, parts=["in use"])
    assert os.listdir(out) == [".lock"]


def test_missing_tools(cli, tmp_path):
    good = tmp_path / "good.py"
    good.write_text(GOOD)
    plain = tmp_path / "plain_python"
    plain.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    plain.chmod(0o755)
    broken = tmp_path / "packages" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise OSError('libbroken.so.1: cannot open shared object file')\n")
    before = contents(tmp_path)
    run, capture = ["run", good, "--target", "host", "--out", tmp_path / "o"], ["capture", good, "-o", tmp_path / "x.stitch"]
    for call in run, capture:
        cli.fails(ENVIRONMENT, *call, parts=["PyTorch"], STITCHCUDA_PYTHON=str(plain))
        cli.fails(ENVIRONMENT, *call, parts=["PyTorch"], STITCHCUDA_PYTHON="/nonexistent")
        cli.fails(ENVIRONMENT, *call, parts=["torch", "libbroken"], PYTHONPATH=str(broken.parent))
    for nvcc in "none", str(good):
        cli.fails(ENVIRONMENT, "run", good, "--out", tmp_path / "o", parts=["nvcc", "--target host"], STITCHCUDA_NVCC=nvcc)
    assert contents(tmp_path) == before


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine may have a GPU")
def test_no_gpu(cli, tmp_path):
    cli.fails(ENVIRONMENT, "run", bundle(tmp_path), "--target", "cuda", "--out", tmp_path / "o", parts=["GPU", "--target host"])
    assert os.listdir(tmp_path) == ["p.stitch"]


def test_unusable_run_store(cli, tmp_path):
    call = ["run", bundle(tmp_path), "--target", "host", "--out", tmp_path / "o"]
    spoiled = tmp_path / "spoiled"
    spoiled.mkdir()
    (spoiled / "runs.sqlite").write_bytes(b"no database" * 1000)
    for args in call, ["runs", "list"], ["runs", "show", 1], ["runs", "diff", 1, 2]:
        cli.fails(ENVIRONMENT, *args, parts=["run store", "runs.sqlite"], STITCHCUDA_HOME=str(spoiled))
    cli.fails(BAD, *call, parts=["/dev/null"], STITCHCUDA_HOME="/dev/null/home")
    locked = tmp_path / "locked"
    locked.mkdir()
    with sqlite3.connect(locked / "runs.sqlite") as db:
        db.execute("CREATE TABLE t(x)")
        db.commit()
        db.execute("BEGIN EXCLUSIVE")
        cli.fails(ENVIRONMENT, *call, parts=["run store", "locked"], STITCHCUDA_HOME=str(locked))
        db.rollback()
    assert not (tmp_path / "o").exists()


def test_result_that_cannot_be_written(cli):
    with open("/dev/full", "w") as full:
        r = cli("runs", "list", stdout=full)
    sentence(r, ENVIRONMENT, ["stdout"])


# Runs that work, and runs that are killed -------------------------------------------------------------------------------------------
STEPS = ["capture", "plan", "code", "build", "verify", "report"]


def events(out):
    text = (pathlib.Path(out) / "events.jsonl").read_text() if (pathlib.Path(out) / "events.jsonl").exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def temporary_files(folder):
    return [str(p) for p in pathlib.Path(folder).rglob(".*") if p.name != ".lock"]


def verdict_of(r):
    assert r.returncode == 0, (r.stdout, r.stderr)
    verdict = json.loads(r.stdout.splitlines()[-1])
    jsonschema.validate(verdict, json.loads((ROOT / "src/verify/verdict.schema.json").read_text()))
    assert verdict["valid"] and verdict["correct"]
    return verdict


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    """Tools that never end, so that a run stays in its build or verify step until it is killed, on a machine of any speed."""
    folder = tmp_path_factory.mktemp("hanging")
    gxx = f'case "$*" in *--version*) exec {shutil.which("g++")} "$@" ;; esac\n{folder}/sleep 1000\n'
    (folder / "sleep").symlink_to(shutil.which("sleep"))  # what the compiler has started can be told apart, too
    worker = "cat <&3 >/dev/null\n"  # like the real one, it ends with the run that holds the other end of its channel
    for name, text in ("g++", gxx), ("stitch_worker", worker):
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
    return folder


def processes_that_mention(text):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if str(text).encode() in pathlib.Path("/proc", pid, "cmdline").read_bytes():
                found.append(int(pid))
        except OSError:
            pass  # it has ended
    return found


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return result


def start_into(cli, args, out, hanging, step):
    """Starts the run, and returns once `step` (or a later one, when that was quicker than this test) has begun. In the build and verify steps
    a compiler or candidate is running then."""
    known = len(events(out))  # before the start: the first steps take no time
    env = {**cli.env, "PATH": f"{hanging}:{os.environ['PATH']}"} if STEPS.index(step) <= STEPS.index("build") else dict(cli.env)
    if step == "verify":
        env["STITCHCUDA_WORKER"] = str(hanging / "stitch_worker")
    p = subprocess.Popen([BINARY, *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    begun = STEPS[STEPS.index(step):]
    wait_until(lambda: p.poll() is not None or any(e["event"] == "step_started" and e["step"] in begun for e in events(out)[known:]))
    if step in ("build", "verify"):  # for a compiler at work, not one that is asked for its version
        wait_until(lambda: p.poll() is not None or processes_that_mention(hanging / ("sleep" if step == "build" else "stitch_worker")))
    return p


def run_and_kill(cli, args, out, hanging, step):
    """Kills the run and all it started as soon as `step` has begun. True if it was still running."""
    p = start_into(cli, args, out, hanging, step)
    alive = p.poll() is None
    if alive:
        os.killpg(p.pid, signal.SIGKILL)
    p.communicate()
    wait_until(lambda: not processes_that_mention(hanging))  # they die with the run
    return alive


def test_killed_runs_go_on(cli, hanging, tmp_path):
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out, "--json"]
    for step in STEPS:
        before = len(events(out))
        if not run_and_kill(cli, args, out, hanging, step):
            assert step == "report"  # may be quicker than this test
            break
        log = events(out)
        done = {e["step"] for e in log[:before] if e["event"] == "step_finished"}
        skipped = [e["step"] for e in log[before:] if e["event"] == "step_skipped"]
        assert set(skipped) >= done, (step, skipped, done)
        assert not done & {e["step"] for e in log[before:] if e["event"] == "step_started"}, step
    before = len(events(out))
    ended = log[-1]["event"] == "run_finished" if (log := events(out)) else False
    done = {e["step"] for e in log if e["event"] == "step_finished"}
    r = cli(*args)
    verdict_of(r)
    if not ended:
        skipped = {e["step"] for e in events(out)[before:] if e["event"] == "step_skipped"}
        assert skipped >= done >= {"capture", "plan", "code"} and "done before the interruption" in r.stderr
    assert not temporary_files(out)
    assert [e["event"] for e in events(out)].count("run_finished") == 1


def test_half_written_files_of_a_killed_run_are_removed(cli, hanging, tmp_path):
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out]
    assert run_and_kill(cli, args, out, hanging, "build")
    (out / ".plan.json.123.0.tmp").write_text("{")
    (out / ".program.stitch.abc").mkdir()
    assert cli(*args).returncode == 0
    assert not temporary_files(out)


def test_a_run_of_something_else_ends_the_killed_one(cli, hanging, tmp_path):
    """Its files are replaced, so going on with it would mix two programs."""
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out]
    assert run_and_kill(cli, args, out, hanging, "build")
    assert cli(*args, "--precision", "fp32").returncode == 0
    r = cli(*args)
    assert r.returncode == 0 and "Resuming" not in r.stdout


def test_bundle_needs_no_python_and_runs_again(cli, tmp_path):
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out, "--json"]
    first = cli(*args, STITCHCUDA_PYTHON="/nonexistent", STITCHCUDA_NVCC="none")
    verdict_of(first)
    assert len(first.stdout.splitlines()) == 1
    assert {"kernels.cu", "program.cpp", "model_new.py", "plan.json", "verdict.json", "report.html", "program_host.so"} <= set(os.listdir(out))
    assert not temporary_files(out)
    log = (out / "events.jsonl").read_text()
    second = cli(*args)
    verdict_of(second)
    assert "Resuming" not in second.stderr and (out / "events.jsonl").read_text() != log
    # A wrong program does not take the finished one's place.
    before = contents(out)
    (tmp_path / "bad.py").write_text(PROGRAMS["no_model"][0])
    cli.fails(BAD, "run", tmp_path / "bad.py", "--target", "host", "--out", out)
    assert contents(out) == before

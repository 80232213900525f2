"""The head of kernels.cu says how the program is built: those lines, typed as they stand, must do it."""

import os
import pathlib
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.path.abspath(os.environ.get("STITCHCUDA_BINARY", ROOT / "build/stitchcuda")))


def call(*argv, folder=None, **environment):
    path = f"{BINARY.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=900, cwd=folder, env={**os.environ, "PATH": path, **environment})


def lines_of(folder):
    """(lines of the CUDA build, line of the host build)"""
    head = (folder / "kernels.cu").read_text().split("#include")[0].splitlines()
    lines = [line[len("//   "):] for line in head if line.startswith("//   ")]
    return lines[:-1], lines[-1]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("by_hand") / "out"
    r = call(BINARY, "run", ROOT / "examples/conv_bn_relu.stitch", "--target", "host", "--out", out)
    assert r.returncode == 0, r.stderr
    return out


def test_the_host_line_builds_an_edited_program(program):
    (program / "program_host.so").unlink()
    with open(program / "kernels.cu", "a") as f:
        f.write("// edited\n")
    r = call("bash", "-ec", lines_of(program)[1], folder=program)
    assert r.returncode == 0 and "built in" in r.stdout, r.stderr
    r = call(BINARY, "verify", program / "program_host.so", "--bundle", ROOT / "examples/conv_bn_relu.stitch", "--target", "host")
    assert r.returncode == 0, r.stdout + r.stderr


def test_a_mistake_is_shown_with_its_line(program, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(program, broken)
    text = (broken / "kernels.cu").read_text()
    (broken / "kernels.cu").write_text(text.replace("return nullptr;", "return nulptr;", 1))
    r = call(BINARY, "build", broken, "--target", "host")
    assert r.returncode == 1 and "does not compile" in r.stderr.splitlines()[-1] and "nulptr" in r.stderr.splitlines()[-1], r.stderr
    (broken / "program.cpp").unlink()
    r = call(BINARY, "build", broken, "--target", "host")
    assert r.returncode == 2 and "has no program.cpp" in r.stderr


def test_the_cuda_lines_build_the_program_as_the_product_does(program, tmp_path):
    lines = lines_of(program)[0]
    nvcc = shlex.split(lines[1])[0]
    if not shutil.which(nvcc):
        pytest.skip("no CUDA compiler here")
    (program / "program.so").unlink(missing_ok=True)
    r = call("bash", "-ec", "\n".join(lines), folder=program)
    assert r.returncode == 0, r.stderr
    exported = subprocess.run(["nm", "-D", "--defined-only", program / "program.so"], capture_output=True, text=True).stdout
    assert " stitch_run" in exported and " stitch_create" in exported
    # With an empty cache the product must run the same commands, but for where their results go.
    r = call(BINARY, "build", program, "--target", "cuda", STITCHCUDA_HOME=str(tmp_path), STITCHCUDA_LOG="debug", STITCHCUDA_NVCC=nvcc)
    assert r.returncode == 0, r.stderr

    def without_result(line):
        words = shlex.split(line)
        at = words.index("-o")
        return words[:at] + words[at + 2:]

    run = [without_result(line.split(" [")[0].split("debug: ")[-1]) for line in r.stderr.splitlines() if " -o " in line]
    own = [w for w in map(without_result, lines[1:3])]
    python_folders = lambda words: [w for w in words if not w.startswith("-isystem")]  # noqa: E731  (STITCHCUDA_HOME has the Python environment)
    for words in own:
        assert python_folders(words) in [python_folders(w) for w in run], (words, run)


def test_without_a_compiler_the_lines_use_plain_names(tmp_path):
    out = tmp_path / "out"
    r = call(BINARY, "run", ROOT / "examples/softmax_mlp.stitch", "--target", "host", "--out", out, STITCHCUDA_NVCC="none", STITCHCUDA_HOME=str(tmp_path / "home"))
    assert r.returncode == 0, r.stderr
    lines, _ = lines_of(out)
    assert shlex.split(lines[1])[0] == "nvcc" and "-lcudart" in shlex.split(lines[3])


def test_kernels_say_where_they_come_from(program):
    text = (program / "kernels.cu").read_text()
    assert "// From conv_bn_relu.py:16; module features.4." in text

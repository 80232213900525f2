"""Writes a `.stitch` folder (docs/bundle.md), beside its place first and then renamed: never half of one."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile

from safetensors.torch import save_file

from .errors import CaptureError


def _plain(tensors):
    """Contiguous copies that share no memory, as the container wants."""
    return {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}


def _refused(folder, error):
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
        return CaptureError("environment", f"The disk that holds {folder} is full; free some space and run again.")
    return CaptureError("environment", f"{folder} cannot be written: {getattr(error, 'strerror', None) or error}.")


def to_text(program):
    """JSON with one line per member, and per entry of the long lists: readable and diffable."""
    members = []
    for key, value in program.items():
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join("  " + json.dumps(v) for v in value) + "\n ]"
        else:
            text = json.dumps(value)
        members.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def write(folder, program, weights, cases):
    """program: the content of program.json. weights: name -> tensor or None. cases: [(name, {tensor name: tensor})]."""
    folder = os.path.abspath(folder)
    parent = os.path.dirname(folder)
    try:
        os.makedirs(parent, exist_ok=True)
        if os.path.exists(folder) and not os.path.isfile(os.path.join(folder, "program.json")) and os.listdir(folder):
            raise CaptureError("bad_input", f"{folder} exists and is no .stitch folder; choose another output.")
        staging = tempfile.mkdtemp(prefix="." + os.path.basename(folder) + ".", dir=parent)
        lock = os.open(staging, os.O_RDONLY)
        with contextlib.suppress(OSError):  # held while this process lives: src/capture removes the folders of those that were killed
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        os.chmod(staging, 0o755)
        if weights:
            save_file(_plain(weights), os.path.join(staging, "weights.safetensors"))
        if cases:
            os.mkdir(os.path.join(staging, "cases"))
        for name, tensors in cases:
            save_file(_plain(tensors), os.path.join(staging, "cases", name + ".safetensors"))
        with open(os.path.join(staging, "program.json"), "w", encoding="utf-8") as f:
            f.write(to_text(program))
        for path, _, files in os.walk(staging):
            for name in files:
                os.chmod(os.path.join(path, name), 0o644)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(staging, folder)
    except Exception as error:
        if isinstance(error, OSError) or "No space left" in str(error):  # safetensors has its own error type
            raise _refused(folder, error) from error
        raise
    finally:
        os.close(lock)
        shutil.rmtree(staging, ignore_errors=True)

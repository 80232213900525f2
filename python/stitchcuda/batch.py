"""Many captures in one run: PyTorch is imported once, and each program is captured in a forked child, so that a crash, a
hang, a changed global setting or a leak of one of them touches no other."""

import ctypes
import json
import os
import select
import signal
import sys
import time

import torch

from . import program


def run(options, emit):
    """Emits one result a target, in order, each with "target". Exit code 0 only if all succeeded."""
    items = _items(options)
    torch.set_num_threads(1)  # no thread may run in the parent when it forks
    _warm_up()
    failures = 0
    for target, out in items:
        started = time.monotonic()
        outcome = _in_child(target, out, options)
        failures += emit({"target": target, **outcome, "wall_seconds": round(time.monotonic() - started, 3)})
    return 1 if failures else 0


def _items(options):
    """(target, bundle to write) of each program; --list holds one JSON object a line: {"target", "out"}."""
    items = [(target, _out_folder(options.out, target)) for target in options.targets]
    if options.list:
        with open(options.list, encoding="utf-8") as f:
            items += [(item["target"], item["out"]) for item in map(json.loads, f)]
    return items


def _out_folder(out, target):
    if not out:
        return ""
    name = os.path.splitext(os.path.basename(target.replace(":", "_")))[0]
    return os.path.join(out, name + ".stitch")


def _warm_up():
    """Loads what the first export would load, once for all children."""
    from .export import export, lower_program
    from .lowering.lower import decompositions

    class Tiny(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.huber_loss(x, x * 2)

    lower_program(export(Tiny(), (torch.zeros(2),), {}), {})
    decompositions(None)


def _in_child(target, out, options):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _child(target, out, options, write_end)
    os.close(write_end)
    text, finished = _read(read_end, options.timeout)
    os.close(read_end)
    _kill_group(pid)  # what the program itself started must not outlive it
    _, status, usage = os.wait4(pid, 0)
    outcome = _outcome(target, text, finished, status, options)
    return {**outcome, "max_rss_bytes": usage.ru_maxrss * 1024}


def _kill_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _outcome(target, text, finished, status, options):
    if not finished:
        return _error("bad_input", f"Capture of {os.path.basename(target)} did not finish in {options.timeout:g} s; the program may wait "
                                   "for something, or needs a longer --timeout.")
    try:
        return json.loads(text)
    except ValueError:
        died = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        return _error("bad_input", f"{os.path.basename(target)} ended the Python process during capture ({died}).")


def _error(kind, message):
    return {"error": {"kind": kind, "message": message, "detail": ""}}


def _child(target, out, options, write_end):
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the parent
    outcome = program.capture_guarded(target, out, options)
    data = json.dumps(outcome).encode()
    while data:
        data = data[os.write(write_end, data):]
    sys.stderr.flush()
    os._exit(0)  # no destructors: the parent owns everything that was inherited


def _read(fd, timeout):
    """(text, whether the writer ended in time)."""
    chunks, end = [], time.monotonic() + timeout
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return b"".join(chunks), False
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            return b"".join(chunks), True
        chunks.append(chunk)

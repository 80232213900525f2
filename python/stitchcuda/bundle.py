"""Writes a .stitch bundle (docs/bundle.md): beside its place first, then renamed, so that no half-written bundle stays."""

from __future__ import annotations

import errno
import json
import os
import shutil

import torch

from . import ir
from .errors import CaptureError


def tensor_info(name, dtype, shape, **more):
    return {"name": name, "dtype": ir.DTYPES[dtype], "shape": [int(e) for e in shape], "generator": None, **more}


def program_json(captured, *, name, origin, precision, cases, has_weights) -> dict:
    nodes = captured.graph.nodes
    generators = {r["name"]: {"kind": r["kind"], "a": r["a"], "b": r["b"], "seed": origin["seed"]} for r in captured.random}
    return {
        "format": "stitch", "version": 1, "name": name, "mode": captured.mode, "origin": origin, "precision": precision,
        "graph": captured.graph.lines(),
        "inputs": [{**tensor_info(n["name"], *n["types"][0]), "generator": generators.get(n["name"])} for n in nodes if n["op"] == "input"],
        "weights": [tensor_info(w["name"], w["tensor"].dtype, w["tensor"].shape, parameter=w["parameter"]) for w in captured.weights],
        "input_spec": captured.input_spec, "output_spec": captured.output_spec, "cases": cases, "has_weights": has_weights,
    }


def _savable(t: torch.Tensor) -> torch.Tensor:
    return t.detach().cpu().contiguous().clone()


def write(folder: str, program: dict, weights: dict | None, cases: dict):
    from safetensors.torch import save_file

    folder = os.path.abspath(folder)
    staging = os.path.join(os.path.dirname(folder), f".{os.path.basename(folder)}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        os.makedirs(os.path.join(staging, "cases"))
        if weights:
            save_file({k: _savable(v) for k, v in weights.items()}, os.path.join(staging, "weights.safetensors"))
        for case, tensors in cases.items():
            save_file({k: _savable(v) for k, v in tensors.items()}, os.path.join(staging, "cases", case + ".safetensors"))
        with open(os.path.join(staging, "program.json"), "w") as f:
            json.dump(program, f, indent=1)
            f.write("\n")
            f.flush()
            os.fsync(f.fileno())
        if os.path.isdir(folder):
            shutil.rmtree(folder)
        os.rename(staging, folder)
    except Exception as e:
        shutil.rmtree(staging, ignore_errors=True)
        code = getattr(e, "errno", None)
        if code == errno.ENOSPC or "No space left" in str(e):
            raise CaptureError("environment", f"The disk holding {folder} is full; free some space and run again.") from e
        if isinstance(e, OSError):
            raise CaptureError("environment", f"The bundle {folder} cannot be written: {e.strerror or e}.") from e
        raise

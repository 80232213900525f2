"""Capture worker: PyTorch program -> `.stitch` bundle. `python -m stitchcuda.capture model.py -o model.stitch`.

The result is one JSON line, {"ok": true, ...} or {"error": {"kind", "message", "detail"}}, in --result-file or on stdout;
what the user's code prints goes to stderr, as do progress lines ("progress: ..."). --batch captures many programs.
"""

import argparse
import json
import os
import sys


def parser():
    p = argparse.ArgumentParser(prog="python -m stitchcuda.capture", description=__doc__.splitlines()[0])
    p.add_argument("targets", nargs="*", help="a KernelBench-style .py file, module:callable, or a .pt2 file")
    p.add_argument("-o", "--out", default="", help="the .stitch folder to write (with --batch: the folder that holds them)")
    p.add_argument("--inputs", help="with module:callable, the module attribute that gives example inputs")
    p.add_argument("--seed", type=int, default=42, help="seed of weights and inputs (default 42)")
    p.add_argument("--cases", type=int, default=1, help="number of cases with expected outputs (default 1)")
    p.add_argument("--expected", choices=["auto", "yes", "no"], default="auto", help="run the module and store its outputs (auto: when it is small)")
    p.add_argument("--no-weights", action="store_true", help="leave weights out")
    p.add_argument("--weights", action="store_true", help="store weights even beyond 4 GiB")
    p.add_argument("--train-dropout", choices=["refuse", "input"], default="refuse",
                   help="active dropout: refuse, or make its random mask an input of the program")
    p.add_argument("--batch", action="store_true", help="many targets, each in a process of its own; one result line each")
    p.add_argument("--list", default="", help='with --batch: a file of more targets, one {"target": ..., "out": X.stitch} a line')
    p.add_argument("--timeout", type=float, default=300, help="with --batch: seconds for one target (default 300)")
    p.add_argument("--result-file", default="", help="where the result goes (default: stdout)")
    return p


def claim_channel(result_file):
    """The stream for results. File descriptor 1 (and print) becomes stderr, so that user code cannot write into it."""
    sys.stdout.flush()
    channel = open(result_file, "w", encoding="utf-8") if result_file else os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def emit(channel, outcome):
    channel.write(json.dumps(outcome) + "\n")
    channel.flush()
    return 0 if "ok" in outcome else 1


def main(argv=None):
    options = parser().parse_args(argv)
    channel = claim_channel(options.result_file)
    try:
        import safetensors  # noqa: F401
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        message = f"Python at {sys.executable} has no {error.name}; run make setup."
        return emit(channel, {"error": {"kind": "environment", "message": message, "detail": str(error)}})
    except Exception as error:  # noqa: BLE001  (a broken installation raises anything)
        text = " ".join(str(error).split())[:300]
        message = f"Python at {sys.executable} cannot import PyTorch ({text}): its torch is broken; run make setup."
        return emit(channel, {"error": {"kind": "environment", "message": message, "detail": text}})
    if options.batch:
        from . import batch
        return batch.run(options, lambda outcome: emit(channel, outcome))
    if not options.targets:
        return emit(channel, {"error": {"kind": "bad_input", "message": "No program is named; give FILE.py, module:callable or FILE.pt2.", "detail": ""}})
    if len(options.targets) > 1:
        return emit(channel, {"error": {"kind": "bad_input", "message": "Several programs need --batch.", "detail": ""}})
    from . import program
    return emit(channel, program.capture_guarded(options.targets[0], options.out, options))


if __name__ == "__main__":
    sys.exit(main())

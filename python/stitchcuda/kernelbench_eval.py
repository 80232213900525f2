"""KernelBench's own evaluator, run on the model_new.py files that this project writes.

  python -m stitchcuda.kernelbench_eval --kernelbench-root DIR --out FILE.json [--trials N] [--inputs-on-device] LEVEL/ID=FOLDER ...

FOLDER holds model_new.py and program.so. FILE.json: {"kernelbench": {...}, "results": {"1/19": {"compiled", "correct", "reason",
"max_error", "tolerance", "seconds", "trials_passed", "trials"}}}; it is written again after every problem, so that an interrupted
run keeps what it has. All problems share one child process (kernelbench_worker.py) as long as it lives: one that crashes it,
breaks its CUDA context or takes too long gets its reason, and the next ones go to a new child.
Exit code 0: every problem was evaluated (correct or not); 2: bad arguments; 4: this machine cannot run the evaluator.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time

from stitchcuda.gpu_turn import turn


class Unusable(Exception):
    """Nothing can be evaluated; the text is one sentence for the user, `code` the exit code."""

    def __init__(self, text, code=2):
        super().__init__(text)
        self.code = code


def parser():
    p = argparse.ArgumentParser(prog="python -m stitchcuda.kernelbench_eval", description=__doc__.splitlines()[0])
    p.add_argument("problems", nargs="+", metavar="LEVEL/ID=FOLDER", help="a problem and the folder with its model_new.py and program.so")
    p.add_argument("--kernelbench-root", required=True, help="a checkout of KernelBench (holds KernelBench/ and src/)")
    p.add_argument("--out", required=True, help="the JSON file to write")
    p.add_argument("--trials", type=int, default=5, help="random inputs per problem (default 5)")
    p.add_argument("--seed", type=int, default=42, help="KernelBench's seed_num (default 42)")
    p.add_argument("--inputs-on-device", action="store_true",
                   help="create inputs and weights on the GPU: the largest problems have 17 GB of inputs, which the CPU draws for minutes")
    p.add_argument("--memory-turns", metavar="DIR", help="lock files by which processes share the GPU's memory; see gpu_turn.py")
    p.add_argument("--memory-pieces", type=int, default=1, help="how many pieces of 4 GiB the GPU has (default 1)")
    p.add_argument("--memory", action="append", default=[], metavar="LEVEL/ID=BYTES", help="what a problem takes of it")
    p.add_argument("--timeout", type=float, default=600, help="seconds for one problem (default 600)")
    p.add_argument("--device", default="cuda", help="where to evaluate (default cuda; KernelBench itself knows nothing else)")
    return p


def locate(root, key):
    """The problem file of "LEVEL/ID"."""
    level, _, number = key.partition("/")
    folder = os.path.join(root, "KernelBench", f"level{level}")
    if not os.path.isdir(folder):
        raise Unusable(f"{folder} does not exist; check --kernelbench-root and the level of {key}.")
    names = [n for n in os.listdir(folder) if n.endswith(".py") and n.partition("_")[0] == number]
    if len(names) != 1:
        raise Unusable(f"{folder} has {len(names)} files for problem {number}; exactly one was expected.")
    return os.path.join(folder, names[0])


def read_items(options):
    items, memory = [], {}
    for text in options.memory:
        key, _, size = text.partition("=")
        if not size.isdecimal():
            raise Unusable(f"\"--memory {text}\" is not LEVEL/ID=BYTES.")
        memory[key] = int(size)
    for text in options.problems:
        key, equals, folder = text.partition("=")
        if not equals or key.count("/") != 1 or not folder:
            raise Unusable(f"\"{text}\" is not LEVEL/ID=FOLDER, such as 1/19=out/1_19.")
        if any(i["key"] == key for i in items):
            raise Unusable(f"Problem {key} is given twice.")
        items.append({"key": key, "folder": os.path.abspath(folder), "problem": locate(options.kernelbench_root, key), "memory": memory.get(key, 0)})
    return items


def not_evaluated(reason, seconds=0.0):
    return {"compiled": False, "correct": False, "reason": reason, "max_error": None, "tolerance": None, "seconds": round(seconds, 3),
            "trials_passed": 0, "trials": 0}


class Child:
    """The worker process: one request line in, one answer line out. Whatever problem code prints goes to stderr."""

    def __init__(self, options):
        read_end, write_end = os.pipe()
        self.answers = os.fdopen(read_end, "rb", buffering=0)
        command = [sys.executable, "-m", "stitchcuda.kernelbench_worker", "--answer-fd", str(write_end), "--kernelbench-root",
                   options.kernelbench_root, "--device", options.device]
        package_folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        paths = [package_folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[write_end], start_new_session=True,
                                        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
        os.close(write_end)
        self.pending = b""

    def send(self, request):
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead; its end of the answers says so

    def answer(self, timeout):
        """(answer, None), (None, "timeout") or (None, "dead")."""
        end = time.monotonic() + timeout
        while b"\n" not in self.pending:
            if not select.select([self.answers], [], [], max(0.0, end - time.monotonic()))[0]:
                return None, "timeout"
            data = os.read(self.answers.fileno(), 1 << 16)
            if not data:
                return None, "dead"
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line), None

    def end(self):
        """Ends the process if it still lives; returns how it ended."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            code = self.process.wait()
        self.answers.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.answers.close()


def start(options):
    """(a child that has loaded the evaluator, what it says about it)."""
    child = Child(options)
    hello, failure = child.answer(300)
    if failure == "timeout":
        child.kill()
        raise Unusable("KernelBench's evaluator did not load within 300 s.", 4)
    if failure:
        raise Unusable(f"The process that loads KernelBench's evaluator ended with {child.end()}; its messages are above.", 4)
    if "error" in hello:
        child.end()
        raise Unusable(hello["error"], hello.get("code", 4))
    return child, hello


def evaluate(options, items, save):
    """Results by key; `save(results, hello)` is called after each problem."""
    results = {}
    child, hello = None, None
    try:
        for item in items:
            if not os.path.isfile(os.path.join(item["folder"], "model_new.py")):
                results[item["key"]] = not_evaluated(f"{item['folder']} holds no model_new.py.")
            else:
                if child is None:
                    child, hello = start(options)
                results[item["key"]], child = _one(child, item, options)
            save(results, hello)
            print(f"{item['key']}: {'correct' if results[item['key']]['correct'] else results[item['key']]['reason']}", file=sys.stderr, flush=True)
    finally:
        if child is not None:
            child.end()
    return results


def _one(child, item, options):
    """(result of one problem, the child or None when it has ended)."""
    with turn(options.memory_turns, options.memory_pieces, item["memory"]) if options.memory_turns else contextlib.nullcontext():
        started = time.monotonic()
        child.send({**item, "trials": options.trials, "seed": options.seed, "inputs_on_device": options.inputs_on_device})
        result, failure = child.answer(options.timeout)
        if failure == "timeout":
            child.kill()
    if failure == "timeout":
        return not_evaluated(f"The evaluation did not end within {options.timeout:g} s.", time.monotonic() - started), None
    if failure:
        return not_evaluated(f"The evaluating process died ({child.end()}).", time.monotonic() - started), None
    if result.pop("unusable"):  # its CUDA context is broken: nothing after this would be judged fairly
        child.end()
        child = None
    return result, child


def write_json(path, value):
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, allow_nan=False)
        f.write("\n")
    os.replace(temporary, path)


def main(argv=None):
    options = parser().parse_args(argv)
    options.kernelbench_root = os.path.abspath(options.kernelbench_root)
    about = {}

    def save(results, hello):
        about.update(hello or {})
        write_json(options.out, {"kernelbench": about, "results": results})

    try:
        if options.trials < 1:
            raise Unusable("--trials must be at least 1.")
        os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
        results = evaluate(options, read_items(options), save)
    except Unusable as error:
        print(f"stitchcuda: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"stitchcuda: {options.out} cannot be written ({error.strerror}).", file=sys.stderr)
        return 2
    correct = sum(r["correct"] for r in results.values())
    print(f"{correct} of {len(results)} correct by KernelBench's rule", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

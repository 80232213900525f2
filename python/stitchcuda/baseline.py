"""PyTorch's side of a verification, in its own process: the fp64 oracle on the GPU and the baselines.

Started by src/verify/reference_worker.cpp. One JSON object a line comes in on stdin, one answer a line goes out on the
descriptor given by --answer-fd; whatever the user's model prints goes to stderr and is never parsed.

  load      {source, kind, name, sha256, weights, inputs, outputs, precision, tf32_matmul, tf32_conv, mode, seed, device}
  baseline  {mode}                                          builds "eager", "cuda_graph", "compile", ...
  share, fill_weights, alter_weights, draw, before_call, after_call, late, judge, timed_...    device_checks.py; descriptors of shared
            memory go out on the socket given by --fd-socket
  quit
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import time
import traceback

import torch
from torch.utils import _pytree as pytree

from stitchcuda import problem
from stitchcuda.device_checks import DeviceChecks
from stitchcuda.device_memory import DeviceError
from stitchcuda.errors import CaptureError
from stitchcuda.export import state_tensors
from stitchcuda.reference import Replay
from stitchcuda.rounding import DisturbedOperands

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool,
}
COMPILE_MODES = {"compile": None, "compile_reduce_overhead": "reduce-overhead", "compile_max_autotune": "max-autotune"}


class Refused(Exception):
    """A request this program cannot serve; the text is the one sentence for the verdict."""


def flatten(value):
    """Tensors of a nested value in the order capture writes them."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def replace_tensors(value, source):
    """The same nesting with every tensor replaced by the next one of `source`."""
    return pytree.tree_map(lambda leaf: next(source) if isinstance(leaf, torch.Tensor) else leaf, value)


@contextlib.contextmanager
def float64_defaults():
    """Tensors that forward() creates without a dtype become f64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def rotate_into(target, source, distance):
    """target = source rotated by `distance` elements, without a copy in between."""
    to, from_ = target.reshape(-1), source.reshape(-1)
    n = from_.numel()
    if n:
        distance %= n
        to[:distance] = from_[n - distance:]
        to[distance:] = from_[:n - distance]


def changing_tensors(model):
    """What forward() may change: buffers and plain tensor attributes."""
    parameters = {id(p) for p in model.parameters()}
    return {n: t for n, t in state_tensors(model).items() if id(t) not in parameters}


def move(model, device):
    """Module.to(), for plain tensor attributes too."""
    model.to(device)
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                setattr(part, name, value.to(device))


def own_storage(outputs, others):
    """The outputs, copied where they share memory with one another or with `others`, or hold on to more than their own."""
    place = lambda t: t.untyped_storage().data_ptr()  # noqa: E731
    taken, kept = {place(t) for t in others}, []
    for t in outputs:
        t = t.detach()
        if place(t) in taken or t.untyped_storage().nbytes() > t.numel() * t.element_size() or not t.is_contiguous():
            t = t.clone(memory_format=torch.contiguous_format)
        taken.add(place(t))
        kept.append(t)
    return kept


def widened(t):
    return t.double() if t.is_floating_point() else t


class Reference:
    def load(self, request):
        self.device = torch.device(request["device"])
        self.inputs, self.outputs = request["inputs"], request["outputs"]
        if self.device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(0.9)  # the candidate's process needs room for its own context and libraries
        self.precision = request["precision"]
        self.set_flags(request)
        source, kind, name = request["source"], request["kind"], request["name"]
        found = problem.load(f"{source}:{name}" if kind == "callable" else source)
        if request["sha256"] and found.sha256 != request["sha256"]:
            raise Refused(f"{os.path.basename(source)} has changed since the program was captured; capture it again.")
        self.found = found
        self.model = found.program.module() if found.kind == "pt2" else self.made_on_device(lambda: found.build(request["seed"]))
        # Only how the arguments nest is kept: their data may fill half of the device.
        arguments = tuple(problem.fake_arguments(found, problem.new_fake_mode(), request["seed"])[0][0])
        self.given = len(flatten(arguments))  # inputs after these are numbers that forward() draws at random
        self.template = replace_tensors(arguments, iter([torch.empty(0)] * self.given))
        if self.given > len(self.inputs) or any(not i.get("random", True) for i in self.inputs[self.given:]):
            raise Refused(f"get_inputs() gives {self.given} tensors; the captured program has {len(self.inputs)}; capture it again.")
        if found.kind != "pt2":
            self.model.train(request["mode"] == "train")
        replaced = self.take_weights(request.get("weights", ""))
        move(self.model, self.device)
        self.holders = changing_tensors(self.model)  # where the state lies: a CUDA graph of the model keeps these addresses
        self.state = {n: t.detach().clone() for n, t in self.holders.items()}
        self.runners, self.static = {}, None
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"
        memory = torch.cuda.mem_get_info()[1] if self.device.type == "cuda" else 0
        return {"device": name, "memory": memory, "torch": torch.__version__, "weights_replaced": replaced}

    def made_on_device(self, make):
        """The user's constructor or get_inputs(), run on the device where that works: gigabytes of random numbers take
        seconds on the CPU. Which numbers come out does not matter: both sides get the same."""
        if self.device.type == "cuda":
            try:
                with self.device:
                    return make()
            except Exception:  # noqa: BLE001  (code that asks for the CPU, numpy ...)
                torch.cuda.empty_cache()
        return make()

    def own_inputs(self, seed):
        return flatten(tuple(self.made_on_device(lambda: self.found.inputs(seed))))

    def weights_of(self, names):
        """The program's weights in its order; the same tensors that the model computes with."""
        state = {**state_tensors(self.model), **self.state}  # of what forward() changes, the values before any call
        missing = [n for n in names if n not in state]
        if missing:
            raise Refused(f"The module has no tensor named {missing[0]}; capture the program again, with its weights.")
        return [state[n].detach() for n in names]

    def set_flags(self, request):
        exact, coarse = self.precision == "fp32", self.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = coarse or (not exact and request["tf32_matmul"])
        torch.backends.cudnn.allow_tf32 = coarse or (not exact and request["tf32_conv"])

    def take_weights(self, path):
        if not path or not os.path.exists(path):
            return 0
        from safetensors.torch import load_file
        weights = load_file(path)
        state = state_tensors(self.model)
        replaced = 0
        with torch.no_grad():
            for name, tensor in state.items():
                if name not in weights:
                    continue
                if tuple(weights[name].shape) != tuple(tensor.shape):
                    raise Refused(f"Weight {name} has another shape in the bundle than in the model.")
                tensor.copy_(weights[name])
                replaced += 1
        return replaced

    def restore(self, dtype=None):
        # A module that updates its state must see the captured one in every call.
        with torch.no_grad():
            for name, saved in self.state.items():
                prefix, _, attribute = name.rpartition(".")
                part = self.model.get_submodule(prefix)
                if dtype is None:
                    setattr(part, attribute, self.holders[name].copy_(saved))
                else:
                    setattr(part, attribute, saved.to(dtype) if saved.is_floating_point() else saved.clone())

    def call(self, tensors, replay=False, model=None):
        """forward() on the first tensors; with `replay` it draws the rest instead of random numbers."""
        model = model or self.model
        arguments = replace_tensors(self.template, iter(tensors))
        if replay and len(tensors) > self.given:
            with Replay(tensors[self.given:]):
                return self.call(tensors)
        with torch.no_grad():
            if self.precision in ("bf16", "fp16"):
                with torch.autocast(self.device.type, dtype=torch.bfloat16 if self.precision == "bf16" else torch.float16):
                    return model(*arguments)
            return model(*arguments)

    def collect(self, tensors, result):
        """Outputs in graph order: forward()'s values, and new values of what it changes in place."""
        values, names = iter(flatten(result)), state_tensors(self.model)
        inputs = {info["name"]: t for info, t in zip(self.inputs, tensors)}
        collected = []
        for info in self.outputs:
            if info["kind"] == "user":
                collected.append(next(values))
            elif info["kind"] == "mutates_weight":
                collected.append(names[info["target"]])
            else:
                collected.append(inputs[info["target"]])
        return collected

    def approximate(self, tensors, draw, roundoff):
        """The model in its own precision; draws after the first disturb inputs and parameters within 2 `roundoff`: odd ones each element by
        itself, even ones a row (the last dim) as a whole, as src/verify/oracle.cpp does; and each element of a product's operands inside."""
        generator = torch.Generator(device=self.device).manual_seed(1 + draw)
        scale = roundoff if draw > 0 else 0.0

        def perturb(t, rows=draw % 2 == 0):
            if not scale or not t.is_floating_point():
                return t.clone()
            shape = [*t.shape[:-1], 1] if rows and t.dim() else t.shape
            noise = torch.rand(shape, generator=generator, device=t.device, dtype=torch.float32) * 4 - 2
            return (t * (1 + scale * noise.to(torch.float64))).to(t.dtype)

        with self.changed(perturb if scale else None):
            changed = [perturb(t) for t in tensors]
            with DisturbedOperands(lambda t: perturb(t, False), [*changed, *self.model.parameters()]) if scale else contextlib.nullcontext():
                result = self.call(changed, replay=True)
            return own_storage(self.collect(changed, result), [*changed, *state_tensors(self.model).values()])

    @contextlib.contextmanager
    def changed(self, parameter=None, dtype=None):
        """The model with `parameter` applied to each of its parameters and its other state as captured (in `dtype`), put back
        afterwards. The module itself is changed, not a copy: a forward() that holds on to submodules in a closure would keep the originals."""
        parameters = {id(p): p for p in self.model.parameters()}.values()
        saved = [(p, p.data) for p in parameters]
        try:
            if parameter is not None:
                for p in parameters:
                    p.data = parameter(p.data)
            self.restore(dtype)
            yield
        finally:
            for p, data in saved:
                p.data = data
            self.restore()

    def exact(self, tensors):
        saved, self.precision = self.precision, "fp32"  # no autocast around the oracle
        try:
            with float64_defaults(), self.changed(widened, torch.float64):
                wide = [widened(t) if t.is_floating_point() else t.clone() for t in tensors]
                outputs = own_storage(self.collect(wide, self.call(wide, replay=True)), [*wide, *state_tensors(self.model).values()])
        finally:
            self.precision = saved
        for info, tensor in zip(self.outputs, outputs):
            if list(tensor.shape) != list(info["shape"]):
                raise Refused(f"Output {info['name']} has shape {list(tensor.shape)}; the bundle says {info['shape']}.")
            if DTYPES[info["dtype"]].is_floating_point and tensor.dtype != torch.float64:
                raise Refused(f"The model casts output {info['name']} down to {tensor.dtype} itself, so it has no fp64 form.")
        return outputs

    # Baselines -------------------------------------------------------------------------------------------------

    def baseline(self, request):
        mode = request["mode"]
        started = time.perf_counter()
        if self.static is None:  # one set for all modes: they take turns
            self.static = [torch.zeros(i["shape"], dtype=DTYPES[i["dtype"]], device=self.device) for i in self.inputs]
        static = self.static
        self.restore()
        if mode == "eager":
            run = lambda: self.call(static)  # noqa: E731
        elif mode == "cuda_graph":
            run = self.capture_graph(static)
        elif mode in COMPILE_MODES:
            compiled = torch.compile(self.model, mode=COMPILE_MODES[mode])
            run = lambda: self.call(static, model=compiled)  # noqa: E731
        else:
            raise Refused(f"There is no baseline called {mode}.")
        for _ in range(3):
            run()
        self.wait()
        self.runners[mode] = run
        return {"build_seconds": time.perf_counter() - started}

    def capture_graph(self, static):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.call(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = self.call(static)
        self.held = held
        return graph.replay

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def time_calls(self, mode, fresh, calls, flush_bytes):
        """Milliseconds of each call; before it the values of `fresh`, rotated, are written into the inputs and L2 is swept."""
        run = self.runners[mode]
        flush = torch.empty(max(1, flush_bytes), dtype=torch.uint8, device=self.device)
        samples = []
        for k in range(calls):
            for target, source in zip(self.static, fresh):
                rotate_into(target, source, k)
            flush.fill_(k & 127)
            self.wait()
            samples.append(self.one(run))
        return samples

    def one(self, run):
        if self.device.type != "cuda":
            started = time.perf_counter()
            run()
            return 1e3 * (time.perf_counter() - started)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--answer-fd", type=int, required=True)
    parser.add_argument("--fd-socket", type=int)
    arguments = parser.parse_args()
    answers = os.fdopen(arguments.answer_fd, "w", buffering=1)
    channel = socket.socket(fileno=arguments.fd_socket) if arguments.fd_socket is not None else None
    os.dup2(2, 1)  # print() in a model must not look like an answer
    reference = Reference()
    actions = {"load": reference.load, "baseline": reference.baseline}
    checks = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "quit":
            break
        try:
            if request["op"] == "share" and checks is None:
                checks = DeviceChecks(reference, DTYPES, channel)
            action = actions.get(request["op"]) or getattr(checks, request["op"])
            answer = {"ok": True, **action(request)}
        except Refused as refused:
            answer = {"ok": False, "error": str(refused)}
        except DeviceError as error:
            answer = {"ok": False, "error": str(error)}
        except torch.cuda.OutOfMemoryError:
            answer = {"ok": False, "error": "PyTorch ran out of GPU memory; the program and its fp64 reference do not fit on this GPU."}
        except CaptureError as error:
            answer = {"ok": False, "error": error.message}
        except Exception as error:  # the user's model may raise anything
            traceback.print_exc(file=sys.stderr)
            text = " ".join(str(error).split()) or type(error).__name__
            answer = {"ok": False, "error": f"PyTorch raised {type(error).__name__}: {text[:300]}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()

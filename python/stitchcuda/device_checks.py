"""The device side of a verification: inputs are drawn, outputs poisoned, taken and judged where they lie.

One object serves one candidate. For each input set the parent (src/verify/device_session.cpp) asks: `draw`, then twice
`before_call`, the candidate's call, `after_call`, and then `judge`. The candidate sees only the regions lent to it; private
copies of inputs and outputs, the references and the oracle's answer stay in this process.
"""

import array
import os
import random
import socket
import time

import torch

from stitchcuda.device_compare import all_close, compare
from stitchcuda.device_memory import Arena, digest, first_difference
from stitchcuda.draws import draw

PIECES, PIECE = 64, 1024     # of a timed call's output
MANY_DRAWS_BYTES = 8 << 30   # further draws of the reference stop where they would take more


def send_descriptor(channel, fd):
    channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])


class DeviceChecks:
    def __init__(self, reference, dtypes, channel):
        self.reference, self.dtypes, self.channel = reference, dtypes, channel
        self.arena = Arena(reference.device)
        self.inputs, self.expected, self.taken = [], [], {}
        self.base, self.kept = [], {}
        self.seconds = {"oracle": 0.0, "reference": 0.0}  # of the last judgement

    # Regions ---------------------------------------------------------------------------------------------------------
    def share(self, request):
        tensors = [(t["offset"], t["bytes"], self.dtypes[t["dtype"]], t["shape"]) for t in request["tensors"]]
        self.release_cache()
        region, fd = self.arena.create(request["region"], request["bytes"], tensors)
        send_descriptor(self.channel, fd)
        os.close(fd)
        self.wait()
        return {"bytes": region.memory.numel()}

    def region(self, name):
        return self.arena.regions[name]

    def release_cache(self):
        if self.reference.device.type == "cuda":
            torch.cuda.empty_cache()

    def wait(self):
        self.reference.wait()

    def fill_weights(self, request):
        """The reference's own state becomes the candidate's weights."""
        self.weights = self.reference.weights_of(request["names"])
        for view, value in zip(self.region("weights").views, self.weights):
            view.copy_(value)
        self.wait()
        return {}

    def alter_weights(self, request):
        """Other weights for program and reference alike: every float times its own factor in [1, 1 + amount)."""
        generator = torch.Generator(device=self.reference.device).manual_seed(request["seed"] & (2 ** 62 - 1))
        with torch.no_grad():
            for value in self.weights:
                if value.is_floating_point():
                    value.mul_((1 + request["amount"] * torch.rand(value.shape, device=value.device, generator=generator, dtype=torch.float32)).to(value.dtype))
        return self.fill_weights({"names": request["names"]})

    # One input set ------------------------------------------------------------------------------------------------------
    def draw(self, request):
        infos, device = self.reference.inputs, self.reference.device
        self.inputs, self.expected, self.taken = [], [], {}
        generator = torch.Generator(device=device).manual_seed(request["seed"] & (2 ** 62 - 1))
        if request["kind"] == "stored":
            from safetensors.torch import load_file
            stored = load_file(request["file"])
            self.inputs = [stored[f"input.{i['name']}"].to(device) for i in infos]
            names = [f"expected.{o['name']}" for o in self.reference.outputs]
            self.expected = [stored[n].to(device) for n in names] if all(n in stored for n in names) else []
        else:
            own = self.reference.own_inputs(request["seed"] & 0x7FFFFFFF) if request["kind"] == "own" else []
            for k, info in enumerate(infos):
                dtype = self.dtypes[info["dtype"]]
                if k < len(own):
                    self.inputs.append(own[k].to(device=device, dtype=dtype).reshape(info["shape"]).contiguous())
                else:
                    self.inputs.append(draw(request["models"][k], info, dtype, device, generator, request["property"]))
        self.wait()
        return {"expected": bool(self.expected)}

    def before_call(self, request):
        for view, value in zip(self.region(f"inputs{request['inputs']}").views, self.inputs):
            view.copy_(value)
        self.region(f"outputs{request['outputs']}").poison(request["poison"])
        if "workspace" in self.arena.regions:
            self.region("workspace").poison(request["poison"])
        self.wait()
        return {}

    def after_call(self, request):
        """Takes the outputs first of all: nothing that happens later may improve them. Then looks for what a call must not do."""
        slot, number = request["outputs"], request["call"]
        region = self.region(f"outputs{slot}")
        if number == 1 and all(first_difference(a, b) is None for a, b in zip(self.taken[0], region.views)):
            self.taken[1] = self.taken[0]
        else:
            self.taken[number] = [v.clone() for v in region.views]
        answer = {"inputs_modified": "", "weights_modified": "", "out_of_bounds": "", "repeats": self.taken.get(1) is self.taken[0]}
        names = [i["name"] for i in self.reference.inputs]
        source = self.region(f"inputs{request['inputs']}")
        answer["inputs_modified"] = self._changed("Input", names, source.views, self.inputs)
        groups = [("output", region, [o["name"] for o in self.reference.outputs]), ("input", source, names)]
        if request["thorough"]:
            weights = self.region("weights")
            answer["weights_modified"] = self._changed("Weight", request["weight_names"], weights.views, self.weights)
            groups += [("weight", weights, request["weight_names"])]
            if "workspace" in self.arena.regions:
                groups += [("workspace", self.region("workspace"), ["workspace"])]
        for group, checked, group_names in groups:
            damage = checked.damage()
            if damage is not None and not answer["out_of_bounds"]:
                answer["out_of_bounds"] = self._damage(group, group_names[damage[0]], damage[1], checked.views[damage[0]])
        return answer

    @staticmethod
    def _changed(group, names, views, values):
        for name, view, value in zip(names, views, values):
            at = first_difference(view, value)
            if at is not None:
                return f'{group} "{name}" was changed by the call, first at byte {at}.'
        return ""

    @staticmethod
    def _damage(group, name, offset, view):
        if offset < 0:
            return f'Memory {-offset} bytes before {group} "{name}" was written.'
        return f'Memory {offset - view.numel() * view.element_size()} bytes behind the end of {group} "{name}" was written.'

    def late(self, request):
        for view, taken, info in zip(self.region(f"outputs{request['outputs']}").views, self.taken[request["call"]], self.reference.outputs):
            at = first_difference(view, taken)
            if at is not None:
                return {"late_write": f'Output "{info["name"]}" changed after the call had returned, first at byte {at}.'}
        return {"late_write": ""}

    # Judgement ------------------------------------------------------------------------------------------------------------
    def judge(self, request):
        """Judges what was taken in both calls; the logic is src/verify/judge.cpp's."""
        references, started = [], time.perf_counter()
        exact = self.reference.exact(self.inputs)
        self.wait()
        self.seconds = {"oracle": time.perf_counter() - started, "reference": 0.0}
        # Rounded, because answers that differ by less than their type can show are the same answer to a candidate.
        rounded = (e.to(self.dtypes[o["dtype"]]) for e, o in zip(exact, self.reference.outputs))
        answer = {"exact_digest": digest(rounded), "output_digest": digest(self.taken[0]), "oracle": None, "kernelbench": None, "second": None}
        if self.expected:
            stored = self._judge(self.expected, exact, [], request["oracle_tolerance"], request["poison"][0], request["special_roundoff"], False)
            answer["oracle"] = [r.json() for r in stored if not r.ok]
            references.append(self.expected)
        first = self._judge(self.taken[0], exact, references, request["tolerance"], request["poison"][0], request["roundoff"], request["measure"])
        answer["first"] = [r.json() for r in first]
        if self.taken[1] is not self.taken[0]:
            second = self._judge(self.taken[1], exact, references, request["tolerance"], request["poison"][1], request["roundoff"], False)
            answer["second"] = [r.json() for r in second]
        if request["measure"] or self.expected:
            expected = self.expected or references[0]
            results = [all_close(g, e, request["kernelbench_tolerance"]) for g, e in zip(self.taken[0], expected)]
            answer["kernelbench"] = {"ok": all(r[0] for r in results), "max_abs_difference": max((r[1] for r in results), default=0.0)}
        return {**answer, "seconds": self.seconds}

    def _judge(self, got, exact, references, tolerance, poison, roundoff, measure):
        def compare_all():
            return [compare(o["name"], g, e, [r[k] for r in references], tolerance, poison)
                    for k, (o, g, e) in enumerate(zip(self.reference.outputs, got, exact))]

        def draw_until(count):
            size = sum(g.numel() * g.element_size() for g in got)
            for number in range(len(references), count):
                if number >= 3 and size * number > MANY_DRAWS_BYTES:
                    break
                started = time.perf_counter()
                references.append(self.reference.approximate(self.inputs, number, roundoff))
                self.wait()
                self.seconds["reference"] += time.perf_counter() - started

        if measure:
            draw_until(2)
        results = compare_all()
        if all(r.ok for r in results) or any(r.unwritten for r in results):
            return results
        draw_until(3)
        results = compare_all()
        wrong, elements = sum(r.wrong for r in results), sum(r.elements for r in results)
        if not all(r.ok for r in results) and wrong <= max(8, elements // 1000):
            draw_until(16)
            results = compare_all()
        if not all(r.ok for r in results) and self._reference_is_lost(exact, references, tolerance, results):
            for r in results:
                r.ok, r.forgiven, r.wrong, r.first = True, r.forgiven + r.wrong, 0, None
        return results

    def _reference_is_lost(self, exact, references, tolerance, results):
        """A program may be chaotic on special data: disturbed by no more than rounding, the reference itself then goes wrong in as many
        elements, only in others each time. Such a set proves nothing against a candidate that is wrong in no more of them and, as a whole, no
        further from the truth than the reference; small errors everywhere, as of a coarser precision, are never excused by it, nor is
        any wrong integer."""
        floating = [o["dtype"].startswith(("f", "bf")) for o in self.reference.outputs]
        if len(references) < 3 or not all(r.ok or f for r, f in zip(results, floating)):
            return False
        lost = [0] * len(exact)
        for draw_outputs in references:
            for k, (o, got, e) in enumerate(zip(self.reference.outputs, draw_outputs, exact)):
                if results[k].ok:
                    continue
                lost[k] = max(lost[k], compare(o["name"], got.to(e.dtype), e, [], tolerance, 0).wrong)
        return all(r.ok or (r.norm_ok and r.unwritten == 0 and 0 < r.wrong <= 2 * n) for r, n in zip(results, lost))

    # Timed calls ------------------------------------------------------------------------------------------------------------
    def timed_begin(self, request):
        """What timed calls are given: these values, rotated by another distance each time, or drawn anew where rotation would
        destroy their structure."""
        self.draw(request)
        self.base, self.kept, self.models = self.inputs, {}, request["models"]
        self.inputs = []
        return {}

    def _timed_values(self, distance):
        if any(m["structure"] or m["kind"] == "row_distribution" for m in self.models):
            generator = torch.Generator(device=self.reference.device).manual_seed(distance)
            return [draw(m, i, t.dtype, t.device, generator, "random") for m, i, t in zip(self.models, self.reference.inputs, self.base)]
        return [t.reshape(-1).roll(distance % max(1, t.numel())).reshape(t.shape) if m["kind"] != "fixed" else t for m, t in zip(self.models, self.base)]

    def timed_inputs(self, request):
        for view, value in zip(self.region(f"inputs{request['inputs']}").views, self._timed_values(request["distance"])):
            view.copy_(value)
        self.region(f"outputs{request['outputs']}").poison(request["poison"])
        self.region("workspace").poison(request["poison"])
        self.wait()
        return {}

    def timed_outputs(self, request):
        """Keeps pieces of a timed call's outputs, chosen only now: all of a small output, else 64 pieces with the tail among them."""
        chosen = random.Random(request["seed"])
        pieces = []
        for view in self.region(f"outputs{request['outputs']}").views:
            n, flat = view.numel(), view.reshape(-1)
            if n <= PIECES * PIECE:
                pieces.append((None, flat.clone()))
            else:
                starts = torch.tensor([chosen.randrange(n - PIECE) for _ in range(PIECES - 1)] + [n - PIECE], device=flat.device)
                at = (starts[:, None] + torch.arange(PIECE, device=flat.device)).reshape(-1)
                pieces.append((at, flat[at]))
        self.kept[request["distance"]] = pieces
        self.wait()
        return {}

    def timed_check(self, request):
        """Judges kept calls in random order for about `seconds`, at least one; forgets the rest."""
        calls = list(self.kept)
        random.Random(request["seed"]).shuffle(calls)
        started, checked, wrong, first = time.perf_counter(), 0, 0, None
        for distance in calls:
            if checked and time.perf_counter() - started > request["seconds"]:
                break
            results = self._check_kept(distance, request)
            checked += 1
            if not all(r.ok for r in results):
                wrong += 1
                first = first or next(r for r in results if not r.ok).json()
        self.kept = {}
        return {"checked": checked, "wrong": wrong, "first": first}

    def _check_kept(self, distance, request):
        pieces, values, references = self.kept[distance], self._timed_values(distance), []

        def picked(outputs):
            return [o.reshape(-1) if at is None else o.reshape(-1)[at] for (at, _), o in zip(pieces, outputs)]

        exact = picked(self.reference.exact(values))
        for count in (0, 3):  # the reference's own error is asked for only where the tolerance does not settle it
            references += [picked(self.reference.approximate(values, k, request["roundoff"])) for k in range(count)]
            results = [compare(o["name"], got, e, [r[k] for r in references], request["tolerance"], request["poison"])
                       for k, (o, (_, got), e) in enumerate(zip(self.reference.outputs, pieces, exact))]
            if all(r.ok for r in results):
                break
        return results

    def time_baseline(self, request):
        values = self._timed_values(request["distance"])
        return {"ms": self.reference.time_calls(request["mode"], values, request["calls"], request["flush_bytes"])}

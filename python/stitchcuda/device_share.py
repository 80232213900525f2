"""Whose kernels a call spends its device time in: the program's own, a vendor library's, or the framework's."""

import re
import sys

import torch

_OWN = re.compile(r"\b(program|stitch)::")
_FRAMEWORK = re.compile(r"\bat::|\bc10::|triton_|torch::")
# cuBLAS, cuBLASLt, cuDNN and the CUTLASS kernels in them; nvjet is cuBLAS's own generator.
_VENDOR = re.compile(r"cutlass|cudnn|cublas|nvjet|xmma|sgemm|dgemm|hgemm|gemv|gemm|implicit_convolve|winograd|fft|cask|convolve|dot_kernel|reduce_1Block|splitKreduce|nchw|nhwc|sm[89]0_", re.I)


def owner_of(kernel):
    if _OWN.search(kernel):
        return "own"
    if _FRAMEWORK.search(kernel):
        return "framework"
    if kernel.startswith(("Memcpy", "Memset")):
        return "copies"
    return "vendor" if _VENDOR.search(kernel) else "unknown"


class Traced:
    """Wraps a module's forward: its second call (the first one loads the program) is traced. `shares`: milliseconds by owner."""

    def __init__(self, module):
        self.module, self.forward, self.calls, self.shares = module, module.forward, 0, None
        module.forward = self

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls != 2:
            return self.forward(*args, **kwargs)
        torch.cuda.synchronize()
        try:
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            profiler.__enter__()
        except Exception as error:  # noqa: BLE001  (a trace is a figure, never a verdict)
            print(f"The call could not be traced ({error}).", file=sys.stderr)
            return self.forward(*args, **kwargs)
        try:
            result = self.forward(*args, **kwargs)
            torch.cuda.synchronize()
        finally:
            profiler.__exit__(None, None, None)
        self.shares = {}
        for event in profiler.events():
            milliseconds = event.device_time_total / 1000 if event.device_type == torch.autograd.DeviceType.CUDA else 0
            if milliseconds:
                owner = owner_of(event.name)
                self.shares[owner] = round(self.shares.get(owner, 0.0) + milliseconds, 6)
                if owner == "unknown":
                    print(f"A kernel of unknown origin: {event.name}", file=sys.stderr)
        return result

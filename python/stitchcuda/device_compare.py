"""Comparison of a candidate's output with the fp64 oracle where both lie on the device. The rule is that of
src/verify/compare.cpp (docs/verification.md), block by block; a test holds the two against each other."""

import math

import torch

BLOCK = 256                    # smallest neighbourhood that an error is judged against
REFERENCE_FACTOR, BLOCK_ERROR_FACTOR = 2.0, 4.0
CHUNK = 1 << 25                # elements compared at a time

_OVERFLOW = {torch.float16: 65520.0, torch.bfloat16: 3.3961775292304957e38, torch.float32: 3.4028235677973366e38}
_STEP = {torch.float64: 2.2250738585072014e-308, torch.float16: 5.960464477539063e-08}
_STORAGE = {torch.float16: 1.0 / 1024, torch.bfloat16: 1.0 / 128}


def block_size(shape):
    block = 1
    for extent in reversed(shape):
        if block >= BLOCK:
            break
        block *= extent
    return max(1, block)


def _saturated(t, dtype):
    t = t.to(torch.float64)
    limit = _OVERFLOW.get(dtype, math.inf)
    return torch.where((t.abs() >= limit) & t.isfinite(), torch.copysign(torch.full_like(t, math.inf), t), t)


def _kinds(t):
    return torch.where(t.isnan(), 3, torch.where(t.isinf(), torch.where(t > 0, 1, 2), 0))


def _poisoned(raw, poison):
    """Elements whose bytes all still hold the 16-bit pattern; `raw`: flat, any dtype."""
    size = raw.element_size()
    pattern = raw.new_empty(0).view(torch.uint8).new_tensor([poison & 0xFF, poison >> 8])
    body = raw.contiguous().view(torch.uint8).reshape(-1, size)
    if size > 1:
        return (body == pattern.repeat(size // 2)).all(1)
    phase = torch.arange(body.shape[0], device=raw.device) % 2
    return body.reshape(-1) == pattern[phase]


class Result:
    """One output's comparison, as src/verify/compare.h's Comparison."""

    def __init__(self, name, elements):
        self.output, self.elements, self.ok = name, elements, True
        self.norm_ok = True  # the whole lies within its bound, whatever single elements do
        self.wrong = self.unwritten = self.nonfinite_wrong = self.forgiven = 0
        self.max_error = self.norm_error = self.max_abs_error = 0.0
        self.has_reference, self.reference_max_error, self.reference_norm_error = False, 0.0, 0.0
        self.first = None

    def record(self, mask, start, raw, exact, got, poison):
        """`mask`: flat, of one chunk that starts at flat element `start`."""
        count = int(mask.sum())
        if not count:
            return
        self.ok = False
        self.wrong += count
        at = mask.nonzero().reshape(-1)
        unwritten = _poisoned(raw[at], poison) if raw.element_size() > 1 else _poisoned(raw, poison)[at]
        self.unwritten += int(unwritten.sum())
        if exact.dtype.is_floating_point:
            self.nonfinite_wrong += int((_kinds(exact[at]) != _kinds(got[at])).sum())
        if self.first is None:
            i = int(at[0])
            self.first = {"index": start + i, "expected": float(exact[i]), "got": float(got[i]), "unwritten": bool(unwritten[0])}

    def json(self):
        """For JSON, which has no infinities: those go as text."""
        def plain(v):
            if isinstance(v, float) and not math.isfinite(v):
                return str(v)
            return {k: plain(x) for k, x in v.items()} if isinstance(v, dict) else v
        return plain(vars(self))


def compare(name, got, exact, references, tolerance, poison):
    """`got` in its own dtype; `exact` f64 or an integer type; `references` in any dtype; tolerance (max, norm)."""
    result = Result(name, got.numel())
    if got.dtype.is_floating_point:
        _floats(result, got, exact, references, tolerance, poison)
    else:
        _integers(result, got, exact, references, poison)
    return result


def _integers(result, got, exact, references, poison):
    raw, want = got.reshape(-1), exact.reshape(-1)
    draws = [d.reshape(-1) for d in references]
    for start in range(0, raw.numel(), CHUNK):
        part = raw[start:start + CHUNK]
        g = (part.view(torch.uint8) if part.dtype == torch.bool else part).to(torch.int64)  # a bool byte beyond 1 is wrong
        r = want[start:start + CHUNK].to(torch.int64)
        differs = g != r
        tie = torch.zeros_like(differs)
        for d in draws:
            tie |= d[start:start + CHUNK].to(torch.int64) == g
        if got.dtype == torch.bool:
            tie &= g <= 1
        result.forgiven += int((differs & tie).sum())
        wrong = differs & ~tie
        if bool(wrong.any()):
            result.max_abs_error = max(result.max_abs_error, float((g - r).abs()[wrong].max()))
        result.record(wrong, start, part, r, g, poison)


def _floats(result, got, exact, references, tolerance, poison):
    dtype = got.dtype
    raw, want = got.reshape(-1), exact.reshape(-1)
    draws = [d.reshape(-1) for d in references]
    result.has_reference = bool(draws)
    bound, step = tolerance[0] + _STORAGE.get(dtype, 0.0), _STEP.get(dtype, 1.1754943508222875e-38)
    block = block_size(got.shape)
    rows = max(1, CHUNK // block)
    squares, exact_squares, draw_squares = 0.0, 0.0, [0.0] * len(draws)
    for start in range(0, raw.numel(), rows * block):
        stop = min(raw.numel(), start + rows * block)
        part = raw[start:stop].reshape(-1, block)
        if not draws and (plain := _plain_chunk(part, want[start:stop].reshape(-1, block), _OVERFLOW.get(dtype, math.inf), bound, step, result.max_error)):
            result.max_error = max(result.max_error, plain[0])
            result.max_abs_error = max(result.max_abs_error, plain[1])
            squares += plain[2]
            exact_squares += plain[3]
            continue
        g = part.to(torch.float64)
        r = _saturated(want[start:stop], dtype).reshape(-1, block)
        d = [_saturated(t[start:stop], dtype).reshape(-1, block) for t in draws]
        part = _Chunk(g, r, d, bound, step)
        result.forgiven += part.forgiven
        result.max_error = max(result.max_error, part.max_error)
        result.max_abs_error = max(result.max_abs_error, part.max_abs_error)
        result.reference_max_error = max(result.reference_max_error, part.reference_max_error)
        squares += part.squares
        exact_squares += part.exact_squares
        draw_squares = [a + b for a, b in zip(draw_squares, part.draw_squares)]
        result.record(part.wrong.reshape(-1), start, raw[start:stop], r.reshape(-1), g.reshape(-1), poison)
    total, own = math.sqrt(exact_squares), math.sqrt(max(draw_squares, default=0.0))
    relative = lambda v: v / total if total > 0 else (math.inf if v > 0 else 0.0)  # noqa: E731
    result.norm_error, result.reference_norm_error = relative(math.sqrt(squares)), relative(own)
    allowed = (tolerance[1] + _STORAGE.get(dtype, 0.0)) * total + REFERENCE_FACTOR * own + step * math.sqrt(max(1, raw.numel()))
    result.norm_ok = math.sqrt(squares) <= allowed
    result.ok = result.ok and result.norm_ok


def _plain_chunk(g, r, limit, bound, step, known):
    """(largest error, largest absolute error, squared norms of error and exact values) of blocks that are finite and within
    the tolerance, as nearly all are, in a tenth of the passes over memory that _Chunk makes; None for any others. Of each block
    only norms are taken; where its largest error against its root mean square, which is never too small, does not exceed
    `known`, the largest error of earlier blocks, no element of it needs a look of its own."""
    if not float(torch.linalg.vector_norm(r, math.inf, dim=1).max()) < limit:  # also where r holds a NaN
        return None
    size = torch.linalg.vector_norm(r, dim=1)
    rms = size / math.sqrt(r.shape[1])
    error = r - g  # f64 whatever g's type
    largest = torch.linalg.vector_norm(error, math.inf, dim=1)
    most = float(largest.max())
    if not (most < math.inf and math.isfinite(float(size.max()))):
        return None
    at_most = torch.where(largest > step, largest / rms, 0.0)

    def worst_of(blocks):
        e = error[blocks].abs()
        ratio = torch.where(e > step, e / torch.maximum(r[blocks].abs(), rms[blocks, None]), 0.0)
        return float(ratio.amax()) if ratio.numel() else 0.0

    worst = worst_of(at_most.argmax().reshape(1))
    suspects = (at_most > max(worst, known)).nonzero().reshape(-1)
    for some in suspects.split(max(1, CHUNK // 4 // r.shape[1])):
        worst = max(worst, worst_of(some))
    if not worst <= bound:
        return None
    return worst, most, float(torch.linalg.vector_norm(error)) ** 2, float(torch.linalg.vector_norm(size)) ** 2


class _Chunk:
    """Whole blocks of an output: g, r and each draw are [blocks, block] in f64."""

    def __init__(self, g, r, draws, bound, step):
        finite = r.isfinite()
        count = finite.sum(1, keepdim=True).clamp(min=1).to(torch.float64)
        kept = torch.where(finite, r, 0.0)
        rms = (kept.square().sum(1, keepdim=True) / count).sqrt()
        mismatch = _kinds(g) != _kinds(r)
        agrees = torch.zeros_like(mismatch)
        own = torch.zeros_like(r)
        block_error = torch.zeros_like(rms)
        both = finite & ~mismatch
        self.draw_squares = []
        for d in draws:
            usable = finite & d.isfinite()
            e = torch.where(usable, (d - r).abs(), 0.0)
            block_error = torch.maximum(block_error, (e.square().sum(1, keepdim=True) / count).sqrt())
            own = torch.maximum(own, torch.where(both, e, 0.0))
            self.draw_squares.append(float(torch.where(both, e, 0.0).square().sum()))
            agrees |= (_kinds(d) == _kinds(g)) & (~g.isfinite() | ((g - d).abs() <= bound * d.abs() + step))
        scale = torch.maximum(kept.abs(), rms)
        error = torch.where(both, (g - r).abs(), 0.0)
        beyond = error > bound * scale + step
        excused = error <= bound * scale + step + REFERENCE_FACTOR * own + BLOCK_ERROR_FACTOR * block_error
        self.wrong = (mismatch & ~agrees) | (beyond & ~excused)
        self.forgiven = int((mismatch & agrees).sum()) + int((beyond & excused).sum())
        self.max_abs_error = float(error.max()) if error.numel() else 0.0
        self.max_error = self._relative(error, scale, step)
        self.reference_max_error = self._relative(own, scale, step) if draws else 0.0
        self.squares, self.exact_squares = float(error.square().sum()), float(torch.where(both, r, 0.0).square().sum())

    @staticmethod
    def _relative(error, scale, step):
        ratio = torch.where(error > step, torch.where(scale > 0, error / scale, math.inf), 0.0)
        return float(ratio.max()) if ratio.numel() else 0.0


def all_close(got, expected, tolerance):
    """KernelBench's rule: (holds, largest absolute difference)."""
    ok, largest = True, 0.0
    a, b = got.reshape(-1), expected.reshape(-1)
    for start in range(0, a.numel(), CHUNK):
        x, y = a[start:start + CHUNK].to(torch.float64), b[start:start + CHUNK].to(torch.float64)
        difference = torch.where(x == y, 0.0, (x - y).abs())
        ok = ok and bool((difference <= tolerance + tolerance * y.abs()).all())
        finite = difference[difference.isfinite()]
        if finite.numel():
            largest = max(largest, float(finite.max()))
    return ok, largest

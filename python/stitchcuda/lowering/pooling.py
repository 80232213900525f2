"""Pooling and resampling. The IR wants (N, C, spatial): a missing batch dim is added and taken away again."""

from .registry import op


def tuple_of(value, n):
    value = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (value * n if len(value) == 1 else value)]


def _spatial(name):
    return int(name.split(".")[1].replace("_with_indices", "").rstrip("d")[-1])


def batched(c, x, spatial):
    x = c.tensor(x)
    return x if x.rank == spatial + 2 else c.view(x, (1,) * (spatial + 2 - x.rank) + x.shape)


def _pool(c, name, x, spatial, results, **params):
    """Emits a pooling op on a batched x with results of the node's shapes."""
    x = batched(c, x, spatial)
    types = []
    for i in range(results):
        val = c.vals[i] if i < len(c.vals) else c.vals[0]
        dtype = c.dtype if i == 0 else "i64"
        types.append((dtype, (1,) * (x.rank - val.dim()) + tuple(val.shape)))
    out = c.emit(name, [x], types, **params)
    out = out if isinstance(out, tuple) else (out,)
    return tuple(c.view(v, c.vals[min(i, len(c.vals) - 1)].shape) for i, v in enumerate(out))


@op("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool1d_with_indices", "aten.max_pool2d_with_indices",
    "aten.max_pool3d_with_indices")
def max_pool(c, a):
    n = _spatial(str(c.target))
    kernel = tuple_of(a.kernel_size, n)
    out = _pool(c, "max_pool", a.x, n, len(c.vals), kernel=kernel, stride=tuple_of(a.stride, n) if a.get("stride") else kernel,
                padding=tuple_of(a.padding, n), dilation=tuple_of(a.dilation, n), ceil_mode=bool(a.ceil_mode))
    return out if len(c.vals) > 1 else out[0]


@op("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(c, a):
    n = _spatial(str(c.target))
    kernel = tuple_of(a.kernel_size, n)
    divisor = a.get("divisor_override")
    extra = {} if divisor is None else {"divisor_override": int(divisor)}
    return _pool(c, "avg_pool", a.x, n, 1, kernel=kernel, stride=tuple_of(a.stride, n) if a.get("stride") else kernel,
                 padding=tuple_of(a.padding, n), ceil_mode=bool(a.ceil_mode), count_include_pad=bool(a.count_include_pad), **extra)[0]


@op("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d", "aten._adaptive_avg_pool2d",
    "aten._adaptive_avg_pool3d")
def adaptive_avg_pool(c, a):
    n = _spatial(str(c.target))
    return _pool(c, "adaptive_avg_pool", a.x, n, 1, output_size=list(c.shape[-n:]))[0]


@op("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(c, a):
    n = _spatial(str(c.target))
    return _pool(c, "adaptive_max_pool", a.x, n, 2, output_size=list(c.shape[-n:]))


# Resampling -----------------------------------------------------------------------------------------------------------------
def _scales(a, n):
    """The user's scale factors ("2.0,2.0"), {} where only a size was given: PyTorch maps indices differently then."""
    factors = a.get("scale_factors")
    if factors is None:
        named = [a.get(k) for k in (["scales"] if n == 1 else ["scales_d", "scales_h", "scales_w"][3 - n:])]
        factors = None if any(f is None for f in named) else named
    return {} if factors is None else {"scales": ",".join(repr(float(f)) for f in factors)}


@op("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d")
def upsample_nearest(c, a):
    n = len(c.shape) - 2
    return c.result("upsample_nearest", a.get("x", a.get("input")), size=list(c.shape[2:]), **_scales(a, n))


@op("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d")
def upsample_linear(c, a):
    n = len(c.shape) - 2
    return c.result("upsample_linear", a.get("x", a.get("input")), size=list(c.shape[2:]), align_corners=bool(a.align_corners),
                    **_scales(a, n))


@op("aten.upsample_bicubic2d")
def upsample_bicubic(c, a):
    return c.result("upsample_bicubic", a.get("x", a.get("input")), size=list(c.shape[2:]), align_corners=bool(a.align_corners),
                    **_scales(a, 2))

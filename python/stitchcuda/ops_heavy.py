"""Handlers of products, convolutions, pooling, norms, attention and recurrent layers."""

from __future__ import annotations

import math

import torch

from . import ir
from .errors import unsupported
from .lower import handles


def _arg(args, kwargs, index, name, default):
    return args[index] if len(args) > index else kwargs.get(name, default)


# --- products --------------------------------------------------------------------------------------------------------
@handles("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "linalg_matmul")
def matmul(c, node, args, kwargs):
    a, b = args[0], args[1]
    if "inner" in str(node.target) and (a.rank > 1 or b.rank > 1):
        b = c.permute(b, [*range(b.rank - 2), b.rank - 1, b.rank - 2]) if b.rank > 1 else b
    return c.g.add("matmul", [a, b], c.meta(node))


@handles("outer", "ger")
def outer(c, node, args, kwargs):
    a, b = args[0], args[1]
    return c.pointwise("mul", c.view(a, [a.shape[0], 1]), c.view(b, [1, b.shape[0]]))


@handles("linear")
def linear(c, node, args, kwargs):
    x, w = args[0], args[1]
    bias = _arg(args, kwargs, 2, "bias", None)
    if w.rank == 1:
        y = c.g.add("matmul", [x, w], c.meta(node))
        return y if bias is None else c.pointwise("add", y, bias)
    return c.g.add("linear", [x, w, bias], c.meta(node))


@handles("addmm", "baddbmm", "addbmm", "addmv")
def addmm(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    beta, alpha = float(kwargs.get("beta", 1)), float(kwargs.get("alpha", 1))
    if name in ("addbmm", "addmv"):
        raise unsupported(f"{node.target} is not supported{c.where(node)}; use torch.addmm or torch.baddbmm.")
    return c.g.add(name, args[:3], c.meta(node), beta=beta, alpha=alpha)


@handles("einsum")
def einsum(c, node, args, kwargs):
    equation, tensors = args[0].replace(" ", ""), list(args[1])
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    letters = [ch for ch in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if ch not in equation]
    longest = max((t.rank - len(term.replace("...", "")) for term, t in zip(terms, tensors) if "..." in term), default=0)
    dots = "".join(letters[:longest])
    terms = [term.replace("...", dots[longest - (t.rank - len(term) + 3):] if "..." in term else "") for term, t in zip(terms, tensors)]
    if not arrow:
        count = "".join(terms)
        right = dots + "".join(sorted(ch for ch in set(count) if count.count(ch) == 1 and ch not in dots))
    right = right.replace("...", dots)
    return c.g.add("einsum", [tensors], c.meta(node), equation=",".join(terms) + "->" + right)


# --- convolution -----------------------------------------------------------------------------------------------------
def _ints(v, n):
    v = [v] if isinstance(v, int) else list(v)
    return [int(e) for e in (v * n if len(v) == 1 else v)]


def convolve(c, node, x, w, bias, stride, padding, dilation, transposed, output_padding, groups):
    n = w.rank - 2
    dtype, shape = c.meta(node)
    batched = x.rank == w.rank
    if not batched:
        x = c.view(x, [1, *x.shape])
    stride, dilation = _ints(stride, n), _ints(dilation, n)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, w.shape[2:])]
        if all(t % 2 == 0 for t in total):
            padding = [t // 2 for t in total]
        else:  # one more element on the far side, as PyTorch
            amounts = []
            for t in reversed(total):
                amounts += [t // 2, t - t // 2]
            padded = list(x.shape[:2]) + [e + t for e, t in zip(x.shape[2:], total)]
            x = c.g.add("pad", [x], (x.dtype, padded), pad=amounts)
            padding = [0] * n
    out = tuple(shape) if batched else (1, *shape)
    y = c.g.add("convolution", [x, w, bias], (dtype, out), stride=stride, padding=_ints(padding, n), dilation=dilation, transposed=bool(transposed),
                output_padding=_ints(output_padding, n), groups=int(groups))
    return c.view(y, shape)


@handles("conv1d", "conv2d", "conv3d")
def conv(c, node, args, kwargs):
    return convolve(c, node, args[0], args[1], _arg(args, kwargs, 2, "bias", None), _arg(args, kwargs, 3, "stride", 1), _arg(args, kwargs, 4, "padding", 0),
                    _arg(args, kwargs, 5, "dilation", 1), False, 0, _arg(args, kwargs, 6, "groups", 1))


@handles("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(c, node, args, kwargs):
    return convolve(c, node, args[0], args[1], _arg(args, kwargs, 2, "bias", None), _arg(args, kwargs, 3, "stride", 1), _arg(args, kwargs, 4, "padding", 0),
                    _arg(args, kwargs, 7, "dilation", 1), True, _arg(args, kwargs, 5, "output_padding", 0), _arg(args, kwargs, 6, "groups", 1))


@handles("convolution", "_convolution")
def convolution(c, node, args, kwargs):
    return convolve(c, node, *args[:9])


# --- pooling ---------------------------------------------------------------------------------------------------------
def _batched(c, x, spatial):
    return x if x.rank == spatial + 2 else c.view(x, [1, *x.shape])


def _pool_shape(shape, batched):
    return tuple(shape) if batched else (1, *shape)


def _spatial(name):
    return int(name[name.index("d") - 1]) if name[-2:] in ("1d", "2d", "3d") else int([ch for ch in name if ch.isdigit()][0])


@handles("max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    n = int(name[8])
    types = c.meta(node)
    many = isinstance(types, list)
    x = _batched(c, args[0], n)
    batched = x is args[0]
    kernel = _ints(args[1], n)
    stride = _arg(args, kwargs, 2, "stride", None) or kernel
    named = dict(kernel=kernel, stride=_ints(stride, n), padding=_ints(_arg(args, kwargs, 3, "padding", 0), n), dilation=_ints(_arg(args, kwargs, 4, "dilation", 1), n),
                 ceil_mode=bool(_arg(args, kwargs, 5, "ceil_mode", False)))
    first = types[0] if many else types
    out = [(first[0], _pool_shape(first[1], batched))]
    used = many and any(u.args[1] == 1 for u in node.users)
    if used:
        out.append((torch.int64, out[0][1]))
    y = c.g.add("max_pool", [x], out, **named)
    values = [c.view(v, first[1]) for v in y]
    return (values + [None])[:2] if many else values[0]


@handles("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(c, node, args, kwargs):
    n = int(str(node.target).split(".")[1][8])
    dtype, shape = c.meta(node)
    x = _batched(c, args[0], n)
    kernel = _ints(args[1], n)
    stride = _arg(args, kwargs, 2, "stride", None) or kernel
    divisor = _arg(args, kwargs, 6, "divisor_override", None)
    y = c.g.add("avg_pool", [x], (dtype, _pool_shape(shape, x is args[0])), kernel=kernel, stride=_ints(stride, n), padding=_ints(_arg(args, kwargs, 3, "padding", 0), n),
                ceil_mode=bool(_arg(args, kwargs, 4, "ceil_mode", False)), count_include_pad=bool(_arg(args, kwargs, 5, "count_include_pad", True)),
                divisor_override=divisor)
    return c.view(y, shape)


@handles("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
         "adaptive_max_pool3d")
def adaptive_pool(c, node, args, kwargs):
    name = str(node.target).split(".")[1].lstrip("_")
    n = int(name[17])
    types = c.meta(node)
    many = isinstance(types, list)
    dtype, shape = types[0] if many else types
    x = _batched(c, args[0], n)
    out = _pool_shape(shape, x is args[0])
    size = list(out[2:])
    if "avg" in name and all(s == 1 for s in size):
        y = c.reduce("mean", x, list(range(2, n + 2)), True)
        return c.view(y, shape)
    if not many:
        return c.view(c.g.add("adaptive_avg_pool", [x], (dtype, out), output_size=size), shape)
    v, i = c.g.add("adaptive_max_pool", [x], [(dtype, out), (torch.int64, out)], output_size=size)
    return c.view(v, shape), c.view(i, shape)


@handles("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def upsample(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    dtype, shape = c.meta(node)
    nearest = "nearest" in name
    size, rest = args[1], args[2:]
    align = False if nearest else bool(rest[0] if rest else kwargs.get("align_corners", False))
    factors = list(rest if nearest else rest[1:])
    if size is None and factors:
        factors = list(factors[0])  # the .vec overload: one list
    elif factors and isinstance(factors[0], (list, tuple)):
        factors = list(factors[0])
    factors = [f for f in factors if isinstance(f, (int, float))]
    op = "upsample_nearest" if nearest else "upsample_bicubic" if "bicubic" in name else "upsample_linear"
    named = {} if nearest else {"align_corners": align}
    if len(factors) == len(shape) - 2:
        named["scales"] = ",".join(repr(float(f)) for f in factors)
    return c.g.add(op, [args[0]], (dtype, shape), size=list(shape[2:]), **named)


# --- norms -----------------------------------------------------------------------------------------------------------
@handles("layer_norm", "native_layer_norm")
def layer_norm(c, node, args, kwargs):
    types = c.meta(node)
    native = isinstance(types, list)
    y = c.g.add("layer_norm", [args[0], _arg(args, kwargs, 2, "weight", None), _arg(args, kwargs, 3, "bias", None)], types[0] if native else types,
                normalized_shape=list(args[1]), eps=float(_arg(args, kwargs, 4, "eps", 1e-5)))
    return (y, None, None) if native else y


@handles("rms_norm", "_fused_rms_norm")
def rms_norm(c, node, args, kwargs):
    types = c.meta(node)
    fused = isinstance(types, list)
    x = args[0]
    eps = _arg(args, kwargs, 3, "eps", None)
    y = c.g.add("rms_norm", [x, _arg(args, kwargs, 2, "weight", None)], types[0] if fused else types, normalized_shape=list(args[1]),
                eps=float(torch.finfo(x.dtype).eps if eps is None else eps))
    return (y, None) if fused else y


@handles("group_norm", "native_group_norm")
def group_norm(c, node, args, kwargs):
    if "native" in str(node.target):
        x, w, b, _, _, _, groups, eps = args[:8]
        return c.g.add("group_norm", [x, w, b], c.meta(node)[0], num_groups=int(groups), eps=float(eps)), None, None
    return c.g.add("group_norm", [args[0], _arg(args, kwargs, 2, "weight", None), _arg(args, kwargs, 3, "bias", None)], c.meta(node), num_groups=int(args[1]),
                   eps=float(_arg(args, kwargs, 4, "eps", 1e-5)))


@handles("instance_norm")
def instance_norm(c, node, args, kwargs):
    x, w, b, mean, var, use_input_stats, _, eps = args[:8]
    if use_input_stats and mean is None:
        return c.g.add("group_norm", [x, w, b], c.meta(node), num_groups=x.shape[1], eps=float(eps))
    if not use_input_stats:
        return c.g.add("batch_norm", [x, w, b, mean, var], c.meta(node), training=False, eps=float(eps))
    raise unsupported(f"instance_norm that updates running statistics is not supported{c.where(node)}; use track_running_stats=False or model.eval().")


@handles("batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit", "native_batch_norm")
def batch_norm(c, node, args, kwargs):
    name = str(node.target).split(".")[1]
    types = c.meta(node)
    first = types[0] if isinstance(types, list) else types
    if name == "_native_batch_norm_legit_no_training":
        x, w, b, mean, var, momentum, eps = args[:7]
        training = False
    elif str(node.target).endswith("no_stats"):
        x, w, b, training, momentum, eps = args[:6]
        mean = var = None
    else:
        x, w, b, mean, var, training, momentum, eps = args[:8]
    named = dict(training=bool(training), momentum=float(momentum), eps=float(eps))
    tracked = training and mean is not None
    if tracked:
        y = c.g.add("batch_norm", [x, w, b, mean, var], [first, (mean.dtype, mean.shape), (var.dtype, var.shape)], **named)
    else:
        y = (c.g.add("batch_norm", [x, w, b, mean, var], first, **named), mean, var)
    if name == "batch_norm":
        return y[0]
    return y[0], None, None, y[1], y[2]


# --- attention and recurrent layers ----------------------------------------------------------------------------------
@handles("scaled_dot_product_attention")
def attention(c, node, args, kwargs):
    q, k, v = args[:3]
    mask, p = _arg(args, kwargs, 3, "attn_mask", None), float(_arg(args, kwargs, 4, "dropout_p", 0.0))
    if p > 0:
        raise unsupported(f"Attention with dropout {p} gives random results{c.where(node)}; call model.eval() or set dropout to 0 before capture.")
    scale = kwargs.get("scale")
    dtype, shape = c.meta(node)
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]) if not kwargs.get("enable_gqa") else None
    if lead is not None:
        q, k, v = (c.expand(t, [*lead, *t.shape[-2:]]) for t in (q, k, v))
    return c.g.add("scaled_dot_product_attention", [q, k, v, mask], (dtype, shape), is_causal=bool(_arg(args, kwargs, 5, "is_causal", False)),
                   enable_gqa=bool(kwargs.get("enable_gqa", False)), scale=None if scale is None else float(scale))


def _no_packed(c, node):
    if str(node.target).endswith(".data"):
        raise unsupported(f"Packed sequences are not supported{c.where(node)}; pad them.")


@handles("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(c, node, args, kwargs):
    _no_packed(c, node)
    name = str(node.target).split(".")[1]
    x, state, params, has_biases, layers, dropout, train, bidirectional, batch_first = args[:9]
    if train and dropout > 0 and layers > 1:
        raise unsupported(f"{name.upper()} with dropout {dropout} in train mode gives random results{c.where(node)}; call model.eval() or set dropout=0 before capture.")
    if name == "lstm" and len(params) and len(state[0].shape) == 3 and state[0].shape[2] != state[1].shape[2]:
        raise unsupported(f"LSTM with projections (proj_size) is not supported{c.where(node)}.")
    named = dict(has_biases=bool(has_biases), num_layers=int(layers), bidirectional=bool(bidirectional), batch_first=bool(batch_first))
    # PyTorch's shape rule for fake tensors gives lstm's states an extra dim; the states really keep their shapes.
    states = state if name == "lstm" else [state]
    types = [c.meta(node)[0], *((s.dtype, s.shape) for s in states)]
    if name == "lstm":
        return c.g.add("lstm", [x, state[0], state[1], list(params)], types, **named)
    if name == "gru":
        return c.g.add("gru", [x, state, list(params)], types, **named)
    return c.g.add("rnn", [x, state, list(params)], types, nonlinearity=name[4:], **named)

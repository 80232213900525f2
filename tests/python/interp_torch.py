"""One PyTorch call per IR op: what the interpreter is compared with. OPS[name](operands, params) gives a tensor or a tuple."""

import math

import torch
import torch.nn.functional as F

aten = torch.ops.aten
OPS = {}


def rule(*names):
    def register(function):
        for name in names:
            OPS[name] = function
        return function
    return register


def dense(x):
    return torch.as_tensor(x)


# Sources ---------------------------------------------------------------------------------------------------------------------
OPS["full"] = lambda o, p: torch.full(p["size"], int(p["value"]) if p["dtype"] not in (torch.float64, torch.bool) else p["value"], dtype=p["dtype"])
OPS["eye"] = lambda o, p: torch.eye(p["rows"], p["cols"], dtype=p["dtype"])


@rule("arange")
def arange(o, p):
    numbers = [p["start"], p["end"], p.get("step", 1.0)]
    return torch.arange(*(numbers if p["dtype"].is_floating_point else map(int, numbers)), dtype=p["dtype"])


# Pointwise -------------------------------------------------------------------------------------------------------------------
UNARY = ("neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
         "atanh erf erfc sigmoid relu floor ceil trunc frac logical_not bitwise_not isnan isinf").split()
for _name in UNARY:
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(o[0])
for _name, _f in {"log_sigmoid": F.logsigmoid, "silu": F.silu, "mish": F.mish, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid}.items():
    OPS[_name] = lambda o, p, f=_f: f(o[0])


@rule("gelu")
def gelu(o, p):
    """PyTorch computes 1 + erf(x), which cancels for x far below 0; the interpreter does not."""
    x = o[0]
    return F.gelu(x, approximate="tanh") if p.get("approximate") == "tanh" else x * 0.5 * torch.erfc(-x * math.sqrt(0.5))


OPS["elu"] = lambda o, p: aten.elu(o[0], p.get("alpha", 1.0), p.get("scale", 1.0), p.get("input_scale", 1.0))
OPS["leaky_relu"] = lambda o, p: F.leaky_relu(o[0], p.get("negative_slope", 0.01))
OPS["softplus"] = lambda o, p: F.softplus(o[0], p.get("beta", 1.0), p.get("threshold", 20.0))
OPS["hardshrink"] = lambda o, p: F.hardshrink(o[0], p.get("lambd", 0.5))
OPS["softshrink"] = lambda o, p: F.softshrink(o[0], p.get("lambd", 0.5))
OPS["threshold"] = lambda o, p: F.threshold(o[0], p["threshold"], p["value"])
OPS["round"] = lambda o, p: torch.round(o[0], decimals=p["decimals"]) if p.get("decimals") else torch.round(o[0])
OPS["nan_to_num"] = lambda o, p: torch.nan_to_num(o[0], p.get("nan"), p.get("posinf"), p.get("neginf"))
OPS["cast"] = lambda o, p: o[0].to(p["dtype"])


def exact(value, x):
    """alpha, value ...: an integer where the tensors are."""
    return value if x.is_floating_point() else int(value)


def _first_tensor(o):
    return next(x for x in o if isinstance(x, torch.Tensor))


def wrapped(x):
    """A Python number as the 0-d tensor that PyTorch itself makes of it; it does not decide the dtype within its kind."""
    return x if isinstance(x, torch.Tensor) else torch.scalar_tensor(x, dtype=torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.float64)


OPS["add"] = lambda o, p: torch.add(wrapped(o[0]), o[1], alpha=exact(p.get("alpha", 1.0), _first_tensor(o)))
OPS["sub"] = lambda o, p: torch.sub(wrapped(o[0]), o[1], alpha=exact(p.get("alpha", 1.0), _first_tensor(o)))
OPS["mul"] = lambda o, p: wrapped(o[0]) * o[1]
OPS["div"] = lambda o, p: torch.div(wrapped(o[0]), o[1], rounding_mode=p.get("rounding_mode"))
OPS["pow"] = lambda o, p: torch.pow(o[0], o[1])
for _name in "eq ne lt le gt ge fmod remainder xlogy bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(o[0] if isinstance(o[0], torch.Tensor) else wrapped(o[0]), o[1])
for _name in "maximum minimum atan2 hypot logaddexp logical_and logical_or logical_xor".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(wrapped(o[0]), wrapped(o[1]))
OPS["where"] = lambda o, p: torch.where(o[0] if isinstance(o[0], torch.Tensor) else torch.tensor(bool(o[0])), o[1], o[2])
OPS["clamp"] = lambda o, p: torch.clamp(o[0], *((wrapped(v) if any(isinstance(w, torch.Tensor) for w in o[1:]) and v is not None else v) for v in o[1:]))
OPS["lerp"] = lambda o, p: torch.lerp(o[0], o[1], o[2])
OPS["addcmul"] = lambda o, p: torch.addcmul(o[0], o[1], o[2], value=exact(p.get("value", 1.0), o[0]))
OPS["addcdiv"] = lambda o, p: torch.addcdiv(o[0], o[1], o[2], value=p.get("value", 1.0))

# Movement --------------------------------------------------------------------------------------------------------------------
OPS["view"] = lambda o, p: o[0].reshape(p["size"])
OPS["permute"] = lambda o, p: o[0].permute(p["dims"])
OPS["expand"] = lambda o, p: o[0].expand(p["size"])
OPS["slice"] = lambda o, p: aten.slice(o[0], p["dim"], p["start"], p["end"], p.get("step", 1))
OPS["select"] = lambda o, p: o[0].select(p["dim"], p["index"])
OPS["cat"] = lambda o, p: torch.cat(o[0], p.get("dim", 0))
OPS["flip"] = lambda o, p: o[0].flip(p["dims"])
OPS["roll"] = lambda o, p: o[0].roll(p["shifts"], p["dims"])
OPS["repeat"] = lambda o, p: o[0].repeat(p["repeats"])
OPS["unfold"] = lambda o, p: o[0].unfold(p["dim"], p["size"], p["step"])
OPS["tril"] = lambda o, p: o[0].tril(p.get("diagonal", 0))
OPS["triu"] = lambda o, p: o[0].triu(p.get("diagonal", 0))
OPS["diagonal"] = lambda o, p: o[0].diagonal(p.get("offset", 0), p.get("dim1", 0), p.get("dim2", 1))
OPS["slice_scatter"] = lambda o, p: torch.slice_scatter(o[0], o[1], p["dim"], p["start"], p["end"], p.get("step", 1))
OPS["select_scatter"] = lambda o, p: torch.select_scatter(o[0], o[1], p["dim"], p["index"])
OPS["pad"] = lambda o, p: F.pad(o[0], p["pad"], p.get("mode", "constant"), *([p.get("value", 0.0)] if p.get("mode", "constant") == "constant" else []))

# Reductions, scans, rows -------------------------------------------------------------------------------------------------------


def _dims(o, p):
    return list(p["dims"]) or list(range(o[0].dim()))


for _name in "sum mean amax amin logsumexp any all".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(o[0], dim=_dims(o, p), keepdim=p.get("keepdim", False))
for _name in "var std".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(o[0], dim=_dims(o, p), correction=p.get("correction", 1.0), keepdim=p.get("keepdim", False))
OPS["vector_norm"] = lambda o, p: torch.linalg.vector_norm(o[0], p.get("ord", 2.0), dim=_dims(o, p), keepdim=p.get("keepdim", False))


@rule("prod")
def prod(o, p):
    x = o[0] if o[0].is_floating_point() else o[0].to(torch.int64)
    for d in sorted(_dims(o, p), reverse=True):
        x = x.prod(d, keepdim=p.get("keepdim", False))
    return x


for _name in "argmax argmin".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(o[0], p.get("dim"), keepdim=p.get("keepdim", False))
for _name in "max min".split():
    OPS[_name + "_dim"] = lambda o, p, f=getattr(torch, _name): tuple(f(o[0], p["dim"], keepdim=p.get("keepdim", False)))
for _name in "cumsum cumprod logcumsumexp softmax log_softmax".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(o[0], p["dim"])
for _name in "cummax cummin".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): tuple(f(o[0], p["dim"]))

# Norms, contractions, convolutions ---------------------------------------------------------------------------------------------
OPS["layer_norm"] = lambda o, p: F.layer_norm(o[0], p["normalized_shape"], o[1], o[2], p.get("eps", 1e-5))
OPS["rms_norm"] = lambda o, p: F.rms_norm(o[0], p["normalized_shape"], o[1], p["eps"])
OPS["group_norm"] = lambda o, p: torch.group_norm(o[0], p["num_groups"], o[1], o[2], p.get("eps", 1e-5))


@rule("batch_norm")
def batch_norm(o, p):
    x, weight, bias, mean, var = o
    momentum, eps = p.get("momentum", 0.1), p.get("eps", 1e-5)
    if mean is None or not p["training"]:
        return F.batch_norm(x, mean, var, weight, bias, p["training"], momentum, eps)
    y, _, _, new_mean, new_var = aten._native_batch_norm_legit_functional(x, weight, bias, mean, var, True, momentum, eps)
    return y, new_mean, new_var


OPS["matmul"] = lambda o, p: torch.matmul(o[0], o[1])
OPS["linear"] = lambda o, p: F.linear(*o)
for _name in "addmm baddbmm".split():
    OPS[_name] = lambda o, p, f=getattr(torch, _name): f(*o, beta=exact(p.get("beta", 1.0), o[0]), alpha=exact(p.get("alpha", 1.0), o[0]))
OPS["einsum"] = lambda o, p: torch.einsum(p["equation"], *o[0])
OPS["convolution"] = lambda o, p: aten.convolution(*o, p["stride"], p["padding"], p["dilation"], p.get("transposed", False), p["output_padding"], p.get("groups", 1))

# Pooling and resampling ----------------------------------------------------------------------------------------------------------


def spatial(o):
    return o[0].dim() - 2


@rule("max_pool")
def max_pool(o, p):
    f = [F.max_pool1d, F.max_pool2d, F.max_pool3d][spatial(o) - 1]
    out = f(o[0], p["kernel"], p["stride"], p["padding"], p["dilation"], p.get("ceil_mode", False), return_indices=p["results"] == 2)
    return tuple(out) if p["results"] == 2 else out


@rule("avg_pool")
def avg_pool(o, p):
    f = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][spatial(o) - 1]
    return f(o[0], p["kernel"], p["stride"], p["padding"], p.get("ceil_mode", False), p.get("count_include_pad", True),
             *([p["divisor_override"]] if p.get("divisor_override") else []))


OPS["adaptive_avg_pool"] = lambda o, p: [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][spatial(o) - 1](o[0], p["output_size"])
OPS["adaptive_max_pool"] = lambda o, p: tuple([F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d][spatial(o) - 1](o[0], p["output_size"], return_indices=True))


def scales(o, p):
    return [float(s) for s in p["scales"].split(",")] if p.get("scales") else [None] * spatial(o)




@rule("upsample_nearest")
def upsample_nearest(o, p):
    """PyTorch derives the source index in the tensor's own precision; programs are f32, so f32 decides."""
    places = torch.arange(o[0][0, 0].numel(), dtype=torch.float32).reshape(1, 1, *o[0].shape[2:])
    f = [aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d][spatial(o) - 1]
    source = f(places.expand(1, 2, *places.shape[2:]).contiguous(), p["size"], *scales(o, p))[0, 0].long()
    return o[0].flatten(2)[:, :, source.flatten()].reshape(*o[0].shape[:2], *p["size"])


OPS["upsample_linear"] = lambda o, p: [aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d][spatial(o) - 1](o[0], p["size"], p.get("align_corners", False), *scales(o, p))
OPS["upsample_bicubic"] = lambda o, p: aten.upsample_bicubic2d(o[0], p["size"], p.get("align_corners", False), *scales(o, p))

# Indexing, sorting ---------------------------------------------------------------------------------------------------------------
OPS["gather"] = lambda o, p: torch.gather(o[0], p["dim"], o[1])
OPS["index_select"] = lambda o, p: torch.index_select(o[0], p["dim"], o[1])
OPS["embedding"] = lambda o, p: F.embedding(o[1], o[0])
OPS["index"] = lambda o, p: aten.index(o[0], o[1])
OPS["scatter"] = lambda o, p: torch.scatter(o[0], p["dim"], o[1], o[2])
OPS["scatter_add"] = lambda o, p: torch.scatter_add(o[0], p["dim"], o[1], o[2])
OPS["index_put"] = lambda o, p: aten.index_put(o[0], o[1], o[2], p.get("accumulate", False))
OPS["topk"] = lambda o, p: tuple(torch.topk(o[0], p["k"], p.get("dim", -1), p.get("largest", True)))
OPS["sort"] = lambda o, p: tuple(torch.sort(o[0], dim=p.get("dim", -1), descending=p.get("descending", False), stable=True))

# Attention, recurrent layers -------------------------------------------------------------------------------------------------------
OPS["scaled_dot_product_attention"] = lambda o, p: F.scaled_dot_product_attention(
    *o, is_causal=p.get("is_causal", False), scale=p.get("scale"), enable_gqa=p.get("enable_gqa", False))


@rule("lstm", "gru", "rnn")
def recurrent(o, p):
    *operands, params = o
    rest = (params, p["has_biases"], p["num_layers"], 0.0, False, p.get("bidirectional", False), p.get("batch_first", False))
    if len(operands) == 3:
        return tuple(torch._VF.lstm(operands[0], operands[1:], *rest))
    f = {"tanh": torch._VF.rnn_tanh, "relu": torch._VF.rnn_relu, None: torch._VF.gru}[p.get("nonlinearity")]
    return tuple(f(*operands, *rest))

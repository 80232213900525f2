"""Norms, contractions, convolutions, attention and recurrent layers."""

import string

import torch

from ..ir import TORCH_DTYPES
from .pooling import batched, tuple_of
from .registry import op


# Norms ---------------------------------------------------------------------------------------------------------------------
@op("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(c, a):
    shape = list(a.normalized_shape)
    y = c.result("layer_norm", a.input, a.weight, a.bias, normalized_shape=shape, eps=float(a.eps))
    if len(c.vals) == 1:
        return y
    dims = list(range(a.input.rank - len(shape), a.input.rank))
    return (y, *_saved_statistics(c, a.input, dims, a.eps))


def _saved_statistics(c, x, dims, eps):
    """Mean and 1/sqrt(var + eps), which native ops return for their backward; dead unless someone reads them."""
    dtype, shape = c.type_of(1)
    x = c.cast(x, dtype)
    mean = c.reduce("mean", x, dims, True)
    var = c.reduce("var", x, dims, True, correction=0.0)
    rstd = c.pointwise("rsqrt", c.pointwise("add", var, float(eps)))
    return c.view(mean, shape), c.view(rstd, shape)


@op("aten.rms_norm", "aten._fused_rms_norm")
def rms_norm(c, a):
    x = a.input
    eps = torch.finfo(TORCH_DTYPES[x.dtype]).eps if a.eps is None else float(a.eps)
    y = c.result("rms_norm", x, a.weight, normalized_shape=list(a.normalized_shape), eps=eps)
    return y if len(c.vals) == 1 else (y, c.lowering.missing("the saved statistics of rms_norm"))


@op("aten.group_norm")
def group_norm(c, a):
    return c.result("group_norm", a.input, a.weight, a.bias, num_groups=int(a.num_groups), eps=float(a.eps))


@op("aten.native_group_norm")
def native_group_norm(c, a):
    y = c.result("group_norm", a.input, a.weight, a.bias, num_groups=int(a.group), eps=float(a.eps))
    grouped = c.view(a.input, (a.input.shape[0], int(a.group), -1 if 0 in a.input.shape else _size(a.input.shape[1:]) // int(a.group)))
    return (y, *_saved_statistics(c, grouped, [2], a.eps))


def _size(shape):
    n = 1
    for e in shape:
        n *= e
    return n


@op("aten.instance_norm")
def instance_norm(c, a):
    x, eps = a.input, float(a.eps)
    if not a.use_input_stats:
        return c.result("batch_norm", x, a.weight, a.bias, a.running_mean, a.running_var, training=False,
                        momentum=float(a.momentum), eps=eps)
    if a.running_mean is not None:
        _update_instance_statistics(c, x, a.running_mean, a.running_var, float(a.momentum))
    return c.result("group_norm", x, a.weight, a.bias, num_groups=x.shape[1], eps=eps)


def _update_instance_statistics(c, x, running_mean, running_var, momentum):
    """The export drops these updates; each is the mean over the batch of the per-instance statistics."""
    spatial = list(range(2, x.rank))
    for running, name, params in ((running_mean, "mean", {}), (running_var, "var", {"correction": 1.0})):
        statistic = c.reduce("mean", c.reduce(name, x, spatial, False, **params), [0], False)
        c.lowering.mutate(running, c.pointwise("lerp", running, c.cast(statistic, running.dtype), momentum, dtype=running.dtype))


@op("aten.batch_norm", "aten._native_batch_norm_legit_functional", "aten._native_batch_norm_legit_no_training",
    "aten._native_batch_norm_legit.no_stats", "aten.native_batch_norm", "aten._batch_norm_with_update_functional",
    "aten._batch_norm_no_update", "aten._native_batch_norm_legit.default")
def batch_norm(c, a):
    x = a.input
    training = bool(a.get("training", a.get("train", "functional" in str(c.target))))
    mean, var = a.get("running_mean"), a.get("running_var")
    if mean is None:
        training = True
    operands = (x, a.get("weight"), a.get("bias"), mean, var)
    params = {"training": training, "momentum": float(a.momentum), "eps": float(a.eps)}
    name = str(c.target)
    if not training or mean is None:
        y, updated = c.result("batch_norm", *operands, **params), (mean, var)
    else:
        y, *updated = c.emit("batch_norm", operands, [c.type_of(0), (mean.dtype, mean.shape), (var.dtype, var.shape)], **params)
    saved = [c.lowering.missing("the saved statistics of batch_norm")] * 2
    if name == "aten._native_batch_norm_legit_functional.default":
        return (y, *saved, *updated)
    if name == "aten._batch_norm_with_update_functional.default":
        return (y, *saved, saved[0], *updated)
    if training and mean is not None:
        # These change their running statistics in place, which a functional program cannot contain.
        for old, new in zip((mean, var), updated):
            c.lowering.mutate(old, new)
    return y if len(c.vals) == 1 else (y, *saved, saved[0])[:max(len(c.vals), 3)]


# Contractions ----------------------------------------------------------------------------------------------------------------
@op("aten.matmul", "aten.mm.default", "aten.bmm.default", "aten.mv", "aten.dot", "aten.vdot", "aten.linalg_matmul")
def matmul(c, a):
    left, right = (v for v in (a.get("x", a.get("input")), a.get("mat2"), a.get("other"), a.get("vec"), a.get("tensor")) if v is not None)
    weight = transposed_weight(right)
    if weight is not None:
        return c.result("linear", left, weight)
    return c.result("matmul", left, right)


def transposed_weight(x):
    """w where x is w.T of a weight w: the product is a linear layer, whose weight needs no transposed copy."""
    if x.node.op != "permute" or x.node.params["dims"] != [1, 0]:
        return None
    source = x.node.operands[0]
    return source if source.node.op == "weight" else None


@op("aten.linear")
def linear(c, a):
    x, weight, bias = a.input, a.weight, a.bias
    if weight.rank == 1:
        y = c.emit("matmul", [x, weight], [c.type_of(0)])
        return y if bias is None else c.result("add", y, bias)
    return c.result("linear", x, weight, bias)


@op("aten.addmm")
def addmm(c, a):
    weight = transposed_weight(a.mat2)
    if weight is not None and not _scales(a) and c.tensor(a.x).shape == weight.shape[:1]:
        return c.result("linear", a.mat1, weight, a.x)
    return c.result("addmm", c.tensor(a.x), a.mat1, a.mat2, **_scales(a))


@op("aten.baddbmm")
def baddbmm(c, a):
    return c.result("baddbmm", c.tensor(a.x), a.batch1, a.batch2, **_scales(a))


def _scales(a):
    return {k: float(getattr(a, k)) for k in ("beta", "alpha") if getattr(a, k) != 1}


@op("aten.addmv")
def addmv(c, a):
    return _plus(c, a, c.pointwise("mul", c.emit("matmul", [a.mat, a.vec], [c.type_of(0)]), a.alpha) if a.alpha != 1
                 else c.emit("matmul", [a.mat, a.vec], [c.type_of(0)]))


@op("aten.addbmm")
def addbmm(c, a):
    product = c.emit("einsum", [[a.batch1, a.batch2]], [c.type_of(0)], equation="bij,bjk->ik")
    return _plus(c, a, product if a.alpha == 1 else c.pointwise("mul", product, a.alpha))


def _plus(c, a, product):
    """beta * self + product; with beta == 0 NaNs in self do not count."""
    if a.beta == 0:
        return product
    return c.result("add", product, a.x if a.beta == 1 else c.pointwise("mul", a.x, a.beta, dtype=c.dtype))


@op("aten.outer", "aten.ger")
def outer(c, a):
    return c.result("mul", c.view(a.x, a.x.shape + (1,)), a.vec2)


@op("aten.inner")
def inner(c, a):
    if a.x.rank == 0 or a.other.rank == 0:
        return c.result("mul", a.x, a.other)
    letters = string.ascii_letters
    left = letters[1:a.x.rank]
    right = letters[a.x.rank:a.x.rank + a.other.rank - 1]
    return c.result("einsum", [a.x, a.other], equation=f"{left}a,{right}a->{left}{right}")


@op("aten.einsum")
def einsum(c, a):
    tensors = [c.cast(c.tensor(t), c.dtype) for t in a.tensors]
    return c.result("einsum", tensors, equation=explicit_equation(a.equation, [t.rank for t in tensors]))


def explicit_equation(equation, ranks):
    """No spaces, no ellipsis, always "->": the form that the IR wants."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    hidden = [rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks)]
    ellipsis = "".join(free[:max(hidden, default=0)])
    terms = [t.replace("...", ellipsis[len(ellipsis) - h:] if h else "") for t, h in zip(terms, hidden)]
    if arrow:
        right = right.replace("...", ellipsis)
    else:
        letters = "".join(terms)
        right = ellipsis + "".join(sorted(x for x in set(letters) - set(ellipsis) if letters.count(x) == 1))
    return ",".join(terms) + "->" + right


@op("aten.bilinear")
def bilinear(c, a):
    batch = string.ascii_letters[3:a.input1.rank + 2]
    y = c.emit("einsum", [[a.input1, a.weight, a.input2]], [c.type_of(0)], equation=f"{batch}a,cab,{batch}b->{batch}c")
    return y if a.bias is None else c.result("add", y, a.bias)


@op("aten._cdist_forward", "aten._euclidean_dist")
def cdist(c, a):
    """Norms of all differences of rows."""
    left = c.view(a.x1, a.x1.shape[:-1] + (1, a.x1.shape[-1]))
    right = c.view(a.x2, a.x2.shape[:-2] + (1,) + a.x2.shape[-2:])
    difference = c.pointwise("sub", left, right)
    return c.reduce("vector_norm", difference, [difference.rank - 1], False, ord=float(a.get("p", 2.0)))


# Convolutions -----------------------------------------------------------------------------------------------------------------
@op("aten.convolution", "aten._convolution", "aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.conv_transpose1d",
    "aten.conv_transpose2d", "aten.conv_transpose3d", "aten.convolution_overrideable")
def convolution(c, a):
    weight = a.weight
    n = weight.rank - 2
    x = batched(c, a.input, n)
    transposed = a.get("transposed", "transpose" in str(c.target))
    stride, dilation = tuple_of(a.stride, n), tuple_of(a.dilation, n)
    output_padding = tuple_of(a.get("output_padding") or [0], n)
    if isinstance(a.padding, str):
        x, padding = _pad_by_name(c, x, a.padding, weight.shape[2:], dilation)
    else:
        padding = tuple_of(a.padding, n)
    shape = (1,) * (x.rank - len(c.shape)) + c.shape
    y = c.emit("convolution", [x, weight, a.bias], [(c.dtype, shape)], stride=stride, padding=padding, dilation=dilation,
               transposed=bool(transposed), output_padding=output_padding, groups=int(a.groups))
    return c.view(y, c.shape)


def _pad_by_name(c, x, name, kernel, dilation):
    """"same" may need one more on the far side, which the convolution itself cannot pad."""
    if name == "valid":
        return x, [0] * len(kernel)
    total = [d * (k - 1) for k, d in zip(kernel, dilation)]
    extra = [t % 2 for t in total]
    pad = [v for e in reversed(extra) for v in (0, e)]
    return c.pad(x, pad), [t // 2 for t in total]


# Attention --------------------------------------------------------------------------------------------------------------------
@op("aten.scaled_dot_product_attention", "aten._scaled_dot_product_flash_attention_for_cpu", "aten._scaled_dot_product_attention_math",
    "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_efficient_attention")
def attention(c, a):
    if a.get("dropout_p", 0.0):
        c.fail(f"Attention with dropout_p={a.dropout_p:g} is random and cannot be captured; call .eval() on the module or set it to 0")
    params = {"is_causal": bool(a.get("is_causal", False))}
    if a.get("scale") is not None:
        params["scale"] = float(a.scale)
    if a.get("enable_gqa", False):
        params["enable_gqa"] = True
    mask = a.get("attn_mask", a.get("attn_bias"))
    if mask is not None and mask.dtype != "b8":
        mask = c.cast(mask, a.query.dtype)
    y = c.result("scaled_dot_product_attention", a.query, a.key, a.value, mask, **params)
    rest = str(c.target) != "aten.scaled_dot_product_attention.default"
    return (y, *[c.lowering.missing("the extra results of an attention kernel")] * 8) if rest else y


# Recurrent layers ---------------------------------------------------------------------------------------------------------------
def _recurrent(c, a, name, state, results, **extra):
    if a.train and a.dropout and a.num_layers > 1:
        c.fail(f"{name.upper()} with dropout={a.dropout:g} is random in training mode and cannot be captured; call .eval() on the module")
    directions = 2 if a.bidirectional else 1
    if len(a.params) != a.num_layers * directions * (4 if a.has_biases else 2):
        c.fail("LSTM with proj_size cannot be captured")
    operands = [c.tensor(a.input), *[c.tensor(s) for s in state], list(a.params)]
    return c.emit(name, operands, [c.type_of(i) for i in range(results)], **extra, has_biases=bool(a.has_biases),
                  num_layers=int(a.num_layers), bidirectional=bool(a.bidirectional), batch_first=bool(a.batch_first))


@op("aten.lstm.input")
def lstm(c, a):
    return _recurrent(c, a, "lstm", a.hx, 3)


@op("aten.gru.input")
def gru(c, a):
    return _recurrent(c, a, "gru", [a.hx], 2)


@op("aten.rnn_tanh.input", "aten.rnn_relu.input")
def rnn(c, a):
    return _recurrent(c, a, "rnn", [a.hx], 2, nonlinearity="tanh" if "tanh" in str(c.target) else "relu")


@op("aten.lstm.data", "aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data")
def packed(c, a):
    c.fail("Packed sequences cannot be captured; pass padded batches")

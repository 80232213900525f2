"""Random nodes of norms, contractions, convolutions, pooling, attention and recurrent layers, over their whole attribute space. SAMPLERS[op](s) adds one or more nodes
of that op to s.program and gives back the handles to look at."""

import math

import torch

from interp_source import optional, sampler


# Norms, contractions, convolutions ---------------------------------------------------------------------------------------------
@sampler("layer_norm", "rms_norm")
def last_dims_norm(s, name):
    x = s.x(low=1)
    shape = list(x.t.shape)[s.int(0, x.t.dim() - 1):]
    weight = optional(s, shape)
    if name == "rms_norm":
        return s.op(name, x, weight, normalized_shape=shape, eps=s.pick(1e-5, 1e-8, 0.1))
    return s.op(name, x, weight, optional(s, shape), normalized_shape=shape, eps=s.pick(1e-5, 1e-3))


@sampler("group_norm")
def group_norm(s, name):
    groups, per = s.int(1, 3), s.int(1, 3)
    c = groups * per
    x = s.x(shape=[s.int(1, 3), c] + [s.int(1, 4) for _ in range(s.int(1, 3))])
    return s.op(name, x, optional(s, [c]), optional(s, [c]), num_groups=groups, eps=s.pick(1e-5, 1e-2))


@sampler("batch_norm")
def batch_norm(s, name):
    c = s.int(1, 4)
    x = s.x(shape=[s.int(2, 4), c] + [s.int(1, 4) for _ in range(s.int(0, 3))])
    training = s.maybe(0.6)
    tracked = not training or s.maybe()
    mean, var = (s.fresh([c], domain="finite"), s.fresh([c], domain="positive")) if tracked else (None, None)
    return s.op(name, x, optional(s, [c]), optional(s, [c]), mean, var, training=training, momentum=s.pick(0.1, 0.9), eps=s.pick(1e-5, 1e-3))


@sampler("matmul")
def matmul(s, name):
    m, n, k = s.extent(9), s.extent(9), s.extent(9)
    batch = s.shape(0, 2, 3)
    a = [k] if s.maybe(0.2) else s.broadcastable(batch) + [m, k]
    b = [k] if s.maybe(0.2) else s.broadcastable(batch) + [k, n]
    dtype = torch.int64 if s.maybe(0.1) else torch.float64
    return s.op(name, s.x(shape=a, dtype=dtype), s.x(shape=b, dtype=dtype))


@sampler("linear")
def linear(s, name):
    x = s.x(low=1)
    out = s.int(1, 9)
    return s.op(name, x, s.fresh([out, x.t.shape[-1]]), optional(s, [out]))


@sampler("addmm", "baddbmm")
def addmm(s, name):
    batch = [] if name == "addmm" else [s.extent(3)]
    m, n, k = s.extent(7), s.extent(7), s.extent(7)
    c = s.x(shape=s.broadcastable(batch + [m, n]))
    scales = {"beta": s.pick(0.0, 0.5, 1.0, -2.0), "alpha": s.pick(1.0, 0.25, -1.5)} if s.maybe() else {}
    return s.op(name, c, s.x(shape=batch + [m, k]), s.x(shape=batch + [k, n]), **scales)


EQUATIONS = ["ij,jk->ik", "bij,bjk->bik", "bhid,bhjd->bhij", "ij->ji", "ij->", "ii->i", "ii->", "i,j->ij", "i,i->", "ijk->ik", "bij,bik->bjk",
             "abc,cd,db->ad", "ab,bc,cd->da", "bn,anm,bm->ba", "ij,kl->ijkl", "iij,j->i", "ab,ab->ab", "abcd->dcba", "ij,j->", "aab,bcc->ac"]


@sampler("einsum")
def einsum(s, name):
    equation = s.pick(*EQUATIONS)
    extents = {letter: s.extent(4) for letter in equation if letter.isalpha()}
    terms = [[extents[x] for x in term] for term in equation.split("->")[0].split(",")]
    if len(terms) > 1 and s.maybe(0.2):  # an extent of 1 is repeated
        terms[0] = [1 if equation[0] == equation[i] and equation.split(",")[0].count(equation[0]) == 1 else e for i, e in enumerate(terms[0])]
    return s.op(name, [s.fresh(shape) for shape in terms], equation=equation)


@sampler("convolution")
def convolution(s, name):
    n, groups = s.int(1, 3), s.pick(1, 1, 2, 3)
    most = {1: 9, 2: 7, 3: 4}[n]
    kernel, stride, dilation = ([s.int(1, high) for _ in range(n)] for high in (3, 3, 2))
    padding = [s.int(0, 2) for _ in range(n)]
    cin, cout = groups * s.int(1, 3), groups * s.int(1, 3)
    transposed = s.maybe(0.4)
    window = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    extents = [s.int(max(1, w - 2 * p), max(most, w)) for w, p in zip(window, padding)]
    output_padding = [0] * n
    if transposed:
        output_padding = [s.int(0, max(a, b) - 1) for a, b in zip(stride, dilation)]
        extents = [s.int(1, most) for _ in range(n)]
        padding = [min(p, ((e - 1) * st + w + o - 1) // 2) for p, e, st, w, o in zip(padding, extents, stride, window, output_padding)]
    weight = [cin, cout // groups] if transposed else [cout, cin // groups]
    return s.op(name, s.x(shape=[s.int(1, 2), cin] + extents), s.fresh(weight + kernel), optional(s, [cout]), stride=stride, padding=padding, dilation=dilation,
                transposed=transposed, output_padding=output_padding, groups=groups)


# Pooling and resampling ----------------------------------------------------------------------------------------------------------
def image(s, n, low=1, most=8, domain="normal", dtype=torch.float64):
    return s.x(shape=[s.int(1, 2), s.int(1, 3)] + [s.int(low, most if n < 3 else 5) for _ in range(n)], domain=domain, dtype=dtype)


@sampler("max_pool", "avg_pool")
def pool(s, name):
    n = s.int(1, 3)
    kernel, stride = ([s.int(1, high) for _ in range(n)] for high in (3, 3))
    dilation = [s.int(1, 2) if name == "max_pool" else 1 for _ in range(n)]
    padding = [s.int(0, k // 2) for k in kernel]
    low = max(d * (k - 1) + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding))
    if name == "avg_pool" and n == 3:
        low = max(kernel)  # PyTorch refuses less in 3d, although padding would make it fit
    x = image(s, n, low=max(low, 1), domain=s.pick("normal", "ties"))
    params = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": s.maybe()}
    if name == "max_pool":
        return s.op(name, x, dilation=dilation, results=s.pick(1, 2), **params)
    if n > 1 and s.maybe(0.3):
        params["divisor_override"] = s.pick(1, 5, -2)
    return s.op(name, x, count_include_pad=s.maybe(), **params)


@sampler("adaptive_avg_pool", "adaptive_max_pool")
def adaptive(s, name):
    n = s.int(1, 3)
    return s.op(name, image(s, n, domain=s.pick("normal", "ties")), output_size=[s.int(1, 9 if n < 3 else 4) for _ in range(n)])


def target(s, x, n):
    """Result extents and the scales text, as torch.nn.functional.interpolate derives them."""
    extents = list(x.t.shape)[2:]
    if s.maybe(0.4):
        return {"size": [s.int(1, 9 if n < 3 else 5) for _ in range(n)]}
    scales = [s.pick(2.0, 0.5, 1.5, 3.0, 0.7, 1.0, 1.3, 2.2) for _ in range(n)]
    size = [int(math.floor(e * f)) for e, f in zip(extents, scales)]
    return {"size": size, "scales": ",".join(map(repr, scales))} if min(size) > 0 else {"size": extents}


@sampler("upsample_nearest")
def nearest(s, name):
    n = s.int(1, 3)
    x = image(s, n)
    return s.op(name, x, **target(s, x, n))


@sampler("upsample_linear", "upsample_bicubic")
def resample(s, name):
    n = s.int(1, 3) if name == "upsample_linear" else 2
    # PyTorch on the CPU multiplies neighbours by a weight of 0, which turns infinity into NaN.
    x = image(s, n, domain="finite")
    return s.op(name, x, align_corners=s.maybe(), **target(s, x, n))


# Attention, recurrent layers -------------------------------------------------------------------------------------------------------
@sampler("scaled_dot_product_attention")
def attention(s, name):
    length, keys, e, ev = s.int(1, 6), s.int(1, 6), s.int(1, 5), s.int(1, 5)
    batch = [s.int(1, 3) for _ in range(s.int(0, 2))]
    gqa = len(batch) == 2 and s.maybe(0.4)
    q_batch = batch[:-1] + [batch[-1] * s.int(1, 3)] if gqa else batch
    # What becomes of NaN and infinity in a score differs between PyTorch's own kernels.
    q, k, v = (s.x(shape=shape, domain="finite") for shape in (q_batch + [length, e], batch + [keys, e], batch + [keys, ev]))
    params = {"enable_gqa": True} if gqa else {}
    if s.maybe(0.3):
        params["scale"] = s.pick(0.25, 1.0)
    mask = None
    kind = s.pick("none", "causal", "bool", "float", "empty row")
    if kind == "causal":
        params["is_causal"] = True
    elif kind != "none":
        shape = s.broadcastable(q_batch) + [length, keys] if s.maybe(0.7) else [1, keys] if s.maybe() else [length, keys]
        t = torch.rand(shape, generator=s.torch) < 0.7
        if kind == "empty row":
            t[..., s.int(0, t.shape[-2] - 1), :] = False
        if kind != "bool" and s.maybe(0.7):
            t = torch.where(t, torch.randn(shape, generator=s.torch, dtype=torch.float64), -math.inf)
        mask = s.program.leaf(t)
    return s.op(name, q, k, v, mask, **params)


@sampler("lstm", "gru", "rnn")
def recurrent(s, name):
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    layers, two, biases, first = s.int(1, 3), s.maybe(), s.maybe(0.7), s.maybe()
    directions = 2 if two else 1
    steps, batch, inputs, hidden = s.int(1, 5), s.int(1, 3), s.int(1, 4), s.int(1, 4)
    x = s.x(shape=[batch, steps, inputs] if first else [steps, batch, inputs])
    state = [s.x(shape=[layers * directions, batch, hidden]) for _ in range(2 if name == "lstm" else 1)]
    params = []
    for layer in range(layers):
        for _ in range(directions):
            width = inputs if layer == 0 else hidden * directions
            params += [s.fresh([gates * hidden, width]), s.fresh([gates * hidden, hidden])]
            params += [s.fresh([gates * hidden]), s.fresh([gates * hidden])] if biases else []
    extra = {"nonlinearity": s.pick("tanh", "relu")} if name == "rnn" else {}
    return s.op(name, x, *state, params, has_biases=biases, num_layers=layers, bidirectional=two, batch_first=first, **extra)

"""Evaluates the IR's text form with PyTorch, op by op as docs/ir.md says. Tests compare it with the captured module itself;
it shares no code with the lowering. Also checks each node against the op table in src/ir/ops.cpp."""

import json
import math
import os
import re

import torch
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool}


# The op table -------------------------------------------------------------------------------------------------------------
def op_table():
    """op -> [(parameter, kind code, required)], and op -> most results, read from src/ir/ops.cpp."""
    text = open(os.path.join(ROOT, "src", "ir", "ops.cpp"), encoding="utf-8").read()
    rows = text[text.index("kRows[]"):text.index("};", text.index("kRows[]"))]
    table, results = {}, {}
    for name, params, count in re.findall(r'\{\s*"(\w+)",\s*\w+,\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*(\d+))?\s*\}', rows):
        entries = []
        for spec in params.replace('\\"', '"').split():
            parameter, _, kind = spec.partition(":")
            kind, default, _ = kind.partition("=")
            entries.append((parameter, kind, not default and not kind.endswith("?")))
        table[name] = entries
        results[name] = int(count or 1)
    return table, results


TABLE, RESULTS = op_table()
POSITIONAL = {"T", "T?", "V", "V?", "T*"}


# Parsing -----------------------------------------------------------------------------------------------------------------------
class Ref:
    def __init__(self, text):
        node, _, output = text[1:].partition(".")
        self.node, self.output = int(node), int(output or 0)


_TOKEN = re.compile(r'\s*(%\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|-inf|-?\d[\w.+-]*|[\[\](),={}:])')


def tokens(text):
    at, out = 0, []
    while at < len(text):
        m = _TOKEN.match(text, at)
        if not m:
            raise AssertionError(f"cannot read {text[at:]!r}")
        out.append(m[1])
        at = m.end()
    return out


class Line:
    def __init__(self, text):
        self.tokens, self.at = tokens(text), 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected=None):
        token = self.peek()
        assert expected is None or token == expected, f"expected {expected}, got {token} in {self.tokens}"
        self.at += 1
        return token

    def value(self):
        t = self.take()
        if t == "[":
            items = []
            while self.peek() != "]":
                items.append(self.value())
                if self.peek() == ",":
                    self.take()
            self.take("]")
            return items
        if t.startswith("%"):
            return Ref(t)
        if t.startswith('"'):
            return json.loads(t)
        words = {"none": None, "true": True, "false": False, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}
        if t in words:
            return words[t]
        return float(t) if any(c in t for c in ".e") else int(t)

    def type(self):
        dtype = self.take()
        self.take("[")
        shape = []
        while self.peek() != "]":
            shape.append(int(self.take()))
            if self.peek() == ",":
                self.take()
        self.take("]")
        return dtype, tuple(shape)

    def types(self):
        if self.peek() != "(":
            return [self.type()]
        out = []
        while self.take() != ")":
            out.append(self.type())
        return out

    def attributes(self):
        found = {}
        if self.peek() == "{":
            while self.take() != "}":
                key = self.take()
                self.take("=")
                found[key] = self.value()
        return found


class Node:
    def __init__(self, text):
        line = Line(text)
        self.id = int(line.take()[1:])
        line.take(":")
        self.types = line.types()
        line.take("=")
        self.op = line.take()
        positional, named = [], {}
        line.take("(")
        while line.peek() != ")":
            if line.tokens[line.at + 1] == "=":
                key = line.take()
                line.take("=")
                named[key] = line.value()
            else:
                positional.append(line.value())
            if line.peek() == ",":
                line.take()
        line.take(")")
        self.attributes = line.attributes()
        self.args = self.bind(positional, named)

    def bind(self, positional, named):
        assert self.op in TABLE, f"{self.op} is not in the op table"
        params = TABLE[self.op]
        names = [p for p, kind, _ in params if kind in POSITIONAL]
        assert len(positional) <= len(names), f"{self.op} has too many operands"
        args = dict(zip(names, positional))
        for key, value in named.items():
            assert key in {p for p, _, _ in params}, f"{self.op} has no parameter {key}"
            assert key not in args, f"{self.op} gets {key} twice"
            args[key] = value
        for p, kind, required in params:
            assert not required or p in args, f"{self.op} lacks {p}"
            self.check_kind(p, kind, args.get(p))
        assert len(self.types) <= RESULTS[self.op]
        return args

    def check_kind(self, p, kind, value):
        where = f"{self.op}.{p} = {value!r}"
        if value is None:
            return
        base = kind.rstrip("?")
        if base == "T":
            assert isinstance(value, Ref), where
        elif base == "V":
            assert isinstance(value, (Ref, int, float)), where
        elif base == "T*":
            assert isinstance(value, list) and all(v is None or isinstance(v, Ref) for v in value), where
        elif base == "i":
            assert isinstance(value, int) and not isinstance(value, bool), where
        elif base == "f":
            assert isinstance(value, (int, float)) and not isinstance(value, bool), where
        elif base == "b":
            assert isinstance(value, bool), where
        elif base == "s":
            assert isinstance(value, str), where
        elif base == "i*":
            assert isinstance(value, list) and all(isinstance(v, int) for v in value), where


class Program:
    def __init__(self, lines):
        self.nodes = [Node(text) for text in lines[:-1]]
        assert [n.id for n in self.nodes] == list(range(len(self.nodes)))
        self.outputs = []
        line = Line(lines[-1])
        line.take("return")
        while line.peek():
            ref = line.value()
            self.outputs.append((ref, line.attributes()))
            if line.peek() == ",":
                line.take()

    def ops(self):
        return [n.op for n in self.nodes if n.op not in ("input", "weight")]

    def run(self, inputs, weights):
        """name -> tensor for inputs and weights; gives name -> tensor for the outputs. Checks every node's declared type."""
        values = []
        for n in self.nodes:
            if n.op in ("input", "weight"):
                out = (inputs if n.op == "input" else weights)[n.attributes["name"]]
            else:
                args = {k: resolve(v, values) for k, v in n.args.items()}
                out = EVAL[n.op](Args(n, args))
            out = out if isinstance(out, tuple) else (out,)
            for tensor, (dtype, shape) in zip(out, n.types):
                assert tensor.shape == shape, f"%{n.id} {n.op}: {tuple(tensor.shape)} instead of {shape}"
                assert tensor.dtype == DTYPES[dtype], f"%{n.id} {n.op}: {tensor.dtype} instead of {dtype}"
            assert len(out) >= len(n.types)
            values.append(out)
        return {a["name"]: values[r.node][r.output] for r, a in self.outputs}


def resolve(value, values):
    if isinstance(value, Ref):
        return values[value.node][value.output]
    if isinstance(value, list):
        return [resolve(v, values) for v in value]
    return value


# Evaluation ----------------------------------------------------------------------------------------------------------------------
class Args:
    def __init__(self, node, args):
        self.types = node.types
        self.dtype, self.shape = DTYPES[node.types[0][0]], node.types[0][1]
        self.args = args

    def __call__(self, name, default=None):
        value = self.args.get(name, default)
        return default if value is None else value

    def operand(self, name):
        """As a tensor of the result's dtype."""
        value = self(name)
        return value.to(self.dtype) if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=self.dtype)


EVAL = {}


def rule(*names):
    def register(function):
        for n in names:
            EVAL[n] = function
        return function
    return register


def unary(function, *names):
    for name in names:
        EVAL[name] = lambda a, f=function or getattr(torch, name): f(a.operand("x"))


for name in ("neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
             "asinh acosh atanh erf erfc sigmoid relu floor ceil trunc frac").split():
    unary(None, name)
unary(F.logsigmoid, "log_sigmoid")
unary(F.silu, "silu")
unary(F.mish, "mish")
unary(F.hardswish, "hardswish")
unary(F.hardsigmoid, "hardsigmoid")


def raw(a, name):
    value = a(name)
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


for name in ("logical_not", "isnan", "isinf"):
    EVAL[name] = lambda a, f=getattr(torch, name): f(raw(a, "x"))
EVAL["bitwise_not"] = lambda a: torch.bitwise_not(a.operand("x"))
EVAL["cast"] = lambda a: a("x").to(a.dtype)
EVAL["gelu"] = lambda a: F.gelu(a.operand("x"), approximate=a("approximate", "none"))


@rule("elu")
def elu(a):
    x = a.operand("x")
    alpha, scale, inner = a("alpha", 1.0), a("scale", 1.0), a("input_scale", 1.0)
    return torch.where(x > 0, scale * x, scale * alpha * torch.expm1(inner * x))


EVAL["leaky_relu"] = lambda a: F.leaky_relu(a.operand("x"), a("negative_slope", 0.01))
EVAL["softplus"] = lambda a: F.softplus(a.operand("x"), a("beta", 1.0), a("threshold", 20.0))
EVAL["hardshrink"] = lambda a: F.hardshrink(a.operand("x"), a("lambd", 0.5))
EVAL["softshrink"] = lambda a: F.softshrink(a.operand("x"), a("lambd", 0.5))
EVAL["threshold"] = lambda a: F.threshold(a.operand("x"), a("threshold"), a("value"))
EVAL["round"] = lambda a: torch.round(a.operand("x"), decimals=a("decimals", 0))
EVAL["nan_to_num"] = lambda a: torch.nan_to_num(a.operand("x"), a("nan"), a("posinf"), a("neginf"))
EVAL["add"] = lambda a: torch.add(a.operand("x"), a.operand("y"), alpha=scalar(a("alpha", 1.0), a.dtype))
EVAL["sub"] = lambda a: torch.sub(a.operand("x"), a.operand("y"), alpha=scalar(a("alpha", 1.0), a.dtype))


def scalar(value, dtype):
    return value if dtype.is_floating_point else int(value)


for name in "mul pow maximum minimum fmod remainder atan2 hypot logaddexp xlogy bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split():
    EVAL[name] = lambda a, f=getattr(torch, name): f(a.operand("x"), a.operand("y"))
EVAL["div"] = lambda a: torch.div(a.operand("x"), a.operand("y"), rounding_mode=a("rounding_mode"))
for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split():
    def compare(a, f=getattr(torch, name), logical=name.startswith("logical")):
        x, y = a("x"), a("y")
        both = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
        assert not both or logical or x.dtype == y.dtype, "a comparison's operands should have one dtype"
        if not isinstance(x, torch.Tensor):
            x = torch.tensor(x)
        if logical and not isinstance(y, torch.Tensor):
            y = torch.tensor(y)
        return f(x, y)
    EVAL[name] = compare
EVAL["where"] = lambda a: torch.where(raw(a, "condition").bool(), a.operand("x"), a.operand("y"))


@rule("clamp")
def clamp(a):
    x = a.operand("x")
    if a("min") is not None:
        x = torch.maximum(x, a.operand("min"))
    return torch.minimum(x, a.operand("max")) if a("max") is not None else x


@rule("lerp")
def lerp(a):
    x, end = a.operand("x"), a.operand("end")
    return x + a.operand("weight") * (end - x)


EVAL["addcmul"] = lambda a: a.operand("x") + a("value", 1.0) * a.operand("a") * a.operand("b")
EVAL["addcdiv"] = lambda a: a.operand("x") + a("value", 1.0) * a.operand("a") / a.operand("b")

# Sources and movement
EVAL["full"] = lambda a: torch.full(a("size"), a("value"), dtype=torch.float64).to(a.dtype)
EVAL["arange"] = lambda a: torch.arange(a("start"), a("end"), a("step", 1.0), dtype=torch.float64).to(a.dtype)
EVAL["eye"] = lambda a: torch.eye(a("rows"), a("cols"), dtype=a.dtype)
EVAL["view"] = lambda a: a("x").reshape(a("size"))
EVAL["permute"] = lambda a: a("x").permute(a("dims"))
EVAL["expand"] = lambda a: a("x").expand(a("size"))
EVAL["cat"] = lambda a: torch.cat(a("tensors"), a("dim", 0))
EVAL["flip"] = lambda a: a("x").flip(a("dims"))
EVAL["roll"] = lambda a: a("x").roll(a("shifts"), a("dims"))
EVAL["repeat"] = lambda a: a("x").repeat(a("repeats"))
EVAL["unfold"] = lambda a: a("x").unfold(a("dim"), a("size"), a("step"))
EVAL["tril"] = lambda a: a("x").tril(a("diagonal", 0))
EVAL["triu"] = lambda a: a("x").triu(a("diagonal", 0))
EVAL["diagonal"] = lambda a: a("x").diagonal(a("offset", 0), a("dim1", 0), a("dim2", 1))
EVAL["select"] = lambda a: a("x").select(a("dim"), a("index"))


def window(a):
    extent = a("x").shape[a("dim")]
    assert 0 <= a("start") <= a("end") <= extent
    return [slice(None)] * a("dim") + [slice(a("start"), a("end"), a("step", 1))]


EVAL["slice"] = lambda a: a("x")[tuple(window(a))]
EVAL["slice_scatter"] = lambda a: torch.slice_scatter(a("x"), a("src"), a("dim"), a("start"), a("end"), a("step", 1))
EVAL["select_scatter"] = lambda a: torch.select_scatter(a("x"), a("src"), a("dim"), a("index"))


@rule("pad")
def pad(a):
    x, mode = a("x"), a("mode", "constant")
    if mode == "constant":
        return F.pad(x, a("pad"), value=a("value", 0.0)) if x.dtype != torch.bool else F.pad(x.int(), a("pad"), value=a("value", 0.0)).bool()
    for i in range(len(a("pad")) // 2):
        dim, n = x.dim() - 1 - i, x.shape[x.dim() - 1 - i]
        at = torch.arange(-a("pad")[2 * i], n + a("pad")[2 * i + 1])
        if mode == "reflect":
            at = at.abs()
            at = torch.where(at >= n, 2 * (n - 1) - at, at)
        x = x.index_select(dim, at.clamp(0, n - 1) if mode != "circular" else at % n)
    return x


# Reductions, scans, rows
def over(a):
    return a("dims") or list(range(a("x").dim()))


@rule("sum", "mean", "amax", "amin", "logsumexp", "any", "all")
def reduce(a):
    raise AssertionError("bound below")


for name in ("sum", "mean", "amax", "amin", "logsumexp", "any", "all"):
    EVAL[name] = lambda a, f=getattr(torch, name): f(a("x"), dim=over(a), keepdim=a("keepdim", False)) if a("x").dim() else f(a("x").reshape(1), dim=[0]).reshape(())
EVAL["prod"] = lambda a: prod(a)


def prod(a):
    x = a("x")
    for d in sorted(over(a), reverse=True):
        x = x.prod(d, keepdim=a("keepdim", False))
    return x


EVAL["var"] = lambda a: torch.var(a("x"), dim=over(a), correction=a("correction", 1.0), keepdim=a("keepdim", False))
EVAL["std"] = lambda a: torch.std(a("x"), dim=over(a), correction=a("correction", 1.0), keepdim=a("keepdim", False))
EVAL["vector_norm"] = lambda a: torch.linalg.vector_norm(a("x"), a("ord", 2.0), dim=over(a), keepdim=a("keepdim", False))
EVAL["argmax"] = lambda a: torch.argmax(a("x"), a("dim"), keepdim=a("keepdim", False))
EVAL["argmin"] = lambda a: torch.argmin(a("x"), a("dim"), keepdim=a("keepdim", False))
EVAL["max_dim"] = lambda a: tuple(torch.max(a("x"), a("dim"), keepdim=a("keepdim", False)))
EVAL["min_dim"] = lambda a: tuple(torch.min(a("x"), a("dim"), keepdim=a("keepdim", False)))
for name in ("cumsum", "cumprod", "logcumsumexp", "softmax", "log_softmax"):
    EVAL[name] = lambda a, f=getattr(torch, name): f(a("x"), a("dim"))
for name in ("cummax", "cummin"):
    EVAL[name] = lambda a, f=getattr(torch, name): tuple(f(a("x"), a("dim")))

# Norms
EVAL["layer_norm"] = lambda a: F.layer_norm(a("x"), a("normalized_shape"), a("weight"), a("bias"), a("eps", 1e-5))


@rule("rms_norm")
def rms_norm(a):
    x = a("x")
    dims = list(range(x.dim() - len(a("normalized_shape")), x.dim()))
    y = x * torch.rsqrt(x.pow(2).mean(dims, keepdim=True) + a("eps"))
    return y if a("weight") is None else y * a("weight")


EVAL["group_norm"] = lambda a: F.group_norm(a("x"), a("num_groups"), a("weight"), a("bias"), a("eps", 1e-5))


@rule("batch_norm")
def batch_norm(a):
    x, mean, var = a("x"), a("running_mean"), a("running_var")
    shape = [1, x.shape[1]] + [1] * (x.dim() - 2)
    if not a("training"):
        return F.batch_norm(x, mean, var, a("weight"), a("bias"), False, 0.1, a("eps", 1e-5))
    dims = [0, *range(2, x.dim())]
    m, v, n = x.mean(dims), x.var(dims, correction=0), x.numel() // x.shape[1]
    y = (x - m.view(shape)) * torch.rsqrt(v.view(shape) + a("eps", 1e-5))
    y = y if a("weight") is None else y * a("weight").view(shape)
    y = y if a("bias") is None else y + a("bias").view(shape)
    if mean is None:
        return y
    k = a("momentum", 0.1)
    return y, mean * (1 - k) + k * m, var * (1 - k) + k * v * n / (n - 1)


# Contractions, convolutions, pooling
EVAL["matmul"] = lambda a: torch.matmul(a("a"), a("b"))
EVAL["linear"] = lambda a: F.linear(a("x"), a("weight"), a("bias"))
EVAL["addmm"] = lambda a: a("beta", 1.0) * a("c") + a("alpha", 1.0) * (a("a") @ a("b"))
EVAL["baddbmm"] = EVAL["addmm"]


@rule("einsum")
def einsum(a):
    left, arrow, right = a("equation").partition("->")
    assert arrow and "." not in left + right and " " not in left + right
    assert [len(t) for t in left.split(",")] == [t.dim() for t in a("tensors")]
    return torch.einsum(a("equation"), *a("tensors"))


@rule("convolution")
def convolution(a):
    n = a("x").dim() - 2
    assert all(len(a(p)) == n for p in ("stride", "padding", "dilation", "output_padding"))
    return torch.convolution(a("x"), a("weight"), a("bias"), a("stride"), a("padding"), a("dilation"), a("transposed", False), a("output_padding"), a("groups", 1))


@rule("max_pool")
def max_pool(a):
    n = a("x").dim() - 2
    f = [F.max_pool1d, F.max_pool2d, F.max_pool3d][n - 1]
    return tuple(f(a("x"), a("kernel"), a("stride"), a("padding"), a("dilation"), a("ceil_mode", False), return_indices=True))


@rule("avg_pool")
def avg_pool(a):
    n = a("x").dim() - 2
    f = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][n - 1]
    extra = {} if a("divisor_override") is None else {"divisor_override": a("divisor_override")}
    return f(a("x"), a("kernel"), a("stride"), a("padding"), a("ceil_mode", False), a("count_include_pad", True), **extra)


EVAL["adaptive_avg_pool"] = lambda a: [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][a("x").dim() - 3](a("x"), a("output_size"))
EVAL["adaptive_max_pool"] = lambda a: tuple([F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d][a("x").dim() - 3](a("x"), a("output_size"), return_indices=True))


def resample(a, mode, **more):
    scales = a("scales")
    if scales is None:
        return F.interpolate(a("x"), size=a("size"), mode=mode, **more)
    return F.interpolate(a("x"), scale_factor=[float(s) for s in scales.split(",")], mode=mode, recompute_scale_factor=False, **more)


EVAL["upsample_nearest"] = lambda a: resample(a, "nearest")
EVAL["upsample_linear"] = lambda a: resample(a, ["linear", "bilinear", "trilinear"][a("x").dim() - 3], align_corners=a("align_corners", False))
EVAL["upsample_bicubic"] = lambda a: resample(a, "bicubic", align_corners=a("align_corners", False))

# Indexing, sorting
EVAL["gather"] = lambda a: torch.gather(a("x"), a("dim"), a("index"))
EVAL["index_select"] = lambda a: torch.index_select(a("x"), a("dim"), a("index"))
EVAL["embedding"] = lambda a: a("weight")[a("indices")]


def index_of(a):
    return tuple(slice(None) if i is None else i for i in a("indices"))


EVAL["index"] = lambda a: a("x")[index_of(a)]


@rule("index_put")
def index_put(a):
    x, at = a("x").clone(), index_of(a)
    if not a("accumulate", False):
        x[at] = a("values")
        return x
    flat = torch.arange(x.numel()).reshape(x.shape)[at]
    return x.reshape(-1).index_add(0, flat.reshape(-1), a("values").expand(flat.shape).reshape(-1)).reshape(x.shape)


EVAL["scatter"] = lambda a: torch.scatter(a("x"), a("dim"), a("index"), a("src"))
EVAL["scatter_add"] = lambda a: torch.scatter_add(a("x"), a("dim"), a("index"), a("src"))
EVAL["topk"] = lambda a: tuple(torch.topk(a("x"), a("k"), a("dim", -1), a("largest", True), a("sorted", True)))
EVAL["sort"] = lambda a: tuple(torch.sort(a("x"), dim=a("dim", -1), descending=a("descending", False), stable=True))


# Attention, recurrent
@rule("scaled_dot_product_attention")
def attention(a):
    q, k, v, mask = a("q"), a("k"), a("v"), a("mask")
    if a("enable_gqa", False):
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * a("scale", 1 / math.sqrt(q.shape[-1]))
    if a("is_causal", False):
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ v


@rule("lstm", "gru", "rnn")
def recurrent(a):
    params, layers, two = a("params"), a("num_layers"), a("bidirectional", False)
    common = (params, a("has_biases"), layers, 0.0, False, two, a("batch_first", False))
    if a("c0") is not None:
        return tuple(torch._VF.lstm(a("x"), (a("h0"), a("c0")), *common))
    f = {"tanh": torch._VF.rnn_tanh, "relu": torch._VF.rnn_relu, None: torch._VF.gru}[a("nonlinearity")]
    return tuple(f(a("x"), a("h0"), *common))


def evaluate_bundle(folder):
    """[(output name, computed, expected)] of every case of a bundle."""
    from safetensors.torch import load_file
    with open(os.path.join(folder, "program.json"), encoding="utf-8") as f:
        program = json.load(f)
    graph = Program(program["graph"])
    weights = load_file(os.path.join(folder, "weights.safetensors")) if program["weights"] else {}
    out = []
    for case in program["cases"]:
        tensors = load_file(os.path.join(folder, "cases", case + ".safetensors"))
        inputs = {n[6:]: t for n, t in tensors.items() if n.startswith("input.")}
        for name, value in graph.run(inputs, weights).items():
            out.append((name, value, tensors["expected." + name]))
    return out

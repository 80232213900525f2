"""Corner cases with their exact results, errors, rounding, and the command line of stitch_interpret."""

import math
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from interp_programs import Program, ROOT, interpreter, mismatch, run
from test_interp_ops import float64_default  # noqa: F401  (fixture)

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")
NAN, INF = math.nan, math.inf
I64, I32, I16, I8, U8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8


def f(*values):
    return torch.tensor(values, dtype=torch.float64)


def i(*values, dtype=I64):
    return torch.tensor(values, dtype=dtype)


def ones(*shape):
    return torch.ones(shape, dtype=torch.float64)


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.float64)


ODD = f(NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5)

# op, operands, parameters; what PyTorch gives must come out, to the last bit but for libm's own.
CASES = [
    ("sign", [ODD], {}), ("relu", [ODD], {}), ("silu", [ODD], {}), ("mish", [ODD], {}), ("hardswish", [ODD], {}), ("hardsigmoid", [ODD], {}),
    ("softplus", [ODD], {}), ("log_sigmoid", [ODD], {}), ("elu", [ODD], {}), ("leaky_relu", [ODD], {}), ("hardshrink", [ODD], {}),
    ("softshrink", [ODD], {}), ("threshold", [ODD], {"threshold": 0.1, "value": 20.0}), ("sigmoid", [ODD], {}), ("gelu", [ODD], {}),
    ("frac", [ODD], {}), ("isnan", [ODD], {}), ("isinf", [ODD], {}), ("logical_not", [ODD], {}), ("nan_to_num", [ODD], {}),
    ("round", [f(0.5, 1.5, 2.5, -0.5, -1.5, 2.675)], {}), ("round", [f(2.675, -1.25, 1234.5)], {"decimals": 2}),
    ("round", [f(1250.0, 1350.0, -50.0)], {"decimals": -2}),
    ("pow", [ODD, 0.5], {}), ("pow", [ODD, -0.5], {}), ("pow", [ODD, 0.0], {}), ("pow", [ODD, 2], {}), ("pow", [f(-8.0, 0.0, INF), f(1 / 3, -1.0, 0.0)], {}),
    ("pow", [i(2, -1, 1, 0, -1), i(-1, -3, -2, 0, -4)], {}), ("pow", [i(3, -3, dtype=I8), 7], {}), ("pow", [2, i(0, 3, 62)], {}),
    ("maximum", [f(NAN, 1.0, -0.0), f(1.0, NAN, 0.0)], {}), ("minimum", [f(NAN, 1.0), f(1.0, NAN)], {}),
    ("clamp", [f(1.0, NAN, 3.0), f(NAN, 0.0, 5.0), f(2.0, 2.0, 4.0)], {}), ("clamp", [i(-100, 100, dtype=I8), None, 5], {}),
    ("clamp", [i(-100, 100), -7, None], {}), ("fmod", [f(5, -5, 1, INF, 2), f(-3, 3, 0, 2, INF)], {}),
    ("remainder", [f(5, -5, 5, -5, INF, 1, 1), f(3, 3, -3, -3, 2, INF, -INF)], {}), ("remainder", [i(5, -5, 5, -5), i(3, 3, -3, -3)], {}),
    ("fmod", [i(5, -5, 5, -5), i(3, 3, -3, -3)], {}), ("div", [i(5, -5, 5, -5), i(3, 3, -3, -3)], {"rounding_mode": "floor"}),
    ("div", [i(5, -5, 5, -5), i(3, 3, -3, -3)], {"rounding_mode": "trunc"}), ("div", [i(-128, 127, dtype=I8), -1], {"rounding_mode": "trunc"}),
    ("div", [f(1, -1, 0, NAN, INF, 5.3, 0.3), f(0, 0, 0, 1, 2, -0.1, 0.1)], {"rounding_mode": "floor"}), ("div", [i(1, 0, -3), i(0, 0, 2)], {}),
    ("atan2", [f(0.0, -0.0, 0.0, 1.0), f(-1.0, -1.0, 1.0, 0.0)], {}), ("hypot", [f(INF, 1e300), f(NAN, 1e300)], {}),
    ("logaddexp", [f(INF, -INF, NAN, INF, -INF, 800), f(INF, -INF, 1, -INF, 1, 800)], {}), ("xlogy", [f(0, 0, 0, 1), f(0, NAN, -1, 0)], {}),
    ("lerp", [f(1.0, INF, 1.0), f(2.0, 1.0, INF), 0.7], {}), ("lerp", [f(0.1, 0.3), f(0.7, 0.9), 1.0], {}),
    ("eq", [i(255, 1, 0, dtype=U8), -1], {}), ("lt", [i(255, 1, 44, dtype=U8), 300], {}), ("ge", [i(1, 2, 3), 2.5], {}), ("ne", [ODD, ODD], {}),
    ("add", [i(2 ** 63 - 1, -5), i(1, 2)], {}), ("mul", [i(2 ** 62, 3), 4], {}), ("add", [i(100, -100, dtype=I8), i(100, -100, dtype=I8)], {}),
    ("sub", [i(0, 255, dtype=U8), 1], {}), ("mul", [i(40000, -2, dtype=I32), i(60000, 2 ** 31 - 1, dtype=I32)], {}), ("neg", [i(-128, 5, dtype=I8)], {}),
    ("abs", [i(-2 ** 63, -3)], {}), ("add", [i(250, 3, dtype=U8), 10], {"alpha": 2.0}),
    ("bitwise_not", [torch.tensor([True, False])], {}), ("bitwise_not", [i(0, 255, dtype=U8)], {}), ("add", [torch.tensor([True, True]), torch.tensor([True, False])], {}),
    ("bitwise_left_shift", [i(1, 1, 1, -1), i(63, 64, -1, 1)], {}), ("bitwise_right_shift", [i(-5, -5, 5), i(64, -1, 70)], {}),
    ("bitwise_left_shift", [i(1, 100, dtype=I8), i(7, 3, dtype=I8)], {}), ("bitwise_right_shift", [i(200, 200, dtype=U8), i(3, 9, dtype=U8)], {}),
    ("cast", [f(300.7, -1.5, 2.0 ** 40)], {"dtype": I64}), ("cast", [f(300.0, -1.5, 255.9)], {"dtype": U8}), ("cast", [f(NAN, 0.0, -0.0, 1e-300)], {"dtype": torch.bool}),
    ("cast", [i(300, -1, 2 ** 40 + 7)], {"dtype": I8}), ("cast", [i(2 ** 53 + 1)], {"dtype": torch.float64}),
    ("sum", [i(2 ** 31 - 1, 1, dtype=I32)], {"dims": []}), ("prod", [f(0, INF)], {"dims": []}), ("mean", [f()], {"dims": []}), ("sum", [f()], {"dims": []}),
    ("prod", [f()], {"dims": [0]}), ("any", [f(NAN, 0)], {"dims": []}), ("all", [f(NAN, 0)], {"dims": []}), ("all", [f()], {"dims": []}),
    ("amax", [f(1, NAN, 3)], {"dims": []}), ("amin", [f(-INF, INF)], {"dims": []}), ("var", [f(1)], {"dims": []}), ("var", [f(1, 2)], {"dims": [], "correction": 3.0}),
    ("std", [f()], {"dims": []}), ("logsumexp", [f()], {"dims": [0]}), ("logsumexp", [f(-INF, -INF)], {"dims": [0]}), ("logsumexp", [f(INF, 1)], {"dims": [0]}),
    ("logsumexp", [f(1000, 1000)], {"dims": [0]}), ("vector_norm", [f(NAN, 0, 1)], {"ord": 0.0, "dims": []}), ("vector_norm", [f(NAN, 0, 1)], {"ord": INF, "dims": []}),
    ("vector_norm", [f(0, 1)], {"ord": -1.0, "dims": []}), ("vector_norm", [f(0, -1)], {"ord": -INF, "dims": []}), ("vector_norm", [f()], {"dims": []}),
    ("argmax", [f(1, NAN, 3, NAN)], {}), ("argmin", [f(2, 1, 1, NAN)], {}), ("argmax", [i(3, 3, 1)], {}), ("max_dim", [f(1, 3, 3)], {"dim": 0}), ("min_dim", [f(1, NAN, 1)], {"dim": 0}),
    ("argmax", [ones() * 5.0], {}), ("cummax", [f(1, NAN, 3, NAN, 1)], {"dim": 0}), ("cummin", [f(1, 1, 0, 0)], {"dim": 0}), ("cummax", [ones() * 2.0], {"dim": 0}),
    ("cumsum", [torch.tensor([True, True, False])], {"dim": 0}), ("logcumsumexp", [f(-INF, -INF, 1, INF, 2)], {"dim": 0}), ("logcumsumexp", [f(1, NAN, 1)], {"dim": 0}),
    ("softmax", [f(-INF, -INF)], {"dim": 0}), ("softmax", [f(INF, 1)], {"dim": 0}), ("softmax", [f(1000, 999)], {"dim": 0}), ("log_softmax", [f(-INF, 0)], {"dim": 0}),
    ("softmax", [ones() * 3.0], {"dim": 0}), ("softmax", [zeros(0, 3)], {"dim": 0}), ("sort", [f(1, NAN, -INF, INF, NAN, 1)], {"dim": 0}),
    ("sort", [f(1, NAN, -INF, INF, NAN, 1)], {"dim": 0, "descending": True}), ("topk", [f(1, NAN, -INF, INF)], {"k": 3, "dim": 0}),
    ("topk", [f(1, NAN, -INF, INF)], {"k": 3, "dim": 0, "largest": False}), ("sort", [ones() * 1.0], {"dim": 0}),
    ("max_pool", [f(1, NAN, 3, NAN, 2).view(1, 1, 5)], {"kernel": [3], "stride": [1], "padding": [1], "dilation": [1], "results": 2}),
    ("max_pool", [f(-INF, -INF, 2, 2).view(1, 1, 4)], {"kernel": [2], "stride": [2], "padding": [0], "dilation": [1], "results": 2}),
    ("max_pool", [f(1, 2).view(1, 1, 2)], {"kernel": [2], "stride": [1], "padding": [1], "dilation": [2], "results": 1}),
    ("avg_pool", [f(1, 2, 3, 4).view(1, 1, 4)], {"kernel": [3], "stride": [2], "padding": [1], "ceil_mode": True}),
    ("avg_pool", [f(1, 2, 3, 4).view(1, 1, 4)], {"kernel": [3], "stride": [2], "padding": [1], "ceil_mode": True, "count_include_pad": False}),
    ("adaptive_max_pool", [f(1, NAN, 1).view(1, 1, 3)], {"output_size": [2]}), ("eye", [], {"rows": 0, "cols": 3, "dtype": torch.float64}),
    ("scatter", [f(0, 0, 0), i(1, 1), f(5, 6)], {"dim": 0}), ("scatter_add", [f(0, 0, 0), i(1, 1), f(5, 6)], {"dim": 0}),
    ("index_put", [i(1, 2, 3), [i(0, 0, -1)], i(10, 20, 30)], {"accumulate": True}), ("index", [f(1, 2, 3), [i(-1, -3)]], {}),
    ("addmm", [f(NAN, 1), ones(1, 2), ones(2, 2)], {"beta": 0.0}), ("addmm", [f(NAN, 1), ones(1, 2), ones(2, 2)], {"beta": 1.0}),
    ("matmul", [f(0, 1), f(INF, 1)], {}), ("matmul", [zeros(2, 0), zeros(0, 3)], {}), ("einsum", [[zeros(2, 0), zeros(0, 3)]], {"equation": "ij,jk->ik"}),
    ("tril", [ones(3, 3) * NAN], {}), ("pad", [f(1, 2, 3)], {"pad": [-1, 2], "value": INF}), ("roll", [zeros(0)], {"shifts": [1], "dims": [0]}),
    ("flip", [zeros(0, 2)], {"dims": [0]}), ("cat", [[f(1), zeros(0)]], {"dim": 0}), ("repeat", [f(1, 2)], {"repeats": [0, 2]}),
    ("upsample_nearest", [f(1, 2, 3).view(1, 1, 3)], {"size": [7]}), ("upsample_linear", [f(1, 2, 3).view(1, 1, 3)], {"size": [1], "align_corners": True}),
    ("upsample_bicubic", [f(0, 1, 2, 3, 4, 5).view(1, 1, 2, 3)], {"size": [1, 1], "align_corners": True}),
]


def test_edge_cases():
    programs = []
    for op, operands, params in CASES:
        p = Program()

        def leaf(v):
            return [leaf(w) for w in v] if isinstance(v, list) else p.leaf(v) if isinstance(v, torch.Tensor) else v
        out = p.op(op, *[leaf(v) for v in operands], **params)
        for h in out if isinstance(out, tuple) else (out,):
            p.output(h)
        programs.append(p)
    for p, got, case in zip(programs, run(programs), CASES):
        assert not isinstance(got, str), f"{case}: {got}"
        for value, want in zip(got, p.outputs()):
            wrong = mismatch(value, want, 4e-16 * torch.nan_to_num(want.double().abs(), posinf=0.0))
            assert wrong is None, f"{case}: {wrong}"


def single(op, *operands, **params):
    p = Program()
    p.output(p.op(op, *[p.leaf(v) if isinstance(v, torch.Tensor) else v for v in operands], **params))
    return p


def test_ties_in_topk_take_the_first():
    p = Program()
    values, indices = p.op("topk", p.leaf(f(1, 2, 2, 2, 0)), k=2, dim=0)
    p.output(values), p.output(indices)
    assert [v.tolist() for v in run([p])[0]] == [[2, 2], [1, 2]]


def text_program(line, leaves):
    """A program whose single op PyTorch refuses: written as text."""
    class Text:
        graph = type("Graph", (), {"outputs": []})

        def __init__(self):
            names = [f'%{k}: {t} = input() {{name="t{k}"}}' for k, (t, _) in enumerate(leaves)]
            self.lines = names + [f"%{len(leaves)}: {line}", f'return %{len(leaves)} {{name="y0"}}']
            self.leaves = {f"t{k}": (type("Node", (), {"types": [(t.split("[")[0],)]}), v) for k, (t, v) in enumerate(leaves)}

        def text(self):
            return "\n".join(self.lines) + "\n"
    return Text()


ERRORS = [
    ("f64[1] = gather(%0, %1, dim=0)", [("f64[2]", f(1, 2)), ("i64[1]", i(2))], "index 2 is out of range for extent 2"),
    ("f64[1] = gather(%0, %1, dim=0)", [("f64[2]", f(1, 2)), ("i64[1]", i(-1))], "index -1 is out of range"),
    ("f64[1] = index_select(%0, %1, dim=0)", [("f64[2]", f(1, 2)), ("i64[1]", i(5))], "index 5"),
    ("f64[1,1] = embedding(%0, %1)", [("f64[2,1]", f(1, 2).view(2, 1)), ("i64[1]", i(-1))], "%2 embedding: index -1"),
    ("f64[1] = index(%0, [%1])", [("f64[2]", f(1, 2)), ("i64[1]", i(-3))], "index -3"),
    ("f64[2] = scatter(%0, %1, 1.0, dim=0)", [("f64[2]", f(1, 2)), ("i64[1]", i(7))], "index 7"),
    ("f64[2] = scatter_add(%0, %1, %2, dim=0)", [("f64[2]", f(1, 2)), ("i64[1]", i(7)), ("f64[1]", f(1))], "index 7"),
    ("f64[2] = index_put(%0, [%1], %2)", [("f64[2]", f(1, 2)), ("i64[1]", i(2)), ("f64[1]", f(1))], "index 2"),
    ("i64[2] = div(%0, 0, rounding_mode=\"floor\")", [("i64[2]", i(1, 2))], "divided by zero"),
    ("i64[2] = fmod(%0, %1)", [("i64[2]", i(1, 2)), ("i64[2]", i(1, 0))], "divided by zero"),
    ("f64[] = vector_norm(%0, ord=inf, dims=[])", [("f64[0]", f())], "of no elements"),
]


def test_errors_of_the_data():
    programs = [text_program(line, leaves) for line, leaves, _ in ERRORS]
    for (line, _, message), got in zip(ERRORS, run(programs)):
        assert isinstance(got, str) and message in got, f"{line}: {got}"


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_rounding_is_that_of_the_dtype(name):
    """With --round a program of exactly rounded ops gives PyTorch's own bits."""
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]
    g = torch.Generator().manual_seed(3)
    x, y = (torch.randn(500, generator=g, dtype=torch.float64).to(dtype) for _ in range(2))
    # Far ends of the range: subnormals, overflow to infinity.
    x[:100] *= torch.finfo(dtype).tiny
    x[100:150] *= torch.finfo(dtype).max / 4
    whole = torch.randint(-300, 300, (500,), generator=g)
    p = Program(name)
    hx, hy, hw = p.leaf(x.double()), p.leaf(y.double()), p.leaf(whole)
    wants = [(p.op("add", hx, hy), x + y), (p.op("sub", hx, hy), x - y), (p.op("mul", hx, hy), x * y), (p.op("div", hx, hy), x / y),
             (p.op("add", hw, hy), whole + y),
             (p.op("mul", hx, 0.1), x * 0.1), (p.op("maximum", hx, hy), torch.maximum(x, y)), (p.op("reciprocal", hy), y.reciprocal())]
    for h, _ in wants:
        p.output(h)
    for got, (_, want) in zip(run([p], "--round")[0], wants):
        assert torch.equal(got, want.double())
    # Without it nothing is rounded.
    assert torch.equal(run([p])[0][0], x.double() + y.double())


BUNDLES = sorted(n for n in os.listdir(os.path.join(ROOT, "examples")) if n.endswith(".stitch"))


@pytest.mark.parametrize("bundle", BUNDLES)
def test_example_bundles(bundle, tmp_path):
    """What eager PyTorch computed in f32 at capture is near the fp64 result."""
    folder, out = os.path.join(ROOT, "examples", bundle), str(tmp_path / "out.safetensors")
    done = subprocess.run([interpreter(), "bundle", folder, "--case", "000", "-o", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    got, case = load_file(out), load_file(os.path.join(folder, "cases", "000.safetensors"))
    expected = {n: t for n, t in case.items() if n.startswith("expected.")}
    assert set(got) == set(expected)
    for name, want in expected.items():
        torch.testing.assert_close(got[name].to(want.dtype), want, rtol=1e-5, atol=1e-5)


def test_a_missing_bundle_is_one_sentence(tmp_path):
    done = subprocess.run([interpreter(), "bundle", str(tmp_path / "none.stitch"), "-o", str(tmp_path / "o")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "none.stitch" in done.stderr and len(done.stderr.strip().splitlines()) == 1

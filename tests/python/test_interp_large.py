"""Shapes that cross every block size of the interpreter (register tiles, cache blocks, threads), which small programs do not."""

import pytest
import torch

from interp_programs import Program, mismatch, run, tolerance
from test_interp_ops import float64_default  # noqa: F401  (fixture)


def r(*shape):
    return lambda g: torch.randn(shape, generator=g, dtype=torch.float64)


def whole(high, *shape, dtype=torch.int64):
    return lambda g: torch.randint(0, high, shape, generator=g).to(dtype)


def coin(*shape):
    return lambda g: torch.rand(shape, generator=g) < 0.7


def conv(n, transposed=False, **params):
    return {"stride": [1] * n, "padding": [1] * n, "dilation": [1] * n, "output_padding": [0] * n, "transposed": transposed, **params}


CASES = [
    ("matmul", [r(130, 520), r(520, 300)], {}), ("matmul", [r(65, 257), r(257, 9)], {}), ("matmul", [r(3, 1, 70, 33), r(5, 33, 258)], {}),
    ("matmul", [r(600), r(600, 700)], {}), ("matmul", [r(700, 600), r(600)], {}), ("matmul", [r(1000), r(1000)], {}),
    ("matmul", [whole(50, 70, 80), whole(50, 80, 90)], {}), ("linear", [r(3, 50, 300), r(270, 300), r(270)], {}), ("linear", [r(1, 40), r(3000, 40), None], {}),
    ("addmm", [r(300), r(70, 90), r(90, 300)], {"beta": 0.5, "alpha": -2.0}), ("baddbmm", [r(7, 1, 66), r(7, 65, 300), r(7, 300, 66)], {}),
    ("einsum", [[r(2, 5, 70, 40), r(2, 5, 66, 40)]], {"equation": "bhid,bhjd->bhij"}), ("einsum", [[r(90, 40), r(40, 300), r(300, 80)]], {"equation": "ab,bc,cd->da"}),
    ("convolution", [r(2, 40, 37, 41), r(70, 40, 3, 3), r(70)], conv(2)), ("convolution", [r(2, 12, 64, 33), r(24, 4, 5, 2), None], conv(2, groups=3, stride=[2, 1])),
    ("convolution", [r(3, 300, 700), r(5, 300, 7), None], conv(1, dilation=[3])), ("convolution", [r(1, 8, 13, 14, 15), r(16, 8, 3, 3, 3), r(16)], conv(3)),
    ("convolution", [r(2, 64, 50, 31), r(64, 1, 3, 3), None], conv(2, groups=64)), ("convolution", [r(2, 70, 20, 21), r(70, 30, 4, 4), r(30)], conv(2, True, stride=[2, 2], output_padding=[1, 0])),
    ("convolution", [r(2, 10, 400), r(10, 9, 5), None], conv(1, True, groups=2, stride=[3])),
    ("scaled_dot_product_attention", [r(2, 3, 150, 40), r(2, 3, 300, 40), r(2, 3, 300, 70), coin(1, 3, 150, 300)], {}),
    ("scaled_dot_product_attention", [r(2, 6, 130, 16), r(2, 2, 130, 16), r(2, 2, 130, 16), None], {"is_causal": True, "enable_gqa": True}),
    ("lstm", [r(40, 5, 30), r(2, 5, 70), r(2, 5, 70), [r(280, 30), r(280, 70), r(280), r(280), r(280, 70), r(280, 70), r(280), r(280)]],
     {"has_biases": True, "num_layers": 2}),
    ("gru", [r(70, 9, 20), r(2, 70, 33), [r(99, 20), r(99, 33), r(99, 20), r(99, 33)]], {"has_biases": False, "num_layers": 1, "bidirectional": True, "batch_first": True}),
    ("add", [r(70, 1, 300), r(90, 1)], {}), ("mul", [r(5, 7, 3001), r(3001)], {}), ("sub", [1.5, r(100000)], {}), ("where", [coin(300, 1), r(300, 400), r(400)], {}),
    ("clamp", [r(200000), -0.5, None], {}), ("lt", [whole(9, 300, 300), whole(9, 300)], {}), ("cast", [r(70000)], {"dtype": torch.int64}),
    ("permute", [r(40, 50, 60)], {"dims": [2, 0, 1]}), ("expand", [r(1, 300, 1)], {"size": [70, 300, 20]}), ("pad", [r(3, 4, 200, 100)], {"pad": [3, 4, 5, 6], "mode": "reflect"}),
    ("roll", [r(300, 400)], {"shifts": [123, -77], "dims": [0, 1]}), ("flip", [r(300, 400)], {"dims": [0, 1]}), ("cat", [[r(200, 300), r(200, 7), r(200, 90)]], {"dim": 1}),
    ("unfold", [r(20, 3000)], {"dim": 1, "size": 64, "step": 16}), ("tril", [r(3, 300, 200)], {"diagonal": 5}), ("upsample_nearest", [r(3, 5, 60, 70)], {"size": [100, 131]}),
    ("sum", [r(200, 300, 20)], {"dims": [0]}), ("sum", [r(200, 300, 20)], {"dims": [0, 2]}), ("mean", [r(700, 900)], {"dims": []}), ("sum", [r(13, 70000)], {"dims": [0], "keepdim": True}),
    ("var", [r(90, 50, 70)], {"dims": [1]}), ("logsumexp", [r(3000, 130)], {"dims": [1]}), ("amax", [r(130, 3000)], {"dims": [0]}), ("argmax", [r(90, 77, 60)], {"dim": 1}),
    ("max_dim", [r(300, 500)], {"dim": 0}), ("any", [coin(300, 400)], {"dims": [1]}), ("vector_norm", [r(300, 400)], {"ord": 3.0, "dims": [0]}),
    ("cumsum", [r(400, 300)], {"dim": 0}), ("cummax", [r(50, 3000)], {"dim": 1}), ("softmax", [r(900, 400)], {"dim": 1}), ("log_softmax", [r(40, 300, 50)], {"dim": 1}),
    ("layer_norm", [r(600, 300), r(300), r(300)], {"normalized_shape": [300]}), ("rms_norm", [r(40, 70, 130), r(130)], {"normalized_shape": [130], "eps": 1e-6}),
    ("group_norm", [r(5, 48, 30, 31), r(48), r(48)], {"num_groups": 6}), ("batch_norm", [r(9, 40, 30, 30), r(40), r(40), r(40), lambda g: torch.rand(40, generator=g, dtype=torch.float64)], {"training": True}),
    ("max_pool", [r(5, 20, 61, 53)], {"kernel": [3, 3], "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "results": 2}),
    ("avg_pool", [r(5, 20, 61, 53)], {"kernel": [3, 2], "stride": [2, 1], "padding": [1, 1], "ceil_mode": True}), ("adaptive_avg_pool", [r(5, 20, 61, 53)], {"output_size": [7, 9]}),
    ("upsample_linear", [r(5, 7, 40, 50)], {"size": [93, 71]}), ("upsample_bicubic", [r(5, 7, 40, 50)], {"size": [93, 71]}),
    ("gather", [r(300, 400), whole(300, 500, 400)], {"dim": 0}), ("index_select", [r(70, 900, 40), whole(900, 2000)], {"dim": 1}), ("embedding", [r(5000, 64), whole(5000, 20, 100)], {}),
    ("index", [r(60, 70, 80), [None, whole(70, 50, 1), whole(80, 90)]], {}), ("index_put", [r(60, 70), [whole(60, 3000), whole(70, 3000)], r(3000)], {"accumulate": True}),
    ("scatter_add", [r(50, 3000), whole(50, 700, 3000), r(700, 3000)], {"dim": 0}), ("sort", [r(60, 3000)], {"dim": 1}), ("sort", [whole(9, 3000, 20)], {"dim": 0, "descending": True}),
    ("topk", [r(100, 2000)], {"k": 50, "dim": 1}),
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda k: f"{k}-{CASES[k][0]}")
def test_large(case):
    op, operands, params = CASES[case]
    g, p = torch.Generator().manual_seed(case), Program()

    def leaf(v):
        return [leaf(w) for w in v] if isinstance(v, list) else p.leaf(v(g)) if callable(v) else v
    out = p.op(op, *[leaf(v) for v in operands], **params)
    for h in out if isinstance(out, tuple) else (out,):
        p.output(h)
    (got,) = run([p])
    assert not isinstance(got, str), got
    wants = p.outputs()
    for value, want, allowed in zip(got, wants, tolerance(p, wants, 1e-13, g)):
        assert mismatch(value, want, allowed) is None
        assert not allowed.isinf().any()

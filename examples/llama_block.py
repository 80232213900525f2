"""A Llama decoder block: RMSNorm, grouped-query attention with rotary positions and a causal mask, and a SwiGLU MLP."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "full": {"batch": 2, "tokens": 512, "width": 1024, "heads": 16, "kv_heads": 4, "hidden": 2816},
    "small": {"batch": 2, "tokens": 48, "width": 128, "heads": 4, "kv_heads": 2, "hidden": 352},
}
SIZE = SIZES["full"]


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        # In float32 whatever the type of x, as Llama does.
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class RotaryEmbedding(nn.Module):
    """Turns pairs (i, i + d/2) of every head's channels by an angle that grows with the token's position."""

    def __init__(self, head_dim: int, max_tokens: int, theta: float = 10000.0):
        super().__init__()
        frequency = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        angle = torch.outer(torch.arange(max_tokens).float(), frequency)
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        tokens = x.shape[-2]
        return x * self.cos[:tokens] + rotate_half(x) * self.sin[:tokens]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, max_tokens: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self.head_dim, width, bias=False)
        self.rotary = RotaryEmbedding(self.head_dim, max_tokens)

    def repeat_kv(self, x):
        """(b, kv_heads, t, d) -> (b, heads, t, d): every key/value head serves heads / kv_heads query heads."""
        b, h, t, d = x.shape
        groups = self.heads // self.kv_heads
        return x[:, :, None].expand(b, h, groups, t, d).reshape(b, h * groups, t, d)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(q, self.repeat_kv(k), self.repeat_kv(v), is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, self.heads * self.head_dim))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Model(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int, max_tokens: int):
        super().__init__()
        self.input_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, max_tokens)
        self.mlp_norm = RMSNorm(width)
        self.mlp = SwiGLU(width, hidden)

    def forward(self, x):
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["tokens"], SIZE["width"])]


def get_init_inputs():
    return [SIZE["width"], SIZE["heads"], SIZE["kv_heads"], SIZE["hidden"], SIZE["tokens"]]

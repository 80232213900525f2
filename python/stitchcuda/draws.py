"""Fresh inputs on the device, by the same models and properties as src/verify/inputs.h (other numbers: another generator)."""

import torch


def draw(model, info, dtype, device, generator, prop):
    """One input. `model`: {kind, a, b, values, non_negative, structure}; `prop`: name of a property, "random" for none."""
    shape = info["shape"]
    kind = model["kind"]
    plain = kind in ("normal", "uniform") and dtype.is_floating_point
    t = torch.empty(shape, dtype=dtype if dtype.is_floating_point else torch.float32, device=device)
    if kind == "integers":
        low, high = int(model["a"]), max(int(model["a"]) + 1, int(model["b"]))
        t = torch.empty(shape, dtype=dtype if dtype != torch.bool else torch.uint8, device=device).random_(low, high, generator=generator)
    elif kind == "choice":
        values = torch.tensor(model["values"], dtype=torch.float64, device=device).to(dtype)
        t = values[torch.empty(shape, dtype=torch.int64, device=device).random_(0, len(values), generator=generator)]
    elif kind == "boolean":
        t = torch.rand(shape, device=device, generator=generator) < model["a"]
    elif kind == "row_distribution":
        t = t.normal_(generator=generator).exp_()
        t = t / t.sum(-1, keepdim=True)
    elif plain and prop == "constant_rows" and t.dim() > 0:
        rows = _plain(model, torch.empty([*shape[:-1], 1], dtype=dtype, device=device), generator)
        t = rows.expand(shape).contiguous()
    else:
        t = _plain(model, t, generator)
    if plain:
        t = with_property(t, model, prop, generator)
        if model["non_negative"]:
            t.abs_()
    structure = model["structure"]
    if structure == "lower":
        t = torch.tril(t)
    elif structure == "upper":
        t = torch.triu(t)
    elif structure == "symmetric":
        t = torch.triu(t) + torch.triu(t, 1).mT
    return t.to(dtype)


def _plain(model, t, generator):
    return t.normal_(model["a"], model["b"], generator=generator) if model["kind"] == "normal" else t.uniform_(model["a"], model["b"], generator=generator)


def with_property(t, model, prop, generator):
    half = t.dtype == torch.float16
    big = 16.0 if half else 1000.0
    spread = model["b"] if model["kind"] == "normal" else model["b"] - model["a"]
    n = t.numel()
    if n == 0:
        return t
    flat = t.view(-1)
    if prop == "outliers":
        tail = flat[n - max(1, n // 100):]
        chosen = torch.rand(tail.shape, device=t.device, generator=generator) < 0.05
        chosen[-1] = True
        tail.copy_(torch.where(chosen, tail * big + spread * big, tail))
    elif prop == "zeros":
        t.zero_()
    elif prop == "denormals":
        tiny = 1e-7 if half else 1e-40
        for part in flat.split(1 << 28):
            chosen = torch.rand(part.shape, device=t.device, generator=generator)
            sign = torch.ones((), device=t.device) if model["non_negative"] else torch.where(chosen < 0.05, -1.0, 1.0)
            part.copy_(torch.where(chosen < 0.1, (sign * tiny).to(t.dtype), part))
    elif prop == "large":
        t.mul_(big)
    elif prop == "small":
        t.mul_(1 / 16 if half else 1e-3)
    elif prop == "shifted":
        t.add_(3 * spread)
    return t

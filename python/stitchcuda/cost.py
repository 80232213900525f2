"""A rough estimate of a program's work, to decide whether running the reference on the CPU is cheap."""

from .ir import SIZES


def _size(shape):
    n = 1
    for e in shape:
        n *= e
    return n


def bytes_of(types):
    return sum(SIZES[d] * _size(s) for d, s in types)


def flops_of(node):
    out = _size(node.types[0][1])
    operands = [o for o in node.operands if not isinstance(o, list)]
    if node.op in ("matmul", "linear"):
        return 2 * out * operands[0].shape[-1]
    if node.op in ("addmm", "baddbmm"):
        return 2 * out * operands[1].shape[-1]
    if node.op == "einsum":
        extents = {}
        terms = node.params["equation"].partition("->")[0].split(",")
        for term, value in zip(terms, node.operands[0]):
            extents.update(zip(term, value.shape))
        return 2 * _size(extents.values())
    if node.op == "convolution":
        weight = operands[1].shape
        return 2 * (_size(operands[0].shape) if node.params["transposed"] else out) * _size(weight[1:])
    if node.op == "scaled_dot_product_attention":
        query, key = operands[0].shape, operands[1].shape
        return 4 * _size(query) * key[-2]
    if node.op in ("lstm", "gru", "rnn"):
        steps = operands[0].shape[0] * operands[0].shape[1]
        return sum(2 * steps * _size(p.shape) for p in node.operands[-1])
    return out


def estimate(graph):
    """(bytes of all values, floating-point operations)."""
    nodes = graph.all_nodes()
    moved = sum(bytes_of(n.types) for n in nodes if n.op not in ("view", "expand", "permute"))
    return moved, sum(flops_of(n) for n in graph.nodes)


def is_small(graph):
    moved, flops = estimate(graph)
    return moved < 256 << 20 and flops < 5e9

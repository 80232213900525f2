"""What rounding can do to a model inside: Monte Carlo arithmetic on the operands of its products."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# Positions of the operands that hardware may round to a shorter mantissa before it multiplies (TF32, or the class's own type).
_OPERANDS = {
    aten.convolution.default: (0, 1), aten.mm.default: (0, 1), aten.bmm.default: (0, 1), aten.addmm.default: (1, 2), aten.baddbmm.default: (1, 2),
    aten.mv.default: (0, 1), aten.addmv.default: (1, 2), aten.dot.default: (0, 1), aten._cudnn_rnn.default: (0,),
    aten._scaled_dot_product_flash_attention.default: (0, 1, 2), aten._scaled_dot_product_efficient_attention.default: (0, 1, 2),
    aten._scaled_dot_product_cudnn_attention.default: (0, 1, 2), aten._scaled_dot_product_flash_attention_for_cpu.default: (0, 1, 2),
    aten._scaled_dot_product_attention_math.default: (0, 1, 2),
}


class DisturbedOperands(TorchDispatchMode):
    """Passes every operand of a product through `disturb`, except those that lie in the memory of `already`, tensors that the caller
    disturbed. Disturbing inputs and weights alone would keep what holds exactly for any weights, such as a mean of zero behind a
    linear layer, and so show no error where rounding inside makes one."""

    def __init__(self, disturb, already):
        super().__init__()
        self.disturb, self.already = disturb, {t.untyped_storage().data_ptr() for t in already}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        places = _OPERANDS.get(func, ())
        if places:
            args = list(args)
            for k in places:
                if args[k].is_floating_point() and args[k].untyped_storage().data_ptr() not in self.already:
                    args[k] = self.disturb(args[k])
        return func(*args, **(kwargs or {}))

"""One lane of e^x as hardware that softmax and the activation functions share: x to log2 in fixed point, then 2^fraction.

Both helpers add registers under the caller's enables, one stage for each enable.
Numbers as in ``golden_model.pim.exponential``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed

from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, Function
from golden_model.arithmetic.formats import FP16
from golden_model.pim.exponential import INTEGER_BITS, LOG2E, LOG2E_BITS, SHIFT_AT_ZERO
from hdl.arithmetic.piecewise import evaluate
from hdl.arithmetic.rounding import Operand

__all__ = ["PowerOfE", "fixed_log2", "power_of_e"]


@dataclass(frozen=True)
class PowerOfE:
    """e^x = mantissa * 2^(integer - 24)."""

    integer_r: Value  # signed, two stages after x
    mantissa_r: Signal  # six stages after x


def fixed_log2(m: Module, x: Operand, sign: Value, *, enables: Sequence[Value], name: str) -> Signal:
    """Return t = +-|x| log2(e) in a signed register of 24 fraction bits, two stages later.

    Stage 1 multiplies by the constant, stage 2 shifts to the fixed point and applies ``sign``.
    """
    load_scale, load_fix = enables
    product_r = Signal(FP16.fraction_bits + 1 + LOG2E_BITS, name=f"{name}_scale_product_r", reset_less=True)
    shift_r = Signal(range(SHIFT_AT_ZERO + 1), name=f"{name}_scale_shift_r", reset_less=True)
    sign_r = Signal(name=f"{name}_scale_sign_r", reset_less=True)
    with m.If(load_scale):
        m.d.sync += [
            product_r.eq(x.significand * LOG2E),
            shift_r.eq(SHIFT_AT_ZERO - x.exponent),  # the exponent of a finite number is below 30, so at least 1
            sign_r.eq(sign),
        ]

    magnitude = Signal(len(product_r) - 1, name=f"{name}_magnitude")
    t_r = Signal(signed(INTEGER_BITS + ARGUMENT_BITS), name=f"{name}_fix_t_r", reset_less=True)
    m.d.comb += magnitude.eq(product_r >> shift_r)
    with m.If(load_fix):
        m.d.sync += t_r.eq(Mux(sign_r, -magnitude, magnitude))
    return t_r


def power_of_e(m: Module, x: Operand, sign: Value, *, enables: Sequence[Value], name: str) -> PowerOfE:
    """Return e^(+-|x|): the integer part of its exponent after two stages, the mantissa after six."""
    t_r = fixed_log2(m, x, sign, enables=enables[:2], name=name)
    fraction = t_r[:ARGUMENT_BITS]
    exp2 = Const(Function.EXP2, 2)
    mantissa_r = evaluate(m, exp2, fraction, enables=enables[2:], functions=(Function.EXP2,), name=f"{name}_exp2")
    return PowerOfE(integer_r=t_r[ARGUMENT_BITS:].as_signed(), mantissa_r=mantissa_r)

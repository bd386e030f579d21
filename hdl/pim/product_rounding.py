"""Rounding of a wide product to FP16 as hardware that softmax and the activation functions share, over two stages.

``align_product`` ends in registers under the caller's enable; ``round_aligned`` is combinational behind them.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from golden_model.arithmetic.formats import FP16
from hdl.arithmetic.rounding import round_nearest_even

__all__ = ["Aligned", "align_product", "round_aligned"]

WORD_BITS = FP16.fraction_bits + 3  # a significand, the bit to round by, and whether anything is below that
DEEPEST = WORD_BITS - 1  # from this shift on, the leading one is below the bit to round by
LOWEST_BINADE = 1 - FP16.bias  # of normal numbers


@dataclass(frozen=True)
class Aligned:
    """A product cut to the bits that matter, its binade, and how far a subnormal has to be shifted down."""

    word_r: Signal
    base_r: Signal  # exponent field - 1, 0 for subnormals
    shift_r: Signal


def align_product(
    m: Module, load: Value, product: Value, exponent: Value, *, zeros: int, name: str
) -> Aligned:
    """Bring the leading one to the top.

    Parameters
    ----------
    m
        Module that gets the statements and the registers.
    load
        Enable of the registers.
    product, exponent
        The number is ``product * 2^exponent`` with the top bit of ``product`` weighing 1; ``exponent`` is signed.
    zeros
        How many zeros there may be above the leading one, 1 or 2.  More are right if the number is subnormal.
    name
        Prefix of all names.
    """
    width = len(product)
    normal = Signal(width, name=f"{name}_normal")
    count = Signal(range(zeros + 1), name=f"{name}_product_zeros")
    binade = Signal(signed(len(exponent) + 2), name=f"{name}_binade")
    under = Signal(signed(len(exponent) + 2), name=f"{name}_under")
    m.d.comb += [
        count.eq(Mux(product[-1], 0, 1 if zeros == 1 else Mux(product[-2], 1, 2))),
        normal.eq((product << count)[:width]),
        binade.eq(exponent - count),
        under.eq(LOWEST_BINADE - binade),
    ]
    below = width - WORD_BITS + 1  # bits below the one to round by
    aligned = Aligned(
        word_r=Signal(WORD_BITS, name=f"{name}_align_word_r", reset_less=True),
        base_r=Signal(len(binade), name=f"{name}_align_base_r", reset_less=True),
        shift_r=Signal(range(DEEPEST + 1), name=f"{name}_align_shift_r", reset_less=True),
    )
    with m.If(load):
        m.d.sync += aligned.word_r.eq(Cat(normal[:below].any(), normal[below:]))
        with m.If(under > 0):
            m.d.sync += [aligned.base_r.eq(0), aligned.shift_r.eq(Mux(under > DEEPEST, DEEPEST, under))]
        with m.Else():
            m.d.sync += [aligned.base_r.eq(binade - LOWEST_BINADE), aligned.shift_r.eq(0)]
    return aligned


def round_aligned(m: Module, aligned: Aligned, *, overflows: bool, name: str) -> Signal:
    """Shift a subnormal down and round; return the code without its sign."""
    shifted = Signal(WORD_BITS + DEEPEST, name=f"{name}_shifted")  # the shift drops nothing
    m.d.comb += shifted.eq(Cat(Const(0, DEEPEST), aligned.word_r) >> aligned.shift_r)
    kept, half, rest = shifted[DEEPEST + 2 :], shifted[DEEPEST + 1], shifted[: DEEPEST + 1].any()
    return round_nearest_even(m, base=aligned.base_r, kept=kept, half=half, rest=rest, fmt=FP16, overflows=overflows)

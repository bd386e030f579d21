"""First pass of the normalisation: exact sums of X and X^2 over a row, X = x * 2^24.

The pipeline never waits, so its data registers need no enable.  Numbers as in ``golden_model.pim.normalization``.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, ValueLike, signed
from amaranth.lib import data

from golden_model.arithmetic.formats import FP16
from golden_model.pim.normalization_scalars import FIXED_BITS, LENGTH_BITS, SQUARES_BITS, TOTAL_BITS
from hdl.arithmetic.rounding import unpack

__all__ = ["STAGES", "Totals", "sum_up"]

STAGES = ("square", "weigh", "sum", "accumulate")
SQUARE_BITS = 2 * (FP16.fraction_bits + 1)


@dataclass(frozen=True)
class Totals:
    """Registers that hold the sums of a row from ``complete`` on until the next beat is taken."""

    complete: Signal  # for one cycle: the row's last beat has just been added
    length: Signal
    total: Signal  # signed
    squares: Signal
    finite: Signal


def delayed(m: Module, name: str, value: ValueLike, shape: ShapeLike) -> Signal:
    """Return a register that follows ``value``."""
    register = Signal(shape, name=name, reset_less=True)
    m.d.sync += register.eq(value)
    return register


def sum_up(m: Module, beat: data.View, *, lanes: int, take: Value) -> Totals:
    """Add up rows; ``take`` tells in which cycles ``beat`` belongs to one."""
    valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
    m.d.sync += Cat(valids).eq(Cat(take, valids[:-1]))
    lasts, counts = [beat.last], [beat.count]
    for stage in STAGES[:-1]:
        lasts.append(delayed(m, f"{stage}_last_r", lasts[-1], 1))
        counts.append(delayed(m, f"{stage}_count_r", counts[-1], len(beat.count)))

    # Stage 1, square: significands only; lanes that hold no element count as 0.
    significands_r, squares_r, exponents_r, signs_r, special = [], [], [], [], []
    for lane in range(lanes):
        x = unpack(m, beat[f"a_{lane}"], FP16, name=f"statistics_{lane}")
        used = Signal(name=f"statistics_used_{lane}")
        significand = Signal(FP16.fraction_bits + 1, name=f"statistics_magnitude_{lane}")
        m.d.comb += [used.eq(lane < beat.count), significand.eq(Mux(used, x.significand, 0))]
        special.append(used & (x.nan | x.inf))
        significands_r.append(delayed(m, f"square_significand_{lane}_r", significand, FP16.fraction_bits + 1))
        squares_r.append(delayed(m, f"square_square_{lane}_r", significand * significand, SQUARE_BITS))
        exponents_r.append(delayed(m, f"square_exponent_{lane}_r", x.exponent, FP16.exponent_bits))
        signs_r.append(delayed(m, f"square_sign_{lane}_r", x.sign, 1))
    specials = [Cat(special).any()]
    for stage in STAGES[:-1]:
        specials.append(delayed(m, f"{stage}_special_r", specials[-1], 1))

    # Stage 2, weigh: as fixed-point numbers, added in pairs.
    fixed, weighed = [], []
    for lane in range(lanes):
        magnitude = Signal(FIXED_BITS, name=f"weigh_magnitude_{lane}")
        value = Signal(signed(FIXED_BITS + 1), name=f"weigh_value_{lane}")
        square = Signal(2 * FIXED_BITS, name=f"weigh_square_{lane}")
        m.d.comb += [
            magnitude.eq(significands_r[lane] << exponents_r[lane]),
            value.eq(Mux(signs_r[lane], -magnitude, magnitude)),
            square.eq(squares_r[lane] << Cat(Const(0, 1), exponents_r[lane])),
        ]
        fixed.append(value)
        weighed.append(square)
    fixed, weighed = (_pairs(m, nodes, f"weigh_{what}") for what, nodes in (("value", fixed), ("square", weighed)))

    # Stage 3, sum: two levels more.
    fixed, weighed = (_pairs(m, nodes, f"sum_{what}", 2) for what, nodes in (("value", fixed), ("square", weighed)))

    # Stage 4, accumulate: a row's first beat finds nothing.
    fresh_r = Signal(init=1)
    totals = Totals(
        complete=Signal(name="complete_r"),
        length=Signal(LENGTH_BITS, name="length_r", reset_less=True),
        total=Signal(signed(TOTAL_BITS + 1), name="total_r", reset_less=True),
        squares=Signal(SQUARES_BITS, name="squares_r", reset_less=True),
        finite=Signal(name="finite_r", reset_less=True),
    )
    m.d.sync += totals.complete.eq(valids[-2] & lasts[-1])
    with m.If(valids[-2]):
        m.d.sync += [
            fresh_r.eq(lasts[-1]),
            totals.length.eq(Mux(fresh_r, 0, totals.length) + counts[-1]),
            totals.total.eq(sum(fixed, Mux(fresh_r, 0, totals.total))),
            totals.squares.eq(sum(weighed, Mux(fresh_r, 0, totals.squares))),
            totals.finite.eq((fresh_r | totals.finite) & ~specials[-1]),
        ]
    return totals


def _pairs(m: Module, nodes: list[Signal], name: str, levels: int = 1) -> list[Signal]:
    """Add up ``nodes`` in pairs, ``levels`` times if there are as many, and register what is left."""
    for level in range(levels):
        if len(nodes) == 1:
            break
        values = [a + b for a, b in zip(nodes[::2], nodes[1::2], strict=True)]
        nodes = [Signal(value.shape(), name=f"{name}_{level}_{k}") for k, value in enumerate(values)]
        m.d.comb += [node.eq(value) for node, value in zip(nodes, values, strict=True)]
    return [delayed(m, f"{name}_{k}_r", node, node.shape()) for k, node in enumerate(nodes)]

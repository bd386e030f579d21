"""The piecewise quadratic evaluator as hardware that several blocks share: coefficients, inner and outer multiply-add.

``evaluate`` puts registers behind each step, under the caller's enables; the other helpers are combinational.
Numbers as in ``golden_model.arithmetic.elementary``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed

from golden_model.arithmetic.elementary_tables import (
    C0_BITS,
    C1_BITS,
    C2_BITS,
    INNER_FRACTION_BITS,
    OUTER_FRACTION_BITS,
    SHORT_BITS,
    STEP_BITS,
    VALUE_FRACTION_BITS,
    Function,
    table,
)

__all__ = ["Coefficients", "add_inner", "add_outer", "evaluate", "look_up"]

PRODUCT_FRACTION_BITS = INNER_FRACTION_BITS + STEP_BITS
LIFT = PRODUCT_FRACTION_BITS - OUTER_FRACTION_BITS  # of c0 to the weight of the product
HALF_BITS = STEP_BITS // 2


@dataclass(frozen=True)
class Coefficients:
    """One segment's coefficients."""

    c0: Signal
    c1: Signal  # signed
    c2: Signal


def look_up(m: Module, function: Value, argument: Value, *, functions: Sequence[Function], name: str) -> Coefficients:
    """Choose the segment by the upper bits of ``argument``; only ``functions`` get a table."""
    row = Signal(C0_BITS + C1_BITS + C2_BITS, name=f"{name}_row")
    parts = Coefficients(
        c0=Signal(C0_BITS, name=f"{name}_c0"),
        c1=Signal(signed(C1_BITS), name=f"{name}_c1"),
        c2=Signal(C2_BITS, name=f"{name}_c2"),
    )
    with m.Switch(function):
        for choice in functions:
            with m.Case(choice):
                with m.Switch(argument[STEP_BITS:]):
                    for index, c in enumerate(table(choice)):
                        with m.Case(index):
                            m.d.comb += row.eq(Cat(Const(c.c0, C0_BITS), Const(c.c1, C1_BITS), Const(c.c2, C2_BITS)))
    m.d.comb += Cat(parts.c0, parts.c1, parts.c2).eq(row)
    return parts


def add_inner(m: Module, c: Coefficients, step: Value, *, name: str) -> Signal:
    """Return c1 + c2 v, signed, cut to the fraction bits of c1."""
    total = Signal(C1_BITS + SHORT_BITS, name=f"{name}_inner_total")
    inner = Signal(signed(C1_BITS), name=f"{name}_inner")  # |inner| <= |f'| at an end of the segment, as |c1|
    m.d.comb += [
        # Two's complement in unsigned clothes: synthesis then adds c1 as one more row of the product.
        total.eq(Cat(Const(0, SHORT_BITS), c.c1) + c.c2 * step[STEP_BITS - SHORT_BITS :]),
        inner.eq(total[SHORT_BITS:].as_signed()),
    ]
    return inner


def add_outer(m: Module, c0: Value, products: Sequence[Value], *, name: str) -> Signal:
    """Return c0 + inner v, cut to the fraction bits of the result; ``products`` add up to inner v."""
    total = Signal(PRODUCT_FRACTION_BITS + 1, name=f"{name}_total")  # in [0, 2)
    value = Signal(VALUE_FRACTION_BITS + 1, name=f"{name}_value")
    m.d.comb += [
        total.eq(sum(products, start=c0 << LIFT)),
        value.eq(total[PRODUCT_FRACTION_BITS - VALUE_FRACTION_BITS :]),
    ]
    return value


def evaluate(
    m: Module, function: Value, argument: Value, *, enables: Sequence[Value], functions: Sequence[Function], name: str
) -> Signal:
    """Return the value of ``function`` at ``argument`` in a register, three or four stages later.

    Parameters
    ----------
    m
        Module that gets the statements and the registers.
    function, argument
        What to compute, in the cycle of the first enable.
    enables
        Load enables of the stages.  Four: coefficients, inner sum, two halves of the outer sum, result.  Three: the outer
        sum takes one longer stage.
    functions
        Those that ``function`` can choose; the other codes give any value.
    name
        Prefix of all names.
    """
    load_lookup, load_inner, *load_halves, load_outer = enables
    c = look_up(m, function, argument, functions=functions, name=name)
    held = Coefficients(
        c0=Signal(C0_BITS, name=f"{name}_lookup_c0_r", reset_less=True),
        c1=Signal(signed(C1_BITS), name=f"{name}_lookup_c1_r", reset_less=True),
        c2=Signal(C2_BITS, name=f"{name}_lookup_c2_r", reset_less=True),
    )
    lookup_step_r = Signal(STEP_BITS, name=f"{name}_lookup_step_r", reset_less=True)
    with m.If(load_lookup):
        m.d.sync += [
            held.c0.eq(c.c0), held.c1.eq(c.c1), held.c2.eq(c.c2), lookup_step_r.eq(argument[:STEP_BITS]),
        ]  # fmt: skip

    inner = add_inner(m, held, lookup_step_r, name=name)
    inner_r = Signal(signed(C1_BITS), name=f"{name}_inner_r", reset_less=True)
    inner_c0_r = Signal(C0_BITS, name=f"{name}_inner_c0_r", reset_less=True)
    inner_step_r = Signal(STEP_BITS, name=f"{name}_inner_step_r", reset_less=True)
    with m.If(load_inner):
        m.d.sync += [inner_r.eq(inner), inner_c0_r.eq(held.c0), inner_step_r.eq(lookup_step_r)]

    if load_halves:
        halves_low_r = Signal(signed(C1_BITS + HALF_BITS), name=f"{name}_halves_low_r", reset_less=True)
        halves_high_r = Signal(signed(C1_BITS + STEP_BITS - HALF_BITS), name=f"{name}_halves_high_r", reset_less=True)
        halves_c0_r = Signal(C0_BITS, name=f"{name}_halves_c0_r", reset_less=True)
        with m.If(load_halves[0]):
            m.d.sync += [
                halves_low_r.eq(inner_r * inner_step_r[:HALF_BITS]),
                halves_high_r.eq(inner_r * inner_step_r[HALF_BITS:]),
                halves_c0_r.eq(inner_c0_r),
            ]
        value = add_outer(m, halves_c0_r, [halves_low_r, halves_high_r << HALF_BITS], name=name)
    else:
        value = add_outer(m, inner_c0_r, [inner_r * inner_step_r], name=name)
    value_r = Signal(VALUE_FRACTION_BITS + 1, name=f"{name}_value_r", reset_less=True)
    with m.If(load_outer):
        m.d.sync += value_r.eq(value)
    return value_r

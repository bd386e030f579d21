"""The piecewise quadratic evaluator as hardware that several blocks share: coefficients, inner and outer multiply-add.

The first three helpers are combinational.  ``evaluate`` puts one register behind each of them, under the caller's enables.
Numbers as in ``golden_model.arithmetic.elementary``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from golden_model.arithmetic.elementary_tables import (
    C0_BITS,
    C1_BITS,
    C2_BITS,
    OUTER_FRACTION_BITS,
    SHORT_BITS,
    STEP_BITS,
    VALUE_FRACTION_BITS,
    Function,
    table,
)

__all__ = ["Coefficients", "add_inner", "add_outer", "evaluate", "look_up"]


@dataclass(frozen=True)
class Coefficients:
    """One segment's coefficients as magnitudes, and whether they alternate in sign."""

    c0: Signal
    c1: Signal
    c2: Signal
    falling: Signal


def look_up(m: Module, function: Value, argument: Value, *, functions: Sequence[Function], name: str) -> Coefficients:
    """Choose the segment by the upper bits of ``argument``; only ``functions`` get a table."""
    row = Signal(C0_BITS + C1_BITS + C2_BITS, name=f"{name}_row")
    parts = Coefficients(
        c0=Signal(C0_BITS, name=f"{name}_c0"),
        c1=Signal(C1_BITS, name=f"{name}_c1"),
        c2=Signal(C2_BITS, name=f"{name}_c2"),
        falling=Signal(name=f"{name}_falling"),
    )
    with m.Switch(function):
        for choice in functions:
            with m.Case(choice):
                m.d.comb += parts.falling.eq(choice.falling)
                with m.Switch(argument[STEP_BITS:]):
                    for index, c in enumerate(table(choice)):
                        with m.Case(index):
                            m.d.comb += row.eq(c.c0 | c.c1 << C0_BITS | c.c2 << (C0_BITS + C1_BITS))
    m.d.comb += Cat(parts.c0, parts.c1, parts.c2).eq(row)
    return parts


def add_inner(m: Module, c: Coefficients, step: Value, *, name: str) -> Signal:
    """Return c1 +- c2 v, a magnitude."""
    product = Signal(C2_BITS + SHORT_BITS, name=f"{name}_inner_product")
    inner = Signal(C1_BITS, name=f"{name}_inner")  # neither exceeds |f'| at an end of the segment, as c1 does not
    slope = product[SHORT_BITS:]
    m.d.comb += [
        product.eq(c.c2 * step[STEP_BITS - SHORT_BITS :]),
        inner.eq(Mux(c.falling, c.c1 - slope, c.c1 + slope)),
    ]
    return inner


def add_outer(m: Module, c0: Value, inner: Value, falling: Value, step: Value, *, name: str) -> Signal:
    """Return c0 +- inner v, cut to the fraction bits of the result."""
    product = Signal(C1_BITS + STEP_BITS, name=f"{name}_outer_product")
    total = Signal(OUTER_FRACTION_BITS + 1, name=f"{name}_total")  # below 2
    value = Signal(VALUE_FRACTION_BITS + 1, name=f"{name}_value")
    change = product[STEP_BITS:]
    m.d.comb += [
        product.eq(inner * step),
        total.eq(Mux(falling, c0 - change, c0 + change)),
        value.eq(total[OUTER_FRACTION_BITS - VALUE_FRACTION_BITS :]),
    ]
    return value


def evaluate(
    m: Module, function: Value, argument: Value, *, enables: Sequence[Value], functions: Sequence[Function], name: str
) -> Signal:
    """Return the value of ``function`` at ``argument`` in a register, three stages later.

    Parameters
    ----------
    m
        Module that gets the statements and the registers.
    function, argument
        What to compute, in the cycle of the first enable.
    enables
        Load enables of the three stages: coefficients, inner sum, result.
    functions
        Those that ``function`` can choose; the other codes give any value.
    name
        Prefix of all names.
    """
    load_lookup, load_inner, load_outer = enables
    c = look_up(m, function, argument, functions=functions, name=name)
    held = Coefficients(
        c0=Signal(C0_BITS, name=f"{name}_lookup_c0_r", reset_less=True),
        c1=Signal(C1_BITS, name=f"{name}_lookup_c1_r", reset_less=True),
        c2=Signal(C2_BITS, name=f"{name}_lookup_c2_r", reset_less=True),
        falling=Signal(name=f"{name}_lookup_falling_r", reset_less=True),
    )
    lookup_step_r = Signal(STEP_BITS, name=f"{name}_lookup_step_r", reset_less=True)
    with m.If(load_lookup):
        m.d.sync += [
            held.c0.eq(c.c0), held.c1.eq(c.c1), held.c2.eq(c.c2), held.falling.eq(c.falling),
            lookup_step_r.eq(argument[:STEP_BITS]),
        ]  # fmt: skip

    inner = add_inner(m, held, lookup_step_r, name=name)
    inner_r = Signal(C1_BITS, name=f"{name}_inner_r", reset_less=True)
    inner_c0_r = Signal(C0_BITS, name=f"{name}_inner_c0_r", reset_less=True)
    inner_step_r = Signal(STEP_BITS, name=f"{name}_inner_step_r", reset_less=True)
    inner_falling_r = Signal(name=f"{name}_inner_falling_r", reset_less=True)
    with m.If(load_inner):
        m.d.sync += [
            inner_r.eq(inner), inner_c0_r.eq(held.c0), inner_step_r.eq(lookup_step_r),
            inner_falling_r.eq(held.falling),
        ]  # fmt: skip

    value = add_outer(m, inner_c0_r, inner_r, inner_falling_r, inner_step_r, name=name)
    value_r = Signal(VALUE_FRACTION_BITS + 1, name=f"{name}_value_r", reset_less=True)
    with m.If(load_outer):
        m.d.sync += value_r.eq(value)
    return value_r

"""The piecewise quadratic evaluator as hardware that several blocks share: coefficients, inner and outer multiply-add.

The first three helpers are combinational.  ``evaluate`` puts one register behind each of them, under the caller's enables.
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
    total = Signal(signed(C1_BITS + SHORT_BITS), name=f"{name}_inner_total")
    inner = Signal(signed(C1_BITS), name=f"{name}_inner")  # |inner| <= |f'| at an end of the segment, as |c1|
    m.d.comb += [
        total.eq((c.c1 << SHORT_BITS) + c.c2 * step[STEP_BITS - SHORT_BITS :]),
        inner.eq(total[SHORT_BITS:]),
    ]
    return inner


def add_outer(m: Module, c0: Value, inner: Value, step: Value, *, name: str) -> Signal:
    """Return c0 + inner v, cut to the fraction bits of the result."""
    product_fraction_bits = INNER_FRACTION_BITS + STEP_BITS
    total = Signal(product_fraction_bits + 1, name=f"{name}_total")  # in [0, 2)
    value = Signal(VALUE_FRACTION_BITS + 1, name=f"{name}_value")
    m.d.comb += [
        total.eq((c0 << (product_fraction_bits - OUTER_FRACTION_BITS)) + inner * step),
        value.eq(total[product_fraction_bits - VALUE_FRACTION_BITS :]),
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

    value = add_outer(m, inner_c0_r, inner_r, inner_step_r, name=name)
    value_r = Signal(VALUE_FRACTION_BITS + 1, name=f"{name}_value_r", reset_less=True)
    with m.If(load_outer):
        m.d.sync += value_r.eq(value)
    return value_r

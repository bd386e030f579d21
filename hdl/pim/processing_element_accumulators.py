"""Exact accumulators of a processing element, ``count`` per context: registers, adders and the marks of infinities.

A part of ``processing_element``, made inside its module.  Numbers as in ``golden_model.pim.processing_element``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from hdl.shapes import choose

__all__ = ["AccumulatorBank", "Term"]


class Term(NamedTuple):
    """What a beat adds to one accumulator: ``number + carry`` in units of 2^-48, and the marks it sets."""

    number: Value  # signed; one's complement of a negative number, with carry = 1
    carry: Value
    plus: Value
    minus: Value


class AccumulatorBank:
    """The accumulators that one stage of the pipeline reads and writes.

    Parameters
    ----------
    m
        Module that gets registers and statements.
    count, contexts
        Accumulators per context, and contexts.
    bits
        Width of the integer.
    name
        Prefix of the signals.
    """

    def __init__(self, m: Module, *, count: int, contexts: int, bits: int, name: str) -> None:
        self.m = m
        self.bits = bits
        self.name = name
        shape = data.StructLayout({"total": signed(bits), "plus": 1, "minus": 1})
        self.accumulators = [
            [
                data.View(shape, Signal(shape.size, name=f"{name}_{context}_{lane}_r", reset_less=True))
                for lane in range(count)
            ]
            for context in range(contexts)
        ]
        self.empty_r = [Signal(init=1, name=f"{name}_{context}_empty_r") for context in range(contexts)]

    def step(self, control: data.View, active: Value, terms: Sequence[Term]) -> tuple[list[Value], Value]:
        """Let the beat in this stage act, when it is ``active``, and return what the context held before it.

        Each of the values is total, plus, minus from the lowest bit up; they count only if the second result is set: the
        context exists and was not empty.
        """
        m, name = self.m, self.name
        contexts = range(len(self.accumulators))
        chosen = [Signal(name=f"{name}_context_{context}") for context in contexts]
        m.d.comb += [line.eq(control.context == context) for context, line in zip(contexts, chosen, strict=True)]
        filled = Signal(name=f"{name}_filled")
        from_zero = Signal(name=f"{name}_from_zero")
        multiplies = Signal(name=f"{name}_multiplies")
        m.d.comb += [
            filled.eq(Cat(line & ~empty for line, empty in zip(chosen, self.empty_r, strict=True)).any()),
            multiplies.eq(active & control.multiply & Cat(chosen).any()),
            from_zero.eq(multiplies & (~filled | control.restart)),
        ]
        for line, empty in zip(chosen, self.empty_r, strict=True):
            with m.If(line & multiplies):
                m.d.sync += empty.eq(0)
            with m.If(line & active & control.clear):
                m.d.sync += empty.eq(1)
        # A single context adds zero in the cycles in which it is to keep its sum: cheaper than a register with an enable.
        single = len(self.accumulators) == 1
        held: list[Value] = []
        for lane, term in enumerate(terms):
            choices = [accumulators[lane].as_value() for accumulators in self.accumulators]
            choices += choices[:1] * ((1 << len(control.context)) - len(choices))  # any, for contexts that do not exist
            before = Signal(self.bits + 2, name=f"{name}_before_{lane}")
            base = Signal(self.bits + 2, name=f"{name}_base_{lane}")
            m.d.comb += [before.eq(choose(choices, control.context)), base.eq(Mux(from_zero, 0, before))]
            after = self._add(base, term, multiplies if single else Const(1), f"{name}_{lane}")
            for line, accumulators in zip(chosen, self.accumulators, strict=True):
                if single:
                    m.d.sync += accumulators[lane].as_value().eq(after)
                else:
                    with m.If(line & multiplies):
                        m.d.sync += accumulators[lane].as_value().eq(after)
            held.append(before)
        return held, filled

    def _add(self, base: Signal, term: Term, counts: Value, name: str) -> Value:
        """Return the accumulator after it took a term, if that ``counts``."""
        total, plus, minus = base[: self.bits].as_signed(), base[self.bits], base[self.bits + 1]
        number = Signal(signed(self.bits), name=f"{name}_number")
        after = Signal(signed(self.bits), name=f"{name}_after")
        leaves = Signal(name=f"{name}_leaves")  # the range, and nothing was marked before
        marked = Signal(2, name=f"{name}_marked")
        self.m.d.comb += [
            number.eq(Mux(counts, term.number, 0)),
            # One adder: a bit below the units carries the 1 that completes the two's complement.
            after.eq((Cat(Const(1, 1), total) + Cat(counts & term.carry, number))[1:]),
            leaves.eq((total[-1] == number[-1]) & (after[-1] != total[-1]) & ~(plus | minus | term.plus | term.minus)),
            marked.eq(
                Cat(
                    plus | (counts & term.plus) | (leaves & ~total[-1]),
                    minus | (counts & term.minus) | (leaves & total[-1]),
                )
            ),
        ]
        return Cat(after, marked)

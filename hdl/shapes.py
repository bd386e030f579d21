"""Amaranth layouts made from the field tables of ``golden_model.layouts``, and the pipeline step that all blocks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data

from golden_model.layouts import Fields

__all__ = ["advance", "along", "choose", "struct"]


def struct(fields: Fields) -> data.StructLayout:
    """Return the layout of a payload, fields from the lowest bit up."""
    return data.StructLayout(dict(fields))


def advance(m: Module, *, valids: list[Signal], i_valid: ValueLike, o_ready: ValueLike) -> list[Signal]:
    """Drive the valid bits of an elastic pipeline and return each stage's load enable.

    Stage k loads when it is empty or its content moves on in the same cycle, so bubbles close and a full pipeline
    passes one item per cycle.  The first enable is the pipeline's ``i.ready``; data registers load under their enable.

    Parameters
    ----------
    m
        Module that gets the statements.
    valids
        One register per stage, first stage first; the last is the pipeline's ``o.valid``.
    i_valid, o_ready
        Handshake of the neighbours.
    """
    enables = [Signal(name=f"stage{k}_enable") for k in range(len(valids))]
    for k, (enable, valid) in enumerate(zip(enables, valids, strict=True)):
        m.d.comb += enable.eq(~valid | (o_ready if k + 1 == len(valids) else enables[k + 1]))
        with m.If(enable):
            m.d.sync += valid.eq(i_valid if k == 0 else valids[k - 1])
    return enables


def choose(words: Sequence[Value], index: Value) -> Value:
    """Return ``words[index]`` by a tree of two-way choices, the lowest bit first; ``words`` must be 2^len(index) long."""
    for bit in index:
        words = [Mux(bit, odd, even) for even, odd in zip(words[::2], words[1::2], strict=True)]
    (word,) = words
    return word


def along(
    m: Module, load: Mapping[str, Signal], name: str, value: Value, *, until: str, first: str | None = None
) -> dict[str, Signal]:
    """Carry ``value`` through one reset-less register per stage and return these registers by stage.

    Parameters
    ----------
    m
        Module that gets the registers, each named ``<stage>_<name>_r``.
    load
        Load enables of all stages, in order.
    name
        What the value is.
    value
        Its value in the cycle in which the first stage loads.
    until, first
        Last stage that holds it, and the first one (by default the pipeline's).
    """
    stages = list(load)
    registers = {}
    for stage in stages[stages.index(first or stages[0]) : stages.index(until) + 1]:
        register = Signal(value.shape(), name=f"{stage}_{name}_r", reset_less=True)
        with m.If(load[stage]):
            m.d.sync += register.eq(value)
        registers[stage] = value = register
    return registers

"""Operations on wide vectors with one bit per entry of a store, in logarithmic depth and few lines of Verilog.

A store of ``n`` words of ``w`` bits is kept as ``w`` planes, ``n``-bit vectors: plane ``b`` holds bit ``b`` of every
word.  A scalar acts on a whole vector through ``Mux``: replicating it would spell out every copy in the Verilog.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

__all__ = ["encode", "match_lines", "planes", "popcount", "read_word", "split_lowest", "write_word"]


def planes(name: str, size: int, bits: int) -> list[Signal]:
    """Return the registers of a store of ``size`` words of ``bits`` bits, lowest bit first."""
    return [Signal(size, name=f"{name}{bit}_r") for bit in range(bits)]


def match_lines(word_planes: Sequence[Signal], word: Value) -> Value:
    """Return which entries hold ``word``."""
    return reduce(and_, (Mux(bit, plane, ~plane) for bit, plane in zip(word, word_planes, strict=True)))


def read_word(word_planes: Sequence[Signal], entry_oh: Signal) -> Value:
    """Return the word of the entry marked by a one-hot vector, or 0 for an empty vector."""
    return Cat((plane & entry_oh).any() for plane in word_planes)


def write_word(word_planes: Sequence[Signal], entry_oh: Signal, word: Value) -> list[Value]:
    """Return the planes' next values when ``word`` is written to the entry marked by a one-hot vector."""
    return [plane & ~entry_oh | Mux(bit, entry_oh, 0) for bit, plane in zip(word, word_planes, strict=True)]


def split_lowest(m: Module, vector: Signal) -> tuple[Signal, Signal]:
    """Split a vector into its lowest set bit and the other set bits.

    A bit is not the lowest if a bit below it is set; ``below`` says so, by a parallel prefix OR: after the step with
    shift s, bit k of ``covered`` covers the bits k - 2s + 1 to k.
    """
    width = len(vector)
    covered, shift = vector, 1
    while shift < width:
        step = Signal(width, name=f"{vector.name}_covered{shift}")
        m.d.comb += step.eq(covered | covered << shift)
        covered, shift = step, 2 * shift
    below = Signal(width, name=f"{vector.name}_below")
    lowest_oh = Signal(width, name=f"{vector.name}_lowest_oh")
    others = Signal(width, name=f"{vector.name}_others")
    m.d.comb += [below.eq(covered << 1), lowest_oh.eq(vector & ~below), others.eq(vector & below)]
    return lowest_oh, others


def encode(entry_oh: Signal, width: int) -> Value:
    """Return the index of the bit set in a one-hot vector, or 0 for an empty vector.

    ``width`` may exceed the bits that an index needs, so that a vector of one bit has an index too.
    """
    size = len(entry_oh)
    masks = (sum(1 << entry for entry in range(size) if entry >> bit & 1) for bit in range(width))
    return Cat((entry_oh & Const(mask, size)).any() for mask in masks)


def popcount(m: Module, vector: Signal) -> Signal:
    """Count the set bits of a vector.

    A tree of vector adders: a level holds counts as planes, adds the upper half of the counts to the lower half with
    carries rippling from plane to plane, and so leaves half as many counts, one plane wider.
    """
    count = Signal(len(vector).bit_length(), name=f"{vector.name}_count")  # 0..n are n + 1 values
    counts: list[Value] = [vector]
    while len(counts[0]) > 1:
        half = (len(counts[0]) + 1) // 2  # of an odd number, the last of the lower half gets no partner
        sums: list[Value] = []
        carry: Value = Const(0)
        for plane in counts:
            label = f"{vector.name}_{half}_{len(sums)}"
            low, high = plane[:half], plane[half:]
            half_sum, total = Signal(half, name=f"{label}_half"), Signal(half, name=f"{label}_sum")
            carry_out = Signal(half, name=f"{label}_carry")
            m.d.comb += [
                half_sum.eq(low ^ high),
                total.eq(half_sum ^ carry),
                carry_out.eq(low & high | half_sum & carry),
            ]
            sums.append(total)
            carry = carry_out
        counts = [*sums, carry]
    m.d.comb += count.eq(Cat(counts))  # the planes above the width of the count are 0
    return count

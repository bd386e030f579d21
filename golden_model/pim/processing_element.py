"""Processing element of one bank: 16 FP16 products per beat, kept in exact fixed-point accumulators, rounded at read-out.

A beat has two operands of ``lanes`` FP16 codes: a column of the bank's open row and a vector from the global buffer.

- *dot* mode: the sum of row[l] * vector[l] is added to the context's dot accumulator.  The lanes are aligned to the
  largest exponent as in ``golden_model.arithmetic.dot_product`` (F = ``align_frac_bits``), and not rounded.
- *axpy* mode: row[l] * vector[slot] is added to lane accumulator l of the context, for every lane, exactly.

An accumulator holds an integer multiple of 2^-48, wide enough that nothing is ever rounded or cut on the way in, so
the order of beats does not matter and F = 78 makes the read-out the correctly rounded sum of all products since the
last clear.  Reading rounds once, to nearest even, to FP32 or to FP16.

What is not finite is kept beside the integer as two sticky marks, "+infinity seen" and "-infinity seen"; NaN sets both.
A finite sum that leaves the accumulator's range sets the mark of its sign.

Source: paper section IV-A and Fig. 7 (16 multipliers and adders, two 256-bit operands); accumulators are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from golden_model.arithmetic.dot_product import PRODUCT_WEIGHT, DotProduct, lane_product
from golden_model.arithmetic.formats import FP16, FP32, Format, is_inf, is_nan, round_to_format
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_power_of_two, check_range

__all__ = ["HEADROOM_BITS", "MAX_CONTEXTS", "Operation", "ProcessingElement", "lane_accumulator_bits"]

MAX_CONTEXTS = 16
HEADROOM_BITS = 12
"""A running sum of 2^12 products of the largest magnitude (in dot mode, beats) still fits."""


class Operation(IntEnum):
    """What a beat does; ``axpy`` says to which accumulators."""

    MULTIPLY = 0
    READ = 1
    CLEAR = 2


def lane_accumulator_bits() -> int:
    """Width of a lane accumulator: sign, headroom, and a product's range from 2^32 down to 2^-48."""
    return 1 + HEADROOM_BITS + 32 - PRODUCT_WEIGHT


@dataclass
class _Accumulator:
    """A sum in units of 2^-48, and the marks of what is not finite."""

    bits: int
    total: int = 0
    plus: bool = False
    minus: bool = False

    def clear(self) -> None:
        self.total, self.plus, self.minus = 0, False, False

    def add(self, term: int, plus: bool, minus: bool) -> None:
        limit = 1 << (self.bits - 1)
        total = self.total + term
        finite = not (self.plus or self.minus)
        self.plus |= plus or (finite and total >= limit)
        self.minus |= minus or (finite and total < -limit)
        self.total = 0 if self.plus or self.minus else total  # does not count any more

    def code(self, fmt: Format) -> int:
        if self.plus or self.minus:
            infinity = fmt.infinity | (fmt.sign_bit if self.minus else 0)
            return fmt.quiet_nan if self.plus and self.minus else infinity
        return round_to_format(int(self.total < 0), abs(self.total), PRODUCT_WEIGHT, fmt)


class ProcessingElement:
    """Multiply a column of the bank by a vector of the global buffer and accumulate.

    Parameters
    ----------
    lanes
        Products per beat; a power of two, 2 to 64.
    contexts
        Sets of accumulators, 1 to 16; each has one dot accumulator and ``lanes`` lane accumulators.
    align_frac_bits
        F of the dot mode, 20 to 78.
    """

    def __init__(self, *, lanes: int = 16, contexts: int = 1, align_frac_bits: int = 28) -> None:
        self.lanes = check_power_of_two("lanes", lanes, 2, 64)
        self.contexts = check_range("contexts", contexts, 1, MAX_CONTEXTS)
        self.align_frac_bits = check_range("align_frac_bits", align_frac_bits, 20, 78)
        self._fused = DotProduct(lanes=self.lanes, align_frac_bits=self.align_frac_bits)
        self.reset()

    @property
    def slot_bits(self) -> int:
        return (self.lanes - 1).bit_length()

    @property
    def context_bits(self) -> int:
        return max((self.contexts - 1).bit_length(), 1)

    @property
    def control_fields(self) -> Fields:
        """What a beat says beside its operands.

        ``op`` is an :class:`Operation` (3 does nothing); ``axpy`` chooses the mode, or the accumulators that are read or
        cleared; ``first`` lets a MULTIPLY start from zero; ``half`` lets a READ give FP16; ``slot`` is the element of
        the vector that an axpy takes, and the lane that a READ of lane accumulators gives.
        """
        return (
            ("op", 2),
            ("axpy", 1),
            ("first", 1),
            ("half", 1),
            ("context", self.context_bits),
            ("slot", self.slot_bits),
        )

    @property
    def beat_fields(self) -> Fields:
        operands = tuple((f"{side}_{lane}", FP16.width) for side in ("row", "vector") for lane in range(self.lanes))
        return (*self.control_fields, *operands)

    @property
    def result_fields(self) -> Fields:
        """An FP32 code, or an FP16 code in the low half."""
        return (("value", FP32.width),)

    @property
    def dot_accumulator_bits(self) -> int:
        """A lane accumulator's width and the carries of adding ``lanes`` products."""
        return lane_accumulator_bits() + self.slot_bits

    def reset(self) -> None:
        """Clear every accumulator."""
        self._dot = [_Accumulator(self.dot_accumulator_bits) for _ in range(self.contexts)]
        self._lane = [
            [_Accumulator(lane_accumulator_bits()) for _ in range(self.lanes)] for _ in range(self.contexts)
        ]

    def step(
        self,
        op: int,
        *,
        axpy: int = 0,
        first: int = 0,
        half: int = 0,
        context: int = 0,
        slot: int = 0,
        row: Sequence[int] = (),
        vector: Sequence[int] = (),
    ) -> int | None:
        """Take one beat and return the code that a READ gives, else None.

        A context that does not exist accumulates nothing and reads as zero.

        >>> pe = ProcessingElement(lanes=2)
        >>> pe.step(Operation.MULTIPLY, row=[0x3C00, 0x4000], vector=[0x3C00, 0x4000])  # 1 * 1 + 2 * 2
        >>> hex(pe.step(Operation.READ)), hex(pe.step(Operation.READ, half=1))
        ('0x40a00000', '0x4500')
        """
        op = check_code("op", op, 2)
        context = check_code("context", context, self.context_bits)
        slot = check_code("slot", slot, self.slot_bits)
        axpy, first, half = (check_code(name, bit, 1) for name, bit in (("axpy", axpy), ("first", first), ("half", half)))
        if op == Operation.MULTIPLY:
            row, vector = self._codes("row", row), self._codes("vector", vector)
        if context >= self.contexts:
            return 0 if op == Operation.READ else None
        chosen = self._lane[context] if axpy else [self._dot[context]]
        if op == Operation.READ:
            return chosen[slot if axpy else 0].code(FP16 if half else FP32)
        if op == Operation.CLEAR or (op == Operation.MULTIPLY and first):
            for accumulator in chosen:
                accumulator.clear()
        if op == Operation.MULTIPLY and axpy:
            for accumulator, x in zip(chosen, row, strict=True):
                accumulator.add(*self._lane_term(x, vector[slot]))
        elif op == Operation.MULTIPLY:
            chosen[0].add(*self._dot_term(row, vector))
        return None

    def _codes(self, name: str, codes: Sequence[int]) -> Sequence[int]:
        if len(codes) != self.lanes:
            raise ParameterError(f"{name} must have {self.lanes} elements, not {len(codes)}")
        return [check_code(f"{name}[{lane}]", code, FP16.width) for lane, code in enumerate(codes)]

    @staticmethod
    def _lane_term(x: int, y: int) -> tuple[int, bool, bool]:
        """Return one exact product in units of 2^-48, and the marks it sets."""
        if is_nan(x, FP16) or is_nan(y, FP16):
            return 0, True, True
        if is_inf(x, FP16) or is_inf(y, FP16):
            if not (x & ~FP16.sign_bit and y & ~FP16.sign_bit):
                return 0, True, True
            negative = (x ^ y) & FP16.sign_bit != 0
            return 0, not negative, negative
        sign, magnitude, exponent = lane_product(x, y)
        return (-magnitude if sign else magnitude) << exponent, False, False

    def _dot_term(self, row: Sequence[int], vector: Sequence[int]) -> tuple[int, bool, bool]:
        """Return the fused sum in units of 2^-48, and the marks it sets."""
        if max(code & ~FP16.sign_bit for code in (*row, *vector)) >= FP16.infinity:
            terms = [self._lane_term(x, y) for x, y in zip(row, vector, strict=True)]
            marks = any(plus for _, plus, _ in terms), any(minus for _, _, minus in terms)
            if any(marks):
                return 0, *marks
        total, weight = self._fused.fused_sum(row, vector)
        shift = weight - PRODUCT_WEIGHT  # Q - (F - 20): what a negative one drops is zero, as terms are multiples of 2^-48
        return (total << shift if shift >= 0 else total >> -shift), False, False

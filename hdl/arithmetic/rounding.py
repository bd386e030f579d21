"""Combinational hardware that the floating-point blocks share: unpacking, normalising, the one rounding step.

Each helper adds named signals to the caller's module and no register.
Numbers as in ``golden_model.arithmetic.formats``.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from golden_model.arithmetic.formats import Format

__all__ = ["Operand", "leading_zeros", "round_nearest_even", "shift_left", "shift_right_sticky", "unpack"]


@dataclass(frozen=True)
class Operand:
    """Fields and class of one floating-point code; ``exponent`` and ``significand`` count for finite codes only."""

    sign: Signal
    exponent: Signal  # field - 1, and 0 for subnormals too: value = significand * 2^(exponent + fmt.min_weight)
    significand: Signal  # with the hidden bit
    zero: Signal
    inf: Signal
    nan: Signal


def unpack(m: Module, code: Value, fmt: Format, *, name: str) -> Operand:
    """Split ``code`` and classify it."""
    fraction = code[: fmt.fraction_bits]
    field = code[fmt.fraction_bits : fmt.width - 1]
    operand = Operand(
        sign=Signal(name=f"{name}_sign"),
        exponent=Signal(fmt.exponent_bits, name=f"{name}_exponent"),
        significand=Signal(fmt.fraction_bits + 1, name=f"{name}_significand"),
        zero=Signal(name=f"{name}_zero"),
        inf=Signal(name=f"{name}_inf"),
        nan=Signal(name=f"{name}_nan"),
    )
    hidden = Signal(name=f"{name}_hidden")
    m.d.comb += [
        hidden.eq(field.any()),
        operand.sign.eq(code[-1]),
        operand.exponent.eq(field - hidden),  # never negative: field is 0 when hidden is
        operand.significand.eq(Cat(fraction, hidden)),
        operand.zero.eq(~hidden & ~fraction.any()),
        operand.inf.eq(field.all() & ~fraction.any()),
        operand.nan.eq(field.all() & fraction.any()),
    ]
    return operand


def leading_zeros(m: Module, value: Value, *, name: str) -> Signal:
    """Return the number of zeros above the leading one; any number if there is no one.

    Binary search: look at the upper half, drop it if it is zero, keep it alone if not, and repeat in what is left.
    """
    levels = (len(value) - 1).bit_length()
    count = Signal(range(max(len(value), 2)), name=f"{name}_zeros")  # a one-bit value has the constant count 0
    rest: Value = Cat(Const(0, (1 << levels) - len(value)), value)  # widened below to a power of two
    digits = []
    for level in reversed(range(levels)):
        half = 1 << level
        upper_zero = Signal(name=f"{name}_zero_{half}")
        part = Signal(half, name=f"{name}_part_{half}")
        m.d.comb += [upper_zero.eq(~rest[half:].any()), part.eq(Mux(upper_zero, rest[:half], rest[half:]))]
        digits.append(upper_zero)
        rest = part
    if digits:
        m.d.comb += count.eq(Cat(*reversed(digits)))
    return count


def shift_left(m: Module, value: Value, amount: Value, *, name: str, fill: Value | None = None) -> Value:
    """Return ``value << amount`` in the width of ``value``, the largest step first, as ``leading_zeros`` counts.

    ``fill`` is the bit that moves in at the low end; 0 if it is not given.
    """
    for level in reversed(range(len(amount))):
        step = 1 << level
        stepped = Signal(len(value), name=f"{name}_by_{step}")
        low = Const(0, step) if fill is None else fill.replicate(step)
        m.d.comb += stepped.eq(Mux(amount[level], Cat(low, value)[: len(value)], value))
        value = stepped
    return value


def shift_right_sticky(m: Module, value: Value, amount: Value, *, name: str) -> Value:
    """Return ``value >> amount`` in the width of ``value``, the last bit set too if a one was shifted out."""
    for level in reversed(range(len(amount))):
        step = min(1 << level, len(value))
        stepped = Signal(len(value), name=f"{name}_right_{1 << level}")
        moved = Cat(value[step:], Const(0, step)) | value[:step].any()
        m.d.comb += stepped.eq(Mux(amount[level], moved, value))
        value = stepped
    return value


def round_nearest_even(
    m: Module, *, base: Value, kept: Value, half: Value, rest: Value, fmt: Format, overflows: bool = True
) -> Signal:
    """Return the rounded code without its sign.

    Parameters
    ----------
    base
        Binade: the exponent field less 1, or 0 for subnormals.
    kept
        Significand of ``fraction_bits + 1`` bits, hidden bit on top (0 for subnormals).
    half, rest
        The bit below ``kept``, and whether anything is set below that.
    overflows
        Whether the code can exceed infinity's, which is then the result; False saves the comparison.
    """
    up = Signal(name="round_up")
    # Both the carry of the significand and the hidden bit run into the exponent field by themselves.
    unlimited = Signal(len(base) + fmt.fraction_bits + 1, name="round_unlimited")
    code = Signal(fmt.width - 1, name="round_code")
    m.d.comb += [
        up.eq(half & (rest | kept[0])),
        unlimited.eq(Cat(Const(0, fmt.fraction_bits), base) + kept + up),
        code.eq(Mux(unlimited > fmt.infinity, fmt.infinity, unlimited) if overflows else unlimited),
    ]
    return code

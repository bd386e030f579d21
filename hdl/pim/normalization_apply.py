"""Second pass of the normalisation: y = (n X - total) / sqrt(V) * gamma + beta of one lane, rounded once.

Numbers as in ``golden_model.pim.normalization``.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, ValueLike, signed
from amaranth.lib import data

from golden_model.arithmetic.formats import FP16
from golden_model.pim.normalization_scalars import (
    FIXED_BITS,
    LENGTH_BITS,
    MAX_SHIFT,
    RHO_BITS,
    SIGNIFICAND_BITS,
    TOTAL_BITS,
    WINDOW_BITS,
    WINDOW_WEIGHT,
)
from hdl.arithmetic.rounding import leading_zeros, round_nearest_even, shift_left, shift_right_sticky, unpack

__all__ = ["STAGES", "Lane"]

STAGES = (
    "product", "shift", "deviation", "coarse", "fine", "scale", "quotient", "weight", "align", "add", "count", "round",
)  # fmt: skip
DEVIATION_BITS = TOTAL_BITS + 1  # |n X - total|
COARSE_STEPS, FINE_STEPS = (32, 16, 8), (4, 2, 1)  # the leading one is looked for in two stages
COARSE_BITS = SIGNIFICAND_BITS + sum(FINE_STEPS)
HALF_BITS = RHO_BITS // 2 + 1  # rho is multiplied in two parts
QUOTIENT_BITS = SIGNIFICAND_BITS + RHO_BITS - 1  # rho is 2^24 at most, the significand less than 2^20
PRODUCT_BITS = SIGNIFICAND_BITS + FP16.fraction_bits + 1
LIFT = FP16.min_weight - WINDOW_WEIGHT + 1  # bits of the window below a subnormal's last one, the sticky bit included
EXPONENT = signed(9)


class Lane:
    """Names and registers of one lane; every method is one stage and returns what the next ones need.

    Parameters
    ----------
    m
        Module that gets the statements and the registers.
    number
        The lane.
    loads
        Load enables, one per entry of ``STAGES``.
    row, usable
        The row's scalars.
    """

    def __init__(self, m: Module, number: int, *, loads: Sequence[Value], row: data.View, usable: Value) -> None:
        self.m = m
        self.number = number
        self.loads = dict(zip(STAGES, loads, strict=True))
        self.row = row
        self.usable = usable

    def y(self, x: Value, gamma: Value, beta: Value) -> Value:
        """Return the result, which belongs into a register that loads with the last stage."""
        row, held = self.row, self._held
        operand = self._unpack(x, "x")
        unfit = held("product", "unfit", operand.nan | operand.inf)
        gamma = held("product", "gamma", gamma)
        beta = held("product", "beta", Mux(row.rms, 0, beta))
        significand = held("product", "x", operand.significand * row.length)
        exponent, negative = held("product", "exponent", operand.exponent), held("product", "sign", operand.sign)

        fixed = held("shift", "x", (significand << exponent)[: FIXED_BITS + LENGTH_BITS])
        unfit, gamma, beta, negative = self._carry("shift", unfit=unfit, gamma=gamma, beta=beta, sign=negative)

        magnitude, negative = self._deviation(fixed, negative)
        unfit, gamma, beta = self._carry("deviation", unfit=unfit, gamma=gamma, beta=beta)

        coarse, coarse_zeros = self._normalise("coarse", magnitude, COARSE_STEPS, COARSE_BITS)
        unfit, gamma, beta, negative = self._carry("coarse", unfit=unfit, gamma=gamma, beta=beta, sign=negative)

        fine, fine_zeros = self._normalise("fine", coarse, FINE_STEPS, SIGNIFICAND_BITS)
        (coarse_zeros,) = self._carry("fine", upper_zeros=coarse_zeros)
        unfit, gamma, beta, negative = self._carry("fine", unfit=unfit, gamma=gamma, beta=beta, sign=negative)

        low = held("scale", "low", fine * row.rho[:HALF_BITS])
        high = held("scale", "high", fine * row.rho[HALF_BITS:])
        place = DEVIATION_BITS - 1 - Cat(fine_zeros, coarse_zeros)  # of the deviation's leading one
        exponent = held("scale", "exponent", place - row.exponent - SIGNIFICAND_BITS, EXPONENT)
        unfit, gamma, beta, negative = self._carry("scale", unfit=unfit, gamma=gamma, beta=beta, sign=negative)

        whole = self._named("quotient", "whole", low + (high << HALF_BITS), QUOTIENT_BITS)
        upper = whole[-1]
        z = held("quotient", "z", Mux(upper, whole[-SIGNIFICAND_BITS:], whole[-SIGNIFICAND_BITS - 1 : -1]))
        exponent = held("quotient", "exponent", exponent + upper, EXPONENT)
        unfit, gamma, beta, negative = self._carry("quotient", unfit=unfit, gamma=gamma, beta=beta, sign=negative)

        product, exponent, negative, special, code = self._weigh(z, exponent, gamma, beta, negative, unfit)
        window, offset, negative, special, code = self._align(product, exponent, negative, special, code)
        total, negative = self._add(window, offset, negative, code[-1])
        special, code = self._carry("add", special=special, code=code)
        return self._round(total, negative, special, code)

    def _deviation(self, fixed: Value, negative: Value) -> tuple[Signal, Signal]:
        """Stage 3: subtract sign-and-magnitude numbers."""
        same = self._named("deviation", "same", ~(negative ^ self.row.negative), 1)
        other = self._named("deviation", "other", Mux(same, ~self.row.total, self.row.total), TOTAL_BITS)
        forward = self._named("deviation", "forward", fixed + other + same, TOTAL_BITS + 1)  # without same: no wrap
        backward = self._named("deviation", "backward", self.row.total - fixed, signed(TOTAL_BITS + 1))
        less = self._named("deviation", "less", same & (backward > 0), 1)
        positive = Mux(same, forward[:TOTAL_BITS], forward)
        magnitude = self._held("deviation", "magnitude", Mux(less, backward[:TOTAL_BITS], positive), DEVIATION_BITS)
        return magnitude, self._held("deviation", "sign", negative ^ less)

    def _normalise(self, stage: str, value: Value, steps: tuple[int, ...], bits: int) -> tuple[Signal, Signal]:
        """Stages 4 and 5: shift zeros out at the top; return the leading ``bits`` bits and which steps were taken."""
        taken = []
        for step in steps:
            clear = self._named(stage, f"clear_{step}", ~value[-step:].any(), 1)
            value = self._named(stage, f"by_{step}", Mux(clear, Cat(Const(0, step), value[:-step]), value), len(value))
            taken.append(clear)
        return self._held(stage, "value", value[-bits:]), self._held(stage, "zeros", Cat(reversed(taken)))

    def _weigh(
        self, z: Value, exponent: Value, gamma: Value, beta: Value, negative: Value, unfit: Value
    ) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """Stage 8: z * gamma, and the results that need no sum."""
        m, number = self.m, self.number
        scale, offset = self._unpack(gamma, "gamma"), self._unpack(beta, "beta")
        sign = self._named("weight", "negative", negative ^ scale.sign, 1)
        none = self._named("weight", "none", ~z[-1], 1)
        special, code = Signal(name=f"special_{number}", init=1), Signal(FP16.width, name=f"special_code_{number}")
        infinity = Cat(Const(FP16.infinity, FP16.width - 1), sign)
        clash = none | (offset.inf & (offset.sign ^ sign))
        with m.If(~self.usable | unfit | scale.nan | offset.nan | (scale.inf & clash)):
            m.d.comb += code.eq(FP16.quiet_nan)
        with m.Elif(scale.inf):
            m.d.comb += code.eq(infinity)
        with m.Elif(offset.inf):
            m.d.comb += code.eq(beta)
        with m.Elif(none | scale.zero):
            m.d.comb += code.eq(Mux(self.row.rms, Cat(Const(0, FP16.width - 1), sign), beta))
        with m.Else():
            m.d.comb += [special.eq(0), code.eq(beta)]
        return (
            self._held("weight", "product", z * scale.significand),
            self._held("weight", "shift", MAX_SHIFT - 1 - exponent - scale.exponent, signed(10)),
            self._held("weight", "sign", sign),
            self._held("weight", "special", special),
            self._held("weight", "code", code),
        )

    def _align(
        self, product: Value, shift: Value, negative: Value, special: Value, code: Value
    ) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """Stage 9: the product in the fixed-point window, or infinity; beta as a fixed-point number."""
        bits = WINDOW_BITS + 2  # one above the window, the sticky bit below
        right = self._named("align", "right", Mux(shift > bits - 1, bits - 1, shift), range(bits))
        wide = Cat(Const(0, 1 + MAX_SHIFT), product)
        assert len(wide) == bits
        window = shift_right_sticky(self.m, wide, right, name=f"window_{self.number}")
        beyond = self._named("align", "beyond", (shift < 0) | window[-1], 1)
        infinity = Cat(Const(FP16.infinity, FP16.width - 1), negative)
        beta = self._unpack(code, "code")
        return (
            self._held("align", "window", window[:-1]),
            self._held("align", "offset", (beta.significand << beta.exponent)[:FIXED_BITS]),
            self._held("align", "sign", negative),
            self._held("align", "special", special | beyond),
            self._held("align", "code", Mux(~special & beyond, infinity, code)),
        )

    def _add(self, window: Value, fixed: Value, negative: Value, beta_negative: Value) -> tuple[Signal, Signal]:
        """Stage 10: add sign-and-magnitude numbers; a zero sum is positive."""
        offset = Cat(Const(0, LIFT), fixed)
        same = self._named("add", "same", ~(negative ^ beta_negative), 1)
        forward = self._named("add", "forward", window - offset, signed(WINDOW_BITS + 2))
        less = self._named("add", "less", forward < 0, 1)
        magnitude = Mux(same, window + offset, Mux(less, offset - window, forward)[: WINDOW_BITS + 1])
        sign = Mux(same, negative, Mux(less, beta_negative, negative & forward.any()))
        return self._held("add", "magnitude", magnitude, WINDOW_BITS + 2), self._held("add", "sign", sign)

    def _round(self, total: Value, negative: Value, special: Value, code: Value) -> Value:
        """Stages 11 and 12: leading zeros; shift as far as a subnormal's weight allows, round once."""
        most = WINDOW_BITS + 1 - FP16.fraction_bits - LIFT  # zeros above a subnormal's hidden bit
        zeros = leading_zeros(self.m, total, name=f"total_{self.number}")
        shift = self._held("count", "shift", Mux(zeros < most, zeros, most), range(most + 1))
        total, negative, special, code = self._carry("count", total=total, sign=negative, special=special, code=code)
        normal = shift_left(self.m, total, shift, name=f"total_{self.number}")
        low = len(total) - (FP16.fraction_bits + 1)
        rounded = round_nearest_even(
            self.m,
            base=self._named("round", "base", most - shift, range(most + 1)),
            kept=normal[low:],
            half=normal[low - 1],
            rest=normal[: low - 1].any(),
            fmt=FP16,
        )
        return Mux(special, code, Cat(rounded, negative))

    def _unpack(self, code: Value, what: str):  # type: ignore[no-untyped-def]
        return unpack(self.m, code, FP16, name=f"{what}_{self.number}")

    def _named(self, stage: str, what: str, value: ValueLike, shape: ShapeLike) -> Signal:
        signal = Signal(shape, name=f"{stage}_{what}_{self.number}")
        self.m.d.comb += signal.eq(value)
        return signal

    def _held(self, stage: str, what: str, value: ValueLike, shape: ShapeLike | None = None) -> Signal:
        """Return a register that loads ``value`` with ``stage``."""
        wanted = Value.cast(value).shape() if shape is None else shape
        register = Signal(wanted, name=f"{stage}_{what}_{self.number}_r", reset_less=True)
        with self.m.If(self.loads[stage]):
            self.m.d.sync += register.eq(value)
        return register

    def _carry(self, stage: str, **values: Value) -> tuple[Signal, ...]:
        return tuple(self._held(stage, name, value) for name, value in values.items())

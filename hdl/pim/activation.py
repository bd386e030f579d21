"""Unary functions of FP16 numbers, lane by lane: exp, 1/x, 1/sqrt(x), ReLU and SiLU.

Latency: 14 cycles, one per entry of ``STAGES``.  Throughput: one beat per cycle for every function and mixture of them: each
lane has two evaluators, so that SiLU, which needs 2^f and 1/m, takes no longer.  Reset: the pipeline is empty.
Source: our choice; numbers as in ``golden_model.pim.activation``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, VALUE_FRACTION_BITS, Function
from golden_model.arithmetic.formats import FP16
from golden_model.pim import activation as golden
from golden_model.pim.activation import (
    DEEPEST,
    HIGHEST_EXPONENT,
    LOWEST_EXPONENT,
    POWER_FRACTION_BITS,
    QUOTIENT_FRACTION_BITS,
    WEIGHT_FRACTION_BITS,
    Op,
)
from golden_model.pim.exponential import INTEGER_BITS
from hdl.arithmetic.piecewise import evaluate
from hdl.arithmetic.rounding import Operand, leading_zeros, shift_left, unpack
from hdl.pim.exponential import power_of_e
from hdl.pim.product_rounding import align_product, round_aligned
from hdl.shapes import advance, along, struct

__all__ = ["Activation"]

STAGES = (
    "scale", "fix", "power_lookup", "power_inner", "power_halves", "power", "denominator",
    "quotient_lookup", "quotient_inner", "quotient_halves", "quotient", "multiply", "align", "round",
)  # fmt: skip
QUOTIENTS = (Function.RECIPROCAL, Function.RSQRT, Function.RSQRT_UPPER)
SIGNIFICAND_BITS = FP16.fraction_bits + 1
EXPONENT_BITS = 7  # signed; LOWEST_EXPONENT to HIGHEST_EXPONENT
WEIGHT_BITS = WEIGHT_FRACTION_BITS + 2  # below 4
QUOTIENT_BITS = QUOTIENT_FRACTION_BITS + 1  # at most 1
HALF_BITS = QUOTIENT_BITS // 2


class Activation(wiring.Component):
    """Apply one function to every element of a beat.

    Parameters
    ----------
    lanes
        Elements per beat, a power of two from 4 to 16.

    Members
    -------
    i : In(stream)
        The function op (a code of ``Op``) and a beat: last, count, a_k.
    o : Out(stream)
        The beat's results: last, count, masked and invalid (both 0), y_k.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {op.name.lower(): {"latency_cycles": len(STAGES), "interval_cycles": 1} for op in Op}

    def __init__(self, *, lanes: int = 16) -> None:
        fields = golden.Activation(lanes=lanes)
        self.lanes = fields.lanes
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        enables = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        load = dict(zip(STAGES, enables, strict=True))
        item = self.i.payload
        op = along(m, load, "op", item.op, until="power")
        last = along(m, load, "last", item.last, until="align")
        count = along(m, load, "count", item.count, until="align")
        codes = [self._lane(m, load, item.op, item[f"a_{lane}"], op, f"lane{lane}") for lane in range(self.lanes)]
        m.d.comb += [self.i.ready.eq(enables[0]), self.o.valid.eq(valids[-1])]
        with m.If(load["round"]):
            m.d.sync += [
                self.o.payload.last.eq(last["align"]),
                self.o.payload.count.eq(count["align"]),
                *(
                    self.o.payload[f"y_{lane}"].eq(Mux(count["align"] > lane, code, 0))
                    for lane, code in enumerate(codes)
                ),
            ]
        return m

    def _lane(
        self, m: Module, load: dict[str, Signal], item_op: Value, code: Value, op: dict[str, Signal], name: str
    ) -> Value:
        """Return the code that stage "round" takes; the registers of a lane are all here."""
        enables = list(load.values())
        x = unpack(m, code, FP16, name=name)
        # Stage 1, scale: what kind of result, its sign and, but for e^x, its exponent.
        nan, inf, zero, sign = self._special(m, x, item_op, name)
        specials = along(m, load, f"{name}_special", Cat(nan, inf, zero, sign), until="align")["align"]
        significand, exponent, upper = self._prepare(m, x, item_op, name)
        significands = along(m, load, f"{name}_significand", significand, until="denominator")
        uppers = along(m, load, f"{name}_upper", upper, until="denominator")
        minus = along(m, load, f"{name}_minus", x.sign, until="power")
        base = along(m, load, f"{name}_base", exponent, until="fix")

        # Stages 1 to 6, scale to power: e^x, or e^-|x| for SiLU.
        down = Mux(item_op == Op.SILU, 1, x.sign)
        power = power_of_e(m, x, down, enables=enables[:6], name=f"{name}_power")

        # Stage 3, power_lookup: the exponent of the result, no further than matters.
        falls = (op["fix"] == Op.EXP) | ((op["fix"] == Op.SILU) & minus["fix"])
        total = Signal(signed(INTEGER_BITS + 1), name=f"{name}_total")
        limited = Signal(signed(EXPONENT_BITS), name=f"{name}_limited")
        m.d.comb += [
            total.eq(base["fix"] + Mux(falls, power.integer_r, 0)),
            limited.eq(
                Mux(total < LOWEST_EXPONENT, LOWEST_EXPONENT, Mux(total > HIGHEST_EXPONENT, HIGHEST_EXPONENT, total))
            ),
        ]
        exponents = along(m, load, f"{name}_exponent", limited, first="power_lookup", until="multiply")
        depth = Signal(range(DEEPEST + 1), name=f"{name}_depth")
        m.d.comb += depth.eq(Mux(power.integer_r < -DEEPEST, DEEPEST, -power.integer_r))  # for SiLU: never above 0
        depths = along(m, load, f"{name}_depth", depth, first="power_lookup", until="power")

        # Stage 7, denominator: the fraction of 1 + e^-|x|, of the significand, or of 1.
        one = Const(1 << POWER_FRACTION_BITS, POWER_FRACTION_BITS + 1)
        argument = Signal(ARGUMENT_BITS, name=f"{name}_argument")
        with m.If(op["power"] == Op.SILU):
            m.d.comb += argument.eq(power.mantissa_r >> depths["power"])
        with m.Elif((op["power"] == Op.RECIPROCAL) | (op["power"] == Op.RSQRT)):
            m.d.comb += argument.eq(significands["power"] << (ARGUMENT_BITS - FP16.fraction_bits))
        uses_power = (op["power"] == Op.EXP) | ((op["power"] == Op.SILU) & minus["power"])
        factor_r = Signal(POWER_FRACTION_BITS + 1, name=f"{name}_denominator_factor_r", reset_less=True)
        argument_r = Signal(ARGUMENT_BITS, name=f"{name}_denominator_argument_r", reset_less=True)
        function_r = Signal(2, name=f"{name}_denominator_function_r", reset_less=True)
        unit_r = Signal(name=f"{name}_denominator_unit_r", reset_less=True)
        with m.If(load["denominator"]):
            m.d.sync += [
                factor_r.eq(Mux(uses_power, power.mantissa_r[VALUE_FRACTION_BITS - POWER_FRACTION_BITS :], one)),
                argument_r.eq(argument),
                function_r.eq(Function.RECIPROCAL),
                unit_r.eq((op["power"] != Op.SILU) & (op["power"] != Op.RELU)),
            ]
            with m.If(op["power"] == Op.RSQRT):
                m.d.sync += function_r.eq(Mux(uppers["power"], Function.RSQRT_UPPER, Function.RSQRT))

        # Stages 8 to 11, quotient_lookup to quotient: 1/m or 1/sqrt(m); in the first of them the other two factors.
        quotient_r = evaluate(m, function_r, argument_r, enables=enables[7:11], functions=QUOTIENTS, name=f"{name}_quotient")
        weight = Signal(SIGNIFICAND_BITS + POWER_FRACTION_BITS + 1, name=f"{name}_weight")
        factor = Mux(unit_r, 1 << FP16.fraction_bits, significands["denominator"])
        m.d.comb += weight.eq(factor * factor_r)
        weight_kept = weight[len(weight) - WEIGHT_BITS :]
        weight_r = along(m, load, f"{name}_weight", weight_kept, first="quotient_lookup", until="quotient")["quotient"]

        # Stage 12, multiply: in two halves.
        cut = quotient_r[VALUE_FRACTION_BITS - QUOTIENT_FRACTION_BITS :]
        low_r = Signal(WEIGHT_BITS + HALF_BITS, name=f"{name}_multiply_low_r", reset_less=True)
        high_r = Signal(WEIGHT_BITS + QUOTIENT_BITS - HALF_BITS, name=f"{name}_multiply_high_r", reset_less=True)
        with m.If(load["multiply"]):
            m.d.sync += [low_r.eq(weight_r * cut[:HALF_BITS]), high_r.eq(weight_r * cut[HALF_BITS:])]

        # Stage 13, align, and 14, round.
        product = Signal(WEIGHT_FRACTION_BITS + QUOTIENT_FRACTION_BITS + 2, name=f"{name}_product")  # below 4
        m.d.comb += product.eq((high_r << HALF_BITS) + low_r)
        top = exponents["multiply"] + 1  # exponent of the product's top bit
        aligned = align_product(m, load["align"], product, top, zeros=2, name=name)
        rounded = round_aligned(m, aligned, overflows=True, name=name)
        nan_r, inf_r, zero_r, sign_r = specials
        size = Mux(inf_r, FP16.infinity, Mux(zero_r, 0, rounded))
        return Mux(nan_r, FP16.quiet_nan, Cat(size[: FP16.width - 1], sign_r))

    @staticmethod
    def _special(m: Module, x: Operand, op: Value, name: str) -> list[Signal]:
        """Return whether the result is NaN, infinite or zero whatever the product says, and its sign."""
        nan, inf, zero, sign = (Signal(name=f"{name}_result_{what}") for what in ("nan", "inf", "zero", "sign"))
        m.d.comb += nan.eq(x.nan)
        with m.Switch(op):
            with m.Case(Op.EXP):
                m.d.comb += [inf.eq(x.inf & ~x.sign), zero.eq(x.inf & x.sign)]
            with m.Case(Op.RECIPROCAL):
                m.d.comb += [inf.eq(x.zero), zero.eq(x.inf), sign.eq(x.sign)]
            with m.Case(Op.RSQRT):
                m.d.comb += [nan.eq(x.nan | (x.sign & ~x.zero)), inf.eq(x.zero), zero.eq(x.inf), sign.eq(x.sign)]
            with m.Case(Op.RELU):
                m.d.comb += [inf.eq(x.inf & ~x.sign), zero.eq(x.sign)]
            with m.Default():  # SiLU
                m.d.comb += [inf.eq(x.inf & ~x.sign), zero.eq(x.zero | (x.inf & x.sign)), sign.eq(x.sign)]
        return [nan, inf, zero, sign]

    @staticmethod
    def _prepare(m: Module, x: Operand, op: Value, name: str) -> tuple[Signal, Signal, Value]:
        """Return a significand, the exponent that goes with it and, for 1/sqrt, whether that was odd."""
        zeros = leading_zeros(m, x.significand, name=f"{name}_significand")
        normal = shift_left(m, x.significand, zeros, name=f"{name}_significand")
        scale = Signal(signed(EXPONENT_BITS), name=f"{name}_scale")  # x = normal * 2^scale
        significand = Signal(SIGNIFICAND_BITS, name=f"{name}_factor")
        exponent = Signal(signed(EXPONENT_BITS), name=f"{name}_scaled")
        m.d.comb += scale.eq(x.exponent + 1 - FP16.bias - zeros)
        with m.Switch(op):
            with m.Case(Op.EXP):
                m.d.comb += exponent.eq(0)
            with m.Case(Op.RECIPROCAL):
                m.d.comb += [significand.eq(normal), exponent.eq(-scale)]
            with m.Case(Op.RSQRT):
                m.d.comb += [significand.eq(normal), exponent.eq(-(scale >> 1))]
            with m.Default():
                m.d.comb += [significand.eq(x.significand), exponent.eq(x.exponent + 1 - FP16.bias)]
        return significand, exponent, scale[0]

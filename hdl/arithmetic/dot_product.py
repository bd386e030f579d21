"""Fused dot product of two FP16 vectors: exact products, one alignment, one integer sum, one rounding to FP32.

Latency: 5 cycles, one per entry of ``STAGES``.  Throughput: one dot product per cycle.  Reset: the pipeline is empty.
Source: our choice; numbers as in ``golden_model.arithmetic.dot_product``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic import dot_product as golden
from golden_model.arithmetic.formats import FP16, FP32
from hdl.arithmetic.rounding import leading_zeros, round_nearest_even, shift_left, unpack
from hdl.shapes import advance, struct

__all__ = ["EXPONENT_BITS", "PRODUCT_BITS", "DotProduct", "Product", "multiply", "reduce_pairwise"]

STAGES = ("product", "maximum", "align", "sum", "round")
PRODUCT_BITS = 2 * (FP16.fraction_bits + 1)  # 11 x 11 bits, exact
EXPONENT_BITS = (2 * (FP16.max_exponent_field - 2)).bit_length()  # q in [0, 58]
SPECIAL = data.StructLayout({"invalid": 1, "infinite": 1, "negative": 1})
"""What is not finite: invalid means NaN whatever the others say, negative is the sign of an infinite result."""


class Product(NamedTuple):
    """Product of one lane; ``inf`` counts only where ``nan`` is 0."""

    sign: Signal
    magnitude: Signal
    exponent: Signal  # q; 0 for a zero product
    inf: Signal
    nan: Signal


class DotProduct(wiring.Component):
    """Multiply two vectors of FP16 codes lane by lane and add the products.

    Parameters
    ----------
    lanes : int
        Products per result, 1 to 64.
    align_frac_bits : int
        F, the bits kept below the binary point of a product aligned to the largest exponent, 20 to 78.

    Members
    -------
    i : In(stream)
        Two vectors: a_0 ... a_{lanes-1}, b_0 ... b_{lanes-1}, FP16 codes.
    o : Out(stream)
        The dot product: sum, an FP32 code.

    Notes
    -----
    The sum is exact after each product's magnitude was cut toward zero to F fraction bits; it is rounded once.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {"dot": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self, *, lanes: int = 16, align_frac_bits: int = 28) -> None:
        fields = golden.DotProduct(lanes=lanes, align_frac_bits=align_frac_bits)  # checks both
        self.lanes = fields.lanes
        self.align_frac_bits = fields.align_frac_bits
        super().__init__({
            "i": In(stream.Signature(struct(fields.vector_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        enables = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        load_product, load_maximum, load_align, load_sum, load_round = enables
        m.d.comb += [self.i.ready.eq(load_product), self.o.valid.eq(valids[-1])]

        # Stage 1, product: multiply the significands, add the exponents, decide on what is not finite.
        product_r = self._registers("product", PRODUCT_BITS)
        product_sign_r = self._registers("product_sign", 1)
        product_exponent_r = self._registers("product_exponent", EXPONENT_BITS)
        special = _special("special")
        product_special_r = _special("product_special_r")
        codes = self.i.payload
        products = [multiply(m, codes[f"a_{lane}"], codes[f"b_{lane}"], lane) for lane in range(self.lanes)]
        self._classify(m, special, products)
        with m.If(load_product):
            m.d.sync += product_special_r.eq(special)
            for lane, product in enumerate(products):
                m.d.sync += [
                    product_r[lane].eq(product.magnitude),
                    product_sign_r[lane].eq(product.sign),
                    product_exponent_r[lane].eq(product.exponent),
                ]

        # Stage 2, maximum: the largest exponent and every lane's distance from it.
        largest = reduce_pairwise(m, product_exponent_r, "largest", lambda x, y: Mux(x > y, x, y))
        maximum_product_r = self._registers("maximum_product", PRODUCT_BITS)
        maximum_sign_r = self._registers("maximum_sign", 1)
        maximum_distance_r = self._registers("maximum_distance", EXPONENT_BITS)
        maximum_exponent_r = Signal(EXPONENT_BITS, reset_less=True)
        maximum_special_r = _special("maximum_special_r")
        with m.If(load_maximum):
            m.d.sync += [maximum_exponent_r.eq(largest), maximum_special_r.eq(product_special_r)]
            for lane in range(self.lanes):
                m.d.sync += [
                    maximum_product_r[lane].eq(product_r[lane]),
                    maximum_sign_r[lane].eq(product_sign_r[lane]),
                    maximum_distance_r[lane].eq(largest - product_exponent_r[lane]),  # never negative
                ]

        # Stage 3, align: cut each magnitude at the weight 2^(Q - 28 - F), then sign it.
        more_bits = self.align_frac_bits - golden.PRODUCT_FRACTION_BITS
        aligned_bits = PRODUCT_BITS + more_bits  # F + 2: a product is below 4 in its own binade
        align_term_r = self._registers("align_term", signed(aligned_bits + 1))
        align_exponent_r = Signal(EXPONENT_BITS, reset_less=True)
        align_special_r = _special("align_special_r")
        with m.If(load_align):
            m.d.sync += [align_exponent_r.eq(maximum_exponent_r), align_special_r.eq(maximum_special_r)]
        for lane in range(self.lanes):
            wide = Signal(aligned_bits, name=f"wide_{lane}")  # product * 2^(F - 20)
            cut = Signal(aligned_bits, name=f"cut_{lane}")
            m.d.comb += [
                wide.eq(maximum_product_r[lane] << more_bits),
                cut.eq(wide >> maximum_distance_r[lane]),
            ]
            with m.If(load_align):
                m.d.sync += align_term_r[lane].eq(Mux(maximum_sign_r[lane], -cut, cut))

        # Stage 4, sum: exact.
        total = reduce_pairwise(m, align_term_r, "sum", lambda x, y: x + y)
        sum_r = Signal(total.shape(), reset_less=True)  # signed, F + 3 + ceil(log2(lanes)) bits
        sum_exponent_r = Signal(EXPONENT_BITS, reset_less=True)
        sum_special_r = _special("sum_special_r")
        with m.If(load_sum):
            m.d.sync += [sum_r.eq(total), sum_exponent_r.eq(align_exponent_r), sum_special_r.eq(align_special_r)]

        # Stage 5, round: split off the sign, normalise, round once.
        rounded = self._round(m, sum_r, sum_exponent_r)
        result = Signal(FP32.width)
        with m.If(sum_special_r.invalid):
            m.d.comb += result.eq(FP32.quiet_nan)
        with m.Elif(sum_special_r.infinite):
            m.d.comb += result.eq(Cat(Const(FP32.infinity, FP32.width - 1), sum_special_r.negative))
        with m.Elif(sum_r.any()):
            m.d.comb += result.eq(rounded)
        with m.If(load_round):
            m.d.sync += self.o.payload.sum.eq(result)
        return m

    def _registers(self, name: str, shape: ShapeLike) -> list[Signal]:
        """Return one register per lane."""
        return [Signal(shape, name=f"{name}_{lane}_r", reset_less=True) for lane in range(self.lanes)]

    @staticmethod
    def _classify(m: Module, special: data.View, products: list[Product]) -> None:
        """Decide on the special result of all lanes."""
        up = Signal(name="infinite_up")
        down = Signal(name="infinite_down")
        m.d.comb += [
            up.eq(Cat(p.inf & ~p.sign for p in products).any()),
            down.eq(Cat(p.inf & p.sign for p in products).any()),
            special.invalid.eq(Cat(p.nan for p in products).any() | (up & down)),
            special.infinite.eq(up | down),
            special.negative.eq(down),
        ]

    def _round(self, m: Module, total: Signal, exponent: Signal) -> Value:
        """Return the FP32 code of ``total * 2^(exponent - 28 - F)``, which must not be zero."""
        magnitude_bits = len(total) - 1  # |total| < lanes * 2^(F + 2)
        normal_bits = max(magnitude_bits, FP32.fraction_bits + 3)  # room for a bit to round by and one to break ties
        negative = Signal()
        magnitude = Signal(magnitude_bits)
        normal = Signal(normal_bits)
        base = Signal(FP32.exponent_bits)
        m.d.comb += [negative.eq(total[-1]), magnitude.eq(Mux(negative, -total, total))]
        zeros = leading_zeros(m, magnitude, name="magnitude")
        # The leading one weighs 2^(magnitude_bits - 1 - zeros + Q - 28 - F).  Every non-zero sum is a multiple of 2^-48
        # below lanes * 2^32, so 78 <= base <= 163: the rounder sees neither subnormals nor overflow.
        weight = golden.PRODUCT_WEIGHT + golden.PRODUCT_FRACTION_BITS - self.align_frac_bits  # -28 - F
        offset = FP32.bias - 1 + magnitude_bits - 1 + weight  # 99 + ceil(log2(lanes))
        m.d.comb += [
            normal.eq(shift_left(m, magnitude, zeros, name="magnitude") << (normal_bits - magnitude_bits)),
            base.eq(exponent + offset - zeros),
        ]
        low = normal_bits - FP32.fraction_bits - 1  # bits below the significand
        kept, half, rest = normal[low:], normal[low - 1], normal[: low - 1].any()
        code = round_nearest_even(m, base=base, kept=kept, half=half, rest=rest, fmt=FP32, overflows=False)
        return Cat(code, negative)


def _special(name: str) -> data.View:
    return data.View(SPECIAL, Signal(SPECIAL.size, name=name, reset_less=True))


def multiply(m: Module, a_code: Value, b_code: Value, lane: int) -> Product:
    """Multiply two FP16 codes exactly; combinational."""
    a, b = unpack(m, a_code, FP16, name=f"a_{lane}"), unpack(m, b_code, FP16, name=f"b_{lane}")
    zero = Signal(name=f"zero_{lane}")
    product = Product(
        sign=Signal(name=f"sign_{lane}"),
        magnitude=Signal(PRODUCT_BITS, name=f"magnitude_{lane}"),
        exponent=Signal(EXPONENT_BITS, name=f"exponent_{lane}"),
        inf=Signal(name=f"inf_{lane}"),
        nan=Signal(name=f"nan_{lane}"),
    )
    m.d.comb += [
        zero.eq(a.zero | b.zero),
        product.sign.eq(a.sign ^ b.sign),
        product.magnitude.eq(a.significand * b.significand),
        product.exponent.eq(Mux(zero, 0, a.exponent + b.exponent)),  # 0, so that a zero never is the largest
        product.inf.eq(a.inf | b.inf),
        product.nan.eq(a.nan | b.nan | (product.inf & zero)),
    ]
    return product


def reduce_pairwise(m: Module, nodes: list[Signal], name: str, combine: Callable[[Signal, Signal], Value]) -> Signal:
    """Reduce ``nodes`` pairwise, level by level; each node is a signal just wide enough for its value."""
    level = 0
    while len(nodes) > 1:
        level += 1
        above = []
        for k in range(0, len(nodes) - 1, 2):
            value = combine(nodes[k], nodes[k + 1])
            node = Signal(value.shape(), name=f"{name}_{level}_{k // 2}")
            m.d.comb += node.eq(value)
            above.append(node)
        nodes = above + nodes[len(nodes) - len(nodes) % 2 :]  # an odd one waits for the next level
    return nodes[0]

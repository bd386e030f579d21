"""Processing element of one bank: FP16 products, exact fixed-point accumulators, one rounding at read-out.

Latency: 7 cycles from a READ to its value, one per entry of ``STAGES``; MULTIPLY and CLEAR give no answer.
Throughput: one beat per cycle, whatever the order of modes, contexts and operations.  Reset: the pipeline is empty and
every accumulator reads as zero.
Source: paper section IV-A and Fig. 7; numbers as in ``golden_model.pim.processing_element``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic import dot_product
from golden_model.arithmetic.formats import FP16, FP32, Format
from golden_model.pim import processing_element as golden
from golden_model.pim.processing_element import Operation
from hdl.arithmetic.dot_product import EXPONENT_BITS, PRODUCT_BITS, multiply, reduce_pairwise
from hdl.arithmetic.rounding import leading_zeros, round_nearest_even, shift_left
from hdl.pim.processing_element_accumulators import AccumulatorBank, Term
from hdl.shapes import advance, choose, struct

__all__ = ["ProcessingElement"]

STAGES = ("product", "distance", "place", "sum", "read", "zeros", "round")
TOP_EXPONENT = 2 * (FP16.max_exponent_field - 2)  # 58: the largest q
PLACED_BITS = PRODUCT_BITS + TOP_EXPONENT  # 80: any product in units of 2^-48
GROUP = 4  # lanes that are compared, and whose terms are added, a stage before those of all groups are
FINE = 3  # bits of the distance by which a product moves in stage "distance"; the rest follows in stage "place"


class ProcessingElement(wiring.Component):
    """Multiply a column of the bank by a vector of the global buffer and accumulate.

    Parameters
    ----------
    lanes : int
        Products per beat; a power of two, 2 to 64.
    contexts : int
        Sets of accumulators, 1 to 16; each has one dot accumulator and ``lanes`` lane accumulators.
    align_frac_bits : int
        F of the dot mode, 20 to 78.

    Members
    -------
    i : In(stream)
        A beat: op, axpy, first, half, context, slot, row_0 ... row_{lanes-1}, vector_0 ... vector_{lanes-1}.
    o : Out(stream)
        What READ gives: value, FP32 or (half) FP16 in its low half.

    Notes
    -----
    Lane accumulators change in stage *place*, dot accumulators in stage *read*; each set of accumulators is touched in
    one stage only, so beats act on it in their order.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {
        "dot": {"latency_cycles": latency, "interval_cycles": 1},
        "axpy": {"latency_cycles": latency, "interval_cycles": 1},
        "read": {"latency_cycles": latency, "interval_cycles": 1},
    }

    def __init__(self, *, lanes: int = 16, contexts: int = 1, align_frac_bits: int = 28) -> None:
        fields = golden.ProcessingElement(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits)
        self.lanes = fields.lanes
        self.contexts = fields.contexts
        self.align_frac_bits = fields.align_frac_bits
        self.lane_bits = golden.lane_accumulator_bits()
        self.dot_bits = fields.dot_accumulator_bits
        self._control = data.StructLayout({
            "multiply": 1, "restart": 1, "read": 1, "clear": 1,  # the operation; restart is a multiply from zero
            "axpy": 1, "half": 1, "context": fields.context_bits, "slot": fields.slot_bits,
        })  # fmt: skip
        super().__init__({
            "i": In(stream.Signature(struct(fields.beat_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.i.payload
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        beats, answers = valids[:4], valids[4:]
        controls = [self._control_register(f"{stage}_control_r") for stage in STAGES[:4]]
        product_control_r, distance_control_r, place_control_r, sum_control_r = controls
        # Only a READ goes on to the last three stages; other beats end where they would enter them.
        reads = Signal()
        m.d.comb += reads.eq(sum_control_r.read)
        load_read, load_zeros, load_round = advance(m, valids=answers, i_valid=beats[-1] & reads, o_ready=self.o.ready)
        loads = advance(m, valids=beats, i_valid=self.i.valid, o_ready=load_read | ~reads)
        load_product, load_distance, load_place, load_sum = loads
        m.d.comb += [self.i.ready.eq(load_product), self.o.valid.eq(answers[-1])]
        with m.If(load_product):
            m.d.sync += [
                product_control_r.multiply.eq(beat.op == Operation.MULTIPLY),
                product_control_r.restart.eq((beat.op == Operation.MULTIPLY) & beat.first),
                product_control_r.read.eq(beat.op == Operation.READ),
                product_control_r.clear.eq(beat.op == Operation.CLEAR),
                *(product_control_r[name].eq(beat[name]) for name in ("axpy", "half", "context", "slot")),
            ]
        for load, before, after in zip(loads[1:], controls, controls[1:], strict=False):
            with m.If(load):
                m.d.sync += after.eq(before)

        # Stage 1, product: multiply the lanes; an axpy takes one element of the vector for all of them.
        scalar = Signal(FP16.width)
        m.d.comb += scalar.eq(choose([beat[f"vector_{lane}"] for lane in range(self.lanes)], beat.slot))
        product_r = self._registers("product", PRODUCT_BITS)
        product_sign_r = self._registers("product_sign", 1)
        product_exponent_r = self._registers("product_exponent", EXPONENT_BITS)
        product_plus_r = self._registers("product_plus", 1)
        product_minus_r = self._registers("product_minus", 1)
        products = []
        for lane in range(self.lanes):
            factor = Signal(FP16.width, name=f"factor_{lane}")
            m.d.comb += factor.eq(Mux(beat.axpy, scalar, beat[f"vector_{lane}"]))
            product = multiply(m, beat[f"row_{lane}"], factor, lane)
            products.append(product)
            with m.If(load_product):
                m.d.sync += [
                    product_r[lane].eq(product.magnitude),
                    product_sign_r[lane].eq(product.sign),
                    product_exponent_r[lane].eq(product.exponent),
                    product_plus_r[lane].eq(product.nan | (product.inf & ~product.sign)),
                    product_minus_r[lane].eq(product.nan | (product.inf & product.sign)),
                ]

        group_r = []  # the largest exponent of each group of lanes, while the multipliers are at work
        for group in range(0, self.lanes, GROUP):
            exponents = [product.exponent for product in products[group : group + GROUP]]
            register = Signal(EXPONENT_BITS, name=f"product_group_{group}_r", reset_less=True)
            with m.If(load_product):
                m.d.sync += register.eq(reduce_pairwise(m, exponents, f"group_{group}", _greater))
            group_r.append(register)

        # Stage 2, distance: how far each product must move, to its own weight (axpy) or with the largest to the top (dot).
        largest = reduce_pairwise(m, group_r, "largest", _greater)
        room = Signal(EXPONENT_BITS)
        m.d.comb += room.eq(Mux(product_control_r.axpy, 0, TOP_EXPONENT - largest))
        distance_product_r = self._registers("distance_product", PRODUCT_BITS + (1 << FINE) - 1)  # moved by up to 7
        distance_sign_r = self._registers("distance_sign", 1)
        distance_r = self._registers("distance", EXPONENT_BITS - FINE)  # the rest of the way, in steps of 8
        distance_plus_r = self._registers("distance_plus", 1)
        distance_minus_r = self._registers("distance_minus", 1)
        distance_largest_r = Signal(EXPONENT_BITS, reset_less=True)
        with m.If(load_distance):
            m.d.sync += distance_largest_r.eq(largest)
            for lane in range(self.lanes):
                distance = Signal(EXPONENT_BITS, name=f"way_{lane}")
                m.d.comb += distance.eq(product_exponent_r[lane] + room)  # at most 58
                m.d.sync += [
                    distance_product_r[lane].eq(product_r[lane] << distance[:FINE]),
                    distance_r[lane].eq(distance[FINE:]),
                    distance_sign_r[lane].eq(product_sign_r[lane]),
                    distance_plus_r[lane].eq(product_plus_r[lane]),
                    distance_minus_r[lane].eq(product_minus_r[lane]),
                ]

        # Stage 3, place: move the products; an axpy ends here, a dot product adds their F + 2 top bits within each group.
        # A negative number goes on as its one's complement and a carry, which the next adder takes in.
        cut_bits = self.align_frac_bits + 2
        cuts = [Signal(signed(1 + cut_bits + 1), name=f"cut_{lane}") for lane in range(self.lanes)]  # carry, bits, sign
        place_largest_r = Signal(EXPONENT_BITS, reset_less=True)
        place_marks_r = Signal(2, reset_less=True)
        lane_bank = AccumulatorBank(m, count=self.lanes, contexts=self.contexts, bits=self.lane_bits, name="lane")
        terms = []
        for lane in range(self.lanes):
            sign = distance_sign_r[lane]
            placed = Signal(PLACED_BITS, name=f"placed_{lane}")
            number = Signal(signed(PLACED_BITS + 1), name=f"number_{lane}")
            m.d.comb += [
                placed.eq(distance_product_r[lane] << Cat(Const(0, FINE), distance_r[lane])),
                number.eq(Cat(placed ^ sign.replicate(PLACED_BITS), sign)),
                cuts[lane].eq(Cat(sign, number[PLACED_BITS - cut_bits :])),
            ]
            terms.append(Term(number, sign, distance_plus_r[lane], distance_minus_r[lane]))
        partials = []
        for group in range(0, self.lanes, GROUP):
            partial = reduce_pairwise(m, cuts[group : group + GROUP], f"partial_{group}", _add)
            register = Signal(partial.shape(), name=f"place_partial_{group}_r", reset_less=True)
            with m.If(load_place):
                m.d.sync += register.eq(partial)
            partials.append(register)
        held, lane_filled = lane_bank.step(distance_control_r, load_place & beats[1] & distance_control_r.axpy, terms)
        place_lane_r = Signal(self.lane_bits + 2, reset_less=True)
        place_filled_r = Signal(reset_less=True)
        with m.If(load_place):
            m.d.sync += [
                place_filled_r.eq(lane_filled),
                place_largest_r.eq(distance_largest_r),
                place_marks_r.eq(Cat(Cat(distance_plus_r).any(), Cat(distance_minus_r).any())),
                place_lane_r.eq(choose(held, distance_control_r.slot)),
            ]

        # Stage 4, sum: exact, and moved by the low bits of its exponent; a lane that is read travels in the same registers.
        # What moves in at the low end completes the one's complement, so that the carry passes through it.
        total = reduce_pairwise(m, partials, "sum", _add)
        carry, total_bits, near_bits = total[0], len(total) - 1, len(total) - 1 + (1 << FINE) - 1
        near = Signal(signed(near_bits))
        sum_carry_r = Signal(reset_less=True)
        sum_r = Signal(signed(max(self.lane_bits, near_bits)), reset_less=True)
        sum_marks_r = Signal(2, reset_less=True)
        sum_filled_r = Signal(reset_less=True)
        sum_distance_r = Signal(EXPONENT_BITS - FINE, reset_less=True)
        m.d.comb += near.eq(_shift_in(carry, total[1:], place_largest_r[:FINE], near_bits - total_bits))
        with m.If(load_sum):
            m.d.sync += [
                sum_distance_r.eq(place_largest_r[FINE:]),
                sum_carry_r.eq(carry),
                sum_r.eq(Mux(place_control_r.axpy, place_lane_r[: self.lane_bits].as_signed(), near)),
                sum_marks_r.eq(Mux(place_control_r.axpy, place_lane_r[self.lane_bits :], place_marks_r)),
                sum_filled_r.eq(place_filled_r),
            ]

        # Stage 5, read: a dot product ends here; what a READ gives is on its way out.
        # The sum weighs 2^(Q - 28 - F); below 2^-48 it has only zeros, as every product is a multiple of that.
        drop = self.align_frac_bits - dot_product.PRODUCT_FRACTION_BITS
        moved = Signal(signed(total_bits + TOP_EXPONENT))
        far = Cat(Const(0, FINE), sum_distance_r)
        m.d.comb += moved.eq(_shift_in(sum_carry_r, sum_r[:near_bits], far, TOP_EXPONENT))
        dot_bank = AccumulatorBank(m, count=1, contexts=self.contexts, bits=self.dot_bits, name="dot")
        term = Term(moved[drop:].as_signed(), sum_carry_r, sum_marks_r[0], sum_marks_r[1])
        active = beats[-1] & ~sum_control_r.axpy & (~reads | load_read)
        (dot,), dot_filled = dot_bank.step(sum_control_r, active, [term])
        chosen = Signal(signed(self.dot_bits))
        m.d.comb += chosen.eq(Mux(sum_control_r.axpy, sum_r, dot[: self.dot_bits].as_signed()))
        read_filled_r = Signal(reset_less=True)
        read_r = Signal(signed(self.dot_bits), reset_less=True)
        read_marks_r = Signal(2, reset_less=True)
        read_half_r = Signal(reset_less=True)
        with m.If(load_read):
            m.d.sync += [
                read_r.eq(chosen),
                read_marks_r.eq(Mux(sum_control_r.axpy, sum_marks_r, dot[self.dot_bits :])),
                read_filled_r.eq(Mux(sum_control_r.axpy, sum_filled_r, dot_filled)),
                read_half_r.eq(sum_control_r.half),
            ]

        # Stage 6, zeros: count those above the leading one.  A negative number stays a one's complement, with the ones
        # that follow it below the units: what is missing to its magnitude is less than any bit.
        negative = read_r[-1]
        number = Signal(self.dot_bits)
        m.d.comb += number.eq(Cat(negative, read_r[:-1] ^ negative.replicate(self.dot_bits - 1)))
        zeros = leading_zeros(m, number, name="number")
        zeros_number_r = Signal(self.dot_bits, reset_less=True)
        zeros_count_r = Signal(len(zeros), reset_less=True)
        zeros_sign_r = Signal(reset_less=True)
        zeros_marks_r = Signal(2, reset_less=True)
        zeros_half_r = Signal(reset_less=True)
        zeros_some_r = Signal(reset_less=True)
        with m.If(load_zeros):
            m.d.sync += [
                zeros_number_r.eq(number),
                zeros_count_r.eq(zeros),
                zeros_sign_r.eq(negative),
                zeros_marks_r.eq(Mux(read_filled_r, read_marks_r, 0)),
                zeros_half_r.eq(read_half_r),
                zeros_some_r.eq(read_filled_r & read_r.any()),
            ]

        # Stage 7, round: normalise, to FP16 only down to its subnormals, and round once.
        top = self.dot_bits - 2 + dot_product.PRODUCT_WEIGHT  # the top bit of number weighs 2^top
        lowest = top - (1 - FP16.bias)  # the shift that brings 2^-14 to the top
        shift = Signal(range(self.dot_bits))
        m.d.comb += shift.eq(Mux(zeros_half_r & (zeros_count_r > lowest), lowest, zeros_count_r))
        normal = shift_left(m, zeros_number_r, shift, name="normal", fill=zeros_sign_r)
        single = self._round(m, normal, zeros_sign_r, top + FP32.bias - 1 - shift, FP32)
        half = self._round(m, normal, zeros_sign_r, lowest - shift, FP16)
        result = Signal(FP32.width)
        for fmt, code, wanted in ((FP16, half, zeros_half_r), (FP32, single, ~zeros_half_r)):
            with m.If(wanted & zeros_marks_r.any()):
                infinity = Cat(Const(fmt.infinity, fmt.width - 1), zeros_marks_r[1])
                m.d.comb += result.eq(Mux(zeros_marks_r.all(), fmt.quiet_nan, infinity))
            with m.Elif(wanted & zeros_some_r):
                m.d.comb += result.eq(Cat(code, zeros_sign_r))
        with m.If(load_round):
            m.d.sync += self.o.payload.value.eq(result)
        return m

    def _control_register(self, name: str) -> data.View:
        return data.View(self._control, Signal(self._control.size, name=name, reset_less=True))

    def _registers(self, name: str, shape: ShapeLike) -> list[Signal]:
        """Return one register per lane."""
        return [Signal(shape, name=f"{name}_{lane}_r", reset_less=True) for lane in range(self.lanes)]

    @staticmethod
    def _round(m: Module, normal: Value, negative: Value, base: Value, fmt: Format) -> Value:
        """Return the code, less its sign, of a normalised number that is not zero; a negative one lacks a last one."""
        low = len(normal) - fmt.fraction_bits - 1  # bits below the significand
        exponent = Signal(len(base) - 1, name=f"base_{fmt.width}")  # never negative
        m.d.comb += exponent.eq(base)
        kept, half, rest = normal[low:], normal[low - 1], normal[: low - 1]
        # With what it lacks, a negative number lies above the tie if the half bit is set, and on it if only ones follow.
        tie = Mux(negative, half | rest.all(), half)
        above = Mux(negative, half, rest.any())
        return round_nearest_even(m, base=exponent, kept=kept, half=tie, rest=above, fmt=fmt, overflows=fmt is FP16)


def _greater(x: Signal, y: Signal) -> Value:
    return Mux(x > y, x, y)


def _add(x: Signal, y: Signal) -> Value:
    """Add two numbers, each with a carry below its last bit that is still to be added: x's goes in, y's goes on."""
    total = Cat(Const(1, 1), x[1:]).as_signed() + Cat(x[0], y[1:]).as_signed()
    return Cat(y[0], total[1:]).as_signed()


def _shift_in(fill: Value, number: Value, amount: Value, room: int) -> Value:
    """Move a signed number up by at most ``room`` places and copy ``fill`` into the places below it."""
    return (Cat(fill.replicate(room), number).as_signed() << amount)[room:].as_signed()

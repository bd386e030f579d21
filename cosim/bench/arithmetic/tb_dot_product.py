"""Bench of the fused dot product: directed specials, adversarial and random vectors under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.dot_product import DotProduct, lane_product
from golden_model.arithmetic.dot_product_vectors import Pair, vector_classes
from golden_model.arithmetic.formats import FP16, FP32

CLASSES = (
    "uniform_bits", "finite_uniform", "same_exponent", "widest_gap", "cancelling", "rounding_ties", "subnormals",
    "signed_zeros", "specials", "max_finite",
)  # fmt: skip
BINS = (
    *CLASSES, "result_nan", "result_plus_inf", "result_minus_inf", "result_zero", "result_negative", "bits_cut",
    "rounded", "tie_to_even", "lane_beyond_alignment",
)  # fmt: skip
ONE, TWO = 0x3C00, 0x4000


class Bench(StreamBench):
    """Turns pairs of vectors into items and expected sums."""

    def __init__(self, dut: Any) -> None:
        self.model = DotProduct(**record.settings()["parameters"])
        super().__init__(dut, self.model.vector_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    def vector(self, lanes: dict[int, tuple[int, int]]) -> Pair:
        """Return vectors that are +0 but for the given lanes."""
        pairs = [lanes.get(lane, (0, 0)) for lane in range(self.model.lanes)]
        return [a for a, _ in pairs], [b for _, b in pairs]

    async def compare(self, vectors: Sequence[Pair], **stalls: Any) -> Exchange:
        names = [name for name, _ in self.inputs]
        items = [dict(zip(names, [*a, *b], strict=True)) for a, b in vectors]
        expected = []
        for a, b in vectors:
            total = self.model.compute(a, b)
            expected.append({"sum": total})
            self._cover(a, b, total)
        done = await self.exchange(items, expected, **stalls)
        record.bins(BINS, self.hits)
        return done

    def _cover(self, a: Sequence[int], b: Sequence[int], total: int) -> None:
        size = total & ~FP32.sign_bit
        if size >= FP32.infinity:
            sign = "minus" if total & FP32.sign_bit else "plus"
            self.hits["result_nan" if size > FP32.infinity else f"result_{sign}_inf"] += 1
            return
        self.hits["result_zero"] += total == 0
        self.hits["result_negative"] += bool(total & FP32.sign_bit)
        products = [p for p in map(lane_product, a, b) if p.magnitude]
        room, largest = self.model.align_frac_bits - 20, max((p.exponent for p in products), default=0)
        gaps = [(p.magnitude, largest - p.exponent) for p in products]
        self.hits["bits_cut"] += any((magnitude << room) & ((1 << gap) - 1) for magnitude, gap in gaps)
        self.hits["lane_beyond_alignment"] += any((magnitude << room) >> gap == 0 for magnitude, gap in gaps)
        magnitude = abs(self.model.fused_sum(a, b)[0])
        dropped = max(magnitude.bit_length() - FP32.fraction_bits - 1, 0)
        rest = magnitude & ((1 << dropped) - 1)
        self.hits["rounded"] += rest > 0
        self.hits["tie_to_even"] += dropped > 0 and rest == 1 << (dropped - 1)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """Cancellation, infinities, NaN in every pair of lanes (FP-01, FP-04); exact products in one lane (FP-10)."""
    bench = Bench(dut)
    await bench.start()
    lanes = bench.model.lanes
    inf, minus, nan = FP16.infinity, FP16.sign_bit, FP16.quiet_nan
    vectors = [bench.vector({})]
    for lane in range(lanes):
        vectors += [
            bench.vector({lane: pair})
            for pair in ((inf, 0), (0, inf), (inf, minus), (nan, 0), (0, nan), (inf, ONE), (ONE, inf | minus),
                         (inf, inf), (0x0001, 0x0001), (0x7BFF, 0x7BFF), (0x0001, 0x3BF7), (0x3C01, 0x3C01),
                         (minus, ONE), (minus, minus))
        ]  # fmt: skip
        for other in set(range(lanes)) - {lane}:
            vectors += [
                bench.vector({lane: (TWO | minus, ONE), other: (TWO, ONE)}),
                bench.vector({lane: (inf, ONE), other: (inf | minus, ONE)}),
                bench.vector({lane: (inf, ONE), other: (ONE, inf)}),
                bench.vector({lane: (0x7BFF, 0x7BFF), other: (0x0001, ONE)}),
            ]
    await bench.compare(vectors)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_vectors(dut: Any, source: str, sink: str) -> None:
    """Vectors of every adversarial class in random order."""
    bench = Bench(dut)
    await bench.start()
    classes = vector_classes(bench.rng, bench.model.lanes)
    assert tuple(classes) == CLASSES
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    chosen = [CLASSES[int(number)] for number in bench.rng.integers(len(CLASSES), size=count)]
    bench.hits.update(chosen)
    await bench.compare([classes[name]() for name in chosen], source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    done = await bench.compare([bench.vector({0: (ONE + number, TWO)}) for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("dot", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with vectors in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    names = [name for name, _ in bench.inputs]
    await bench.reset_in_traffic([dict.fromkeys(names, ONE + number) for number in range(8)])
    await bench.compare([bench.vector({0: (ONE + number, ONE)}) for number in range(32)])

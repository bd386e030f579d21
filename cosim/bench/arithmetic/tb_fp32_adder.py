"""Bench of the FP32 adder: directed specials, adversarial and random pairs under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP32
from golden_model.arithmetic.fp32_adder import Fp32Adder
from golden_model.arithmetic.fp32_adder_vectors import pair_classes

BINS = (
    "result_nan", "result_inf", "result_plus_zero", "result_minus_zero", "result_subnormal", "cancelled", "overflow",
)  # fmt: skip
SPECIALS = (0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x33800000,
            0x3FC001E6, 0x3FA01FFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
            0xFFFFFFFF)  # fmt: skip


class Bench(StreamBench):
    """Turns pairs into items and expected sums."""

    def __init__(self, dut: Any) -> None:
        self.model = Fp32Adder(**record.settings()["parameters"])
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    async def compare(self, pairs: Sequence[tuple[int, int]], **stalls: Any) -> Exchange:
        expected = []
        for a, b in pairs:
            total = self.model.compute(a, b)
            expected.append({"sum": total})
            size = total & ~FP32.sign_bit
            finite = max(a & ~FP32.sign_bit, b & ~FP32.sign_bit) < FP32.infinity
            self.hits["result_nan"] += size > FP32.infinity
            self.hits["result_inf"] += size == FP32.infinity
            self.hits["overflow"] += size == FP32.infinity and finite
            self.hits["result_plus_zero"] += total == 0
            self.hits["result_minus_zero"] += total == FP32.sign_bit
            self.hits["result_subnormal"] += 0 < size < 1 << FP32.fraction_bits
            self.hits["cancelled"] += total == 0 and a != 0
        done = await self.exchange([{"a": a, "b": b} for a, b in pairs], expected, **stalls)
        record.bins((*pair_classes(self.rng), *BINS), self.hits)
        return done


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """All pairs of special codes; infinities of both signs give NaN (FP-04), opposite numbers +0 (FP-01)."""
    bench = Bench(dut)
    await bench.start()
    await bench.compare([(a, b) for a in SPECIALS for b in SPECIALS])


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_pairs(dut: Any, source: str, sink: str) -> None:
    """Pairs of every adversarial class in random order, operands in both orders."""
    bench = Bench(dut)
    await bench.start()
    classes = pair_classes(bench.rng)
    names = list(classes)
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    chosen = [names[int(number)] for number in bench.rng.integers(len(names), size=count)]
    bench.hits.update(chosen)
    pairs = [classes[name]() for name in chosen]
    await bench.compare([pair if number % 2 else pair[::-1] for number, pair in enumerate(pairs)], source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    done = await bench.compare([(0x3F800000 + number, 0x40000000) for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("add", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with pairs in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic([{"a": 0x3F800000 + number, "b": 0x3F800000} for number in range(8)])
    await bench.compare([(0x40000000 + number, 0x3F800000) for number in range(32)])

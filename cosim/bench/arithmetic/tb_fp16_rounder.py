"""Bench of the FP32 to FP16 cast: every FP16 code, edges, adversarial codes under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16, FP32, exact_value
from golden_model.arithmetic.fp16_rounder import Fp16Rounder
from golden_model.arithmetic.fp16_rounder_vectors import code_classes

BINS = ("result_nan", "result_inf", "result_subnormal", "result_zero", "underflow", "overflow", "exact", "inexact")
EDGES = (0x33000000, 0x33000001, 0x33C00000, 0x477FEFFF, 0x477FF000, 0x337EE000)  # 2^-25, its successor, 3 * 2^-25,
# the code below 65520, 65520 (FP-02), and the product of FP-10 that rounds to the smallest subnormal


class Bench(StreamBench):
    """Turns FP32 codes into items and expected FP16 codes."""

    def __init__(self, dut: Any) -> None:
        self.model = Fp16Rounder(**record.settings()["parameters"])
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    async def compare(self, codes: Sequence[int], **stalls: Any) -> Exchange:
        halves = [self.model.compute(code) for code in codes]
        for code, half in zip(codes, halves, strict=True):
            size, source = half & ~FP16.sign_bit, code & ~FP32.sign_bit
            self.hits["result_nan"] += size > FP16.infinity
            self.hits["result_inf"] += size == FP16.infinity
            self.hits["overflow"] += size == FP16.infinity and source < FP32.infinity
            self.hits["result_subnormal"] += 0 < size < 1 << FP16.fraction_bits
            self.hits["result_zero"] += size == 0
            self.hits["underflow"] += size == 0 and source > 0
            if size < FP16.infinity:
                self.hits["exact" if exact_value(half, FP16) == exact_value(code, FP32) else "inexact"] += 1
        done = await self.exchange([{"single": c} for c in codes], [{"half": h} for h in halves], **stalls)
        record.bins((*code_classes(self.rng), *BINS), self.hits)
        return done


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_edges(dut: Any) -> None:
    """The edges of FP-02, and FP16 codes of both signs that must come back unchanged (every 16th, all subnormal ends)."""
    bench = Bench(dut)
    await bench.start()
    assert [bench.model.compute(code) for code in EDGES] == [0x0000, 0x0001, 0x0002, 0x7BFF, 0x7C00, 0x0001]
    finite = [*range(0, FP16.infinity, 16), 1, 2, 0x3FF, 0x400, 0x7BFF]
    back = [_widen(code | sign) for code in finite for sign in (0, FP16.sign_bit)]
    assert [bench.model.compute(code) for code in back[::2]] == finite
    await bench.compare([*EDGES, *(code | FP32.sign_bit for code in EDGES), *back])


def _widen(code: int) -> int:
    """FP32 code of a finite FP16 code, by Python's own conversions."""
    import struct

    return int(struct.unpack("<I", struct.pack("<f", struct.unpack("<e", struct.pack("<H", code))[0]))[0])


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_codes(dut: Any, source: str, sink: str) -> None:
    """Codes of every adversarial class in random order."""
    bench = Bench(dut)
    await bench.start()
    classes = code_classes(bench.rng)
    names = list(classes)
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    chosen = [names[int(number)] for number in bench.rng.integers(len(names), size=count)]
    bench.hits.update(chosen)
    await bench.compare([classes[name]() for name in chosen], source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    done = await bench.compare([0x3F800000 + number for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("round", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with codes in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic([{"single": 0x3F800000 + number} for number in range(8)])
    await bench.compare([0x40000000 + (number << 13) for number in range(32)])

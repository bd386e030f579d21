"""Bench of the piecewise quadratic evaluator: every segment's ends, random arguments under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.elementary import ONE, Elementary
from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, INDEX_BITS, STEP_BITS, Function

SEGMENTS = tuple(f"{function.name.lower()}_{index}" for function in Function for index in range(1 << INDEX_BITS))


def draw(rng: np.random.Generator) -> tuple[int, int]:
    """Any function; an argument with random upper bits and random, all-zero or all-one lower bits."""
    kept = int(rng.integers(ARGUMENT_BITS + 1))
    low = (0, (1 << kept) - 1, int(rng.integers(1 << kept)))[int(rng.integers(3))]
    return int(rng.integers(len(Function))), int(rng.integers(1 << (ARGUMENT_BITS - kept))) << kept | low


class Bench(StreamBench):
    """Turns functions and arguments into items and expected values."""

    def __init__(self, dut: Any) -> None:
        self.model = Elementary(**record.settings()["parameters"])
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    async def compare(self, queries: Sequence[tuple[int, int]], **stalls: Any) -> Exchange:
        expected = []
        for function, argument in queries:
            expected.append({"value": self.model.compute(function, argument)})
            self.hits[f"{Function(function).name.lower()}_{argument >> STEP_BITS}"] += 1
        done = await self.exchange([{"function": f, "argument": a} for f, a in queries], expected, **stalls)
        record.bins(SEGMENTS, self.hits)
        return done


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def directed_segments(dut: Any) -> None:
    """First, second, middle and last argument of every segment; the values at the starts that must be exactly 1."""
    bench = Bench(dut)
    await bench.start()
    assert [bench.model.compute(f, 0) for f in (Function.EXP2, Function.RECIPROCAL, Function.RSQRT)] == [ONE] * 3
    size = 1 << STEP_BITS
    places = (0, 1, size // 2, size - 1)
    await bench.compare([(f, index * size + k) for f in Function for index in range(1 << INDEX_BITS) for k in places])


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_arguments(dut: Any, source: str, sink: str) -> None:
    """Random functions and arguments."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare([draw(bench.rng) for _ in range(count)], source=source, sink=sink)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(ready=(0.1, 0.5, 0.9))
async def readiness(dut: Any, ready: float) -> None:
    """A sink that is ready in 10, 50 or 90 % of the cycles: an offer stays as it is until it is taken."""
    bench = Bench(dut)
    await bench.start()
    left = int(record.settings()["effort"] * 8 * ready)  # 20,000 cycles on Verilator
    await bench.compare([draw(bench.rng) for _ in range(left)], sink="random", ready_probability=ready)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    done = await bench.compare([(number % 4, number << 17) for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("evaluate", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with arguments in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic([{"function": 0, "argument": number} for number in range(8)])
    await bench.compare([(1, number << 12) for number in range(32)])

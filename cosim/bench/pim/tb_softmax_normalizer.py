"""Bench of softmax, pass 2: rows with their own, foreign and empty pairs under stalls; measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16
from golden_model.pim.softmax_normalizer import ONE_CODE, SoftmaxNormalizer
from golden_model.pim.softmax_pair import Pair, merge, to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.softmax_vectors import MINUS_INFINITY, draw_pair, row_classes
from golden_model.pim.vector_beat import codes_of_beats, row_to_beats

Items = list[dict[str, int]]
BINS = (
    "masked", "invalid", "result_one", "result_zero", "result_subnormal", "result_smallest", "short_last_beat",
    "foreign_pair", "shard",
)  # fmt: skip
RAMP = [0x3C00, 0x4000, 0x4200]


class Bench(StreamBench):
    """Turns rows into items with their pairs and expected beats."""

    def __init__(self, dut: Any) -> None:
        parameters = record.settings()["parameters"]
        self.model, self.statistics = SoftmaxNormalizer(**parameters), SoftmaxStatistics(**parameters)
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    def items(self, codes: Sequence[int], pair: Pair | None = None) -> Items:
        fields = to_fields(self.statistics.row(codes) if pair is None else pair)
        filler = (0x7E00, 0x7BFF)[int(self.rng.integers(2))]
        return [{**beat, **fields} for beat in row_to_beats(codes, self.model.lanes, filler=filler)]

    async def compare(self, rows: Sequence[Items], **stalls: Any) -> tuple[Exchange, list[list[int]]]:
        items = [item for row in rows for item in row]
        expected = [self.model.compute(item) for item in items]
        for beat in expected:
            values = codes_of_beats([beat])
            self.hits["masked"] += beat["masked"]
            self.hits["invalid"] += beat["invalid"]
            self.hits["result_one"] += ONE_CODE in values
            self.hits["result_zero"] += 0 in values
            self.hits["result_smallest"] += 1 in values
            self.hits["result_subnormal"] += any(1 < value < 1 << FP16.fraction_bits for value in values)
            self.hits["short_last_beat"] += beat["count"] < self.model.lanes
            assert beat["invalid"] or max(values) <= ONE_CODE
        done = await self.exchange(items, expected, **stalls)
        record.bins((*row_classes(self.rng, 1), *BINS), self.hits)
        answers = iter(expected)
        return done, [codes_of_beats([next(answers) for _ in row]) for row in rows]


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def directed_rows(dut: Any) -> None:
    """Masked rows and their neighbours (SX-01), extremes (SX-03), a long flat row (SX-05), NaN and infinity."""
    bench = Bench(dut)
    await bench.start()
    masked = [MINUS_INFINITY] * 64
    rows = [masked, masked[:20] + [0xC500] + masked[:43], RAMP, RAMP, masked, RAMP]
    rows += [[0x7BFF, 0xFBFF], [0x7BFF, 0x7BFF], [0x7BFF], [0x8001], [0x7E00], [0x7C00, 0], [MINUS_INFINITY, 0x7C00]]
    rows += [[code] * 4096 for code in (0x0000, 0xC700, 0x7B53)]
    _, values = await bench.compare([bench.items(row) for row in rows])
    assert values[0] == values[4] == [0] * 64
    assert values[1] == [0] * 20 + [ONE_CODE] + [0] * 43
    assert values[2] == values[3] == values[5] == [0x2DC3, 0x33D5, 0x3952]
    assert values[6:10] == [[ONE_CODE, 0], [0x3800] * 2, [ONE_CODE], [ONE_CODE]]
    assert values[10:13] == [[0x7E00], [0x7E00] * 2, [0x7E00] * 2]
    assert values[13:] == [[0x0C00] * 4096] * 3


def draw_rows(bench: Bench, left: int) -> list[Items]:
    """Draw rows with their own, with merged and with foreign pairs, ``left`` beats or a few more."""
    classes = row_classes(bench.rng, 5 * bench.model.lanes)
    names = list(classes)
    rows = []
    while left > 0:
        name = names[int(bench.rng.integers(len(names)))]
        bench.hits[name] += 1
        codes = classes[name]()
        kind = int(bench.rng.integers(8))
        pair = None
        if kind == 0:
            pair = draw_pair(bench.rng)
            bench.hits["foreign_pair"] += 1
        elif kind == 1:
            pair = merge(bench.statistics.row(codes), bench.statistics.row(classes["gaussian"]()))
            bench.hits["shard"] += 1
        elif kind == 2:  # a sum below 1, which no row has
            pair = Pair(int(bench.rng.integers(-9, 9)), 1 + int(bench.rng.integers(1 << int(bench.rng.integers(1, 40)))))
        rows.append(bench.items(codes, pair))
        left -= len(rows[-1])
    return rows


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_rows(dut: Any, source: str, sink: str) -> None:
    """Rows of every class back to back, some as shards of a longer row, some with a pair that is not theirs."""
    bench = Bench(dut)
    await bench.start()
    left = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare(draw_rows(bench, left), source=source, sink=sink)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(ready=(0.1, 0.5, 0.9))
async def readiness(dut: Any, ready: float) -> None:
    """A sink that is ready in 10, 50 or 90 % of the cycles: an offer stays as it is until it is taken."""
    bench = Bench(dut)
    await bench.start()
    left = int(record.settings()["effort"] * 8 * ready)  # 20,000 cycles on Verilator
    await bench.compare(draw_rows(bench, left), sink="random", ready_probability=ready)


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Beats per cycle within rows and across their borders, rows with different pairs; latency of every beat."""
    bench = Bench(dut)
    await bench.start()
    rows = [[0x3C00 + k, *RAMP] * (1 + k % 9) for k in range(40)]
    done, _ = await bench.compare([bench.items(row) for row in rows])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("normalize", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset within a row leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic(bench.items([0x3C00, 0x7E00] * (8 * bench.model.lanes))[:12])
    await bench.compare([bench.items([0xC000, 0xC500] * (k + 1)) for k in range(16)])

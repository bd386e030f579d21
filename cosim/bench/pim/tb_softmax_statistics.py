"""Bench of softmax, pass 1: rows of every adversarial class and pairs to merge, under stalls; measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.pim.softmax_pair import LARGEST_SUM, SUM_FRACTION_BITS, Pair, to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.softmax_vectors import MINUS_INFINITY, draw_pair, row_classes
from golden_model.pim.vector_beat import row_to_beats

Items = list[dict[str, int]]
BINS = (
    "masked", "invalid", "one_beat", "many_beats", "short_last_beat", "maximum_in_last_beat", "merged", "merged_empty",
    "mixed", "saturated", "shifted_out",
)  # fmt: skip


class Bench(StreamBench):
    """Turns rows and groups of pairs into items and expected pairs."""

    def __init__(self, dut: Any) -> None:
        self.model = SoftmaxStatistics(**record.settings()["parameters"])
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    def beats(self, codes: Sequence[int]) -> Items:
        """Items of a row; ignored lanes and fields hold what would spoil the row if they counted."""
        spoiler = to_fields(Pair(*([] if self.rng.integers(2) else [100_000, LARGEST_SUM, 1])))
        beats = row_to_beats(codes, self.model.lanes, filler=(0x7E00, 0x7BFF)[int(self.rng.integers(2))])
        return [{"merge": 0, **beat, **spoiler} for beat in beats]

    def pairs(self, pairs: Sequence[Pair]) -> Items:
        lanes = {f"a_{lane}": (0x7E00, 0x7BFF)[lane % 2] for lane in range(self.model.lanes)}
        return [
            {"merge": 1, "last": int(k + 1 == len(pairs)), "count": self.model.lanes, **lanes, **to_fields(pair)}
            for k, pair in enumerate(pairs)
        ]

    async def compare(self, groups: Sequence[Items], **stalls: Any) -> Exchange:
        items = [item for group in groups for item in group]
        expected = self.model.compute(items)
        ends = [k for k, item in enumerate(items) if item["last"]]
        for group, pair in zip(groups, expected, strict=True):
            self._count(group, pair)
        done = await self.exchange(items, [to_fields(pair) for pair in expected], owner=ends, **stalls)
        record.bins((*row_classes(self.rng, 1), *BINS), self.hits)
        return done

    def _count(self, group: Sequence[Mapping[str, int]], pair: Pair) -> None:
        kinds = {item["merge"] for item in group}
        self.hits["masked"] += pair.masked
        self.hits["invalid"] += pair.invalid
        self.hits["one_beat"] += len(group) == 1
        self.hits["many_beats"] += len(group) > 2
        self.hits["short_last_beat"] += kinds == {0} and group[-1]["count"] < self.model.lanes
        self.hits["merged"] += kinds == {1}
        self.hits["merged_empty"] += any(item["merge"] and not item["sum"] for item in group)
        self.hits["mixed"] += kinds == {0, 1}
        self.hits["saturated"] += pair.sum == LARGEST_SUM
        if kinds == {0} and len(group) > 1:
            before = self.model.compute([*group[:-2], {**group[-2], "last": 1}])[0]
            self.hits["maximum_in_last_beat"] += before.maximum < pair.maximum
            self.hits["shifted_out"] += pair.maximum - before.maximum > SUM_FRACTION_BITS and before.sum > 0


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def directed_rows(dut: Any) -> None:
    """Masked rows and their neighbours (SX-01), extremes (SX-03), a long flat row (SX-05), pairs that saturate."""
    bench = Bench(dut)
    await bench.start()
    masked, ramp = [MINUS_INFINITY] * 64, [0x3C00, 0x4000, 0x4200]
    rows = [masked, masked[:20] + [0xC500] + masked[:43], ramp, ramp, masked, ramp]
    rows += [[0x7BFF, 0xFBFF], [0x7BFF, 0x7BFF], [0xFBFF], [0x8001], [0x7E00], [0x7C00, 0], [MINUS_INFINITY, 0x7C00]]
    rows += [[code] * 4096 for code in (0x0000, 0xC700, 0x7B53)]
    full = Pair(0, LARGEST_SUM)
    groups = [bench.beats(row) for row in rows]
    almost = Pair(0, LARGEST_SUM - (1 << 40))
    groups += [bench.pairs([almost, Pair(0, size << 40), Pair(9, 1 << 40)]) for size in (1, 2)]  # exactly full, and over
    groups += [bench.pairs([full, full]), bench.pairs([Pair(), Pair()]), bench.pairs([full, Pair(64, 1 << 40)])]
    groups += [bench.pairs([Pair(90000, 0), Pair(-5, 1 << 40)]), bench.pairs([Pair(0, 1 << 40)] * 64)]
    assert bench.model.row([0] * 4096) == Pair(0, 4096 << SUM_FRACTION_BITS)
    await bench.compare(groups)


def draw_groups(bench: Bench, left: int) -> list[Items]:
    """Draw rows, groups of pairs and mixtures of both, ``left`` items or a few more."""
    classes = row_classes(bench.rng, 5 * bench.model.lanes)
    names = list(classes)
    groups = []
    while left > 0:
        kind = int(bench.rng.integers(6))
        group: Items = []
        if kind < 5:
            name = names[int(bench.rng.integers(len(names)))]
            bench.hits[name] += 1
            group = bench.beats(classes[name]())
        if kind > 3:
            group = bench.pairs([draw_pair(bench.rng) for _ in range(1 + int(bench.rng.integers(5)))]) + group
            group = [{**item, "last": int(k + 1 == len(group))} for k, item in enumerate(group)]
            shorter = [k for k, item in enumerate(group[:-1]) if item["count"] < bench.model.lanes]
            assert not shorter
        groups.append(group)
        left -= len(group)
    return groups


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_rows(dut: Any, source: str, sink: str) -> None:
    """Rows of every class, groups of pairs and mixtures of both, back to back."""
    bench = Bench(dut)
    await bench.start()
    left = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare(draw_groups(bench, left), source=source, sink=sink)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(ready=(0.1, 0.5, 0.9))
async def readiness(dut: Any, ready: float) -> None:
    """A sink that is ready in 10, 50 or 90 % of the cycles: an offer stays as it is until it is taken."""
    bench = Bench(dut)
    await bench.start()
    left = int(record.settings()["effort"] * 8 * ready)  # 20,000 cycles on Verilator
    await bench.compare(draw_groups(bench, left), sink="random", ready_probability=ready)


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Items per cycle within rows and across their borders, and latency of the last item, for beats and for pairs."""
    bench = Bench(dut)
    await bench.start()
    rows = [[0x3C00 + k] * (bench.model.lanes * (1 + k % 4) - k % 3) for k in range(24)]
    for operation, groups in (
        ("statistics", [bench.beats(row) for row in rows]),
        ("merge", [bench.pairs([Pair(k, 3 << 40)] * (1 + k % 5)) for k in range(24)]),
    ):
        done = await bench.compare(groups)
        ends = [k for k, item in enumerate(item for group in groups for item in group) if item["last"]]
        latencies = {out - done.accepted[end] for end, out in zip(ends, done.answered, strict=True)}
        assert len(latencies) == 1, latencies
        record.timing(operation, latency_cycles=latencies.pop(), interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset within a row forgets the row: maximum, sum and flags."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic(bench.beats([0x7BFF, 0x7E00] * (8 * bench.model.lanes))[:12])
    await bench.compare([bench.beats([0xC000, 0xC500] * (k + 1)) for k in range(16)])

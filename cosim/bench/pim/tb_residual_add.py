"""Bench of the residual addition: special codes, ragged rows, adversarial pairs under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16
from golden_model.pim.half_vectors import EDGES, half_classes
from golden_model.pim.residual_add import ResidualAdd

BINS = (
    "result_nan", "result_inf", "result_plus_zero", "result_minus_zero", "result_subnormal", "cancelled", "overflow",
    "one_lane", "all_lanes", "ignored_nan",
)  # fmt: skip

Pair = tuple[int, int]


class Bench(StreamBench):
    """Turns pairs of codes into beats and expected sums."""

    def __init__(self, dut: Any) -> None:
        self.model = ResidualAdd(**record.settings()["parameters"])
        super().__init__(dut, self.model.input_fields, self.model.output_fields)
        self.hits: Counter[str] = Counter()

    def beat(self, pairs: Sequence[Pair], *, last: int = 0, count: int | None = None) -> dict[str, int]:
        """One beat; the lanes beyond ``pairs`` hold NaN."""
        lanes = self.model.lanes
        padded = [*pairs, *[(FP16.quiet_nan, FP16.quiet_nan)] * (lanes - len(pairs))]
        codes = {f"{side}_{lane}": padded[lane][k] for k, side in enumerate("ab") for lane in range(lanes)}
        return {"last": last, "count": len(pairs) if count is None else count} | codes

    async def compare(self, beats: Sequence[dict[str, int]], **stalls: Any) -> Exchange:
        expected = []
        for beat in beats:
            answer = self.model.accept(beat)
            expected.append(answer)
            count, lanes = beat["count"], self.model.lanes
            self.hits["one_lane"] += count == 1
            self.hits["all_lanes"] += count == lanes
            self.hits["ignored_nan"] += not answer["invalid"] and any(
                beat[f"a_{k}"] & ~FP16.sign_bit > FP16.infinity for k in range(count, lanes)
            )
            for lane in range(count):
                a, b, total = (beat[f"a_{lane}"], beat[f"b_{lane}"], answer[f"y_{lane}"])
                size = total & ~FP16.sign_bit
                finite = max(a & ~FP16.sign_bit, b & ~FP16.sign_bit) < FP16.infinity
                self.hits["result_nan"] += size > FP16.infinity
                self.hits["result_inf"] += size == FP16.infinity
                self.hits["overflow"] += size == FP16.infinity and finite
                self.hits["result_plus_zero"] += total == 0
                self.hits["result_minus_zero"] += total == FP16.sign_bit
                self.hits["result_subnormal"] += 0 < size < 1 << FP16.fraction_bits
                self.hits["cancelled"] += total == 0 and a != 0
        done = await self.exchange(beats, expected, **stalls)
        record.bins((*half_classes(self.rng), *BINS), self.hits)
        return done


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """All pairs of edge codes of both signs, in rows of every length up to three beats."""
    bench = Bench(dut)
    await bench.start()
    codes = [code | sign for code in EDGES for sign in (0, FP16.sign_bit)]
    pairs, lanes, beats = [(a, b) for a in codes for b in codes], bench.model.lanes, []
    length = 1
    while pairs:
        row, pairs = pairs[:length], pairs[length:]
        beats += [bench.beat(row[k : k + lanes], last=int(k + lanes >= len(row))) for k in range(0, len(row), lanes)]
        length = length % (3 * lanes) + 1
    await bench.compare(beats)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_beats(dut: Any, source: str, sink: str) -> None:
    """Pairs of every adversarial class, operands in both orders, short last beats with rubbish in the ignored lanes."""
    bench = Bench(dut)
    await bench.start()
    classes = half_classes(bench.rng)
    names, lanes, beats = list(classes), bench.model.lanes, []
    for number in range(record.settings()["effort"] * (4 if source == sink == "none" else 1)):
        name = names[int(bench.rng.integers(len(names)))]
        bench.hits[name] += 1
        pairs = [classes[name]() for _ in range(lanes)]
        last = int(bench.rng.random() < 0.3)
        count = int(bench.rng.integers(1, lanes + 1)) if last else lanes
        beats.append(bench.beat([pair if number % 2 else pair[::-1] for pair in pairs], last=last, count=count))
    await bench.compare(beats, source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    row = [(0x3C00 + lane, 0x4000) for lane in range(bench.model.lanes)]
    done = await bench.compare([bench.beat(row, last=number & 1) for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("add", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with beats in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    row = [(0x3C00, 0x3C00)] * bench.model.lanes
    await bench.reset_in_traffic([bench.beat(row) for _ in range(8)])
    await bench.compare([bench.beat([(0x3C00 + number, 0x3C00)], last=1) for number in range(32)])

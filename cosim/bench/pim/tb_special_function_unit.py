"""Bench of the special function unit: all operations mixed under stalls, answers in order, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.bench.pim.special_function_jobs import Item, Jobs
from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.pim.normalization_vectors import EPSILONS
from golden_model.pim.softmax_pair import Pair, to_fields
from golden_model.pim.special_function_unit import Operation, SpecialFunctionUnit

BINS = ("masked", "invalid", "pair", "ragged", "no_meaning", "switched", "epsilon")
ONE, EPS = 0x3C00, EPSILONS[0]


class Bench(StreamBench):
    """Turns items into expected answers."""

    def __init__(self, dut: Any) -> None:
        self.model = SpecialFunctionUnit(**record.settings()["parameters"])
        super().__init__(dut, self.model.input_fields, self.model.output_fields, ("epsilon",))
        self.jobs = Jobs(self.model, self.rng)
        self.hits: Counter[str] = Counter()

    async def compare(self, items: Sequence[Item], **stalls: Any) -> Exchange:
        """Send items to a block that was just reset."""
        self.model.reset()
        expected, owner = [], []
        for number, (item, epsilon) in enumerate(items):
            answer = self.model.accept(item, epsilon)
            code = item["operation"]
            known = code in set(Operation)
            self.hits[Operation(code).name.lower() if known else "no_meaning"] += 1
            self.hits["switched"] += number > 0 and code != items[number - 1][0]["operation"]
            self.hits["epsilon"] += known and "NORM_STATISTICS" in Operation(code).name and item["last"]
            if answer is not None:
                expected.append(answer)
                owner.append(number)
                self.hits["pair"] += answer["sum"] > 0
                self.hits["masked"] += answer["masked"]
                self.hits["invalid"] += answer["invalid"]
                self.hits["ragged"] += 0 < answer["count"] < self.model.lanes
        done = await self.exchange(
            [item for item, _ in items],
            expected,
            owner=owner,
            registers=lambda number: {"epsilon": items[number][1]},
            **stalls,
        )
        record.bins((*(operation.name.lower() for operation in Operation), *BINS), self.hits)
        return done

    def beats(self, operation: int, count: int, *, last: int = 0, **more: int) -> list[Item]:
        """Full beats of ones for any operation."""
        lanes = {f"{side}_{k}": ONE for side in "abc" for k in range(self.model.lanes)}
        fields = {"last": last, "count": self.model.lanes, **to_fields(Pair(0, 1 << 40)), **lanes, **more}
        return [self.jobs.item(operation, epsilon=EPS, **fields) for _ in range(count)]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_attention_head(dut: Any) -> None:
    """A row of scores from partial sums through softmax, twice: in one pair and in two merged ones."""
    bench = Bench(dut)
    await bench.start()
    jobs, lanes = bench.jobs, bench.model.lanes
    channels = [[ONE + 16 * k + channel for k in range(lanes)] for channel in range(4)]
    items = []
    for number, channel in enumerate(channels):  # FP32 codes of FP16's top bits: 1.0 has 0x3F80 above, 0 below
        halves = {f"a_{k}": 0 for k in range(lanes)} | {f"b_{k}": 0x3F80 + code % 64 for k, code in enumerate(channel)}
        items.append(jobs.item(Operation.SUM, slot=1, first=int(number == 0), last=int(number == 3), **halves))
    model = SpecialFunctionUnit(**record.settings()["parameters"])
    answer = [model.accept(item, 0) for item, _ in items][-1]
    assert answer is not None
    row = [answer[f"y_{k}"] for k in range(lanes)]
    pairs = [bench.model.statistics.row(part) for part in (row, row[:2], row[2:])]
    items += jobs.row(Operation.SOFTMAX_STATISTICS, row)
    items += [jobs.item(Operation.SOFTMAX_MERGE, last=last, **to_fields(pair)) for last, pair in enumerate(pairs[1:])]
    items += jobs.row(Operation.SOFTMAX_NORMALIZE, row, pair=to_fields(pairs[0]))
    await bench.compare(items)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_order(dut: Any) -> None:
    """A slow operation before fast ones: their answers wait; codes without meaning in between."""
    bench = Bench(dut)
    await bench.start()
    items = bench.beats(Operation.LAYER_NORM_STATISTICS, 1, last=1)
    items += bench.beats(Operation.NORM_APPLY, 1, last=1)
    for operation in (Operation.ADD, 15, Operation.SOFTMAX_NORMALIZE, Operation.SUM, Operation.SOFTMAX_MERGE):
        items += bench.beats(operation, 3, last=1)
    await bench.compare(items * 3)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_full_queue(dut: Any) -> None:
    """While no answer is taken, 32 can be due, spread over units that could hold more; then all come in order."""
    bench = Bench(dut)
    await bench.start()
    capacities = {"EXP": 14, "SOFTMAX_NORMALIZE": 10, "SOFTMAX_STATISTICS": 9, "SUM": 5, "ADD": 2}
    items = [item for name, count in capacities.items() for item in bench.beats(Operation[name], count, last=1, first=1)]
    done = await bench.compare([*items, *bench.beats(Operation.RELU, 4, last=1)], hold_output=100)
    assert sum(cycle < 100 for cycle in done.accepted) == 32


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_operations(dut: Any, source: str, sink: str) -> None:
    """All operations mixed, adversarial numbers, rubbish in every field that an operation ignores."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare(bench.jobs.mixed(count), source=source, sink=sink)


@cocotb.test(timeout_time=800, timeout_unit="ms")
@cocotb.parametrize(percent=(10, 50, 90))
async def st_01_payload_holds(dut: Any, percent: int) -> None:
    """ST-01: with ready at 10, 50 and 90 percent, valid and payload stay until they are taken: 20,000 cycles."""
    bench = Bench(dut)
    await bench.start()
    wanted, cycles = min(20_000, 8 * record.settings()["effort"]), 0  # 20,000 with Verilator's effort
    count = wanted * percent // 200
    while cycles < wanted:
        done = await bench.compare(bench.jobs.mixed(count), sink="random", ready_probability=percent / 100)
        cycles += done.cycles
        await bench.reset_in_traffic([])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Each operation at full rate; a change of operation costs no answer cycle if the next unit is not slower."""
    bench = Bench(dut)
    await bench.start()

    def steady(name: str, done: Exchange) -> None:
        assert done.interval(done.accepted) == done.interval(done.answered)
        record.timing(name, latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))

    slots = [bench.beats(Operation.SUM, 1, first=1, last=1, slot=k % bench.model.slots)[0] for k in range(40)]
    steady("sum", await bench.compare(slots))
    for operation in Operation:
        if operation not in (Operation.SUM, Operation.NORM_APPLY) and "NORM_STATISTICS" not in operation.name:
            steady(operation.name.lower(), await bench.compare(bench.beats(operation, 40, last=1)))

    row = bench.beats(Operation.LAYER_NORM_STATISTICS, 1, last=1)
    applied = bench.beats(Operation.NORM_APPLY, 20, last=1)
    done = await bench.compare([*row, *applied, *bench.beats(Operation.ADD, 20, last=1)])
    assert done.interval(done.answered) == 1  # from 12 cycles to 2
    apply = done.accepted[1:21]
    record.timing("norm_row", latency_cycles=done.latency, interval_cycles=apply[0] - done.accepted[0])
    record.timing("norm_apply", latency_cycles=done.answered[0] - apply[0], interval_cycles=done.interval(apply))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with work in every unit leaves no answer due, no row, no slot."""
    bench = Bench(dut)
    await bench.start()
    items = [item for operation in Operation for item in bench.beats(operation, 2, first=0, last=0)]
    await bench.reset_in_traffic([item for item, _ in items])
    after = bench.beats(Operation.SUM, 1, first=0, last=1, slot=1)
    for operation in (Operation.SOFTMAX_STATISTICS, Operation.NORM_APPLY, Operation.RMS_NORM_STATISTICS, Operation.NORM_APPLY):
        after += bench.beats(operation, 1, last=1)
    await bench.compare(after)

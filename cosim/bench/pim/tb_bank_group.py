"""Bench of the bank group: four processing elements in lockstep, some of them left out, under stalls; timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.pim.bank_group import BANKS, BankGroup
from golden_model.pim.processing_element import Operation
from golden_model.pim.processing_element_vectors import Beat, draw_beats

BINS = ("dot", "axpy", "clear", "read", "unknown_op", "one_bank", "some_banks", "all_banks", "no_bank", "banks_differ")
ONE = 0x3C00


class Bench(StreamBench):
    """Turns beats into items and expected values."""

    def __init__(self, dut: Any) -> None:
        self.model = BankGroup(**record.settings()["parameters"])
        super().__init__(dut, self.model.beat_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    def word(self, codes: Sequence[int]) -> int:
        return sum(code << 16 * lane for lane, code in enumerate(codes))

    async def compare(self, beats: Sequence[Beat], **stalls: Any) -> Exchange:
        items, expected, owner = [], [], []
        for number, beat in enumerate(beats):
            controls = {name: beat.get(name, 0) for name, _ in self.model.control_fields}
            rows, vectors = (beat.get(side, [0] * BANKS) for side in ("rows", "vectors"))
            words = {f"{side}_{b}": w for side, ws in (("row", rows), ("vector", vectors)) for b, w in enumerate(ws)}
            items.append(controls | words)
            values = self.model.step(**{**controls, "rows": rows, "vectors": vectors})
            if values is not None:
                expected.append({f"value_{bank}": value for bank, value in enumerate(values)})
                owner.append(number)
                self.hits["read"] += 1
                self.hits["banks_differ"] += len(set(values)) == BANKS
            elif controls["op"] == Operation.MULTIPLY:
                count = controls["active"].bit_count()
                self.hits[{0: "no_bank", 1: "one_bank", BANKS: "all_banks"}.get(count, "some_banks")] += 1
                self.hits["axpy" if controls["axpy"] else "dot"] += 1
            else:
                self.hits["clear" if controls["op"] == Operation.CLEAR else "unknown_op"] += 1
        done = await self.exchange(items, expected, owner=owner, **stalls)
        record.bins(BINS, self.hits)
        return done

    def drawn(self, count: int) -> Iterator[Beat]:
        """Draw beats as for one processing element, with operands of its own for every bank."""
        streams = [draw_beats(self.rng, self.model.elements[0], count) for _ in range(BANKS)]
        for beats in zip(*streams, strict=True):
            controls = {name: value for name, value in beats[0].items() if name not in ("row", "vector")}
            active = (15, 15, 1 << int(self.rng.integers(BANKS)), int(self.rng.integers(16)))[int(self.rng.integers(4))]
            words = {f"{side}s": [self.word(beat[side]) for beat in beats] for side in ("row", "vector")}
            yield {**controls, "active": active, **words}


@cocotb.test(timeout_time=800, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_beats(dut: Any, source: str, sink: str) -> None:
    """Beats of every adversarial class, any set of banks active."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare(list(bench.drawn(count)), source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def each_bank_alone(dut: Any) -> None:
    """Only the active bank changes; a READ gives all four."""
    bench = Bench(dut)
    await bench.start()
    beats: list[Beat] = []
    for axpy in (0, 1):
        for bank in (2, 0, 3, 1):
            words = [bench.word([ONE + 16 * other] * bench.model.lanes) for other in range(BANKS)]
            beats.append({"op": Operation.MULTIPLY, "axpy": axpy, "active": 1 << bank, "rows": words, "vectors": words})
            beats.append({"op": Operation.READ, "axpy": axpy})
        for bank in (1, 3):
            beats += [{"op": Operation.CLEAR, "axpy": axpy, "active": 1 << bank}, {"op": Operation.READ, "axpy": axpy}]
    await bench.compare(beats)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency of a READ behind each kind of beat, one beat per cycle."""
    bench = Bench(dut)
    await bench.start()
    words = [bench.word([ONE] * bench.model.lanes)] * BANKS
    for operation, axpy in (("dot", 0), ("axpy", 1)):
        multiply = {"op": Operation.MULTIPLY, "axpy": axpy, "active": 15, "rows": words, "vectors": words}
        done = await bench.compare([multiply] * 64 + [{"op": Operation.READ, "axpy": axpy}])
        interval = done.interval(done.accepted)
        record.timing(operation, latency_cycles=done.answered[0] - done.accepted[-1], interval_cycles=interval)
    done = await bench.compare([{"op": Operation.READ, "axpy": number % 2} for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("read", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with beats in flight leaves empty accumulators and answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    plain = {name: 0 for name, _ in bench.model.beat_fields} | {"active": 15}
    await bench.reset_in_traffic([{**plain, "op": number % 2, "row_1": ONE, "vector_1": ONE} for number in range(10)])
    bench.model.reset()
    await bench.compare([{"op": Operation.READ, "axpy": axpy} for axpy in (0, 1)])

"""Bench of the processing element: directed specials, adversarial beats in every mix of modes and contexts, timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16, FP32
from golden_model.pim.processing_element import Operation, ProcessingElement
from golden_model.pim.processing_element_vectors import Beat, draw_beats

BINS = (
    "dot", "axpy", "first", "clear", "read_dot", "read_lane", "read_half", "read_empty", "unknown_op", "switch_mode",
    "switch_context", "back_to_back", "result_nan", "result_plus_inf", "result_minus_inf", "result_zero",
    "result_minus_zero", "result_negative", "half_subnormal", "half_overflow", "cancelled",
)  # fmt: skip
ONE, TWO, MAX_FINITE = 0x3C00, 0x4000, FP16.infinity - 1
INF, MINUS, NAN = FP16.infinity, FP16.sign_bit, FP16.quiet_nan


class Bench(StreamBench):
    """Turns beats into items and expected values."""

    def __init__(self, dut: Any) -> None:
        self.model = ProcessingElement(**record.settings()["parameters"])
        super().__init__(dut, self.model.beat_fields, self.model.result_fields)
        self.lanes, self.contexts = self.model.lanes, self.model.contexts
        self.hits: Counter[str] = Counter()

    async def compare(self, beats: Sequence[Beat], **stalls: Any) -> Exchange:
        """Send beats and compare what their READs give."""
        items, expected, owner = [], [], []
        last: Beat = {}
        for number, beat in enumerate(beats):
            row, vector = (beat.get(side, [0] * self.lanes) for side in ("row", "vector"))
            controls = {name: beat.get(name, 0) for name, _ in self.model.control_fields}
            codes = {f"{side}_{k}": code for side, codes in (("row", row), ("vector", vector)) for k, code in enumerate(codes)}
            items.append(controls | codes)
            value = self.model.step(**{**controls, "row": row, "vector": vector})
            if value is not None:
                expected.append({"value": value})
                owner.append(number)
            self._cover(controls, value, last)
            last = controls
        done = await self.exchange(items, expected, owner=owner, **stalls)
        record.bins(BINS, self.hits)
        return done

    def _cover(self, beat: Beat, value: int | None, last: Beat) -> None:
        op, hits = beat["op"], self.hits
        if op == Operation.MULTIPLY:
            hits["axpy" if beat["axpy"] else "dot"] += 1
            hits["first"] += beat["first"]
            if last and last["op"] == Operation.MULTIPLY:
                hits["switch_mode"] += beat["axpy"] != last["axpy"]
                hits["switch_context"] += beat["context"] != last["context"]
                hits["back_to_back"] += beat["context"] == last["context"] and beat["axpy"] == last["axpy"]
        hits["clear"] += op == Operation.CLEAR
        hits["unknown_op"] += op == 3
        if value is None:
            return
        hits["read_lane" if beat["axpy"] else "read_dot"] += 1
        hits["read_half"] += beat["half"]
        fmt = FP16 if beat["half"] else FP32
        size = value & ~fmt.sign_bit
        hits["read_empty"] += last.get("op") == Operation.CLEAR and value == 0
        hits["cancelled"] += last.get("op") == Operation.MULTIPLY and value == 0
        hits["result_nan"] += size > fmt.infinity
        hits["result_plus_inf"] += value == fmt.infinity
        hits["result_minus_inf"] += value == fmt.infinity | fmt.sign_bit
        hits["result_zero"] += value == 0
        hits["result_minus_zero"] += value == fmt.sign_bit
        hits["result_negative"] += bool(value & fmt.sign_bit) and 0 < size < fmt.infinity
        hits["half_subnormal"] += fmt is FP16 and 0 < size < 1 << FP16.fraction_bits
        hits["half_overflow"] += fmt is FP16 and size == fmt.infinity

    def in_lanes(self, pairs: dict[int, tuple[int, int]], **beat: int) -> Beat:
        """Return a dot beat that is +0 but for the given lanes."""
        filled = [pairs.get(lane, (0, 0)) for lane in range(self.lanes)]
        return {"op": Operation.MULTIPLY, "row": [a for a, _ in filled], "vector": [b for _, b in filled], **beat}


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """Cancellation, infinities and NaN in every pair of lanes (FP-01, FP-04); exact products (FP-10), FP16 edges (FP-02)."""
    bench = Bench(dut)
    await bench.start()
    beats: list[Beat] = []

    def check(*sums: dict[int, tuple[int, int]]) -> None:
        for number, pairs in enumerate(sums):
            beats.append(bench.in_lanes(pairs, first=int(number == 0)))
        beats.extend({"op": Operation.READ, "half": half} for half in (0, 1))

    pairs = ((INF, 0), (0, INF), (INF, MINUS), (NAN, 0), (0, NAN), (INF, ONE), (ONE, INF | MINUS), (1, 1),
             (MAX_FINITE, MAX_FINITE), (1, 0x3BF7), (0x3C01, 0x3C01), (MINUS, ONE), (MINUS, MINUS), (1, 0x3800),
             (1, 0x3801), (3, 0x3800), (MAX_FINITE, ONE), (1, 0xB800), (0x7BFF, 0x3C01))  # fmt: skip
    for lane in range(bench.lanes):
        for pair in pairs:
            check({lane: pair})
        for other in set(range(bench.lanes)) - {lane}:
            check({lane: (TWO | MINUS, ONE), other: (TWO, ONE)})
            check({lane: (INF, ONE), other: (INF | MINUS, ONE)})
            check({lane: (MAX_FINITE, MAX_FINITE), other: (1, ONE)})
        check({lane: (INF | MINUS, ONE)}, {0: (INF, ONE)})  # with -infinity already there
        check({lane: (INF | MINUS, ONE)}, {0: (MAX_FINITE, MAX_FINITE)})
        check({lane: (MAX_FINITE, MAX_FINITE)}, {0: (MAX_FINITE | MINUS, MAX_FINITE), 1: (1, 1)})
    await bench.compare(beats)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_axpy(dut: Any) -> None:
    """Every element of the vector as the scalar, every lane read, specials in one lane leave the others alone."""
    bench = Bench(dut)
    await bench.start()
    beats: list[Beat] = [{"op": Operation.READ, "axpy": 1, "slot": lane} for lane in range(bench.lanes)]  # empty
    for slot in range(bench.lanes):
        vector = [MINUS] * bench.lanes
        vector[slot] = (ONE + slot, INF, MINUS | TWO, NAN, 1)[slot % 5]
        row = [(ONE | lane, INF, 0, MINUS | 3, MAX_FINITE)[(lane + slot) % 5] for lane in range(bench.lanes)]
        first = int(slot % 3 == 0)
        beats.append({"op": Operation.MULTIPLY, "axpy": 1, "first": first, "slot": slot, "row": row, "vector": vector})
        beats += [{"op": Operation.READ, "axpy": 1, "slot": lane, "half": lane % 2} for lane in range(bench.lanes)]
    await bench.compare(beats)


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def headroom(dut: Any) -> None:
    """Sums up to the limit of the accumulators are exact; beyond it they give the infinity of their sign."""
    bench = Bench(dut)
    await bench.start()
    beats: list[Beat] = []
    for sign in (0, MINUS):
        for axpy in (0, 1):
            full = [MAX_FINITE] * bench.lanes, [MAX_FINITE | sign] * bench.lanes
            beats.append({"op": Operation.CLEAR, "axpy": axpy})
            for _ in range(2):
                beats += [{"op": Operation.MULTIPLY, "axpy": axpy, "row": full[0], "vector": full[1]}] * 4097
                beats.append({"op": Operation.READ, "axpy": axpy, "slot": 1})
            beats.append({"op": Operation.MULTIPLY, "axpy": axpy, "row": full[0], "vector": [INF | sign ^ MINUS] * bench.lanes})
            beats.append({"op": Operation.READ, "axpy": axpy, "slot": 1})
    await bench.compare(beats)


@cocotb.test(timeout_time=800, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_beats(dut: Any, source: str, sink: str) -> None:
    """Beats of every adversarial class in both modes and all contexts, in random order."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare(list(draw_beats(bench.rng, bench.model, count)), source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency of a READ; one beat per cycle in each mode and across switches of mode, context and operation."""
    bench = Bench(dut)
    await bench.start()
    lanes = [ONE] * bench.lanes
    multiply = {"op": Operation.MULTIPLY, "row": lanes, "vector": lanes}
    for operation, axpy in (("dot", 0), ("axpy", 1)):
        beats = [{**multiply, "axpy": axpy, "first": int(number == 0)} for number in range(64)]
        done = await bench.compare([*beats, {"op": Operation.READ, "axpy": axpy}])
        interval = done.interval(done.accepted)
        record.timing(operation, latency_cycles=done.answered[0] - done.accepted[-1], interval_cycles=interval)
    done = await bench.compare([{"op": Operation.READ, "axpy": number % 2} for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("read", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))
    mixed = [
        {**multiply, "op": (0, 0, 2, 1)[number % 4], "axpy": number // 2 % 2, "context": number // 3 % bench.contexts}
        for number in range(256)
    ]
    done = await bench.compare(mixed)
    assert done.interval(done.accepted) == 1


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with beats in flight leaves empty accumulators and answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    lanes = {f"{side}_{k}": ONE for side in ("row", "vector") for k in range(bench.lanes)}
    plain = {name: 0 for name, _ in bench.model.control_fields} | lanes
    await bench.reset_in_traffic([{**plain, "op": number % 2, "axpy": number // 2 % 2} for number in range(10)])
    bench.model.reset()
    beats: list[Beat] = []
    for axpy in (0, 1):
        beats.append({"op": Operation.READ, "axpy": axpy})
        beats.append({"op": Operation.MULTIPLY, "axpy": axpy, "row": [ONE] * bench.lanes, "vector": [TWO] * bench.lanes})
        beats.append({"op": Operation.READ, "axpy": axpy})
    await bench.compare(beats)

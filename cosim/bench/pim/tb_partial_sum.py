"""Bench of the partial sums: order of additions, slots in flight, adversarial items under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16, FP32
from golden_model.arithmetic.fp32_adder_vectors import pair_classes
from golden_model.pim.partial_sum import PartialSum

BINS = (
    "first", "first_and_last", "last", "neither", "starts_without_first", "goes_on_after_last", "same_slot_next",
    "same_slot_starts_next", "every_slot", "result_nan", "result_inf", "result_subnormal", "result_zero",
)  # fmt: skip
ONE, SPECIALS = 0x3F800000, (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x33000001, 0x477FF000)

Item = dict[str, int]


class Bench(StreamBench):
    """Turns items into expected sums."""

    def __init__(self, dut: Any) -> None:
        self.model = PartialSum(**record.settings()["parameters"])
        super().__init__(dut, self.model.input_fields, self.model.output_fields)
        self.hits: Counter[str] = Counter()

    async def restart(self) -> None:
        """Reset the idle block."""
        await self.reset_in_traffic([])

    def item(self, slot: int, codes: Sequence[int], *, first: int = 0, last: int = 0) -> Item:
        lanes = {f"a_{lane}": codes[lane % len(codes)] for lane in range(self.model.lanes)}
        return {"first": first, "last": last, "slot": slot} | lanes

    async def compare(self, items: Sequence[Item], **stalls: Any) -> Exchange:
        """Send items to a block that was just reset."""
        self.model.reset()
        expected, owner, seen = [], [], set[int]()
        ended, before = set[int](), -1
        for number, item in enumerate(items):
            slot, first, last = item["slot"], item["first"], item["last"]
            self.hits[("neither", "last", "first", "first_and_last")[2 * first + last]] += 1
            self.hits["starts_without_first"] += not first and slot not in seen
            self.hits["goes_on_after_last"] += not first and slot in ended
            self.hits["same_slot_starts_next" if first else "same_slot_next"] += slot == before
            seen, ended, before = seen | {slot}, (ended | {slot} if last else ended - {slot}), slot
            answer = self.model.accept(item)
            if answer is not None:
                expected.append(answer)
                owner.append(number)
                sizes = [answer[f"y_{lane}"] & ~FP16.sign_bit for lane in range(self.model.lanes)]
                self.hits["result_nan"] += max(sizes) > FP16.infinity
                self.hits["result_inf"] += FP16.infinity in sizes
                self.hits["result_zero"] += 0 in sizes
                self.hits["result_subnormal"] += any(0 < size < 1 << FP16.fraction_bits for size in sizes)
        self.hits["every_slot"] += len(seen) == self.model.slots
        done = await self.exchange(items, expected, owner=owner, **stalls)
        record.bins((*pair_classes(self.rng), *BINS), self.hits)
        return done

    def random_items(self, count: int) -> list[Item]:
        """Pairs of adversarial operands, the second of a pair in the slot of the first, mostly with others between."""
        classes = pair_classes(self.rng)
        names, waiting, items = list(classes), list[Item](), list[Item]()
        while len(items) < count:
            if waiting and self.rng.random() < 0.5:
                items.append(waiting.pop(int(self.rng.integers(len(waiting)))))
                continue
            name = names[int(self.rng.integers(len(names)))]
            self.hits[name] += 1
            pairs = [classes[name]() for _ in range(self.model.lanes)]
            if self.rng.random() < 0.5:  # into FP16's range, where the sums differ after rounding
                pairs = [(_near_half(a), _near_half(b)) for a, b in pairs]
            slot = int(self.rng.integers(self.model.slots))
            first, last, ends = (int(x) for x in self.rng.random(3) < (0.5, 0.3, 0.8))
            items.append(self.item(slot, [a for a, _ in pairs], first=first, last=last))
            waiting.append(self.item(slot, [b for _, b in pairs], last=ends))
        return items


def _near_half(code: int) -> int:
    """Move a finite code's exponent to one of FP16's range, unless the code is special."""
    field = code >> FP32.fraction_bits & FP32.max_exponent_field
    near = field if field == FP32.max_exponent_field else FP32.bias - 26 + field % 42
    return code & ~FP32.infinity | near << FP32.fraction_bits


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_order(dut: Any) -> None:
    """FP-07: the sum from left to right, to one FP32 place; the other order would give ...878, one FP32 place less."""
    bench = Bench(dut)
    await bench.start()
    codes = [0x00000004, 0x3FC001E6, 0x3FA01FFF, 0x3FA01FFF, 0x3FA01FFF, 0xC0A81878]  # what is left of 0x40A81879
    items = [bench.item(1, [code], first=int(k == 0), last=int(k == 5)) for k, code in enumerate(codes)]
    left = bench.model.sum_many(np.array(codes, np.uint32)[:, None])[0]
    assert left == 0x0008  # 2^-21, the last place; 0 in the other order
    await bench.compare(items)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_channels(dut: Any) -> None:
    """Partial results of 64 pseudo-channels, slot after slot; the sums equal the vectorised golden model's."""
    bench = Bench(dut)
    await bench.start()
    slots, lanes = bench.model.slots, bench.model.lanes
    partials = bench.rng.normal(size=(64, slots, lanes)).astype(np.float32).view(np.uint32)
    items = [
        bench.item(slot, [int(code) for code in partials[channel, slot]], first=int(channel == 0), last=int(channel == 63))
        for channel in range(64)
        for slot in range(slots)
    ]
    await bench.compare(items)
    sums = bench.model.sum_many(partials)
    answers = [bench.model.accept(bench.item(slot, [FP32.sign_bit], last=1)) for slot in range(slots)]
    assert [[answer[f"y_{k}"] for k in range(lanes)] for answer in answers if answer] == sums.tolist()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """All pairs of special codes, first and last in one item, a slot that was never started, and growth after last."""
    bench = Bench(dut)
    await bench.start()
    items = [bench.item(slot, [ONE], last=1) for slot in range(bench.model.slots)]
    for a in SPECIALS:
        items.append(bench.item(0, [a], first=1, last=1))
        for b in SPECIALS:
            items += [bench.item(1, [a], first=1), bench.item(1, [b], last=1)]
    items += [bench.item(2, [ONE], last=1) for _ in range(8)]
    await bench.compare(items)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_items(dut: Any, source: str, sink: str) -> None:
    """Adversarial operands in random slots, starts and ends anywhere."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    await bench.compare(bench.random_items(count), source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and interval over different slots, and of a chain in one slot."""
    bench = Bench(dut)
    await bench.start()
    wheel = [bench.item(k % bench.model.slots, [ONE + k], last=1) for k in range(64)]
    done = await bench.compare(wheel)
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("emit", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))
    await bench.restart()
    done = await bench.compare([bench.item(0, [ONE + k], first=1, last=1) for k in range(16)])
    assert done.interval(done.accepted) == 1  # a start does not wait for the slot
    await bench.restart()
    done = await bench.compare([bench.item(1, [ONE + k], last=1) for k in range(16)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("same_slot", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with items in flight leaves no slot started and nothing to emit."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic([bench.item(k % bench.model.slots, [ONE], first=1, last=1) for k in range(8)])
    await bench.compare([bench.item(k % bench.model.slots, [ONE + k], last=1) for k in range(32)])

"""Bench of the accumulator: order of addition, specials, adversarial sums in both formats under stalls, timing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16, FP32
from golden_model.pim.accumulator import PARTIALS, Accumulator
from golden_model.pim.accumulator_vectors import ORDER_CASES, quad_classes

FORMATS = (("single", FP32), ("half", FP16))
BINS = tuple(
    f"{name}_{kind}" for name, _ in FORMATS for kind in ("nan", "inf", "plus_zero", "minus_zero", "subnormal", "normal")
) + ("format_changes", "order_matters")
SPECIALS = (0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000)

Item = tuple[int, Sequence[int]]


class Bench(StreamBench):
    """Turns four codes and a format into items and expected sums."""

    def __init__(self, dut: Any) -> None:
        self.model = Accumulator(**record.settings()["parameters"])
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    async def compare(self, items: Sequence[Item], **stalls: Any) -> Exchange:
        expected = []
        for half, partials in items:
            total = self.model.compute(partials, half=half)
            expected.append({"sum": total})
            name, fmt = FORMATS[half]
            size, minus = total & ~fmt.sign_bit, total & fmt.sign_bit
            self.hits[f"{name}_nan"] += size > fmt.infinity
            self.hits[f"{name}_inf"] += size == fmt.infinity
            self.hits[f"{name}_minus_zero" if minus else f"{name}_plus_zero"] += size == 0
            self.hits[f"{name}_subnormal"] += 0 < size < 1 << fmt.fraction_bits
            self.hits[f"{name}_normal"] += 1 << fmt.fraction_bits <= size < fmt.infinity
            a, b, c, d = partials
            self.hits["order_matters"] += total != self.model.compute((a, c, b, d), half=half)
        self.hits["format_changes"] += sum(x[0] != y[0] for x, y in itertools.pairwise(items))
        packed = [{"half": half, **{f"p_{n}": code for n, code in enumerate(partials)}} for half, partials in items]
        done = await self.exchange(packed, expected, **stalls)
        record.bins((*quad_classes(self.rng), *BINS), self.hits)
        self.hits.clear()
        return done


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def order_of_addition(dut: Any) -> None:
    """Sums that depend on the order come out as the document says (FP-07)."""
    bench = Bench(dut)
    await bench.start()
    for partials, total in ORDER_CASES:
        assert bench.model.compute(partials) == total
    await bench.compare([(half, partials) for partials, _ in ORDER_CASES for half in (0, 1)])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """Every special code at every place, with every other one at every other place, in both formats (FP-01, FP-04)."""
    bench = Bench(dut)
    await bench.start()
    items: list[Item] = []
    for first, second in itertools.combinations(range(PARTIALS), 2):
        for a, b in itertools.product(SPECIALS, repeat=2):
            partials = [0x3F000000] * PARTIALS
            partials[first], partials[second] = a, b
            items.append((len(items) % 2, partials))
    await bench.compare(items)
    await bench.compare([(1 - half, partials) for half, partials in items])


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_sums(dut: Any, source: str, sink: str) -> None:
    """Sums of every adversarial class in random order and format."""
    bench = Bench(dut)
    await bench.start()
    await bench.compare(
        _draw(bench, record.settings()["effort"] * (4 if source == sink == "none" else 1)), source=source, sink=sink
    )


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(ready_probability=(0.1, 0.9))
async def random_readiness(dut: Any, ready_probability: float) -> None:
    """The sink takes a sum in 10 or 90 % of the cycles; 50 % is among the stall patterns."""
    bench = Bench(dut)
    await bench.start()
    await bench.compare(_draw(bench, record.settings()["effort"]), sink="random", ready_probability=ready_probability)


def _draw(bench: Bench, count: int) -> list[Item]:
    classes = quad_classes(bench.rng)
    names = list(classes)
    chosen = [names[number] for number in bench.rng.integers(len(names), size=count).tolist()]
    bench.hits.update(chosen)
    formats = bench.rng.integers(2, size=count).tolist()
    return [(half, classes[name]()) for half, name in zip(formats, chosen, strict=True)]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and interval, measured at full rate, the format changing from item to item."""
    bench = Bench(dut)
    await bench.start()
    done = await bench.compare([(number % 2, (0x3F800000 + number, 0x40000000, 0, 0)) for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("accumulate", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with items in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    stale = {"half": 1, "p_0": 0x3F800000, "p_1": 0x3F800000, "p_2": 0x3F800000, "p_3": 0}
    await bench.reset_in_traffic([stale] * 12)
    await bench.compare([(number % 2, (0x40000000 + number, 0x3F800000, 0, 0)) for number in range(32)])

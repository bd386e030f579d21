"""Bench of the activation functions: sweeps over the codes, specials and edges under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16
from golden_model.pim.activation import Activation, Op
from golden_model.pim.vector_beat import row_to_beats

KINDS = ("nan", "inf", "zero", "subnormal", "normal")
BINS = (
    *(f"{op.name.lower()}_{kind}" for op in Op for kind in KINDS if (op, kind) != (Op.RSQRT, "subnormal")),
    "minus_zero", "minus_infinity", "subnormal_operand", "short_beat",
)  # fmt: skip
EDGES = (0x0000, 0x0001, 0x0002, 0x00FF, 0x0100, 0x0101, 0x01FF, 0x0200, 0x03FF, 0x0400, 0x3BFF, 0x3C00, 0x3C01, 0x4000,
         0x498B, 0x498C, 0x498D, 0x4C00, 0x4C40, 0x4C54, 0x4D00, 0x5640, 0x7400, 0x7BFF, 0x7C00, 0x7C01, 0x7E00,
         0x7FFF)  # fmt: skip
SIGNED_EDGES = tuple(code | sign for code in EDGES for sign in (0, FP16.sign_bit))


def kind_of(code: int) -> str:
    size = code & ~FP16.sign_bit
    if size >= FP16.infinity:
        return "inf" if size == FP16.infinity else "nan"
    if size < 1 << FP16.fraction_bits:
        return "subnormal" if size else "zero"
    return "normal"


def draw(rng: np.random.Generator) -> int:
    """Any code, an edge, or a number whose exponent lets the functions move."""
    kind = int(rng.integers(4))
    if kind == 0:
        return SIGNED_EDGES[int(rng.integers(len(SIGNED_EDGES)))]
    return int(rng.integers(1 << 16) if kind == 1 else np.float16(rng.standard_normal() * 6).view(np.uint16))


class Bench(StreamBench):
    """Turns functions and rows into items and expected beats."""

    def __init__(self, dut: Any) -> None:
        self.model = Activation(**record.settings()["parameters"])
        super().__init__(dut, self.model.operand_fields, self.model.result_fields)
        self.hits: Counter[str] = Counter()

    def items(self, op: Op, codes: Sequence[int]) -> list[dict[str, int]]:
        return [{"op": op, **beat} for beat in row_to_beats(codes, self.model.lanes, filler=0x7E00)]

    async def compare(self, rows: Sequence[tuple[Op, Sequence[int]]], **stalls: Any) -> Exchange:
        items, expected = [], []
        for op, codes in rows:
            values = self.model.compute_many(op, np.array(codes, np.uint16)).tolist()
            for beat in self.items(op, codes):
                part, values = values[: beat["count"]], values[beat["count"] :]
                lanes = {f"y_{lane}": part[lane] if lane < len(part) else 0 for lane in range(self.model.lanes)}
                items.append(beat)
                expected.append({"last": beat["last"], "count": beat["count"], "masked": 0, "invalid": 0, **lanes})
                self.hits["short_beat"] += beat["count"] < self.model.lanes
                for value in part:
                    self.hits[f"{op.name.lower()}_{kind_of(value)}"] += 1
                    self.hits["minus_zero"] += value == FP16.sign_bit
                    self.hits["minus_infinity"] += value == FP16.sign_bit | FP16.infinity
            self.hits["subnormal_operand"] += any(kind_of(code) == "subnormal" for code in codes)
        assert self.model.compute(items[0]) == expected[0]
        done = await self.exchange(items, expected, **stalls)
        record.bins(BINS, self.hits)
        return done


@cocotb.test(timeout_time=80, timeout_unit="ms")
async def sweep(dut: Any) -> None:
    """Edges of all functions, then every code of each on Verilator with 16 lanes, and every 61st elsewhere."""
    bench = Bench(dut)
    await bench.start()
    whole = record.settings()["simulator"] == "verilator" and bench.model.lanes == 16
    start = 0 if whole else int(bench.rng.integers(61))
    codes = range(start, 1 << 16, 1 if whole else 61)
    await bench.compare([(op, SIGNED_EDGES) for op in Op] + [(op, codes) for op in Op])


def draw_rows(bench: Bench, left: int) -> list[tuple[Op, Sequence[int]]]:
    """Draw short rows of random functions and codes, ``left`` beats or a few more."""
    rows: list[tuple[Op, Sequence[int]]] = []
    while left > 0:
        length = 1 + int(bench.rng.integers(4 * bench.model.lanes))
        rows.append((Op(int(bench.rng.integers(len(Op)))), [draw(bench.rng) for _ in range(length)]))
        left -= -(-length // bench.model.lanes)
    return rows


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_rows(dut: Any, source: str, sink: str) -> None:
    """Short rows of random functions and codes, back to back."""
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
    """Latency and initiation interval of each function alone, and of all in turn."""
    bench = Bench(dut)
    await bench.start()
    mixed = await bench.compare([(Op(k % 5), [0x3C00 + k] * bench.model.lanes) for k in range(60)])
    for op in Op:
        done = await bench.compare([(op, [0x3C00 + k] * bench.model.lanes) for k in range(40)])
        intervals = {done.interval(done.accepted), done.interval(done.answered), mixed.interval(mixed.accepted)}
        assert len(intervals) == 1, intervals
        record.timing(op.name.lower(), latency_cycles=done.latency, interval_cycles=intervals.pop())


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with beats in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic(bench.items(Op.SILU, [0x3C00] * (20 * bench.model.lanes)))
    await bench.compare([(Op(k % 5), [0xC000 + k] * (k + 1)) for k in range(32)])

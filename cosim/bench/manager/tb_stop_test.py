"""Bench of the Controller's stop test: directed specials, random tokens under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, StreamBench
from golden_model.manager.stop_test import ONE, StopTest

BINS = (
    "h_one", "h_subnormal", "h_zero", "p_one", "p_zero", "p_above_one", "p_nan", "p_negative", "h_invalid",
    "rounded_up", "product_subnormal", "product_zero", "at_tau", "below_tau", "above_tau", "tau_invalid",
    "at_max_length", "kept_below", "dropped_below",
)  # fmt: skip


class Bench(StreamBench):
    """Turns tokens with their register values into items and expected decisions."""

    def __init__(self, dut: Any) -> None:
        self.model = StopTest(**record.settings()["parameters"])
        super().__init__(
            dut, self.model.request_fields, self.model.decision_fields, ("tau", "max_length", "keep_below")
        )
        self.hits: Counter[str] = Counter()

    async def compare(self, tokens: list[tuple[dict[str, int], dict[str, int]]], **stalls: Any) -> Any:
        items, expected = [], []
        for token, registers in tokens:
            decision = self.model.decide(token["h"], token["p"], token["length"], **registers)
            items.append(token)
            expected.append({"request": token["request"], **decision._asdict()})
            self._cover(token, registers, decision)
        done = await self.exchange(items, expected, registers=lambda number: tokens[number][1], **stalls)
        record.bins(BINS, self.hits)
        return done

    def _cover(self, token: dict[str, int], registers: dict[str, int], decision: Any) -> None:
        h, p, tau = token["h"], token["p"], registers["tau"]
        valid = h <= ONE and p <= ONE
        exact = _value(h) * _value(p) if valid else 0
        seen = {
            "h_one": h == ONE, "h_subnormal": 0 < h < 0x400, "h_zero": h == 0, "p_one": p == ONE, "p_zero": p == 0,
            "p_above_one": ONE < p < 0x7C00, "p_nan": 0x7C00 < p < 0x8000, "p_negative": p >= 0x8000,
            "h_invalid": h > ONE, "rounded_up": valid and _value(decision.h) > exact,
            "product_subnormal": valid and 0 < decision.h < 0x400,
            "product_zero": valid and decision.h == 0 and h and p,
            "at_tau": valid and decision.h == tau, "below_tau": valid and decision.h < tau <= ONE,
            "above_tau": valid and decision.h > tau, "tau_invalid": tau > ONE,
            "at_max_length": valid and decision.h >= tau and not decision.go_on,
            "kept_below": valid and decision.h < tau and decision.keep,
            "dropped_below": valid and decision.h < tau and not decision.keep,
        }  # fmt: skip
        self.hits.update(name for name, hit in seen.items() if hit)


def _value(code: int) -> float:
    """Value of a non-negative finite FP16 code; products of two are exact in a double."""
    field, fraction = code >> 10, code & 0x3FF
    return (fraction + (1024 if field else 0)) * 2.0 ** (max(field, 1) - 25)


def _token(bench: Bench, h: int, p: int, length: int = 1, request: int = 0) -> dict[str, int]:
    return {
        "request": request & ((1 << bench.model.request_bits) - 1),
        "length": length & ((1 << bench.model.length_bits) - 1),
        "h": h,
        "p": p,
    }


SPECIAL_CODES = (0x0000, 0x0001, 0x0002, 0x03FF, 0x0400, 0x0401, 0x1000, 0x3800, 0x3BFF, ONE, 0x3C01, 0x7BFF, 0x7C00,
                 0x7C01, 0x7FFF, 0x8000, 0x8001, 0xBC00, 0xFC00, 0xFFFF)  # fmt: skip


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """All pairs of special codes against several tau, both modes; FP16 0.9 to the 7th falls below 0.5 (SD-14)."""
    bench = Bench(dut)
    await bench.start()
    top = (1 << bench.model.length_bits) - 1
    tokens = [
        (_token(bench, h, p, length, request), {"tau": tau, "max_length": max_length, "keep_below": keep})
        for request, h in enumerate(SPECIAL_CODES)
        for p in SPECIAL_CODES
        for tau, length, max_length, keep in ((0, 1, top, 0), (0x3800, top, top, 1), (ONE, 1, 1, 0), (0xFC00, 1, top, 1))
    ]
    h = ONE
    for length in range(1, 8):
        tokens.append((_token(bench, h, 0x3B33, length), {"tau": 0x3800, "max_length": top, "keep_below": 0}))
        h = bench.model.decide(h, 0x3B33, 1, tau=0x3800, max_length=top).h
    assert h == 0x37A6
    await bench.compare(tokens)


@cocotb.test(timeout_time=200, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_tokens(dut: Any, source: str, sink: str) -> None:
    """Random tokens: probabilities near the threshold, any bit patterns, registers that change between tokens."""
    bench = Bench(dut)
    await bench.start()
    rng, count = bench.rng, record.settings()["effort"] * (4 if source == sink == "none" else 1)
    codes = rng.integers(0, ONE + 1, (count, 3))
    patterns = rng.integers(0, 1 << 16, (count, 3))
    tokens = []
    for number in range(count):
        h, p, tau = (int(code) for code in codes[number])
        kind = number % 8
        if kind == 0:
            h, p, tau = (int(code) for code in patterns[number])
        elif kind == 1:
            h = h % 0x800  # subnormal and just above
        elif kind in (2, 3):
            h, p = 0x3800 + h % 0x401, 0x3800 + p % 0x401  # both in [0.5, 1], as in a draft
        if kind in (3, 4, 5):  # tau at the product, or one code beside it
            near = bench.model.decide(h, p, 0, tau=0, max_length=0).h
            tau = max(0, near + (kind - 4))
        registers = {
            "tau": tau,
            "max_length": int(rng.integers(0, 1 << bench.model.length_bits)),
            "keep_below": int(rng.integers(0, 2)),
        }
        tokens.append((_token(bench, h, p, int(rng.integers(0, 1 << 16)), int(rng.integers(0, 1 << 16))), registers))
    await bench.compare(tokens, source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    registers = {"tau": 0x3400, "max_length": 16, "keep_below": 0}
    done = await bench.compare([(_token(bench, ONE, 0x3A00 + number), registers) for number in range(64)])
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("decide", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with tokens in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic([_token(bench, ONE, 0x3A00 + number) for number in range(8)])
    registers = {"tau": 0x3400, "max_length": 16, "keep_below": 1}
    await bench.compare([(_token(bench, ONE, 0x3900 + number), registers) for number in range(32)])

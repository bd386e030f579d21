"""Bench of the Scheduler's comparators: equality at the threshold, random queries under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, StreamBench
from golden_model.manager.operator_mapping import FRACTION_BITS, Operator, OperatorMapping

BINS = (
    "fc_pim", "fc_gpu", "fc_at_threshold", "attention_pim", "attention_gpu", "attention_at_threshold", "grouped",
    "no_requests", "no_tokens", "largest_intensity", "largest_limit",
)  # fmt: skip
REGISTERS = ("dlm_fc_threshold", "tlm_attention_threshold", "kv_group")


class Bench(StreamBench):
    """Turns queries with their register values into items and expected answers."""

    def __init__(self, dut: Any) -> None:
        self.model = OperatorMapping(**record.settings()["parameters"])
        super().__init__(dut, self.model.query_fields, self.model.answer_fields, REGISTERS)
        self.hits: Counter[str] = Counter()

    def limit(self, name: str) -> int:
        """Largest value of a field or register."""
        bits = dict(self.model.query_fields) | {
            "dlm_fc_threshold": self.model.threshold_bits,
            "tlm_attention_threshold": self.model.threshold_bits,
            "kv_group": self.model.group_bits,
        }
        return int((1 << bits[name]) - 1)

    async def compare(self, queries: list[tuple[dict[str, int], dict[str, int]]], **stalls: Any) -> Any:
        expected = []
        for query, registers in queries:
            on_pim = self.model.on_pim(**query, **registers)
            expected.append({"operator": query["operator"], "on_pim": on_pim})
            self._cover(query, registers, on_pim)
        done = await self.exchange(
            [query for query, _ in queries], expected, registers=lambda number: queries[number][1], **stalls
        )
        record.bins(BINS, self.hits)
        return done

    def _cover(self, query: dict[str, int], registers: dict[str, int], on_pim: int) -> None:
        attention = query["operator"] == Operator.TLM_ATTENTION
        side = "pim" if on_pim else "gpu"
        self.hits[f"{'attention' if attention else 'fc'}_{side}"] += 1
        if attention:
            intensity = query["tokens"] * registers["kv_group"] << FRACTION_BITS
            limit = registers["tlm_attention_threshold"] * query["requests"]
            self.hits["attention_at_threshold"] += intensity == limit > 0
            self.hits["grouped"] += registers["kv_group"] > 1
            self.hits["no_requests"] += query["requests"] == 0
            self.hits["largest_intensity"] += intensity == self.limit("tokens") * self.limit("kv_group") << FRACTION_BITS
            self.hits["largest_limit"] += limit == self.limit("tlm_attention_threshold") * self.limit("requests")
        else:
            self.hits["fc_at_threshold"] += query["tokens"] << FRACTION_BITS == registers["dlm_fc_threshold"] > 0
            self.hits["no_tokens"] += query["tokens"] == 0


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_specials(dut: Any) -> None:
    """Zero, one, all-ones and the middle in every field and register, both operators."""
    bench = Bench(dut)
    await bench.start()

    def corners(name: str) -> tuple[int, ...]:
        top = bench.limit(name)
        return tuple(sorted({0, 1, top // 2, top // 2 + 1, top}))

    queries = [
        (
            {"operator": operator, "tokens": tokens, "requests": requests},
            {"dlm_fc_threshold": fc, "tlm_attention_threshold": attention, "kv_group": group},
        )
        for operator in Operator
        for tokens in corners("tokens")
        for requests in corners("requests")
        for fc, attention in zip(corners("dlm_fc_threshold"), reversed(corners("dlm_fc_threshold")), strict=True)
        for group in corners("kv_group")
    ]
    top = bench.limit("dlm_fc_threshold")
    largest = {"tlm_attention_threshold": top, "kv_group": bench.limit("kv_group")}
    queries += [  # the largest of both sides, and DLM FC at exactly its threshold
        (
            {"operator": operator, "tokens": tokens, "requests": bench.limit("requests")},
            {"dlm_fc_threshold": min(tokens << FRACTION_BITS, top), **largest},
        )
        for operator in Operator
        for tokens in (9, bench.limit("tokens"))
    ]
    await bench.compare(queries)


@cocotb.test(timeout_time=200, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_queries(dut: Any, source: str, sink: str) -> None:
    """Random queries, half of them within one step of the threshold."""
    bench = Bench(dut)
    await bench.start()
    rng, count = bench.rng, record.settings()["effort"] * (4 if source == sink == "none" else 1)

    def draw(name: str) -> int:
        top = bench.limit(name)
        return int(rng.integers(0, top + 1)) if rng.integers(0, 2) else int(rng.integers(0, min(top, 16) + 1))

    queries = []
    for number in range(count):
        query = {"operator": int(rng.integers(0, 2)), "tokens": draw("tokens"), "requests": draw("requests")}
        registers = {name: draw(name) for name in REGISTERS}
        if number % 2:
            off = int(rng.integers(-1, 2))
            if query["operator"] == Operator.DLM_FC:
                wanted = (query["tokens"] << FRACTION_BITS) + off
                registers["dlm_fc_threshold"] = min(max(wanted, 0), bench.limit("dlm_fc_threshold"))
            elif query["requests"]:
                wanted = (query["tokens"] * registers["kv_group"] << FRACTION_BITS) // query["requests"] + off
                registers["tlm_attention_threshold"] = min(max(wanted, 0), bench.limit("tlm_attention_threshold"))
        queries.append((query, registers))
    await bench.compare(queries, source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and initiation interval, measured at full rate."""
    bench = Bench(dut)
    await bench.start()
    registers = {"dlm_fc_threshold": 144, "tlm_attention_threshold": 144, "kv_group": 1}
    queries = [({"operator": number & 1, "tokens": number, "requests": 1}, registers) for number in range(64)]
    done = await bench.compare(queries)
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("map", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with queries in flight leaves an empty pipeline that answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    await bench.reset_in_traffic([{"operator": 1, "tokens": number, "requests": 1} for number in range(8)])
    registers = {"dlm_fc_threshold": 144, "tlm_attention_threshold": 144, "kv_group": 3}
    await bench.compare([({"operator": 1, "tokens": number, "requests": 2}, registers) for number in range(32)])

"""Bench of the draft pool: directed corner cases, random command streams under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from cosim.bench.manager.draft_pool_commands import random_commands_of
from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.manager.draft_pool import BOTH, SENT, WAITING, Command, DraftPool, Op, Response, Status

BINS = (
    "insert_ok", "insert_full", "insert_locked", "insert_duplicate_waiting", "insert_duplicate_sent",
    "match_0", "match_1", "match_many", "drop_0", "drop_1", "drop_many", "drop_waiting_only", "drop_sent_only",
    "drain_0", "drain_1", "drain_many", "select_capacity_0", "select_empty", "select_all", "select_some",
    "select_tie_in_probability", "flush_empty", "flush_some", "flush_full", "flush_locked", "pool_full", "pool_empty",
)  # fmt: skip


class Bench(StreamBench):
    """Runs commands through the golden model and the RTL and compares beat by beat."""

    def __init__(self, dut: Any) -> None:
        self.model = DraftPool(**record.settings()["parameters"])
        super().__init__(dut, self.model.command_fields, self.model.response_fields)
        self.hits: Counter[str] = Counter()
        self.commands: list[Command] = []
        self.beats: list[Response] = []
        self.owner: list[int] = []

    def add(self, op: Op, **fields: int) -> list[Response]:
        """Append a command to the stream, carry it out on the golden model, and return its beats."""
        limits = dict(self.model.command_fields)
        command = Command(op, **{name: value & ((1 << limits[name]) - 1) for name, value in fields.items()})
        before = (self.model.waiting, self.model.sent, self.model.locked)
        beats = self.model.execute(command)
        self.owner += [len(self.commands)] * len(beats)
        self.commands.append(command)
        self.beats += beats
        self._cover(command, beats, *before)
        return beats

    def _cover(self, command: Command, beats: list[Response], waiting: int, sent: int, locked: bool) -> None:
        op, summary = Op(command.op), beats[0]
        name = op.name.lower()
        some = {0: "0", 1: "1"}.get(summary.count, "many")
        if op == Op.INSERT:
            outcome = Status(summary.status).name.lower()
            if summary.status == Status.DUPLICATE:
                outcome += "_waiting" if self.model.match(command.request, WAITING) else "_sent"
            self.hits[f"insert_{outcome}"] += 1
        elif op in (Op.MATCH, Op.DROP, Op.DRAIN):
            self.hits[f"{name}_{some}"] += 1
            if op == Op.DROP and summary.count and command.scope in (WAITING, SENT):
                self.hits["drop_waiting_only" if command.scope == WAITING else "drop_sent_only"] += 1
        elif op == Op.SELECT:
            self.hits["select_capacity_0"] += command.capacity == 0
            self.hits["select_empty"] += waiting == 0
            self.hits["select_all"] += 0 < waiting <= command.capacity
            self.hits["select_some"] += 0 < command.capacity < waiting
            chosen = [beat.probability for beat in beats[1:]]
            left = [e.probability for e in self.model.contents(WAITING)]
            self.hits["select_tie_in_probability"] += bool(chosen and left and min(chosen) == max(left))
        elif op == Op.FLUSH:
            full = waiting + sent == self.model.entries
            self.hits["flush_full" if full else "flush_some" if waiting + sent else "flush_empty"] += 1
            self.hits["flush_locked"] += locked
        self.hits["pool_full"] += self.model.waiting + self.model.sent == self.model.entries
        self.hits["pool_empty"] += self.model.waiting + self.model.sent == 0

    async def compare(self, **stalls: Any) -> Exchange:
        """Send the commands added since the last call and compare every beat and the status ports."""
        done = await self.exchange(
            [command._asdict() for command in self.commands],
            [beat._asdict() for beat in self.beats],
            owner=self.owner,
            **stalls,
        )
        self.check_status()
        record.bins(BINS, self.hits)
        self.hits.clear()
        self.commands, self.beats, self.owner = [], [], []
        return done

    def check_status(self) -> None:
        """Compare the status ports with the golden model, all commands answered."""
        level = self.model.waiting + self.model.sent
        expected = {"level": level, "full": level == self.model.entries, "empty": level == 0, "locked": self.model.locked}
        got = {name: self.read(getattr(self.dut, name)) for name in expected}
        assert got == expected, f"status ports {got}, expected {expected}"

    def fill(self, count: int, probability: int = 0x3C00) -> None:
        """Add inserts of distinct tokens, as many positions per request as fit."""
        positions = 1 << self.model.position_bits
        for number in range(count):
            self.add(
                Op.INSERT, request=number // positions, position=number % positions, probability=probability,
                token=number * 2654435761,
            )  # fmt: skip


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def defined_after_reset(dut: Any) -> None:
    """With inputs constant from time 0 every output is defined and at its reset value from the first edge (AM-12)."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(4):
        await ReadOnly()
        assert bench.read(dut.i__ready) == 1
        assert bench.read(dut.o__valid) == 0
        bench.check_status()
        await RisingEdge(dut.clk)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def level_up_to_full(dut: Any) -> None:
    """The count runs through 1..entries, one more is refused, one drop makes room for one (CQ-01, CQ-05)."""
    bench = Bench(dut)
    await bench.start()
    entries = bench.model.entries
    bench.fill(entries)
    assert [beat.waiting for beat in bench.beats] == list(range(1, entries + 1))
    last = (1 << bench.model.request_bits) - 1
    assert bench.add(Op.INSERT, request=last, position=30)[0].status == Status.FULL
    await bench.compare()
    bench.add(Op.DROP, request=0, scope=BOTH)
    bench.add(Op.INSERT, request=last, position=30, token=77)  # in the cycle after: takes a slot just freed
    bench.add(Op.MATCH, request=last)
    bench.add(Op.MATCH, request=0)
    await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def duplicates_are_refused(dut: Any) -> None:
    """A second token at the same request and position is refused, waiting or sent (CQ-03)."""
    bench = Bench(dut)
    await bench.start()
    bench.add(Op.INSERT, request=7, position=1, token=0x0F0)
    assert bench.add(Op.INSERT, request=7, position=1, token=0x10F)[0].status == Status.DUPLICATE
    bench.add(Op.SELECT, capacity=1)
    assert bench.add(Op.INSERT, request=7, position=1, token=0x10F)[0].status == Status.DUPLICATE
    assert [beat.token for beat in bench.add(Op.DRAIN, request=7)[1:]] == [0x0F0]
    bench.add(Op.INSERT, request=7, position=1, token=0x10F)
    assert [beat.token for beat in bench.add(Op.DRAIN, request=7)[1:]] == [0x10F]
    await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def nothing_matches_after_flush(dut: Any) -> None:
    """From the command after a flush no request matches, and the pool fills again (CQ-07)."""
    bench = Bench(dut)
    await bench.start()
    entries = bench.model.entries
    bench.fill(entries)
    bench.add(Op.LOCK)
    bench.add(Op.FLUSH)
    requests = min(1 << bench.model.request_bits, entries)
    assert all(bench.add(Op.MATCH, request=request)[0].count == 0 for request in range(requests))
    bench.fill(entries)
    assert bench.beats[-1].waiting == entries
    await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def drop_soon_after_match(dut: Any) -> None:
    """One answer per command, whatever the distance of a drop from a match of the same request (CQ-14)."""
    bench = Bench(dut)
    await bench.start()
    for distance in range(5):
        bench.fill(4)
        bench.add(Op.MATCH, request=0)
        for _ in range(distance):
            bench.add(Op.MATCH, request=5)
        bench.add(Op.DROP, request=0)
        assert bench.add(Op.MATCH, request=0)[0].count == 0
        bench.add(Op.FLUSH)
    await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
@cocotb.parametrize(lead=list(range(-3, 4)))
async def flush_of_a_blocked_pool(dut: Any, lead: int) -> None:
    """A flush offered around the release of a blocked output is answered in bounded time (CQ-15)."""
    bench = Bench(dut)
    await bench.start()
    bench.fill(min(bench.model.entries, 24))
    await bench.compare()
    for capacity in (16, 8):
        bench.add(Op.SELECT, capacity=capacity)
    bench.add(Op.FLUSH)
    done = await bench.exchange(
        [command._asdict() for command in bench.commands], [beat._asdict() for beat in bench.beats],
        owner=bench.owner, hold_output=40 + lead, hold_last_input=40,
    )  # fmt: skip
    bench.check_status()
    bound = 2 * 64 + len(bench.beats)
    assert done.answered[-1] - 43 <= bound, f"flush answered {done.answered[-1] - 43} cycles after the release"


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def equal_probabilities_give_prefixes(dut: Any) -> None:
    """With all probabilities equal, SELECT of every capacity takes a prefix of each request."""
    bench = Bench(dut)
    await bench.start()
    entries = bench.model.entries
    for capacity in (0, 1, 2, 5, entries // 2, entries - 1, entries, (1 << bench.model.count_bits) - 1):
        bench.fill(entries)
        chosen = bench.add(Op.SELECT, capacity=capacity)[1:]
        assert len(chosen) == min(capacity, entries)
        for request in {beat.request for beat in chosen}:
            positions = sorted(beat.position for beat in chosen if beat.request == request)
            assert positions == list(range(len(positions)))
        bench.add(Op.FLUSH)
    await bench.compare()


@cocotb.test(timeout_time=2000, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_commands(dut: Any, source: str, sink: str) -> None:
    """Random streams that fill the pool, work on it full, and empty it, over and over."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    for op, fields in random_commands_of(bench.model, bench.rng, count):
        bench.add(op, **fields)
    commands, beats, owner = bench.commands, bench.beats, bench.owner
    done = await bench.compare(source=source, sink=sink)
    if source == sink == "none":
        _check_bursts(commands, beats, owner, done)


def _check_bursts(commands: list[Command], beats: list[Response], owner: list[int], done: Exchange) -> None:
    """At full rate every SELECT of n tokens is over at most 32 + n cycles after its acceptance."""
    last = {item: done.answered[answer] for answer, item in enumerate(owner)}
    for item, command in enumerate(commands):
        if command.op == Op.SELECT:
            count = beats[owner.index(item)].count
            took = last[item] - done.accepted[item]
            assert took <= 32 + count, f"transaction {item}: SELECT of {count} took {took} cycles"


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and interval of each command, measured at full rate; SELECT and DRAIN up to their first entry beat."""
    bench = Bench(dut)
    await bench.start()
    count = min(16, bench.model.entries)
    single = {
        Op.INSERT: {"request": 3}, Op.MATCH: {"request": 3}, Op.DROP: {"request": 3}, Op.LOCK: {}, Op.UNLOCK: {},
        Op.FLUSH: {},
    }  # fmt: skip
    for op, fields in single.items():
        for number in range(count):
            bench.add(op, position=number, **fields)
        done = await bench.compare()
        assert done.interval(done.accepted) == done.interval(done.answered)
        record.timing(op.name.lower(), latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))
    # The longest selection: the choice falls at the last bit of the key, between two neighbouring positions.
    for op, tokens in ((Op.DRAIN, count), (Op.SELECT, count)):
        half = tokens // 2
        for number in range(tokens):
            bench.add(Op.INSERT, request=2, position=number, probability=0x3C00)
        await bench.compare()
        bench.add(op, request=2, capacity=half - 1 + half % 2)
        done = await bench.compare()
        entries = done.answered[1:]
        record.timing(
            op.name.lower(), latency_cycles=entries[0] - done.accepted[0], interval_cycles=done.interval(entries)
        )
        bench.add(Op.FLUSH)
        await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset while a selection runs leaves an empty, unlocked pool."""
    bench = Bench(dut)
    await bench.start()
    bench.fill(min(8, bench.model.entries))
    bench.add(Op.LOCK)
    await bench.compare()
    select = Command(Op.SELECT, capacity=3)._asdict()
    await bench.reset_in_traffic([select, select])
    bench.model.flush()
    bench.check_status()
    bench.fill(min(8, bench.model.entries))
    bench.add(Op.SELECT, capacity=2)
    await bench.compare()

"""Bench of the global buffer: directed orders of commands, random streams under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.pim.global_buffer import Command, GlobalBuffer, Op

BINS = (
    "write", "read", "swap", "none", "swap_swap", "write_swap_read_same_addr", "read_after_swap", "write_after_swap",
    "read_while_same_addr_written", "read_after_write", "overwrite", "addr_first", "addr_last", "kept_through_two_swaps",
    "read_half_0", "read_half_1",
)  # fmt: skip
MIX = (Op.WRITE,) * 5 + (Op.READ,) * 8 + (Op.SWAP,) * 2 + (Op.NONE,)


class Bench(StreamBench):
    """Runs commands through the golden model and the RTL and compares answer by answer."""

    def __init__(self, dut: Any) -> None:
        self.model = GlobalBuffer(**record.settings()["parameters"])
        super().__init__(dut, self.model.command_fields, self.model.answer_fields)
        self.hits: Counter[str] = Counter()
        self.swaps = 0
        self.written: dict[tuple[int, int], int] = {}  # (half, addr) -> swaps so far
        self.commands: list[Command] = []
        self.answers: list[dict[str, int]] = []
        self.owner: list[int] = []

    def add(self, op: Op, addr: int = 0, data: int | None = None) -> None:
        """Append a command; a READ of an undefined word becomes a WRITE.  Data is random unless given."""
        if op == Op.READ and not self.model.is_defined(addr):
            op = Op.WRITE
        word = int.from_bytes(self.rng.bytes(self.model.word_bits // 8), "little") if data is None else data
        command = Command(op, addr, word)  # READ, SWAP and NONE carry data that must not matter
        self._cover(command)
        answer = self.model.execute(command)
        if answer is not None:
            self.owner.append(len(self.commands))
            self.answers.append({"data": answer})
        self.commands.append(command)

    def _cover(self, command: Command) -> None:
        op, addr, read_half = command.op, command.addr, self.swaps % 2
        before = [Op(c.op) for c in self.commands[-2:]]
        self.hits[Op(op).name.lower()] += 1
        self.hits["swap_swap"] += op == Op.SWAP and before[-1:] == [Op.SWAP]
        if op in (Op.READ, Op.WRITE):
            self.hits["addr_first"] += addr == 0
            self.hits["addr_last"] += addr == self.model.words - 1
        if op == Op.WRITE:
            self.hits["write_after_swap"] += before[-1:] == [Op.SWAP]
            self.hits["overwrite"] += (1 - read_half, addr) in self.written
            self.written[1 - read_half, addr] = self.swaps
        elif op == Op.READ:
            self.hits[f"read_half_{read_half}"] += 1
            self.hits["read_after_swap"] += before[-1:] == [Op.SWAP]
            self.hits["read_after_write"] += before[-1:] == [Op.WRITE]
            self.hits["write_swap_read_same_addr"] += before == [Op.WRITE, Op.SWAP] and self.commands[-2].addr == addr
            self.hits["read_while_same_addr_written"] += before[-1:] == [Op.WRITE] and self.commands[-1].addr == addr
            self.hits["kept_through_two_swaps"] += self.swaps - self.written[read_half, addr] >= 3
        elif op == Op.SWAP:
            self.swaps += 1

    def fill(self) -> None:
        """Write every word of both halves, highest address first."""
        for _ in range(2):
            for addr in reversed(range(self.model.words)):
                self.add(Op.WRITE, addr)
            self.add(Op.SWAP)

    async def compare(self, **stalls: Any) -> Exchange:
        """Send the commands added since the last call and compare every answer."""
        items = [command._asdict() for command in self.commands]
        done = await self.exchange(items, self.answers, owner=self.owner, **stalls)
        record.bins(BINS, self.hits)
        self.hits.clear()
        self.commands, self.answers, self.owner = [], [], []
        return done


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def defined_after_reset(dut: Any) -> None:
    """With inputs constant from time 0 the handshake is defined from the first edge (AM-12)."""
    bench = Bench(dut)
    await bench.start()
    for _ in range(4):
        await ReadOnly()
        assert bench.read(dut.i__ready) == 1
        assert bench.read(dut.o__valid) == 0
        await RisingEdge(dut.clk)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def every_word_of_both_halves(dut: Any) -> None:
    """Each word keeps its own content: all written, then all read, in two orders, through two swaps."""
    bench = Bench(dut)
    await bench.start()
    bench.fill()
    for _ in range(2):
        for addr in (*range(bench.model.words), *reversed(range(bench.model.words))):
            bench.add(Op.READ, addr)
        bench.add(Op.SWAP)
    await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def swap_holds_for_all_later_commands(dut: Any) -> None:
    """WRITE, SWAP, READ of one address back to back shows the new word; SWAP twice shows the old one again."""
    bench = Bench(dut)
    await bench.start()
    bench.fill()
    last = bench.model.words - 1
    for addr in (0, last, 1, last - 1):
        for op in (Op.READ, Op.WRITE, Op.SWAP, Op.READ, Op.SWAP, Op.READ, Op.SWAP, Op.SWAP, Op.READ, Op.WRITE, Op.READ,
                   Op.SWAP, Op.NONE, Op.READ):  # fmt: skip
            bench.add(op, addr)
    await bench.compare()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def writes_behind_a_blocked_read(dut: Any) -> None:
    """Nothing is lost or answered anew while the output stands still for 40 cycles, writes and swaps waiting."""
    bench = Bench(dut)
    await bench.start()
    bench.fill()
    await bench.compare()
    for addr in range(4):
        for op in (Op.READ, Op.WRITE, Op.SWAP, Op.READ):
            bench.add(op, addr)
    await bench.compare(hold_output=40)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_commands(dut: Any, source: str, sink: str) -> None:
    """Random commands, a quarter of them at the address of the one before."""
    bench = Bench(dut)
    await bench.start()
    _draw(bench, record.settings()["effort"] * (4 if source == sink == "none" else 1))
    await bench.compare(source=source, sink=sink)


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(ready_probability=(0.1, 0.9))
async def random_readiness(dut: Any, ready_probability: float) -> None:
    """The sink takes an answer in 10 or 90 % of the cycles; 50 % is among the stall patterns."""
    bench = Bench(dut)
    await bench.start()
    _draw(bench, record.settings()["effort"])
    await bench.compare(sink="random", ready_probability=ready_probability)


def _draw(bench: Bench, count: int) -> None:
    addr = 0
    for kind, fresh, near in zip(
        bench.rng.integers(len(MIX), size=count).tolist(),
        bench.rng.integers(bench.model.words, size=count).tolist(),
        bench.rng.integers(4, size=count).tolist(),
        strict=True,
    ):
        addr = fresh if near else addr
        bench.add(MIX[kind], addr)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Latency and interval of READs, and from the last WRITE of a vector to its answer, at full rate."""
    bench = Bench(dut)
    await bench.start()
    bench.fill()
    await bench.compare()
    for number in range(64):
        bench.add(Op.READ, number % bench.model.words)
    done = await bench.compare()
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("read", latency_cycles=done.latency, interval_cycles=done.interval(done.accepted))
    for addr in range(bench.model.words):
        bench.add(Op.WRITE, addr)
    bench.add(Op.SWAP)
    bench.add(Op.READ, bench.model.words - 1)
    done = await bench.compare()
    last_write = done.accepted[bench.model.words - 1]
    record.timing(
        "write_swap_read", latency_cycles=done.answered[0] - last_write, interval_cycles=done.interval(done.accepted)
    )


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with answers in flight leaves an empty pipeline; words written afterwards are the ones read."""
    bench = Bench(dut)
    await bench.start()
    bench.fill()
    bench.add(Op.SWAP)
    await bench.compare()
    await bench.reset_in_traffic([Command(Op.READ, addr % bench.model.words)._asdict() for addr in range(8)])
    bench.model.reset()
    bench.fill()
    for addr in range(bench.model.words):
        bench.add(Op.READ, addr)
    await bench.compare()

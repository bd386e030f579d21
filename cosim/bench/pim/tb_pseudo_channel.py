"""Bench of the pseudo-channel: every command, in random programs under stalls and at the shortest legal HBM3 distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.dot_product_vectors import vector_classes
from golden_model.layouts import pack
from golden_model.pim.pseudo_channel import Command, Op, PseudoChannel

Step = tuple[Command, list[int]]
"""A command and the columns that come with it."""

BINS = (
    *(op.name.lower() for op in Op), "dot", "axpy", "first", "many_queries", "half", "moved_dot", "moved_axpy",
    "read_after_swap", "columns_late", "result_nan", "result_inf", "result_zero",
)  # fmt: skip
ONE, TWO = 0x3C00, 0x4000
MAC_GAP_TENTHS = 46
"""The shortest distance of all-bank MACs, 6 clocks of 0.769 ns (HBM3 at 5.2 Gbps), in tenths of a cycle at 1 GHz."""


class Bench(StreamBench):
    """Turns programs into commands, columns and expected results."""

    def __init__(self, dut: Any) -> None:
        self.model = PseudoChannel(**record.settings()["parameters"])
        super().__init__(dut, self.model.command_fields, self.model.result_fields, sides=["columns"])
        self.lanes, self.contexts, self.words = self.model.lanes, self.model.contexts, self.model.words
        self.hits: Counter[str] = Counter()

    def word(self, codes: Sequence[int]) -> int:
        return sum(code << 16 * lane for lane, code in enumerate(codes))

    def prepare(self, program: Sequence[Step]) -> tuple[list[dict[str, int]], list[int], list[dict[str, int]], list[int]]:
        """Return items, packed columns, expected results and the item that each result belongs to."""
        items, columns, expected, owner = [], [], [], []
        for number, (command, words) in enumerate(program):
            items.append(dict(command._asdict()))
            results = self.model.execute(command, words)
            if words:
                columns.append(pack(self.model.column_fields, {f"column_{k}": word for k, word in enumerate(words)}))
            expected += [{f"sum_{k}": code for k, code in enumerate(codes)} for codes in results]
            owner += [number] * len(results)
            self._cover(command, results)
        return items, columns, expected, owner

    async def compare(self, program: Sequence[Step], **stalls: Any) -> Exchange:
        items, columns, expected, owner = self.prepare(program)
        self.hits["columns_late"] += stalls.get("source", "none") != "none" and bool(columns)
        done = await self.exchange(items, expected, owner=owner, sides={"columns": columns}, **stalls)
        record.bins(BINS, self.hits)
        return done

    def _cover(self, command: Command, results: list[list[int]]) -> None:
        op, hits = Op(command.op), self.hits
        hits[op.name.lower()] += 1
        if op in (Op.MAC_ALL_BANKS, Op.MAC_SAME_BANK):
            hits["axpy" if command.axpy else "dot"] += 1
            hits["first"] += command.first
            hits["many_queries"] += command.queries > 0
            hits["read_after_swap"] += hits["swap_buffer"] > 0
        if op == Op.MOVE_RESULT:
            hits["half"] += command.half
            hits["moved_axpy" if command.axpy else "moved_dot"] += 1
        infinity = 0x7C00 if command.half else 0x7F800000
        for code in (code & (2 * infinity - 1 | infinity) for codes in results for code in codes):
            hits["result_nan"] += code & infinity == infinity and code != infinity
            hits["result_inf"] += code == infinity
            hits["result_zero"] += code == 0

    def fill(self, words: Sequence[int], half: int = 2) -> Iterator[Step]:
        """Write the first words of the buffer and make them readable; ``half`` halves in turn."""
        for _ in range(half):
            yield from ((Command(Op.WRITE_BUFFER, addr=addr, data=word), []) for addr, word in enumerate(words))
            yield Command(Op.SWAP_BUFFER), []

    def drawn(self, count: int) -> Iterator[Step]:
        """Draw a program: both halves of the buffer are filled, then anything may follow anything."""
        rng = self.rng
        classes = list(vector_classes(rng, self.lanes).values())
        kept = [draw for name, draw in vector_classes(rng, self.lanes).items() if name not in ("uniform_bits", "specials")]
        yield from self.fill([self.word(kept[k % len(kept)]()[1]) for k in range(self.words)])
        most = self.model.groups[0].elements[0].context_bits

        def below(limit: int) -> int:
            return int(rng.integers(limit))

        for number in range(count):
            op = Op((2, 2, 2, 3, 3, 5, 5, 0, 0, 1, 4, 6, 7)[below(13)]) if number % 2 else Op((2, 5)[below(2)])
            queries = below(1 << most) if below(2) else 0  # of contexts that do not exist, too
            draw = classes if below(8) == 0 else kept
            command = Command(
                op, axpy=below(2), first=int(below(4) == 0), half=below(2), context=below(1 << most), queries=queries,
                slot=below(self.lanes), bank=below(4), addr=below(self.words), stride=below(self.words),
                data=self.word(draw[below(len(draw))]()[1]),
            )  # fmt: skip
            macs = op in (Op.MAC_ALL_BANKS, Op.MAC_SAME_BANK)
            yield command, [self.word(draw[below(len(draw))]()[0]) for _ in range(16)] if macs else []


@cocotb.test(timeout_time=4000, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_programs(dut: Any, source: str, sink: str) -> None:
    """Programs of all commands with adversarial operands; commands, columns and results stall on their own."""
    bench = Bench(dut)
    await bench.start()
    effort = record.settings()["effort"]
    await bench.compare(list(bench.drawn(effort * (4 if source == sink == "none" else 1))), source=source, sink=sink)


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def directed(dut: Any) -> None:
    """Each bank, group, slot and context does its own part."""
    bench = Bench(dut)
    await bench.start()
    lanes = bench.lanes
    words = [bench.word([ONE + 64 * addr + lane for lane in range(lanes)]) for addr in range(bench.words)]
    columns = [bench.word([TWO + 16 * bank + lane for lane in range(lanes)]) for bank in range(16)]
    program: list[Step] = [*bench.fill(words)]
    for axpy in (0, 1):
        for slot in range(lanes):
            mac = Command(Op.MAC_ALL_BANKS, axpy=axpy, first=1, slot=slot, addr=slot % bench.words)
            program += [(mac, columns), (Command(Op.MOVE_RESULT, axpy=axpy, half=slot % 2), [])]
        for bank in range(4):
            program += [(Command(Op.MAC_SAME_BANK, axpy=axpy, bank=bank, addr=bank), columns)]
            program += [(Command(Op.MOVE_RESULT, axpy=axpy), [])]
        last = bench.contexts - 1
        clear = Command(Op.CLEAR, axpy=axpy, queries=last)
        many = Command(Op.MAC_ALL_BANKS, axpy=axpy, queries=last, addr=1, stride=4)
        program += [(clear, []), (many, columns), (Command(Op.MOVE_RESULT, axpy=axpy, queries=last), [])]
        program += [(Command(Op.BARRIER), []), (Command(Op.SWAP_BUFFER), [])]
    await bench.compare(program)


@cocotb.test(timeout_time=100, timeout_unit="ms")
@cocotb.parametrize(axpy=[0, 1])
async def shortest_legal_distance(dut: Any, axpy: int) -> None:
    """Columns that come every 6 clocks of HBM3, one command each, are all taken before the next: no operand is lost.

    A command that works on more queries than a gap has cycles must come at their number of cycles; the bench keeps to it.
    """
    bench = Bench(dut)
    await bench.start()
    words = [bench.word([ONE + addr] * bench.lanes) for addr in range(bench.words)]
    await bench.compare(list(bench.fill(words)))
    queries = bench.contexts - 1
    gap_tenths = max(MAC_GAP_TENTHS, 10 * bench.contexts)
    columns = [[bench.word([TWO + number + bank] * bench.lanes) for bank in range(16)] for number in range(64)]
    mac = Command(Op.MAC_ALL_BANKS, axpy=axpy, queries=queries, stride=4, slot=1)
    _, packed, _, _ = bench.prepare([(mac, words) for words in columns])
    dut.o__ready.value = 1
    number, taken, cycle = 0, 0, 0
    edge, settle = RisingEdge(dut.clk), ReadOnly()
    dut.i__payload.value = pack(bench.inputs, mac._asdict())
    while taken < len(packed):
        commands = number < len(packed) and cycle >= -(-number * gap_tenths // 10)
        dut.i__valid.value = int(commands)
        # The row's column is there two cycles after its command and is replaced when the next one comes.
        due = sum(cycle - 2 >= -(-k * gap_tenths // 10) for k in range(len(packed)))
        assert due - taken <= 1, f"cycle {cycle}: column {taken} was replaced before it was taken"
        dut.columns__valid.value = int(due > taken)
        if due > taken:
            dut.columns__payload.value = packed[taken]
        await settle
        accepted = commands and bench.read(dut.i__ready)
        took = due > taken and bench.read(dut.columns__ready)
        await edge
        number, taken, cycle = number + bool(accepted), taken + bool(took), cycle + 1
    dut.i__valid.value = dut.columns__valid.value = 0
    await bench.compare([(Command(Op.MOVE_RESULT, axpy=axpy, queries=queries), [])])


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """Cycles from a MAC, and from a MOVE_RESULT, to the first result; one query or result per cycle."""
    bench = Bench(dut)
    await bench.start()
    await bench.compare(list(bench.fill([bench.word([ONE] * bench.lanes)] * bench.words)))
    columns = [bench.word([TWO] * bench.lanes)] * 16
    move: Step = (Command(Op.MOVE_RESULT), [])
    for name, queries in (("mac", 0), ("mac_all_contexts", bench.contexts - 1)):
        mac: Step = (Command(Op.MAC_ALL_BANKS, queries=queries), columns)
        done = await bench.compare([mac] * 32 + [move])
        first = done.accepted[-2] - queries  # the last MAC's first query
        record.timing(name, latency_cycles=done.answered[0] - first, interval_cycles=done.interval(done.accepted[:-1]))
    done = await bench.compare([move] * 32)
    assert done.interval(done.accepted) == done.interval(done.answered)
    record.timing("move", latency_cycles=done.latency, interval_cycles=done.interval(done.answered))
    done = await bench.compare([(Command(Op.MOVE_RESULT, axpy=1), [])])
    assert done.interval(done.answered) == 1


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def barrier(dut: Any) -> None:
    """A BARRIER is accepted only after the last result was taken."""
    bench = Bench(dut)
    await bench.start()
    move: Step = (Command(Op.MOVE_RESULT, axpy=1), [])
    done = await bench.compare([move, (Command(Op.BARRIER), []), (Command(Op.NOTHING), [])], hold_output=60)
    assert done.accepted[1] > done.answered[-1], (
        f"transaction 1: BARRIER taken in cycle {done.accepted[1]}, before the last result in cycle {done.answered[-1]}"
    )
    assert len(done.answered) == bench.lanes


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset with commands in flight leaves empty accumulators and answers only what comes after."""
    bench = Bench(dut)
    await bench.start()
    moves = Command(Op.MOVE_RESULT, axpy=1)._asdict()
    await bench.reset_in_traffic([moves] * 20)
    bench.model.reset()
    await bench.compare([(Command(Op.MOVE_RESULT, axpy=axpy), []) for axpy in (0, 1)])

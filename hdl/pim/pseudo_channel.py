"""Pseudo-channel: decoder of PIM commands, global buffer, four bank groups, four accumulators.

Latency: 17 cycles from a MOVE_RESULT to its first result: 2 for the buffer stages that every command passes, then those of
the processing element and of the accumulator.  Throughput: one query of a MAC or CLEAR, or one result of a MOVE_RESULT,
per cycle.  Reset: accumulators are empty, nothing is on its way, the words of the buffer are undefined.
Source: paper sections IV-A, IV-B and V-E, Figs. 7 and 10; commands as in ``golden_model.pim.pseudo_channel``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from golden_model.pim import global_buffer
from golden_model.pim import pseudo_channel as golden
from golden_model.pim.bank_group import BANKS
from golden_model.pim.processing_element import Operation
from golden_model.pim.pseudo_channel import BANK_GROUPS, Op
from hdl.pim.accumulator import Accumulator
from hdl.pim.bank_group import BankGroup
from hdl.pim.global_buffer import GlobalBuffer
from hdl.shapes import advance, choose, struct

__all__ = ["PseudoChannel"]

FETCH = ("access", "drive")
"""Stages beside the buffer's own."""


class PseudoChannel(wiring.Component):
    """Carry out PIM commands.

    Parameters
    ----------
    lanes, contexts, align_frac_bits : int
        As of ``ProcessingElement``; ``lanes`` at most 32.
    words : int
        Words per half of the global buffer, a power of two from 16 to 4096.

    Members
    -------
    i : In(stream)
        A command: op, axpy, first, half, context, queries, slot, bank, addr, stride, data.
    columns : In(stream)
        Columns of the 16 banks for each MAC, in the order of the MACs; taken with the last query.
    o : Out(stream)
        Results of MOVE_RESULT: sum_0 ... sum_3.
    """

    i: stream.Interface
    columns: stream.Interface
    o: stream.Interface

    latency = len(FETCH) + BankGroup.latency + Accumulator.latency

    def __init__(self, *, lanes: int = 16, contexts: int = 1, align_frac_bits: int = 28, words: int = 64) -> None:
        fields = golden.PseudoChannel(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits, words=words)
        self.lanes = fields.lanes
        self._groups = [
            BankGroup(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits) for _ in range(BANK_GROUPS)
        ]
        self._buffers = [GlobalBuffer(words=words // BANKS, lanes=lanes) for _ in range(BANKS)]
        self._accumulators = [Accumulator() for _ in range(BANK_GROUPS)]
        self._beat = data.StructLayout({
            "op": 2, "axpy": 1, "first": 1, "half": 1, "context": self._groups[0].i.payload.context.shape(),
            "slot": self._groups[0].i.payload.slot.shape(), "active": BANKS, "word": 2, "last": 1,
        })  # fmt: skip
        self.predicted_timing = {
            "mac": {"latency_cycles": self.latency + 1, "interval_cycles": 1},  # latency to the MOVE_RESULT behind it
            "mac_all_contexts": {"latency_cycles": self.latency + contexts, "interval_cycles": contexts},
            "move": {"latency_cycles": self.latency, "interval_cycles": 1},
        }
        super().__init__({
            "i": In(stream.Signature(struct(fields.command_fields))),
            "columns": In(stream.Signature(struct(fields.column_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command = self.i.payload
        for name, parts in (("group", self._groups), ("buffer", self._buffers), ("accumulator", self._accumulators)):
            for number, part in enumerate(parts):
                m.submodules[f"{name}_{number}"] = part
        group, accumulator = self._groups[0], self._accumulators[0]  # parts of a kind are in lockstep: one speaks for all

        # Decode: a command becomes one beat per query, a MOVE_RESULT of lane accumulators one per query and lane.
        macs, clears, moves = Signal(), Signal(), Signal()
        beats = Signal()
        query_r, lane_r, addr_r = Signal.like(command.queries), Signal.like(command.slot), Signal.like(command.addr)
        addr = Signal.like(command.addr)
        last_lane, last = Signal(), Signal()
        m.d.comb += [
            macs.eq((command.op == Op.MAC_ALL_BANKS) | (command.op == Op.MAC_SAME_BANK)),
            clears.eq(command.op == Op.CLEAR),
            moves.eq(command.op == Op.MOVE_RESULT),
            beats.eq(self.i.valid & (macs | clears | moves)),
            addr.eq(Mux(query_r.any(), addr_r, command.addr)),
            last_lane.eq(~(moves & command.axpy) | (lane_r == self.lanes - 1)),
            last.eq(last_lane & (query_r == command.queries)),
        ]

        # Fetch: beats travel beside the buffer's answers; every beat reads the buffer, whether it needs a word or not.
        valids = [Signal(name=f"{stage}_valid_r") for stage in FETCH]
        columns_wait, leaves = Signal(), Signal()
        load_access, load_drive = advance(m, valids=valids, i_valid=beats, o_ready=leaves)
        access_r, fetched = (
            data.View(self._beat, Signal(self._beat.size, name=f"{stage}_r", reset_less=True)) for stage in FETCH
        )
        with m.If(load_access):
            m.d.sync += [
                access_r.op.eq(Mux(moves, Operation.READ, Mux(clears, Operation.CLEAR, Operation.MULTIPLY))),
                *(access_r[name].eq(command[name]) for name in ("axpy", "first", "half")),
                access_r.context.eq(command.context + query_r),
                access_r.slot.eq(Mux(moves, lane_r, command.slot)),
                access_r.active.eq(Mux(command.op == Op.MAC_SAME_BANK, 1 << command.bank, (1 << BANKS) - 1)),
                access_r.word.eq(addr[:2]),
                access_r.last.eq(last),
            ]
            with m.If(beats):
                m.d.sync += [lane_r.eq(Mux(last_lane, 0, lane_r + 1))]
                with m.If(last_lane):
                    m.d.sync += [query_r.eq(Mux(last, 0, query_r + 1)), addr_r.eq(addr + command.stride)]
        with m.If(load_drive):
            m.d.sync += fetched.eq(access_r)
        for number, buffer in enumerate(self._buffers):
            writes = self.i.valid & (command.op == Op.WRITE_BUFFER) & (command.addr[:2] == number)
            swaps = self.i.valid & (command.op == Op.SWAP_BUFFER)
            m.d.comb += [
                buffer.i.valid.eq(beats | writes | swaps),
                buffer.i.payload.op.eq(
                    Mux(swaps, global_buffer.Op.SWAP, Mux(beats, global_buffer.Op.READ, global_buffer.Op.WRITE))
                ),
                buffer.i.payload.addr.eq(addr[2:]),
                buffer.i.payload.data.eq(command.data),
                buffer.o.ready.eq(leaves),
            ]

        # A BARRIER waits until nothing is on its way: no beat in the fetch stages, no result between them and ``o``.
        results_count = Signal(range(self.latency + 1))
        starts, ends = Signal(), Signal()
        m.d.comb += [
            starts.eq(beats & moves & load_access),
            ends.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += results_count.eq(results_count + starts - ends)
        idle = ~results_count.any() & ~Cat(valids).any()
        with m.Switch(command.op):
            with m.Case(Op.WRITE_BUFFER, Op.SWAP_BUFFER):
                m.d.comb += self.i.ready.eq(self._buffers[0].i.ready)
            with m.Case(Op.BARRIER):
                m.d.comb += self.i.ready.eq(idle)
            with m.Case(Op.NOTHING):
                m.d.comb += self.i.ready.eq(1)
            with m.Default():
                m.d.comb += self.i.ready.eq(load_access & last)

        # Join: a MULTIPLY waits for its columns; the last query takes them.
        waits = (fetched.op == Operation.MULTIPLY) & ~self.columns.valid
        m.d.comb += [
            columns_wait.eq(waits),
            leaves.eq(group.i.ready & ~columns_wait),
            self.columns.ready.eq(valids[-1] & (fetched.op == Operation.MULTIPLY) & fetched.last & group.i.ready),
        ]
        words = [buffer.o.payload.data for buffer in self._buffers]
        scalar_word = Signal.like(words[0])
        m.d.comb += scalar_word.eq(choose(words, fetched.word))
        for number, part in enumerate(self._groups):
            m.d.comb += [
                part.i.valid.eq(valids[-1] & ~columns_wait),
                *(part.i.payload[name].eq(fetched[name]) for name in ("op", "axpy", "first", "context", "active")),
                part.i.payload.half.eq(0),  # the accumulators round
                part.i.payload.slot.eq(fetched.slot + Mux(fetched.op == Operation.MULTIPLY, number, 0)),
            ]
            for bank in range(BANKS):
                m.d.comb += [
                    part.i.payload[f"row_{bank}"].eq(self.columns.payload[f"column_{number * BANKS + bank}"]),
                    part.i.payload[f"vector_{bank}"].eq(Mux(fetched.axpy, scalar_word, words[bank])),
                ]

        # Sum over the banks of a group, or over the groups.  What a READ is for waits beside the processing elements.
        m.submodules.kinds = kinds = SyncFIFO(width=2, depth=1 << BankGroup.latency.bit_length())
        axpy, half = kinds.r_data
        m.d.comb += [
            kinds.w_data.eq(Cat(fetched.axpy, fetched.half)),
            kinds.w_en.eq(valids[-1] & (fetched.op == Operation.READ) & group.i.ready),
            kinds.r_en.eq(group.o.valid & accumulator.i.ready),
            self.o.valid.eq(accumulator.o.valid),
        ]
        for number, part in enumerate(self._accumulators):
            m.d.comb += [
                self._groups[number].o.ready.eq(accumulator.i.ready),
                part.i.valid.eq(group.o.valid),
                part.i.payload.half.eq(half),
                *(
                    part.i.payload[f"p_{other}"].eq(
                        Mux(axpy, self._groups[other].o.payload[f"value_{number}"],
                            self._groups[number].o.payload[f"value_{other}"])
                    )
                    for other in range(BANK_GROUPS)
                ),
                part.o.ready.eq(self.o.ready),
                self.o.payload[f"sum_{number}"].eq(part.o.payload.sum),
            ]  # fmt: skip
        return m

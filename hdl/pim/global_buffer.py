"""Global buffer of a pseudo-channel: two halves of vector words, one read while the other is written.

Latency: 2 cycles from a READ to its answer, one per entry of ``STAGES``.  Throughput: one command per cycle.
Reset: half 0 is read, the pipeline is empty, the words are undefined.
Source: paper section IV-A and Fig. 7; commands as in ``golden_model.pim.global_buffer``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.pim import global_buffer as golden
from golden_model.pim.global_buffer import Op
from hdl.shapes import advance, struct

__all__ = ["GlobalBuffer"]

STAGES = ("access", "drive")


class GlobalBuffer(wiring.Component):
    """Carry out one command per cycle on the two halves.

    Parameters
    ----------
    words : int
        Words per half, a power of two from 4 to 1024.
    lanes : int
        FP16 numbers per word, a power of two from 2 to 32.

    Members
    -------
    i : In(stream)
        A command: op, addr, data.
    o : Out(stream)
        Answers of the READs, in their order: data.

    Notes
    -----
    All words lie in one memory that is read or written, never both in a cycle, so a single-port SRAM can hold them.  A
    word that is written cannot be read before a later SWAP, so nothing relies on a bypass from writes to reads.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    """Cycles from a READ to its answer."""

    predicted_timing = {
        "read": {"latency_cycles": latency, "interval_cycles": 1},
        "write_swap_read": {"latency_cycles": 2 + latency, "interval_cycles": 1},  # from the last WRITE to its word
    }

    def __init__(self, *, words: int = 64, lanes: int = 16) -> None:
        fields = golden.GlobalBuffer(words=words, lanes=lanes)  # checks both
        self.words = fields.words
        self.lanes = fields.lanes
        self.word_bits = fields.word_bits
        super().__init__({
            "i": In(stream.Signature(struct(fields.command_fields))),
            "o": Out(stream.Signature(struct(fields.answer_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command = self.i.payload
        read, write, swap = Signal(), Signal(), Signal()
        m.d.comb += [
            read.eq(self.i.valid & (command.op == Op.READ)),
            write.eq(self.i.valid & (command.op == Op.WRITE)),
            swap.eq(self.i.valid & (command.op == Op.SWAP)),
        ]
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        load_access, load_drive = advance(m, valids=valids, i_valid=read, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(load_access), self.o.valid.eq(valids[-1])]

        # Stage 1, access: the memory's own register.  The top bit of the address is the half.
        read_half_r = Signal()
        addr = Signal(range(2 * self.words))
        words: memory.Memory = memory.Memory(shape=self.word_bits, depth=2 * self.words, init=[])
        m.submodules.memory = words
        write_port, read_port = words.write_port(), words.read_port()
        m.d.comb += [
            addr.eq(Cat(command.addr, read_half_r ^ write)),
            write_port.addr.eq(addr),
            write_port.data.eq(command.data),
            write_port.en.eq(write & load_access),
            read_port.addr.eq(addr),
            read_port.en.eq(read & load_access),
        ]
        with m.If(swap & load_access):
            m.d.sync += read_half_r.eq(~read_half_r)

        # Stage 2, drive: a register in front of the wires to all processing elements.
        word_r = Signal(self.word_bits, reset_less=True)
        with m.If(load_drive):
            m.d.sync += word_r.eq(read_port.data)
        m.d.comb += self.o.payload.data.eq(word_r)
        return m

"""Draft pool: a content-addressable store of draft tokens with greedy selection of a verification batch.

Latency: 2 cycles to the summary beat; 4 cycles to DRAIN's first entry beat and 4 + (0 to 28) cycles to SELECT's at the
default widths.
Throughput: one command per cycle; DRAIN and SELECT hand out one entry per cycle and hold off the next command.
Reset: all entries are free, the pool is unlocked, the pipeline is empty.
Source: paper sections IV-A, IV-C, IV-D; commands and order of hand-out as in ``golden_model.manager.draft_pool``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.manager import draft_pool as golden
from golden_model.manager.draft_pool import Op, Status
from golden_model.params import check_range
from hdl.shapes import advance, struct
from hdl.vectors import encode, match_lines, planes, popcount, read_word, split_lowest, write_word

__all__ = ["DraftPool"]


class DraftPool(wiring.Component):
    """Carry out one command per cycle on a pool of draft tokens.

    Parameters
    ----------
    entries : int
        Capacity in tokens, 1 to 1024.
    request_bits : int
        Width of the request id, 1 to 16.
    position_bits : int
        Width of the position within a draft, 1 to 16.
    token_bits : int
        Width of the token id, 1 to 32.

    Members
    -------
    i : In(stream)
        A command: op, request, position, probability, token, scope, capacity.
    o : Out(stream)
        The beats of its answer: is_entry, last, status, count, waiting, sent, request, position, probability, token.
    level : Out(count_bits)
        Tokens in the pool after the last command whose summary beat has entered the output register.
    full, empty, locked : Out(1)
        State of the pool after the same command.
    """

    i: stream.Interface
    o: stream.Interface
    level: Signal
    full: Signal
    empty: Signal
    locked: Signal

    latency = 2
    """Cycles from a command to its summary beat."""

    drain_latency = latency + 2
    """Cycles from a DRAIN, or a SELECT that takes all waiting tokens, to its first entry beat."""

    def __init__(
        self, *, entries: int = 512, request_bits: int = 7, position_bits: int = 5, token_bits: int = 17
    ) -> None:
        self.entries = check_range("entries", entries, 1, 1024)
        self.request_bits = check_range("request_bits", request_bits, 1, 16)
        self.position_bits = check_range("position_bits", position_bits, 1, 16)
        self.token_bits = check_range("token_bits", token_bits, 1, 32)
        fields = golden.DraftPool(
            entries=entries, request_bits=request_bits, position_bits=position_bits, token_bits=token_bits
        )
        self.count_bits = fields.count_bits
        self.probability_bits = dict(fields.command_fields)["probability"]
        super().__init__({
            "i": In(stream.Signature(struct(fields.command_fields))),
            "o": Out(stream.Signature(struct(fields.response_fields))),
            "level": Out(self.count_bits),
            "full": Out(1),
            "empty": Out(1),
            "locked": Out(1),
        })

    @property
    def key_bits(self) -> int:
        """Width of the sort key, which is the number of planes that SELECT scans at most."""
        return self.probability_bits + self.request_bits + self.position_bits

    @property
    def select_latency(self) -> int:
        """Most cycles from a SELECT to its first entry beat, if the output is not held up."""
        return self.drain_latency + self.key_bits

    @property
    def predicted_timing(self) -> dict[str, dict[str, int]]:
        """Cycles of every command as the structure gives them; DRAIN and SELECT up to their first entry beat."""
        first = {"drain": self.drain_latency, "select": self.select_latency}
        names = ("insert", "match", "drop", "lock", "unlock", "flush", "drain", "select")
        return {name: {"latency_cycles": first.get(name, self.latency), "interval_cycles": 1} for name in names}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, response = self.i.payload, self.o.payload
        idle = Signal()  # stage 1 takes a command
        emit = Signal()  # stage 1 takes an entry of ``pending_r``
        valids = [Signal(name="beat_valid_r"), Signal(name="response_valid_r")]
        load_beat, load_response = advance(m, valids=valids, i_valid=emit | idle & self.i.valid, o_ready=self.o.ready)
        accept = Signal()
        m.d.comb += [
            self.i.ready.eq(idle & load_beat),
            accept.eq(self.i.valid & self.i.ready),
            self.o.valid.eq(valids[-1]),
        ]

        # The store: planes of what is searched and of states, token ids in a memory.  A free entry keeps its contents.
        requests = planes("request", self.entries, self.request_bits)
        positions = planes("position", self.entries, self.position_bits)
        probabilities = planes("probability", self.entries, self.probability_bits)
        words = [*requests, *positions, *probabilities]
        waiting_r = Signal(self.entries)
        sent_r = Signal(self.entries)
        locked_r = Signal()
        depth = max(self.entries, 2)  # one entry would have an address of no bits
        tokens: memory.Memory = memory.Memory(shape=self.token_bits, depth=depth, init=[])
        m.submodules.tokens = tokens
        token_write, token_read = tokens.write_port(), tokens.read_port()

        # Stage 1, commands: match lines and the lowest free entry; the states change at once.  A refused insert may
        # overwrite the contents of the free entry, since the entry stays free.
        pending_r = Signal(self.entries)  # entries still to be handed out
        source = Signal(self.entries)
        occupied = Signal(self.entries)
        request_match = Signal(self.entries)
        duplicate_oh = Signal(self.entries)
        status = Signal(2)
        m.d.comb += [
            occupied.eq(waiting_r | sent_r),
            source.eq(Mux(emit, pending_r, ~occupied)),
            request_match.eq(match_lines(requests, command.request)),
            duplicate_oh.eq(occupied & request_match & match_lines(positions, command.position)),
        ]
        entry_oh, others = split_lowest(m, source)
        insert, select = command.op == Op.INSERT, command.op == Op.SELECT
        with m.If(insert):
            room = Mux(source.any(), Status.OK, Status.FULL)
            m.d.comb += status.eq(Mux(locked_r, Status.LOCKED, Mux(duplicate_oh.any(), Status.DUPLICATE, room)))
        waiting_hits, sent_hits = Signal(self.entries), Signal(self.entries)
        m.d.comb += [
            waiting_hits.eq(Mux(select, waiting_r, Mux(command.scope[0], waiting_r & request_match, 0))),
            sent_hits.eq(Mux(~select & command.scope[1], sent_r & request_match, 0)),
            token_write.addr.eq(encode(entry_oh, len(token_write.addr))),
            token_write.data.eq(command.token),
            token_write.en.eq(accept & insert & source.any()),
        ]
        with m.If(accept):
            with m.Switch(command.op):
                with m.Case(Op.INSERT):
                    word = Cat(command.request, command.position, command.probability)
                    for plane, value in zip(words, write_word(words, entry_oh, word), strict=True):
                        m.d.sync += plane.eq(value)
                    with m.If(status == Status.OK):
                        m.d.sync += waiting_r.eq(waiting_r | entry_oh)
                with m.Case(Op.DROP, Op.DRAIN):
                    m.d.sync += [waiting_r.eq(waiting_r & ~waiting_hits), sent_r.eq(sent_r & ~sent_hits)]
                with m.Case(Op.LOCK):
                    m.d.sync += locked_r.eq(1)
                with m.Case(Op.UNLOCK):
                    m.d.sync += locked_r.eq(0)
                with m.Case(Op.FLUSH):
                    m.d.sync += [waiting_r.eq(0), sent_r.eq(0), locked_r.eq(0)]

        op_r = Signal(len(command.op))
        status_r = Signal(len(status))
        quota_r = Signal(self.count_bits)  # SELECT: tokens still to be chosen
        waiting_hits_r = Signal(self.entries)  # SELECT: tokens that may still be chosen
        sent_hits_r = Signal(self.entries)
        with m.If(accept):
            m.d.sync += [
                op_r.eq(command.op),
                status_r.eq(status),
                quota_r.eq(command.capacity),
                waiting_hits_r.eq(waiting_hits),
                sent_hits_r.eq(sent_hits),
            ]

        # Stage 1, entries: read out and remove the lowest of ``pending_r``; SELECT's become SENT.
        is_entry_r = Signal()
        last_r = Signal()
        word_r = Signal(self.key_bits)  # the entry but for its token id, which stands in the read port's register
        m.d.comb += [token_read.addr.eq(token_write.addr), token_read.en.eq(emit & load_beat)]
        with m.If(load_beat):
            m.d.sync += is_entry_r.eq(emit)
        with m.If(emit & load_beat):
            m.d.sync += [last_r.eq(~others.any()), word_r.eq(read_word(words, entry_oh)), pending_r.eq(others)]
            with m.If(op_r == Op.SELECT):
                m.d.sync += [waiting_r.eq(waiting_r & ~entry_oh), sent_r.eq(sent_r | entry_oh)]

        # Stage 2: count the hits and settle the totals.  The output register's own fields are the pool's counters: the
        # command before has left them there, whatever the distance, so SELECT sees the exact number waiting.
        step_r = Signal(range(self.key_bits + 2))  # 0: no scan; k: plane k - 1 of the key is fetched
        plane_r = Signal(self.entries)  # all ones when there is no scan
        masked_hits = Signal(self.entries)
        m.d.comb += masked_hits.eq(waiting_hits_r & plane_r)
        waiting_count, sent_count = popcount(m, masked_hits), popcount(m, sent_hits_r)
        scan = Signal()  # more tokens wait than SELECT may take
        count = Signal(self.count_bits)
        waiting = Signal(self.count_bits)
        sent = Signal(self.count_bits)
        more = Signal()  # entry beats follow; not made from ``count``, which comes too late in the cycle
        m.d.comb += [
            scan.eq((op_r == Op.SELECT) & (quota_r < response.waiting)),
            waiting.eq(response.waiting),
            sent.eq(response.sent),
        ]
        with m.If(valids[0] & ~is_entry_r):  # an enable that moves: Icarus evaluates a Switch only at a change
            with m.Switch(op_r):
                with m.Case(Op.INSERT):
                    m.d.comb += [count.eq(status_r == Status.OK), waiting.eq(response.waiting + count)]
                with m.Case(Op.MATCH):
                    m.d.comb += count.eq(waiting_count + sent_count)
                with m.Case(Op.DROP, Op.DRAIN):
                    m.d.comb += [
                        count.eq(waiting_count + sent_count),
                        waiting.eq(response.waiting - waiting_count),
                        sent.eq(response.sent - sent_count),
                        more.eq((op_r == Op.DRAIN) & (waiting_hits_r | sent_hits_r).any()),
                    ]
                with m.Case(Op.SELECT):
                    m.d.comb += [
                        count.eq(Mux(scan, quota_r, response.waiting)),
                        waiting.eq(response.waiting - count),
                        sent.eq(response.sent + count),
                        more.eq((quota_r != 0) & (response.waiting != 0)),
                    ]
                with m.Case(Op.FLUSH):
                    m.d.comb += [count.eq(self.level), waiting.eq(0), sent.eq(0)]
        respond = Signal()
        m.d.comb += respond.eq(load_response & valids[0])
        with m.If(respond):
            m.d.sync += [
                response.is_entry.eq(is_entry_r),
                response.last.eq(Mux(is_entry_r, last_r, ~more)),
                response.status.eq(status_r),
                response.count.eq(count),
                response.waiting.eq(waiting),
                response.sent.eq(sent),
                Cat(response.request, response.position, response.probability, response.token).eq(
                    Mux(is_entry_r, Cat(word_r, token_read.data), 0)
                ),
            ]
            with m.If(op_r == Op.LOCK):
                m.d.sync += self.locked.eq(1)
            with m.Elif((op_r == Op.UNLOCK) | (op_r == Op.FLUSH)):
                m.d.sync += self.locked.eq(0)
        m.d.comb += [
            self.level.eq(response.waiting + response.sent),
            self.full.eq(self.level == self.entries),
            self.empty.eq(self.level == 0),
        ]

        # The plane that the next scan step looks at; the larger key wins: high probability, low request, low position.
        with m.Switch(step_r):
            keys = [*reversed(probabilities), *(~plane for plane in [*reversed(requests), *reversed(positions)])]
            for step, key in enumerate(keys, start=1):
                with m.Case(step):
                    m.d.sync += plane_r.eq(key)
            with m.Default():
                m.d.sync += plane_r.eq((1 << self.entries) - 1)

        with m.FSM() as fsm:
            with m.State("IDLE"):
                with m.If(accept & ((command.op == Op.DRAIN) | select)):
                    m.d.sync += step_r.eq(select)
                    m.next = "SUMMARY"
            with m.State("SUMMARY"):  # the command is in stage 2
                with m.If(respond):
                    m.d.sync += step_r.eq(Mux(more & scan, 2, 0))
                    with m.If(~scan):
                        m.d.sync += pending_r.eq(waiting_hits_r | sent_hits_r)
                    m.next = "IDLE"
                    with m.If(more & scan):
                        m.next = "SCAN"
                    with m.Elif(more):
                        m.next = "EMIT"
            # More candidates than the quota: with more ones than the quota, the zeros are out; else the ones are in.
            # Keys are unique, so the quota is used up at the last plane of the key at the latest.
            with m.State("SCAN"):
                m.d.sync += step_r.eq(step_r + 1)
                with m.If(waiting_count > quota_r):
                    m.d.sync += waiting_hits_r.eq(masked_hits)
                with m.Else():
                    m.d.sync += [
                        waiting_hits_r.eq(waiting_hits_r & ~plane_r),
                        pending_r.eq(pending_r | masked_hits),
                        quota_r.eq(quota_r - waiting_count),
                    ]
                with m.If(waiting_count == quota_r):
                    m.d.sync += step_r.eq(0)
                    m.next = "EMIT"
            with m.State("EMIT"):
                with m.If(load_beat & ~others.any()):
                    m.next = "IDLE"
        m.d.comb += [idle.eq(fsm.ongoing("IDLE")), emit.eq(fsm.ongoing("EMIT"))]
        return m

"""Pseudo-channel: 16 processing elements, their global buffer, four accumulators and the decoder of PIM commands.

The banks' rows are outside: with every MAC command the 16 banks give one column each, on a stream of their own.
Commands act one after the other:

==============  ===============================================================================================
WRITE_BUFFER    put ``data`` at ``addr`` of the half of the buffer that is not read
SWAP_BUFFER     exchange the halves
MAC_ALL_BANKS   take 16 columns and multiply in every bank, once per query
MAC_SAME_BANK   the same, but only bank ``bank`` of each group acts
CLEAR           clear the accumulators (of dot or axpy mode) of the queries' contexts
MOVE_RESULT     sum the accumulators over banks (dot) or bank groups (axpy) and send the results out
BARRIER         wait until every result of earlier commands has been taken
NOTHING         nothing
==============  ===============================================================================================

``queries`` is the number of contexts that a command works on, less 1: contexts ``context`` to ``context + queries``, one
after the other.  Query k reads the buffer at ``addr + k * stride`` (modulo ``words``):

- dot mode: four neighbouring words (the low two bits of the address do not count), one per bank of a group, since the
  banks hold different parts of the head dimension.  The same four go to all groups, which hold different tokens.
- axpy mode: one word for all.  Bank group g takes its element ``slot + g`` (modulo ``lanes``) as the scalar.

MOVE_RESULT gives per query, in dot mode, one result: the four groups' sums over their banks, which are scores of four
tokens; in axpy mode ``lanes`` results: lane by lane, the four banks' sums over the groups, which are four dimensions.
Sums are those of ``accumulator``, FP32, or FP16 with ``half``.

Source: paper sections IV-A, IV-B and V-E, Figs. 7 and 10; encoding, buffer layout and BARRIER are our choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from golden_model.arithmetic.formats import FP32
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_power_of_two
from golden_model.pim import global_buffer
from golden_model.pim.accumulator import Accumulator
from golden_model.pim.bank_group import BANKS, BankGroup
from golden_model.pim.global_buffer import GlobalBuffer
from golden_model.pim.processing_element import Operation

__all__ = ["BANK_GROUPS", "MAX_WORDS", "Command", "Op", "PseudoChannel"]

BANK_GROUPS = 4
"""Bank groups per pseudo-channel; as many as banks per group, so that four accumulators serve both directions."""

MAX_WORDS = 4096
"""Words of the largest half of a global buffer."""


class Op(IntEnum):
    """Command codes."""

    WRITE_BUFFER = 0
    SWAP_BUFFER = 1
    MAC_ALL_BANKS = 2
    MAC_SAME_BANK = 3
    CLEAR = 4
    MOVE_RESULT = 5
    BARRIER = 6
    NOTHING = 7


class Command(NamedTuple):
    """One command; fields that an operation does not use are ignored."""

    op: int
    axpy: int = 0
    first: int = 0  # the MAC starts from zero
    half: int = 0  # results in FP16
    context: int = 0
    queries: int = 0
    slot: int = 0
    bank: int = 0
    addr: int = 0
    stride: int = 0
    data: int = 0


class PseudoChannel:
    """Carry out PIM commands.

    Parameters
    ----------
    lanes, contexts, align_frac_bits
        As of the processing element; ``lanes`` at most 32.
    words
        Words of ``lanes`` FP16 numbers per half of the global buffer, a power of two from 16 to 4096.
    """

    def __init__(self, *, lanes: int = 16, contexts: int = 1, align_frac_bits: int = 28, words: int = 64) -> None:
        self.words = check_power_of_two("words", words, 16, MAX_WORDS)
        self.lanes = check_power_of_two("lanes", lanes, 2, 32)
        self.groups = [
            BankGroup(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits) for _ in range(BANK_GROUPS)
        ]
        self.contexts = self.groups[0].contexts
        self.buffers = [GlobalBuffer(words=words // BANKS, lanes=lanes) for _ in range(BANKS)]
        """Word w is in buffer w mod 4, so that four neighbours are read at once."""
        self._accumulator = Accumulator()
        self._element = self.groups[0].elements[0]

    @property
    def word_bits(self) -> int:
        return self.groups[0].word_bits

    @property
    def addr_bits(self) -> int:
        return (self.words - 1).bit_length()

    @property
    def command_fields(self) -> Fields:
        return (
            ("op", 3),
            ("axpy", 1),
            ("first", 1),
            ("half", 1),
            ("context", self._element.context_bits),
            ("queries", self._element.context_bits),
            ("slot", self._element.slot_bits),
            ("bank", 2),
            ("addr", self.addr_bits),
            ("stride", self.addr_bits),
            ("data", self.word_bits),
        )

    @property
    def column_fields(self) -> Fields:
        """Columns of the 16 banks: bank b of group g is column 4 g + b."""
        return tuple((f"column_{number}", self.word_bits) for number in range(BANK_GROUPS * BANKS))

    @property
    def result_fields(self) -> Fields:
        return tuple((f"sum_{number}", FP32.width) for number in range(BANK_GROUPS))

    def reset(self) -> None:
        """Clear every accumulator; the words of the buffer are undefined."""
        for group in self.groups:
            group.reset()
        for buffer in self.buffers:
            buffer.reset()

    def execute(self, command: Command, columns: Sequence[int] = ()) -> list[list[int]]:
        """Carry out one command and return its results, each one code per accumulator.

        Parameters
        ----------
        command
            What to do.
        columns
            For a MAC: 16 words, as in :attr:`column_fields`; each must fit.

        >>> channel = PseudoChannel()
        >>> for word in range(4):
        ...     _ = channel.execute(Command(Op.WRITE_BUFFER, addr=word, data=0x3C00))  # lane 0 of every bank: 1.0
        >>> _ = channel.execute(Command(Op.SWAP_BUFFER))
        >>> _ = channel.execute(Command(Op.MAC_ALL_BANKS), [0x4000] * 16)  # 2.0 in every bank
        >>> [hex(code) for code in channel.execute(Command(Op.MOVE_RESULT, half=1))[0]]
        ['0x4800', '0x4800', '0x4800', '0x4800']
        """
        for name, bits in self.command_fields:
            check_code(name, getattr(command, name), bits)
        op = Op(command.op)
        if op == Op.WRITE_BUFFER:
            place = global_buffer.Command(global_buffer.Op.WRITE, command.addr // BANKS, command.data)
            self.buffers[command.addr % BANKS].execute(place)
        elif op == Op.SWAP_BUFFER:
            for buffer in self.buffers:
                buffer.execute(global_buffer.Command(global_buffer.Op.SWAP))
        elif op in (Op.MAC_ALL_BANKS, Op.MAC_SAME_BANK):
            if len(columns) != BANK_GROUPS * BANKS:
                raise ParameterError(f"columns must have {BANK_GROUPS * BANKS} elements, not {len(columns)}")
            columns = [check_code(f"columns[{number}]", column, self.word_bits) for number, column in enumerate(columns)]
            self._multiply(command, columns)
        elif op == Op.CLEAR:
            for context in self._contexts(command):
                for group in self.groups:
                    group.step(Operation.CLEAR, axpy=command.axpy, context=context)
        elif op == Op.MOVE_RESULT:
            lanes = range(self.lanes) if command.axpy else (0,)
            return [self._sums(command, context, lane) for context in self._contexts(command) for lane in lanes]
        return []

    def _contexts(self, command: Command) -> Iterator[int]:
        for query in range(command.queries + 1):
            yield (command.context + query) % (1 << self._element.context_bits)

    def _multiply(self, command: Command, columns: Sequence[int]) -> None:
        active = 1 << command.bank if command.op == Op.MAC_SAME_BANK else (1 << BANKS) - 1
        for query, context in enumerate(self._contexts(command)):
            addr = (command.addr + query * command.stride) % self.words
            if command.axpy:
                vectors = [self._word(addr)] * BANKS
            else:
                first = addr // BANKS * BANKS
                vectors = [self._word(first + bank) if active >> bank & 1 else 0 for bank in range(BANKS)]
            for number, group in enumerate(self.groups):
                group.step(
                    Operation.MULTIPLY,
                    active=active,
                    axpy=command.axpy,
                    first=command.first,
                    context=context,
                    slot=(command.slot + number) % self.lanes,
                    rows=columns[number * BANKS : (number + 1) * BANKS],
                    vectors=vectors,
                )

    def _word(self, addr: int) -> int:
        word = self.buffers[addr % BANKS].execute(global_buffer.Command(global_buffer.Op.READ, addr // BANKS))
        assert word is not None
        return word

    def _sums(self, command: Command, context: int, lane: int) -> list[int]:
        values = []
        for group in self.groups:
            codes = group.step(Operation.READ, axpy=command.axpy, context=context, slot=lane)
            assert codes is not None
            values.append(codes)
        rows = zip(*values, strict=True) if command.axpy else values
        return [self._accumulator.compute(list(row), half=command.half) for row in rows]

"""Global buffer of a pseudo-channel: the vector words that all its processing elements share.

Two halves of ``words`` words each; one can be read while the other is written.  Commands are carried out one after the
other, each one complete before the next:

=====  ======================================================================
WRITE  put ``data`` at ``addr`` of the half that is written; no answer
READ   answer with the word at ``addr`` of the half that is read
SWAP   exchange the halves, for all commands that follow; no answer
NONE   nothing; no answer
=====  ======================================================================

A word is defined from its first WRITE on and is kept through every SWAP: two of them give the old halves back.  Reset
makes half 0 the one that is read and all words undefined, as an SRAM's are after power-up.

Source: paper section IV-A and Fig. 7 (a global buffer per pseudo-channel, 256-bit operands); the two halves, their size
and the commands are our choice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from golden_model.arithmetic.formats import FP16
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_power_of_two

__all__ = ["Command", "GlobalBuffer", "Op", "UndefinedWordError"]


class Op(IntEnum):
    """Command codes."""

    WRITE = 0
    READ = 1
    SWAP = 2
    NONE = 3


class Command(NamedTuple):
    """One command; fields that an operation does not use are ignored."""

    op: int
    addr: int = 0
    data: int = 0


class UndefinedWordError(ValueError):
    """A READ of a word that was never written.  The hardware would answer with whatever its SRAM holds."""


class GlobalBuffer:
    """Carry out commands on the two halves of a buffer.

    Parameters
    ----------
    words
        Words per half, a power of two from 4 to 1024.  The default, 64, holds 8 queries of 128 dimensions.
    lanes
        FP16 numbers per word, a power of two from 2 to 32; lane k is bits 16k to 16k + 15.
    """

    def __init__(self, *, words: int = 64, lanes: int = 16) -> None:
        self.words = check_power_of_two("words", words, 4, 1024)
        self.lanes = check_power_of_two("lanes", lanes, 2, 32)
        self.reset()

    @property
    def word_bits(self) -> int:
        return self.lanes * FP16.width

    @property
    def addr_bits(self) -> int:
        return (self.words - 1).bit_length()

    @property
    def command_fields(self) -> Fields:
        return (("op", 2), ("addr", self.addr_bits), ("data", self.word_bits))

    @property
    def answer_fields(self) -> Fields:
        return (("data", self.word_bits),)

    def reset(self) -> None:
        """Forget all words; half 0 is read."""
        self._halves: list[list[int | None]] = [[None] * self.words for _ in range(2)]
        self._read_half = 0

    def execute(self, command: Command) -> int | None:
        """Carry out one command and return the answer of a READ, or None.

        Raises
        ------
        UndefinedWordError
            For a READ of a word without a WRITE since the last reset.

        >>> buffer = GlobalBuffer()
        >>> [buffer.execute(Command(*c)) for c in ((Op.WRITE, 5, 7), (Op.SWAP,), (Op.READ, 5))]
        [None, None, 7]
        """
        op = Op(check_code("op", command.op, 2))
        addr = check_code("addr", command.addr, self.addr_bits)
        data = check_code("data", command.data, self.word_bits)
        if op == Op.WRITE:
            self._halves[1 - self._read_half][addr] = data
        elif op == Op.SWAP:
            self._read_half = 1 - self._read_half
        elif op == Op.READ:
            word = self._halves[self._read_half][addr]
            if word is None:
                raise UndefinedWordError(f"word {addr} of half {self._read_half} was read before it was written")
            return word
        return None

    def is_defined(self, addr: int) -> bool:
        """Tell whether a READ of ``addr`` has a defined answer now."""
        if not 0 <= addr < self.words:
            raise ParameterError(f"addr must be an integer in [0, {self.words - 1}], not {addr}")
        return self._halves[self._read_half][addr] is not None

"""Bank group: the processing elements of four banks, in lockstep.

One beat goes to all of them, each with its own column and its own vector.  ``active`` chooses the banks that MULTIPLY
and CLEAR act on; a READ reads them all.

Source: paper section IV-A and Fig. 10 (4 banks per group, all processing elements of a pseudo-channel work at once).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from golden_model.arithmetic.formats import FP16, FP32
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code
from golden_model.pim.processing_element import Operation, ProcessingElement

__all__ = ["BANKS", "BankGroup", "split_word"]

BANKS = 4
"""Banks per group."""


def split_word(word: int, lanes: int) -> list[int]:
    """Return the FP16 codes of a column or buffer word, lane 0 in the lowest bits.

    >>> split_word(0x4000_3C00, 2)
    [15360, 16384]
    """
    return [word >> (FP16.width * lane) & ((1 << FP16.width) - 1) for lane in range(lanes)]


class BankGroup:
    """Four processing elements.

    Parameters
    ----------
    lanes, contexts, align_frac_bits
        As of :class:`ProcessingElement`.
    """

    def __init__(self, *, lanes: int = 16, contexts: int = 1, align_frac_bits: int = 28) -> None:
        self.elements = [
            ProcessingElement(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits) for _ in range(BANKS)
        ]
        self.lanes = self.elements[0].lanes
        self.contexts = self.elements[0].contexts

    @property
    def word_bits(self) -> int:
        """Bits of a column."""
        return self.lanes * FP16.width

    @property
    def control_fields(self) -> Fields:
        """The processing element's, and which banks act."""
        return (*self.elements[0].control_fields, ("active", BANKS))

    @property
    def beat_fields(self) -> Fields:
        words = tuple((f"{side}_{bank}", self.word_bits) for side in ("row", "vector") for bank in range(BANKS))
        return (*self.control_fields, *words)

    @property
    def result_fields(self) -> Fields:
        """One value per bank, as of a processing element."""
        return tuple((f"value_{bank}", FP32.width) for bank in range(BANKS))

    def reset(self) -> None:
        """Clear every accumulator."""
        for element in self.elements:
            element.reset()

    def step(
        self, op: int, *, active: int = (1 << BANKS) - 1, rows: Sequence[int] = (), vectors: Sequence[int] = (), **beat: Any
    ) -> list[int] | None:
        """Take one beat and return the four codes that a READ gives, else None.

        Parameters
        ----------
        op, beat
            As of :meth:`ProcessingElement.step`.
        active
            Bit b lets bank b act.
        rows, vectors
            One word of ``lanes`` FP16 codes per bank; each must fit, of the banks that do not act too.
        """
        active = check_code("active", active, BANKS)
        if op == Operation.READ:
            return [value for element in self.elements if (value := element.step(op, **beat)) is not None]
        multiplies = op == Operation.MULTIPLY
        for name, words in (("rows", rows), ("vectors", vectors)):
            if multiplies and len(words) != BANKS:
                raise ParameterError(f"{name} must have {BANKS} elements, not {len(words)}")
            for bank, word in enumerate(words if multiplies else ()):
                check_code(f"{name}[{bank}]", word, self.word_bits)
        for bank, element in enumerate(self.elements):
            if active >> bank & 1:
                row, vector = (split_word(words[bank], self.lanes) if multiplies else [] for words in (rows, vectors))
                element.step(op, row=row, vector=vector, **beat)
        return None

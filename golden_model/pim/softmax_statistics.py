"""First pass of softmax: a row of FP16 numbers becomes one pair (maximum, sum); pairs of parts become one pair.

Beat by beat: the maximum grows if the beat holds a greater one, the running sum is shifted right by the growth, the beat's
terms are added.  All is integers; see :mod:`golden_model.pim.softmax_pair` for the format.
Source: online softmax by the textbook; fixed point and the integer maximum are our choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.elementary_tables import VALUE_FRACTION_BITS
from golden_model.arithmetic.formats import FP16
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code
from golden_model.pim.exponential import LOWEST, classify, is_invalid, is_live, power_of_e, powers_of_e
from golden_model.pim.softmax_pair import (
    DEEPEST,
    LARGEST_SUM,
    PAIR_FIELDS,
    SUM_FRACTION_BITS,
    TERM_FRACTION_BITS,
    Pair,
    from_fields,
    merge,
)
from golden_model.pim.vector_beat import check_lanes, input_fields, row_to_beats, valid_codes

__all__ = ["SoftmaxStatistics"]

_CUT = VALUE_FRACTION_BITS - TERM_FRACTION_BITS
_LIFT = SUM_FRACTION_BITS - TERM_FRACTION_BITS


class SoftmaxStatistics:
    """Pass 1 of softmax, and the merge of pairs.

    Parameters
    ----------
    lanes
        Elements per beat, a power of two from 4 to 16.
    """

    def __init__(self, *, lanes: int = 16) -> None:
        self.lanes = check_lanes(lanes)

    @property
    def operand_fields(self) -> Fields:
        """An item adds either a beat (``merge`` 0) or a pair (``merge`` 1) to its row; the other's fields are ignored."""
        return (("merge", 1), *input_fields(self.lanes), *PAIR_FIELDS)

    @property
    def result_fields(self) -> Fields:
        return PAIR_FIELDS

    def add_beat(self, pair: Pair, codes: Sequence[int]) -> Pair:
        """Return the pair of a row after one more beat of FP16 codes."""
        powers = [power_of_e(code) for code in codes if is_live(code)]
        maximum = max((pair.maximum, *(power.integer for power in powers)))
        total = pair.sum >> min(maximum - pair.maximum, DEEPEST)
        total += sum(p.mantissa >> _CUT << _LIFT >> min(maximum - p.integer, DEEPEST) for p in powers)
        total = LARGEST_SUM if pair.sum == LARGEST_SUM else min(total, LARGEST_SUM)
        return Pair(maximum, total, pair.invalid | any(is_invalid(code) for code in codes))

    def compute(self, items: Iterable[Mapping[str, int]]) -> list[Pair]:
        """Return one pair for each row of ``items``, which are payloads with the fields of ``operand_fields``."""
        pair, pairs = Pair(), []
        for item in items:
            if check_code("merge", item["merge"], 1):
                pair = merge(pair, from_fields(dict(item)))
            else:
                pair = self.add_beat(pair, valid_codes(item, self.lanes))
            if check_code("last", item["last"], 1):
                pairs.append(pair)
                pair = Pair()
        return pairs

    def row(self, codes: Sequence[int]) -> Pair:
        """Return the pair of one row.

        >>> SoftmaxStatistics().row([0x0000] * 3) == Pair(0, 3 << 40)
        True
        """
        pair = Pair()
        for beat in row_to_beats(codes, self.lanes):
            pair = self.add_beat(pair, valid_codes(beat, self.lanes))
        return pair

    def row_many(self, codes: npt.NDArray[Any]) -> Pair:
        """Return :meth:`row` of a ``uint16`` array of codes, computed on whole arrays (tested to be the same)."""
        if codes.dtype != np.uint16 or codes.ndim != 1 or not codes.size:
            raise ParameterError(f"codes must be a row of uint16, not {codes.dtype} of shape {codes.shape}")
        padded = np.full(-(-codes.size // self.lanes) * self.lanes, FP16.sign_bit | FP16.infinity, np.int64)
        padded[: codes.size] = codes
        live, invalid = classify(padded)
        integers, mantissas = powers_of_e(padded)
        integers = np.where(live, integers, LOWEST).reshape(-1, self.lanes)
        mantissas = np.where(live, mantissas, 0).reshape(-1, self.lanes)
        maxima = np.maximum.accumulate(integers.max(axis=1))
        depths = np.minimum(maxima[:, None] - integers, DEEPEST)
        sums = (mantissas >> _CUT << _LIFT >> depths).sum(axis=1)
        growths = np.minimum(np.diff(maxima, prepend=LOWEST), DEEPEST)
        total = 0
        for growth, beat_sum in zip(growths.tolist(), sums.tolist(), strict=True):
            total = LARGEST_SUM if total == LARGEST_SUM else min((total >> growth) + beat_sum, LARGEST_SUM)
        return Pair(int(maxima[-1]), total, int(invalid.any()))

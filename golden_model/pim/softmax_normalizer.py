"""Second pass of softmax: the row streams by again and leaves as probabilities, e^x / sum, rounded once to FP16.

With the row's pair (maximum, sum): the reciprocal of the sum to 30 bits and more (evaluator and one Newton step), one exact
product of each lane's 2^fraction with it, one rounding to nearest even, subnormal results included.
Source: our choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.elementary import Function, evaluate
from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, VALUE_FRACTION_BITS
from golden_model.arithmetic.formats import FP16, round_to_format
from golden_model.layouts import Fields
from golden_model.params import ParameterError
from golden_model.pim.exponential import classify, is_invalid, is_live, power_of_e, powers_of_e
from golden_model.pim.softmax_pair import PAIR_FIELDS, SUM_BITS, SUM_FRACTION_BITS, TERM_FRACTION_BITS, Pair, from_fields
from golden_model.pim.vector_beat import check_lanes, input_fields, output_fields, row_to_beats, valid_codes

__all__ = [
    "DELTA_FRACTION_BITS", "FACTOR_FRACTION_BITS", "LOWEST_EXPONENT", "NORMAL_FRACTION_BITS", "ONE_CODE",
    "SHORT_FRACTION_BITS", "Reciprocal", "SoftmaxNormalizer", "reciprocal", "round_products",
]  # fmt: skip

NORMAL_FRACTION_BITS = 32  # of the sum once its leading one is at 1: cut, so the reciprocal grows by at most 2^-32
DELTA_FRACTION_BITS = 36  # of 1 - m y, |.| < 2^-21
SHORT_FRACTION_BITS = 11  # of y as the Newton step multiplies it: 2^-11 * 2^-21.9 is lost
FACTOR_FRACTION_BITS = 32  # of the reciprocal; cut

ONE_CODE = FP16.bias << FP16.fraction_bits
LOWEST_EXPONENT = 31  # 2^-31 times anything below 2 rounds to 0, as everything from 2^-26 on does


class Reciprocal(NamedTuple):
    """1 / sum = factor * 2^-(exponent + 32), with |relative error| < 2^-30.5; factor in [2^31, 2^32]."""

    factor: int
    exponent: int


def reciprocal(total: int) -> Reciprocal:
    """Return 1 / sum of a positive sum in units of 2^-40.

    >>> reciprocal(3 << 40)
    Reciprocal(factor=2863311530, exponent=1)
    """
    top = total.bit_length() - 1
    m = total << (SUM_BITS - 1 - top) >> (SUM_BITS - 1 - NORMAL_FRACTION_BITS)  # in [1, 2)
    argument = (m >> (NORMAL_FRACTION_BITS - ARGUMENT_BITS)) & ((1 << ARGUMENT_BITS) - 1)
    y = evaluate(Function.RECIPROCAL, argument)
    product_fraction_bits = NORMAL_FRACTION_BITS + VALUE_FRACTION_BITS
    delta = (1 << product_fraction_bits) - m * y >> (product_fraction_bits - DELTA_FRACTION_BITS)
    change = (y >> (VALUE_FRACTION_BITS - SHORT_FRACTION_BITS)) * delta
    factor = (y << (FACTOR_FRACTION_BITS - VALUE_FRACTION_BITS)) + (
        change >> (SHORT_FRACTION_BITS + DELTA_FRACTION_BITS - FACTOR_FRACTION_BITS)
    )
    return Reciprocal(factor, top - SUM_FRACTION_BITS)


_CUT = VALUE_FRACTION_BITS - TERM_FRACTION_BITS
_PRODUCT_FRACTION_BITS = TERM_FRACTION_BITS + FACTOR_FRACTION_BITS


class SoftmaxNormalizer:
    """Pass 2 of softmax.

    Parameters
    ----------
    lanes
        Elements per beat, a power of two from 4 to 16.
    """

    def __init__(self, *, lanes: int = 16) -> None:
        self.lanes = check_lanes(lanes)

    @property
    def operand_fields(self) -> Fields:
        """A beat, and with each beat of a row its pair."""
        return (*input_fields(self.lanes), *PAIR_FIELDS)

    @property
    def result_fields(self) -> Fields:
        return output_fields(self.lanes)

    def element(self, code: int, pair: Pair) -> int:
        """Return the probability of one element, given its row's pair."""
        if pair.invalid or is_invalid(code):
            return FP16.quiet_nan
        if not pair.sum or not is_live(code):
            return 0
        power, inverse = power_of_e(code), reciprocal(pair.sum)
        exponent = min(max(pair.maximum - power.integer + inverse.exponent, 0), LOWEST_EXPONENT)
        product = (power.mantissa >> _CUT) * inverse.factor
        return min(round_to_format(0, product, -_PRODUCT_FRACTION_BITS - exponent, FP16), ONE_CODE)

    def compute(self, item: Mapping[str, int]) -> dict[str, int]:
        """Return the output beat of one item."""
        codes, pair = valid_codes(item, self.lanes), from_fields(dict(item))
        invalid = pair.invalid | any(is_invalid(code) for code in codes)
        beat = {"last": item["last"], "count": len(codes), "masked": int(pair.masked), "invalid": int(invalid)}
        values = [self.element(code, pair) for code in codes]
        return beat | {f"y_{lane}": values[lane] if lane < len(codes) else 0 for lane in range(self.lanes)}

    def row(self, codes: Sequence[int], pair: Pair) -> list[int]:
        """Return the probabilities of one row.

        >>> from golden_model.pim.softmax_statistics import SoftmaxStatistics
        >>> [hex(p) for p in SoftmaxNormalizer().row([0, 0], SoftmaxStatistics().row([0, 0]))]
        ['0x3800', '0x3800']
        """
        beats = row_to_beats(codes, self.lanes)
        return [self.element(code, pair) for beat in beats for code in valid_codes(beat, self.lanes)]

    def row_many(self, codes: npt.NDArray[Any], pair: Pair) -> npt.NDArray[np.uint16]:
        """Return :meth:`row` of a ``uint16`` array of codes, computed on whole arrays (tested to be the same)."""
        if codes.dtype != np.uint16:
            raise ParameterError(f"codes must be an array of uint16, not of {codes.dtype}")
        wide = codes.astype(np.int64)
        live, invalid = classify(wide)
        if pair.invalid:
            return np.full(codes.shape, FP16.quiet_nan, np.uint16)
        result = np.zeros(codes.shape, np.int64)
        if pair.sum:
            integers, mantissas = powers_of_e(wide)
            inverse = reciprocal(pair.sum)
            exponents = np.clip(pair.maximum - integers + inverse.exponent, 0, LOWEST_EXPONENT)
            products = (mantissas >> _CUT) * inverse.factor  # 23 + 33 bits
            result = np.where(live, round_products(products, exponents), 0)
        return np.where(invalid, FP16.quiet_nan, result).astype(np.uint16)


def round_products(products: npt.NDArray[np.int64], exponents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Round ``products * 2^-(54 + exponents)`` to FP16 codes, at most 1; ``products`` in [2^53, 2^55)."""
    small = (products < 1 << _PRODUCT_FRACTION_BITS).astype(np.int64)
    binade = FP16.bias - 1 - exponents - small  # exponent field - 1
    # Places below the significand's last: of a subnormal there are more.
    places = _PRODUCT_FRACTION_BITS - FP16.fraction_bits - small + np.maximum(-binade, 0)
    kept = products >> places
    rest = products - (kept << places)
    half = np.int64(1) << (places - 1)
    kept += (rest > half) | ((rest == half) & (kept & 1 == 1))
    rounded: npt.NDArray[np.int64] = np.minimum((np.maximum(binade, 0) << FP16.fraction_bits) + kept, ONE_CODE)
    return rounded

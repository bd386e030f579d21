"""What softmax knows of a row, or of a part of one, after one pass: the pair (maximum, sum).

For the finite elements x of the row, with t = x log2(e):

    maximum = max floor(t)                   18 bits, two's complement
    sum     = sum of 2^(t - maximum)         18 integer and 40 fraction bits

so that the sum of e^x is sum * 2^maximum.  The largest element's term is in [1, 2), so a sum is either 0 (no finite element:
the row is masked) or at least 1; terms below 2, LONGEST of them at most, stay below 2^18.  A term is cut to 2^-40: at most
LONGEST * 2^-40 < 2^-22 of a sum vanishes.  Merging pairs is two shifts and an addition.  A pair with ``invalid`` comes from
a row with a NaN or plus infinity; its other two fields are those of the finite elements.  Source: our choice.
"""

from __future__ import annotations

from typing import NamedTuple

from golden_model.layouts import Fields
from golden_model.params import check_code, check_range
from golden_model.pim.exponential import INTEGER_BITS, LOWEST

__all__ = [
    "DEEPEST", "LARGEST_SUM", "PAIR_FIELDS", "SUM_BITS", "SUM_FRACTION_BITS", "TERM_FRACTION_BITS", "Pair", "from_fields",
    "merge", "to_fields",
]  # fmt: skip

TERM_FRACTION_BITS = 22  # of 2^fraction, as both passes of softmax use it
SUM_FRACTION_BITS = 40
SUM_INTEGER_BITS = 18  # LONGEST_ROW * 2 < 2^18
SUM_BITS = SUM_INTEGER_BITS + SUM_FRACTION_BITS
LARGEST_SUM = (1 << SUM_BITS) - 1
DEEPEST = 63  # shifts stop here, where neither a sum nor a term has a bit left

PAIR_FIELDS: Fields = (("maximum", INTEGER_BITS), ("sum", SUM_BITS), ("invalid", 1))


class Pair(NamedTuple):
    """Maximum, sum in units of 2^-40, and whether the row is spoilt."""

    maximum: int = LOWEST
    sum: int = 0
    invalid: int = 0

    @property
    def masked(self) -> bool:
        """Whether every element was minus infinity."""
        return not self.sum and not self.invalid


def to_fields(pair: Pair) -> dict[str, int]:
    """Return the pair as fields of a payload.

    >>> to_fields(Pair(-1, 5 << 40))
    {'maximum': 262143, 'sum': 5497558138880, 'invalid': 0}
    """
    maximum = check_range("maximum", pair.maximum, LOWEST, -LOWEST - 1)
    return {
        "maximum": maximum & ((1 << INTEGER_BITS) - 1),
        "sum": check_code("sum", pair.sum, SUM_BITS),
        "invalid": check_code("invalid", pair.invalid, 1),
    }


def from_fields(fields: dict[str, int]) -> Pair:
    """Return the pair in a payload; other fields are ignored.

    >>> from_fields({"maximum": 262143, "sum": 7, "invalid": 0})
    Pair(maximum=-1, sum=7, invalid=0)
    """
    maximum = check_code("maximum", fields["maximum"], INTEGER_BITS)
    return Pair(
        maximum - (1 << INTEGER_BITS) if maximum >> (INTEGER_BITS - 1) else maximum,
        check_code("sum", fields["sum"], SUM_BITS),
        check_code("invalid", fields["invalid"], 1),
    )


def merge(a: Pair, b: Pair) -> Pair:
    """Return the pair of two parts together.  The maximum of a part without finite elements does not count.

    A sum that would reach 2^18 stays just below it, and so does everything that is merged with it; parts of at most
    LONGEST_ROW elements together cannot reach it.

    >>> merge(Pair(3, 1 << 40), Pair(1, 1 << 40)) == Pair(3, 5 << 38)
    True
    """
    maximum = max(part.maximum if part.sum else LOWEST for part in (a, b))
    total = sum(part.sum >> min(maximum - part.maximum, DEEPEST) for part in (a, b) if part.sum)
    full = LARGEST_SUM in (a.sum, b.sum)
    return Pair(maximum, LARGEST_SUM if full else min(total, LARGEST_SUM), a.invalid | b.invalid)

"""The Controller's stop test: H <- H * p for a sampled draft token, compared with tau.

H and p are FP16 codes in [0, 1].  On that range codes order like unsigned integers, so the comparison with tau is
an integer comparison.  H * p is exact (11 x 11 bits) and rounded once, to nearest even, subnormals kept; since p <= 1
the rounded product never exceeds H.

Source: paper section IV-C rules A1 and A2 (H_t = H_(t-1) * p_t, stop when H_t < tau) and V-E (continue while
H_t > tau).  At H_t = tau the paper's two wordings differ; drafting goes on (A2).  Format, rounding, the treatment of
codes outside [0, 1] and the mode bit ``keep_below`` are our choice.
"""

from __future__ import annotations

from typing import NamedTuple

from golden_model.arithmetic.formats import FP16, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import check_code, check_range

__all__ = ["ONE", "Decision", "StopTest", "probability_product"]

ONE = 0x3C00
"""FP16 code of 1.0, the H of an empty draft and the largest legal probability."""


class Decision(NamedTuple):
    """Answer of the stop test for one token."""

    h: int  # FP16 code of the new cumulative probability; 0 when invalid
    go_on: int  # 1: the request drafts another token
    keep: int  # 1: the token belongs to the draft
    invalid: int  # 1: h or p was no code in [0, 1]


def probability_product(h: int, p: int) -> int:
    """Return the FP16 code of ``h * p``, rounded once to nearest even, for codes in [0, :data:`ONE`] (not checked).

    >>> hex(probability_product(0x3840, 0x3B33))  # 0.53125 * 0.9
    '0x37a6'
    """
    a, b = unpack(h, FP16), unpack(p, FP16)
    weight = a.exponent + b.exponent - 2 * (FP16.bias + FP16.fraction_bits)
    return round_to_format(0, a.significand * b.significand, weight, FP16)


class StopTest:
    """Decide on one draft token after the other.

    Parameters
    ----------
    request_bits
        Width of the request id, which travels along untouched.
    length_bits
        Width of the draft length.
    """

    def __init__(self, *, request_bits: int = 7, length_bits: int = 5) -> None:
        self.request_bits = check_range("request_bits", request_bits, 1, 16)
        self.length_bits = check_range("length_bits", length_bits, 1, 8)

    @property
    def request_fields(self) -> Fields:
        return (("request", self.request_bits), ("length", self.length_bits), ("h", 16), ("p", 16))

    @property
    def decision_fields(self) -> Fields:
        return (("request", self.request_bits), ("h", 16), ("go_on", 1), ("keep", 1), ("invalid", 1))

    def decide(self, h: int, p: int, length: int, *, tau: int, max_length: int, keep_below: int = 0) -> Decision:
        """Take one token into account.

        Parameters
        ----------
        h
            FP16 code of the cumulative probability before this token (:data:`ONE` at the start of a draft).
        p
            FP16 code of the probability that the DLM gave to the token.
        length
            Tokens in the request's draft, this one included.
        tau
            FP16 code of the threshold.  A code above :data:`ONE` (NaN and negative numbers too) stops every draft.
        max_length
            Length at which a draft stops; the token that reaches it is still kept.  0 stops every draft at its first token.
        keep_below
            1 keeps the token whose H fell below tau, 0 drops it.
        """
        h, p, tau = check_code("h", h, 16), check_code("p", p, 16), check_code("tau", tau, 16)
        length = check_code("length", length, self.length_bits)
        max_length = check_code("max_length", max_length, self.length_bits)
        keep_below = check_code("keep_below", keep_below, 1)
        if h > ONE or p > ONE:
            return Decision(h=0, go_on=0, keep=0, invalid=1)
        product = probability_product(h, p)
        above = product >= tau
        return Decision(
            h=product,
            go_on=int(above and length < max_length),
            keep=int(above or bool(keep_below)),
            invalid=0,
        )

"""The Scheduler's comparators: does an operator run on PIM or on the GPU?

An operator goes to PIM while its arithmetic intensity is below a threshold.  Two operators move (paper section IV-E,
rules S1 to S4): the DLM's FC, whose intensity is the number of requests that go on drafting, and the TLM's attention,
whose intensity is the number of tokens per request times the query heads that share one KV head.  Both are one
comparison without a division: tokens * kv_group < threshold * requests.

Source: paper section IV-E.  The fixed-point threshold, the use of the exact mean and the answer without work are
our choice.
"""

from __future__ import annotations

from enum import IntEnum

from golden_model.layouts import Fields
from golden_model.params import check_code, check_range

__all__ = ["FRACTION_BITS", "Operator", "OperatorMapping"]

FRACTION_BITS = 4
"""Thresholds are unsigned fixed point with this many fraction bits (FLOP per byte, steps of 1/16)."""


class Operator(IntEnum):
    """The operators that move at run time."""

    DLM_FC = 0
    TLM_ATTENTION = 1


class OperatorMapping:
    """Choose the side for one operator after the other.

    Parameters
    ----------
    token_bits
        Width of the token count (10 bits hold 512 tokens).
    request_bits
        Width of the request count (8 bits hold 128 requests).
    group_bits
        Width of the number of query heads per KV head.
    threshold_bits
        Width of a threshold, :data:`FRACTION_BITS` of them behind the point.
    """

    def __init__(
        self, *, token_bits: int = 10, request_bits: int = 8, group_bits: int = 4, threshold_bits: int = 12
    ) -> None:
        self.token_bits = check_range("token_bits", token_bits, 1, 16)
        self.request_bits = check_range("request_bits", request_bits, 1, 16)
        self.group_bits = check_range("group_bits", group_bits, 1, 8)
        self.threshold_bits = check_range("threshold_bits", threshold_bits, 1, 24)

    @property
    def query_fields(self) -> Fields:
        return (("operator", 1), ("tokens", self.token_bits), ("requests", self.request_bits))

    @property
    def answer_fields(self) -> Fields:
        return (("operator", 1), ("on_pim", 1))

    def on_pim(
        self, operator: int, tokens: int, requests: int, *, dlm_fc_threshold: int, tlm_attention_threshold: int,
        kv_group: int,
    ) -> int:
        """Return 1 for PIM, 0 for the GPU.

        Parameters
        ----------
        operator
            :class:`Operator`.
        tokens
            Requests that go on drafting (DLM FC), or tokens to verify in all (TLM attention).
        requests
            Requests under verification (TLM attention); not looked at for the DLM's FC.
        dlm_fc_threshold, tlm_attention_threshold
            FLOP per byte in steps of 1/16.
        kv_group
            Query heads per KV head of the TLM (1 for multi-head attention); not looked at for the DLM's FC.

        A TLM attention without requests stays on the GPU (0 < 0 is false).
        """
        operator = check_code("operator", operator, 1)
        tokens = check_code("tokens", tokens, self.token_bits)
        requests = check_code("requests", requests, self.request_bits)
        kv_group = check_code("kv_group", kv_group, self.group_bits)
        dlm_fc_threshold = check_code("dlm_fc_threshold", dlm_fc_threshold, self.threshold_bits)
        tlm_attention_threshold = check_code("tlm_attention_threshold", tlm_attention_threshold, self.threshold_bits)
        if operator == Operator.DLM_FC:
            return int(tokens << FRACTION_BITS < dlm_fc_threshold)
        return int(tokens * kv_group << FRACTION_BITS < tlm_attention_threshold * requests)

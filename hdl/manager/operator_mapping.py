"""The Scheduler's comparators: does an operator run on PIM or on the GPU?

Latency: 2 cycles.  Throughput: one decision per cycle.  Reset: the pipeline is empty.
Source: paper section IV-E; numbers as in ``golden_model.manager.operator_mapping``.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.manager import operator_mapping as golden
from golden_model.params import check_range
from hdl.shapes import advance, struct

__all__ = ["OperatorMapping"]


class OperatorMapping(wiring.Component):
    """Choose the side for one operator per cycle.

    Parameters
    ----------
    token_bits : int
        Width of the token count, 1 to 16.
    request_bits : int
        Width of the request count, 1 to 16.
    group_bits : int
        Width of the number of query heads per KV head, 1 to 8.
    threshold_bits : int
        Width of a threshold, 1 to 24, in steps of 1/16 FLOP per byte.

    Members
    -------
    i : In(stream)
        A query: operator, tokens, requests.
    o : Out(stream)
        The answer: operator, on_pim.
    dlm_fc_threshold, tlm_attention_threshold : In(threshold_bits)
        Taken in the cycle in which the query is accepted.
    kv_group : In(group_bits)
        Query heads per KV head of the TLM; taken with the query.
    """

    i: stream.Interface
    o: stream.Interface
    dlm_fc_threshold: Signal
    tlm_attention_threshold: Signal
    kv_group: Signal

    predicted_timing = {"map": {"latency_cycles": 2, "interval_cycles": 1}}

    def __init__(
        self, *, token_bits: int = 10, request_bits: int = 8, group_bits: int = 4, threshold_bits: int = 12
    ) -> None:
        self.token_bits = check_range("token_bits", token_bits, 1, 16)
        self.request_bits = check_range("request_bits", request_bits, 1, 16)
        self.group_bits = check_range("group_bits", group_bits, 1, 8)
        self.threshold_bits = check_range("threshold_bits", threshold_bits, 1, 24)
        fields = golden.OperatorMapping(
            token_bits=token_bits, request_bits=request_bits, group_bits=group_bits, threshold_bits=threshold_bits
        )
        super().__init__({
            "i": In(stream.Signature(struct(fields.query_fields))),
            "o": Out(stream.Signature(struct(fields.answer_fields))),
            "dlm_fc_threshold": In(threshold_bits),
            "tlm_attention_threshold": In(threshold_bits),
            "kv_group": In(group_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        query, answer = self.i.payload, self.o.payload
        valids = [Signal(name="product_valid_r"), Signal(name="answer_valid_r")]
        load_product, load_answer = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(load_product), self.o.valid.eq(valids[-1])]

        # Stage 1: both sides of tokens * group < threshold * requests.  The DLM's FC has group 1 and one "request".
        attention = Signal()
        group = Signal(self.group_bits)
        requests = Signal(self.request_bits)
        threshold = Signal(self.threshold_bits)
        m.d.comb += [
            attention.eq(query.operator == golden.Operator.TLM_ATTENTION),
            group.eq(Mux(attention, self.kv_group, 1)),
            requests.eq(Mux(attention, query.requests, 1)),
            threshold.eq(Mux(attention, self.tlm_attention_threshold, self.dlm_fc_threshold)),
        ]
        intensity_r = Signal(self.token_bits + self.group_bits + golden.FRACTION_BITS)
        limit_r = Signal(self.threshold_bits + self.request_bits)
        operator_r = Signal()
        with m.If(load_product):
            m.d.sync += [
                intensity_r.eq(query.tokens * group << golden.FRACTION_BITS),
                limit_r.eq(threshold * requests),
                operator_r.eq(query.operator),
            ]

        # Stage 2: compare.
        with m.If(load_answer):
            m.d.sync += [answer.operator.eq(operator_r), answer.on_pim.eq(intensity_r < limit_r)]
        return m

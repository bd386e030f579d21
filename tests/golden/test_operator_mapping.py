"""The golden comparators against the contract's words: the mean intensity, as a fraction, below threshold / 16."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_model.manager.operator_mapping import FRACTION_BITS, OperatorMapping
from golden_model.params import ParameterError

DLM_FC, TLM_ATTENTION = 0, 1
TOP = {"tokens": 1023, "requests": 255, "dlm_fc_threshold": 4095, "tlm_attention_threshold": 4095, "kv_group": 15}


def reference(operator: int, tokens: int, requests: int, fc: int, attention: int, group: int) -> int:
    if operator == DLM_FC:
        return int(Fraction(tokens) < Fraction(fc, 16))
    return int(requests > 0 and Fraction(tokens, requests) * group < Fraction(attention, 16))


def decide(model: OperatorMapping, operator: int, tokens: int, requests: int, *registers: int) -> int:
    """Registers in the order of the contract's table."""
    names = ("dlm_fc_threshold", "tlm_attention_threshold", "kv_group")
    return model.on_pim(operator, tokens, requests, **dict(zip(names, registers, strict=True)))


def test_every_query_of_a_small_instance() -> None:
    model = OperatorMapping(token_bits=4, request_bits=2, group_bits=2, threshold_bits=7)
    sides = []
    for operator, tokens, requests, group, threshold in itertools.product(*map(range, (2, 16, 4, 4, 128))):
        other = 127 - threshold  # the operator's own register is looked at, not its neighbour
        fc, attention = (threshold, other) if operator == DLM_FC else (other, threshold)
        query = (operator, tokens, requests, fc, attention, group)
        got = decide(model, *query)
        assert got == reference(*query), query
        sides.append(got)
    assert min(sides.count(0), sides.count(1)) > 10_000


@settings(max_examples=1000, deadline=None, database=None, derandomize=True)
@given(
    widths=st.tuples(st.integers(4, 16), st.integers(4, 16), st.integers(4, 8), st.integers(5, 20)),
    data=st.data(),
    offset=st.integers(-2, 2),
    near=st.booleans(),
)
def test_equals_the_mean_in_fractions(
    widths: tuple[int, int, int, int], data: st.DataObject, offset: int, near: bool
) -> None:
    """Any widths; half of the thresholds lie within two steps of the intensity."""
    names = ("token_bits", "request_bits", "group_bits", "threshold_bits")
    model = OperatorMapping(**dict(zip(names, widths, strict=True)))
    tokens, requests, group, attention = (data.draw(st.integers(0, (1 << bits) - 1)) for bits in widths)
    top = (1 << widths[3]) - 1
    fc = data.draw(st.integers(0, top))
    if near:
        fc = min(max(16 * tokens + offset, 0), top)
        attention = min(max(16 * tokens * group // max(requests, 1) + offset, 0), top)
    for operator in (DLM_FC, TLM_ATTENTION):
        query = (operator, tokens, requests, fc, attention, group)
        assert decide(model, *query) == reference(*query)


def test_corners_are_unsigned_and_exact() -> None:
    """AM-03: 0, 1, sign bit clear and set, all ones in every field and register."""
    model = OperatorMapping()
    tokens, requests, threshold, group = (
        (0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1) for bits in (10, 8, 12, 4)
    )
    for query in itertools.product((DLM_FC, TLM_ATTENTION), tokens, requests, threshold, threshold, group):
        assert decide(model, *query) == reference(*query), query


@pytest.mark.parametrize(
    ("operator", "tokens", "requests", "threshold", "group", "on_pim"),
    [
        (DLM_FC, 9, 0, 144, 1, 0),  # equality: GPU
        (DLM_FC, 9, 0, 145, 1, 1),  # one step of 1/16 above
        (DLM_FC, 8, 0, 144, 15, 1),  # neither requests nor the group count
        (DLM_FC, 0, 0, 0, 1, 0),  # threshold 0 pins to the GPU, even without work
        (DLM_FC, 0, 0, 1, 1, 1),
        (DLM_FC, 255, 0, 4095, 1, 1),  # 255 < 255.9375
        (DLM_FC, 256, 0, 4095, 1, 0),  # the largest threshold does not pin to PIM what can reach it
        (DLM_FC, 512, 0, 4095, 1, 0),  # 512 is not negative
        (TLM_ATTENTION, 0, 0, 4095, 1, 0),  # no requests: GPU, without tokens ...
        (TLM_ATTENTION, 1023, 0, 4095, 0, 0),  # ... and with
        (TLM_ATTENTION, 10, 4, 40, 1, 0),  # mean 2.5 = 40 / 16
        (TLM_ATTENTION, 10, 4, 41, 1, 1),
        (TLM_ATTENTION, 1, 3, 5, 1, 0),  # 0.3333 against 0.3125 ...
        (TLM_ATTENTION, 1, 3, 6, 1, 1),  # ... and 0.375: no division that rounds
        (TLM_ATTENTION, 2, 2, 144, 8, 1),  # eight query heads per KV head: 8 < 9
        (TLM_ATTENTION, 9, 8, 144, 8, 0),  # 9 = 9
        (TLM_ATTENTION, 3, 2, 144, 8, 0),  # 12 > 9
        (TLM_ATTENTION, 3, 2, 144, 1, 1),  # 1.5 < 9 with multi-head attention
        (TLM_ATTENTION, 512, 128, 512, 8, 0),  # only top bits set: 32 = 512 / 16
        (TLM_ATTENTION, 512, 128, 513, 8, 1),
        (TLM_ATTENTION, 1023, 255, 4095, 15, 1),  # 60.2 < 255.9
        (TLM_ATTENTION, 1023, 59, 4095, 15, 0),  # 260.1
        (TLM_ATTENTION, 0, 255, 0, 15, 0),
        (TLM_ATTENTION, 0, 1, 1, 15, 1),
    ],
)
def test_known_answers(operator: int, tokens: int, requests: int, threshold: int, group: int, on_pim: int) -> None:
    model = OperatorMapping()
    for other in (0, 4095, 0):  # no state: the same query gives the same answer
        registers = (threshold, other) if operator == DLM_FC else (other, threshold)
        assert decide(model, operator, tokens, requests, *registers, group) == on_pim


def test_fields_of_the_contract() -> None:
    model = OperatorMapping(token_bits=9, request_bits=7)
    assert model.query_fields == (("operator", 1), ("tokens", 9), ("requests", 7))
    assert model.answer_fields == (("operator", 1), ("on_pim", 1))
    assert FRACTION_BITS == 4


@pytest.mark.parametrize(("name", "top"), [("operator", 1), *TOP.items()])
def test_values_out_of_range_are_named(name: str, top: int) -> None:
    for value in (-1, top + 1, True, 0.5, None):
        bad: dict[str, Any] = {"operator": TLM_ATTENTION, **dict.fromkeys(TOP, 1), name: value}
        message = re.escape(f"{name} must be an integer in [0, {top}], not {value}")
        with pytest.raises(ParameterError, match=rf"\A{message}\Z"):
            OperatorMapping().on_pim(**bad)
    OperatorMapping().on_pim(**{"operator": TLM_ATTENTION, **dict.fromkeys(TOP, 1), name: top})

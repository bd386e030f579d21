"""Payload layouts against strings of binary digits: the last field's digits come first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_model.layouts import Fields, pack, unpack, width
from golden_model.manager.draft_pool import Command, DraftPool, Op
from golden_model.manager.operator_mapping import OperatorMapping
from golden_model.manager.stop_test import StopTest

FIELDS: Fields = (("low", 3), ("mid", 1), ("high", 5))
STREAMS = (
    DraftPool().command_fields,
    DraftPool().response_fields,
    StopTest().request_fields,
    StopTest().decision_fields,
    OperatorMapping().query_fields,
    OperatorMapping().answer_fields,
)


def digits(fields: Fields, values: dict[str, int]) -> str:
    return "".join(format(values[name], f"0{bits}b") for name, bits in reversed(fields))


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(
    fields=st.dictionaries(st.text("abc_", min_size=1, max_size=4), st.integers(1, 40), min_size=1).map(
        lambda table: tuple(table.items())
    )
    | st.sampled_from(STREAMS),
    data=st.data(),
)
def test_round_trips(fields: Fields, data: st.DataObject) -> None:
    values = {name: data.draw(st.integers(0, (1 << bits) - 1), label=name) for name, bits in fields}
    text = digits(fields, values)
    assert width(fields) == len(text)
    payload = pack(fields, values)
    assert payload == int(text, 2)
    assert unpack(fields, payload) == values
    assert list(unpack(fields, payload)) == [name for name, _ in fields]
    assert pack(fields, dict(reversed(values.items()))) == payload  # the order of the table counts, not the dict's
    other = data.draw(st.integers(0, (1 << len(text)) - 1), label="payload")
    assert pack(fields, unpack(fields, other)) == other


def test_offsets() -> None:
    assert width(FIELDS) == 9
    assert [pack(FIELDS, {"low": 0, "mid": 0, "high": 0, name: 1}) for name, _ in FIELDS] == [1, 8, 16]
    assert pack(FIELDS, {"low": 7, "mid": 1, "high": 31}) == 511
    assert unpack(FIELDS, 0b10010_1_011) == {"low": 0b011, "mid": 1, "high": 0b10010}
    assert width(()) == 0


@pytest.mark.parametrize(("name", "bits"), FIELDS)
def test_a_value_that_does_not_fit_is_refused(name: str, bits: int) -> None:
    for value in (-1, 1 << bits, 1 << 64):
        with pytest.raises(ValueError, match=rf"\A{name} must be in \[0, {(1 << bits) - 1}\], not {value}\Z"):
            pack(FIELDS, {"low": 0, "mid": 0, "high": 0, name: value})


@pytest.mark.parametrize("name", [name for name, _ in FIELDS])
def test_a_missing_field_is_refused(name: str) -> None:
    incomplete = {other: 0 for other, _ in FIELDS if other != name}
    with pytest.raises((KeyError, ValueError), match=rf"\b{name}\b"):
        pack(FIELDS, incomplete)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises((KeyError, ValueError), match=r"\bhihg\b"):
        pack(FIELDS, {"low": 0, "mid": 0, "high": 0, "hihg": 0})


def test_numpy_integers_count_like_python_integers() -> None:
    """Fixed-width integers would wrap around in shifts and negations."""
    assert pack((("a", 16), ("b", 16)), {"a": 1, "b": np.uint16(3)}) == 196609  # type: ignore[dict-item]
    registers = {"dlm_fc_threshold": 300, "tlm_attention_threshold": 0, "kv_group": 1}
    assert OperatorMapping().on_pim(0, np.uint8(255), 0, **registers) == 0  # type: ignore[arg-type]
    decision = StopTest().decide(np.uint16(0x3840), np.uint16(0x3B33), 1, tau=0, max_length=1)  # type: ignore[arg-type]
    assert decision.h == 0x37A6
    pool = DraftPool(entries=4)
    for position, probability in enumerate((5, 0, 9)):
        pool.execute(Command(Op.INSERT, 0, position, np.uint16(probability)))  # type: ignore[arg-type]
    assert pool.execute(Command(Op.SELECT, capacity=1))[1].probability == 9

"""Golden special function unit: encoding, order and states, against the units on their own and against float64."""

from __future__ import annotations

import numpy as np
import pytest

from golden_model.params import ParameterError
from golden_model.pim.activation import Activation, Op
from golden_model.pim.normalization import Normalization
from golden_model.pim.softmax_pair import to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.special_function_unit import Operation, SpecialFunctionUnit

LANES = 4
ONE, TWO, EPS = 0x3C00, 0x4000, 0x3727C5AC


def item(unit: SpecialFunctionUnit, operation: int, **fields: int) -> dict[str, int]:
    blank = dict.fromkeys((name for name, _ in unit.input_fields), 0)
    return blank | {"operation": operation, "last": 1, "count": LANES} | fields


def lanes(side: str, codes: list[int]) -> dict[str, int]:
    return {f"{side}_{k}": code for k, code in enumerate(codes)}


def codes_of(answer: dict[str, int] | None) -> list[int]:
    assert answer is not None
    return [answer[f"y_{k}"] for k in range(LANES)]


@pytest.fixture
def unit() -> SpecialFunctionUnit:
    return SpecialFunctionUnit(lanes=LANES, slots=4)


def test_sum_takes_low_and_high_halves(unit: SpecialFunctionUnit) -> None:
    singles = np.array([1.5, -2.0, 65504.0, 2.0**-24], np.float32).view(np.uint32).tolist()
    halves = lanes("a", [s & 0xFFFF for s in singles]) | lanes("b", [s >> 16 for s in singles])
    assert unit.accept(item(unit, Operation.SUM, first=1, last=0, slot=2, **halves), 0) is None
    answer = unit.accept(item(unit, Operation.SUM, slot=2, **halves), 0)
    assert codes_of(answer) == np.array([3, -4, np.inf, 2.0**-23], np.float16).view(np.uint16).tolist()
    assert answer is not None
    assert [answer[name] for name in ("operation", "slot", "last", "count", "sum")] == [Operation.SUM, 2, 1, LANES, 0]


def test_softmax_in_three_steps(unit: SpecialFunctionUnit) -> None:
    """Two parts, merged, then normalised; the probabilities are float64's within one ulp."""
    row = np.random.default_rng(3).normal(size=2 * LANES).astype(np.float16)
    parts = row.view(np.uint16).reshape(2, LANES).tolist()
    pairs = [unit.accept(item(unit, Operation.SOFTMAX_STATISTICS, **lanes("a", part)), 0) for part in parts]
    assert all(pair and pair["count"] == pair["y_0"] == 0 for pair in pairs)
    merged = None
    for last, pair in enumerate(pairs):
        assert merged is None
        assert pair is not None
        fields = {name: pair[name] for name in ("maximum", "sum", "invalid")}
        merged = unit.accept(item(unit, Operation.SOFTMAX_MERGE, last=last, **fields), 0)
    assert merged is not None
    whole = to_fields(SoftmaxStatistics(lanes=LANES).row([*parts[0], *parts[1]]))
    assert abs(merged["sum"] - whole["sum"]) <= 2 * LANES
    result = []
    for part in parts:
        beat = item(unit, Operation.SOFTMAX_NORMALIZE, **lanes("a", part), **{k: merged[k] for k in whole})
        result += codes_of(unit.accept(beat, 0))
    exact = np.exp(row.astype(np.float64))
    exact = (exact / exact.sum()).astype(np.float16).view(np.uint16)
    assert np.abs(np.array(result) - exact.astype(int)).max() <= 1


def test_masked_row_is_flagged_in_its_pair(unit: SpecialFunctionUnit) -> None:
    answer = unit.accept(item(unit, Operation.SOFTMAX_STATISTICS, **lanes("a", [0xFC00] * LANES)), 0)
    assert answer is not None
    assert (answer["masked"], answer["invalid"], answer["sum"]) == (1, 0, 0)
    spoilt = unit.accept(item(unit, Operation.SOFTMAX_STATISTICS, **lanes("a", [0x7E00] * LANES)), 0)
    assert spoilt is not None
    assert (spoilt["masked"], spoilt["invalid"]) == (0, 1)


@pytest.mark.parametrize("op", Op)
def test_functions(unit: SpecialFunctionUnit, op: Op) -> None:
    codes = [0x3800, 0xBC00, 0xFC00, 0x7E00]
    answer = unit.accept(item(unit, Operation[op.name], count=3, **lanes("a", codes)), 0)
    assert codes_of(answer) == [Activation().element(op, code) for code in codes[:3]] + [0]


@pytest.mark.parametrize("rms", [False, True], ids=["layer", "rms"])
def test_norms_between_other_operations(unit: SpecialFunctionUnit, rms: bool) -> None:
    rng = np.random.default_rng(4)
    x, gamma, beta = (rng.normal(size=3 * LANES).astype(np.float16).view(np.uint16) for _ in range(3))
    operation = Operation.RMS_NORM_STATISTICS if rms else Operation.LAYER_NORM_STATISTICS
    add = item(unit, Operation.ADD, **lanes("a", [ONE] * LANES), **lanes("b", [ONE] * LANES))
    for k in range(3):
        beat = item(unit, operation, last=int(k == 2), **lanes("a", x[4 * k :][:4].tolist()))
        assert unit.accept(beat, EPS if k == 2 else 0) is None
        assert codes_of(unit.accept(add, 0)) == [TWO] * LANES
    y = []
    for k in range(3):
        operands = zip("abc", (x, gamma, beta), strict=True)
        fields = {key: code for s, v in operands for key, code in lanes(s, v[4 * k :][:4].tolist()).items()}
        y += codes_of(unit.accept(item(unit, Operation.NORM_APPLY, last=int(k == 2), **fields), 0))
    assert y == Normalization().normalise(x, gamma, beta, epsilon=EPS, rms=rms).tolist()


def test_reset_forgets_everything(unit: SpecialFunctionUnit) -> None:
    ones = lanes("b", [0x3F80] * LANES)
    unit.accept(item(unit, Operation.SUM, last=0, **ones), 0)
    unit.accept(item(unit, Operation.SOFTMAX_STATISTICS, last=0), 0)
    unit.accept(item(unit, Operation.LAYER_NORM_STATISTICS), EPS)
    unit.reset()
    assert codes_of(unit.accept(item(unit, Operation.SUM, **ones), 0)) == [ONE] * LANES
    pair = unit.accept(item(unit, Operation.SOFTMAX_STATISTICS), 0)
    assert pair is not None
    assert pair["sum"] == LANES << 40
    assert codes_of(unit.accept(item(unit, Operation.NORM_APPLY), 0)) == [0x7E00] * LANES


def test_codes_without_meaning_have_no_answer(unit: SpecialFunctionUnit) -> None:
    for code in range(max(Operation) + 1, 16):
        assert unit.accept(item(unit, code), 0) is None
    with pytest.raises(ParameterError, match=r"operation must be an integer in \[0, 15\], not 16"):
        unit.accept(item(unit, 16), 0)


@pytest.mark.parametrize("name", ["a_1", "b_3"])
@pytest.mark.parametrize("code", [-1, 0x10000])
def test_halves_of_a_sum_that_do_not_fit_are_refused(unit: SpecialFunctionUnit, name: str, code: int) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be an integer in \[0, 65535\], not {code}$"):
        unit.accept(item(unit, Operation.SUM, **{name: code}), 0)


def test_parameters_and_fields() -> None:
    with pytest.raises(ParameterError, match=r"lanes must be a power of two in \[4, 16\], not 12"):
        SpecialFunctionUnit(lanes=12)
    with pytest.raises(ParameterError, match=r"slots must be a power of two in \[2, 64\], not 3"):
        SpecialFunctionUnit(slots=3)
    unit = SpecialFunctionUnit()
    assert sum(bits for _, bits in unit.input_fields) == 4 + 1 + 4 + 1 + 5 + 3 * 256 + 77
    assert sum(bits for _, bits in unit.output_fields) == 4 + 4 + 1 + 5 + 2 + 256 + 76

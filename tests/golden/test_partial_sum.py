"""Golden partial sums against numpy's float32 and against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from golden_model.arithmetic.formats import FP16, FP32, exact_value
from golden_model.arithmetic.fp32_adder_vectors import pair_classes
from golden_model.params import ParameterError
from golden_model.pim.partial_sum import PartialSum

LANES = 4
QUIET_NAN = 0x7E00


def item(slot: int, codes: list[int], *, first: int = 0, last: int = 0) -> dict[str, int]:
    return {"first": first, "last": last, "slot": slot} | {f"a_{k}": code for k, code in enumerate(codes)}


def numpy_sums(rows: list[list[int]]) -> list[int]:
    """Left to right in float32, then one conversion."""
    acc = np.array(rows[0], np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        for row in rows[1:]:
            acc = acc + np.array(row, np.uint32).view(np.float32)
        half = acc.astype(np.float16)
    return [QUIET_NAN if np.isnan(x) else int(x.view(np.uint16)) for x in half]


def answer_of(unit: PartialSum, slot: int, rows: list[list[int]]) -> list[int]:
    for k, row in enumerate(rows):
        answer = unit.accept(item(slot, row, first=int(k == 0), last=int(k == len(rows) - 1)))
        assert (answer is None) == (k < len(rows) - 1)
    assert answer is not None
    assert answer["slot"] == slot
    return [answer[f"y_{k}"] for k in range(LANES)]


@pytest.mark.parametrize("name", pair_classes(np.random.default_rng(0)))
def test_equals_numpy_in_order_of_arrival(name: str) -> None:
    draw = pair_classes(np.random.default_rng(5))[name]
    unit = PartialSum(lanes=LANES, slots=4)
    for k in range(300):
        pairs = [[draw() for _ in range(LANES)] for _ in range(1 + k % 3)]
        rows = [[pair[side] for pair in row] for row in pairs for side in (0, 1)]
        expected = numpy_sums(rows)
        assert answer_of(unit, k % 4, rows) == expected
        assert unit.sum_many(np.array(rows, np.uint32)).tolist() == expected


def test_error_bound_of_64_channels() -> None:
    """|sum - exact| <= 63 u sum|x| + half a place of FP16."""
    rng = np.random.default_rng(6)
    unit = PartialSum(lanes=LANES, slots=2)
    for _ in range(50):
        partials = rng.normal(scale=100, size=(64, LANES)).astype(np.float32)
        codes = partials.view(np.uint32)
        result = answer_of(unit, 1, [[int(code) for code in row] for row in codes])
        for lane in range(LANES):
            values = [exact_value(int(code), FP32) for code in codes[:, lane]]
            got, exact = exact_value(result[lane], FP16), sum(values, Fraction(0))
            half_place = max(abs(got), Fraction(1, 2**14)) / 2**11
            assert abs(got - exact) <= Fraction(63, 2**24) * sum(abs(v) for v in values) + half_place


def test_order_shows() -> None:  # FP-07
    codes = [0x00000004, 0x3FC001E6, 0x3FA01FFF, 0x3FA01FFF, 0x3FA01FFF]
    unit = PartialSum(lanes=LANES)
    for k, code in enumerate(codes):
        unit.accept(item(0, [code] * LANES, first=int(k == 0)))
    assert answer_of(unit, 1, [[0x40A81879] * LANES, [0xC0A81878] * LANES]) == [0x0008] * LANES
    minus = unit.accept(item(0, [0xC0A81878] * LANES, last=1))
    assert minus is not None
    assert minus["y_0"] == 0x0008  # 0x40A81879 - 0x40A81878 = 2^-21; in pairs the difference would be 0


def test_one_rounding_to_half() -> None:
    unit = PartialSum(lanes=LANES)
    # 2049 + 2^-12 lies above the tie between 2048 and 2050; a sum kept in FP16 would forget the 2^-12.
    rows = [[0x45000000] * LANES, [0x3F800000] * LANES, [0x39800000] * LANES]
    assert answer_of(unit, 0, rows) == [0x6801] * LANES


def test_states_of_a_slot() -> None:
    unit = PartialSum(lanes=LANES, slots=2)
    one, two = [0x3F800000] * LANES, [0x40000000] * LANES
    started = unit.accept(item(1, one, last=1))  # never started: starts
    grown = unit.accept(item(1, one, last=1))
    again = unit.accept(item(1, two, first=1, last=1))
    assert [a["y_0"] for a in (started, grown, again) if a] == [0x3C00, 0x4000, 0x4000]
    unit.reset()
    fresh = unit.accept(item(1, one, last=1))
    assert fresh is not None
    assert fresh["y_0"] == 0x3C00


@pytest.mark.parametrize(
    ("codes", "half"),
    [
        ([0x80000000], 0x8000),  # a lone -0 keeps its sign
        ([0x80000000, 0], 0),
        ([0xFF800001], QUIET_NAN),
        ([0x7F800000, 0xFF800000], QUIET_NAN),
        ([0x7F800000, 0x7F7FFFFF], 0x7C00),
        ([0x477FF000], 0x7C00),  # 65520
    ],
)
def test_specials(codes: list[int], half: int) -> None:
    unit = PartialSum(lanes=LANES)
    assert answer_of(unit, 0, [[code] * LANES for code in codes]) == [half] * LANES


def test_parameters_and_items_are_checked() -> None:
    with pytest.raises(ParameterError, match=r"lanes must be a power of two in \[4, 16\], not 12"):
        PartialSum(lanes=12)
    with pytest.raises(ParameterError, match=r"slots must be a power of two in \[2, 64\], not 3"):
        PartialSum(slots=3)
    with pytest.raises(ParameterError, match=r"slots must be a power of two in \[2, 64\], not 1"):
        PartialSum(slots=1)
    with pytest.raises(ParameterError, match=r"slot must be an integer in \[0, 3\], not 4"):
        PartialSum(lanes=4, slots=4).accept(item(4, [0] * 4))
    with pytest.raises(ParameterError, match="at least one"):
        PartialSum().sum_many(np.zeros((0, 4), np.uint32))


def test_fields() -> None:
    unit = PartialSum(lanes=4, slots=8)
    assert unit.input_fields == (("first", 1), ("last", 1), ("slot", 3), *((f"a_{k}", 32) for k in range(4)))
    assert unit.output_fields == (("slot", 3), *((f"y_{k}", 16) for k in range(4)))

"""Golden processing element at the edges: not finite, headroom, signs of zero, all pairs of special codes, parameters."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from golden_model.arithmetic.dot_product import DotProduct
from golden_model.params import ParameterError
from golden_model.pim.processing_element import Operation, ProcessingElement
from tests.golden.test_dot_product import in_lanes, nearest_single
from tests.golden.test_processing_element import (
    CLEAR,
    INF,
    INFINITE,
    MAX,
    MINUS,
    MULTIPLY,
    NAN,
    ONE,
    QUIET,
    READ,
    SIGN,
    TWO,
    nearest_half,
    read_all,
    summed,
)
from tests.special_codes import CODES, expected_codes, pair_products

PLUS_INF, MINUS_INF = list(INFINITE.values()), [INFINITE[half] | SIGN[half] for half in (0, 1)]
NANS = list(QUIET.values())


def dot(*beats: dict[int, tuple[int, int]], **parameters: int) -> list[int | None]:
    """Take dot beats that are zero but for the given lanes and read both formats."""
    pe = ProcessingElement(**parameters)
    for pairs in beats:
        row, vector = in_lanes(pairs)
        pe.step(MULTIPLY, row=row, vector=vector)
    return read_all(pe)


def test_what_is_not_finite_in_every_lane_of_a_dot_beat() -> None:  # FP-04
    for lane in range(16):
        for x, y in itertools.product((INF, INF | MINUS, NAN, 0x7C01, 0xFFFF), (0, MINUS)):
            assert dot({lane: (x, y)}) == dot({lane: (y, x)}) == NANS
        for x in (ONE, 1, MAX, INF):
            assert dot({lane: (INF, x)}) == dot({lane: (x | MINUS, INF | MINUS)}) == PLUS_INF
            assert dot({lane: (INF | MINUS, x)}) == dot({lane: (x, INF | MINUS)}) == MINUS_INF
        for other in set(range(16)) - {lane}:
            assert dot({lane: (INF, ONE), other: (INF | MINUS, ONE)}) == NANS
            assert dot({lane: (INF, ONE), other: (NAN, 0)}) == NANS
            assert dot({lane: (INF, ONE), other: (MAX | MINUS, MAX)}) == PLUS_INF


@pytest.mark.parametrize("axpy", [0, 1])
def test_marks_stay_until_the_accumulator_is_cleared(axpy: int) -> None:  # FP-04
    plus, minus, finite, nan = (INF, ONE), (INF | MINUS, ONE), (MAX, MAX), (NAN, ONE)
    assert summed(minus, axpy=axpy) == summed(minus, finite, minus, axpy=axpy) == MINUS_INF
    assert summed(finite, plus, (MAX | MINUS, MAX), axpy=axpy) == PLUS_INF
    assert summed(minus, plus, axpy=axpy) == summed(plus, finite, minus, axpy=axpy) == NANS  # with -infinity in it
    assert summed(nan, axpy=axpy) == summed(nan, plus, axpy=axpy) == summed((INF, 0), finite, axpy=axpy) == NANS
    for first in (0, 1):
        pe = ProcessingElement(lanes=2)
        pe.step(MULTIPLY, axpy=axpy, row=[NAN, INF], vector=[ONE, ONE])
        if not first:
            pe.step(CLEAR, axpy=axpy)
        assert (read_all(pe, axpy)[:2] == [0, 0]) != first
        pe.step(MULTIPLY, axpy=axpy, first=first, row=[TWO, 0], vector=[ONE, 0])
        assert read_all(pe, axpy)[:2] == [0x40000000, TWO]
    assert summed(plus, axpy=1 - axpy) == PLUS_INF


def test_what_is_not_finite_in_one_lane_of_an_axpy_leaves_the_others_alone() -> None:
    for slot, scalar in enumerate((ONE, INF, TWO, NAN, 0, MINUS | ONE)):
        pe, vector = ProcessingElement(lanes=8), [NAN] * 8  # what is not chosen does not matter
        vector[slot] = scalar
        pe.step(MULTIPLY, axpy=1, slot=slot, row=[INF, ONE, 0, NAN, INF | MINUS, 1, MAX, MINUS], vector=vector)
        singles = [code for code in read_all(pe, 1)[::2] if code is not None]
        with np.errstate(invalid="ignore"):
            row = np.array([INF, ONE, 0, NAN, INF | MINUS, 1, MAX, MINUS], np.uint16).view(np.float16).astype(np.float64)
            wanted = expected_codes(row * float(np.array(scalar, np.uint16).view(np.float16)) + 0.0).single
        assert singles == wanted.tolist()


def test_a_lost_term_depends_on_the_beat_and_not_on_the_order() -> None:  # FP-07
    pairs = [(MAX, MAX), (1, ONE), (MAX | MINUS, MAX), (0, 0)]
    for order in itertools.permutations(pairs):
        assert dot(dict(enumerate(order)))[0] == 0x00000000
        assert dot(dict(enumerate(order)), align_frac_bits=78)[0] == 0x33800000
        assert dot(*({0: pair} for pair in order))[0] == 0x33800000  # a beat each: nothing is cut
        assert summed(*order, axpy=1)[0] == 0x33800000


@pytest.mark.parametrize("bits", [20, 28, 78])
@pytest.mark.parametrize("axpy", [0, 1])
def test_single_products_are_exact(axpy: int, bits: int) -> None:  # FP-10
    cases = {(1, 1): 0x27800000, (MAX, MAX): 0x4F7FC004, (1, 0x3BF7): 0x337EE000, (0x3C01, 0x3C01): 0x3F804008}
    for pair, single in cases.items():
        assert summed(pair, axpy=axpy, align_frac_bits=bits)[0] == single
    assert summed((1, 0x3BF7), axpy=axpy)[1] == 0x0001


@pytest.mark.parametrize("sign", [0, MINUS])
def test_4096_largest_beats_are_exact_and_what_comes_beyond_is_infinite(sign: int) -> None:
    pe, largest = ProcessingElement(lanes=2), Fraction(65504) ** 2
    infinite = [INFINITE[0] | (SIGN[0] if sign else 0)]
    for axpy in (0, 1):
        terms = 1 if axpy else 2
        for count in range(1, 4200):
            pe.step(MULTIPLY, axpy=axpy, row=[MAX, MAX], vector=[MAX | sign] * 2)
            if count in (1, 4096, 4100):  # 4100 * 65504^2 < 2^44
                wanted = nearest_single(count * terms * largest)
                assert read_all(pe, axpy)[0] == wanted | (SIGN[0] if sign else 0)
            elif count > 4100:
                assert read_all(pe, axpy)[:1] == infinite
    for axpy in (0, 1):
        for _ in range(4200):  # a way back does not mend it
            pe.step(MULTIPLY, axpy=axpy, row=[MAX, MAX], vector=[MAX | (sign ^ MINUS)] * 2)
        assert read_all(pe, axpy)[:1] == infinite
        pe.step(MULTIPLY, axpy=axpy, row=[INF, INF], vector=[ONE | (sign ^ MINUS)] * 2)
        assert read_all(pe, axpy)[:2] == NANS


@pytest.mark.parametrize("axpy", [0, 1])
def test_the_range_ends_where_a_twos_complement_number_does(axpy: int) -> None:
    power, terms = 0x7800, 1 if axpy else 2  # 2^15
    for sign in (0, MINUS):
        pe = ProcessingElement(lanes=2)
        for _ in range(1 << 14):  # 2^14 * 2^30 = 2^44 for a lane, twice as much for two
            pe.step(MULTIPLY, axpy=axpy, row=[power | sign] * 2, vector=[power] * 2)
        exact = nearest_single(Fraction(2) ** 44 * terms)
        assert read_all(pe, axpy)[0] == (exact | SIGN[0] if sign else INFINITE[0])
        pe.step(MULTIPLY, axpy=axpy, row=[1 | sign, 0], vector=[1, 0])
        assert read_all(pe, axpy)[0] == INFINITE[0] | (SIGN[0] if sign else 0)


@pytest.mark.parametrize("axpy", [0, 1])
def test_signs_of_zero(axpy: int) -> None:
    assert summed(axpy=axpy) == [0, 0]
    for pairs in ([(MINUS, ONE)], [(MINUS, MINUS)], [(0, MINUS)], [(MINUS | ONE, ONE), (ONE, ONE)], [(1, 1), (1, MINUS | 1)]):
        assert summed(*pairs, axpy=axpy) == [0, 0]
    assert summed((1, MINUS | 1), axpy=axpy) == [0xA7800000, MINUS]  # -2^-48 is no zero, but rounds to -0 in FP16
    assert summed((1, MINUS | 0x3800), axpy=axpy)[1] == MINUS
    assert summed((1, MINUS | 0x3801), axpy=axpy)[1] == MINUS | 1


def test_numpy_rounds_products_once_to_half() -> None:
    """The reference of the next tests: float64 to float16, against a search among all codes."""
    a, b, values = pair_products()
    finite = np.flatnonzero(np.isfinite(values))
    for k in np.random.default_rng(5).choice(finite, 3000, replace=False):
        wanted = nearest_half(Fraction(float(values[k])))
        assert expected_codes(values[k : k + 1]).half[0] == (wanted if values[k] else 0), (a[k], b[k])


def test_all_pairs_of_special_codes_in_every_lane_of_the_fused_sum() -> None:
    assert len(CODES) >= 200
    a, b, values = pair_products()
    wanted = expected_codes(values).single
    for lane in range(16):
        row, vector = np.zeros((len(a), 16), np.uint16), np.zeros((len(a), 16), np.uint16)
        row[:, lane], vector[:, lane] = a, b
        assert np.array_equal(DotProduct().compute_many(row, vector), wanted), lane


def test_all_pairs_of_special_codes_in_dot_beats() -> None:
    """Every code in every lane, every pair in one of them; ``make slow`` has all pairs in all lanes of the RTL."""
    a, b, values = pair_products()
    singles, halfs = expected_codes(values)
    pe, row, vector = ProcessingElement(), [0] * 16, [0] * 16
    for k, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        lane = (k // len(CODES) + k) % 16
        row[lane], vector[lane] = x, y
        pe.step(MULTIPLY, first=1, row=row, vector=vector)
        assert read_all(pe) == [singles[k], halfs[k]], (hex(x), hex(y), lane)
        row[lane] = vector[lane] = 0


def test_all_pairs_of_special_codes_in_axpy_beats() -> None:
    """Every pair once, sixteen to a beat; ``make slow`` has all pairs in all lanes of the RTL."""
    _, _, values = pair_products()
    count = len(CODES)
    singles, halfs = (codes.reshape(count, count).tolist() for codes in expected_codes(values))
    pe = ProcessingElement()
    for j, scalar in enumerate(CODES):
        for first in range(j % 16, j % 16 + count, 16):
            rows = [(first + lane) % count for lane in range(16)]
            pe.step(MULTIPLY, axpy=1, first=1, slot=j % 16, row=[CODES[k] for k in rows], vector=[scalar] * 16)
            wanted = [code for k in rows for code in (singles[k][j], halfs[k][j])]
            assert read_all(pe, 1) == wanted, (hex(scalar), first)


def test_fields() -> None:
    pe = ProcessingElement(lanes=4, contexts=5)
    controls = (("op", 2), ("axpy", 1), ("first", 1), ("half", 1), ("context", 3), ("slot", 2))
    assert pe.control_fields == controls
    operands = tuple((f"{side}_{lane}", 16) for side in ("row", "vector") for lane in range(4))
    assert pe.beat_fields == controls + operands
    assert pe.result_fields == (("value", 32),)
    assert [ProcessingElement(contexts=n).context_bits for n in (1, 2, 3, 4, 5, 16)] == [1, 1, 2, 2, 3, 4]
    assert [op.value for op in Operation] == [MULTIPLY, READ, CLEAR]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        *(({"lanes": n}, rf"lanes must be a power of two in \[2, 64\], not {n}") for n in (0, 1, 65, 128)),
        *(({"lanes": n}, rf"lanes must be a power of two in \[2, 64\], not {n}") for n in (3, 12, 63)),
        *(({"contexts": n}, rf"contexts must be an integer in \[1, 16\], not {n}") for n in (-1, 0, 17)),
        *(({"align_frac_bits": n}, rf"align_frac_bits must be an integer in \[20, 78\], not {n}") for n in (19, 79)),
        ({"contexts": 1.0}, r"contexts must be an integer in \[1, 16\], not 1.0"),
        ({"contexts": True}, r"contexts must be an integer in \[1, 16\], not True"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ProcessingElement(**parameters)


@pytest.mark.parametrize(
    ("beat", "message"),
    [
        ({"op": 4}, r"op must be an integer in \[0, 3\], not 4"),
        ({"op": READ, "context": 4}, r"context must be an integer in \[0, 3\], not 4"),
        ({"op": READ, "slot": 2}, r"slot must be an integer in \[0, 1\], not 2"),
        ({"op": READ, "axpy": 2}, r"axpy must be an integer in \[0, 1\], not 2"),
        ({"op": MULTIPLY, "first": -1}, r"first must be an integer in \[0, 1\], not -1"),
        ({"op": READ, "half": 2}, r"half must be an integer in \[0, 1\], not 2"),
        ({"op": MULTIPLY, "row": [0], "vector": [0, 0]}, "row must have 2 elements, not 1"),
        ({"op": MULTIPLY, "row": [0, 0], "vector": [0, 0, 0]}, "vector must have 2 elements, not 3"),
        ({"op": MULTIPLY, "row": [0, 65536], "vector": [0, 0]}, r"row\[1\] must be an integer in \[0, 65535\], not 65536"),
        ({"op": MULTIPLY, "row": [0, 0], "vector": [-1, 0]}, r"vector\[0\] must be an integer in \[0, 65535\], not -1"),
    ],
)
def test_beats_are_checked(beat: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ProcessingElement(lanes=2, contexts=3).step(**beat)

"""Golden processing element against exact fractions, written from its documented contract by another road."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from golden_model.arithmetic.dot_product_vectors import vector_classes
from golden_model.arithmetic.formats import FP32, exact_value
from golden_model.pim.processing_element import ProcessingElement
from tests.golden.test_dot_product import finite_draws, halves, in_lanes, nearest_single, products, unit

MULTIPLY, READ, CLEAR, NOTHING = 0, 1, 2, 3
ONE, TWO, MAX, INF, NAN, MINUS = 0x3C00, 0x4000, 0x7BFF, 0x7C00, 0x7E00, 0x8000
QUIET = {0: 0x7FC00000, 1: 0x7E00}  # by the half bit
INFINITE = {0: 0x7F800000, 1: 0x7C00}
SIGN = {0: 1 << 31, 1: 1 << 15}
Beat = dict[str, Any]


@cache
def half_values() -> list[Fraction]:
    """The value of every positive FP16 code; infinity stands where the next number would."""
    return [Fraction(float(x)) for x in halves(list(range(INF)))] + [Fraction(65536)]


def nearest_half(x: Fraction) -> int:
    """The FP16 code nearest to x, ties to the even code, found by search; 65520 and above is infinity."""
    above = bisect.bisect_left(half_values(), abs(x))
    near = [code for code in (above - 1, above) if 0 <= code <= INF] or [INF]
    code = min((abs(half_values()[code] - abs(x)), code & 1, code) for code in near)[2]
    return code | MINUS * (x < 0)


def nearest(x: Fraction, half: int) -> int:
    return nearest_half(x) if half else nearest_single(x)


class Naive:
    """The contract: exact sums as fractions, two sticky marks, a range, one rounding."""

    def __init__(self, lanes: int, contexts: int, align_frac_bits: int) -> None:
        self.lanes, self.contexts, self.bits = lanes, contexts, align_frac_bits
        self.sums: dict[Any, Fraction] = {}
        self.marks: dict[Any, set[int]] = {}

    def _add(self, key: Any, term: Fraction, marks: set[int]) -> None:
        total, before = self.sums.get(key, Fraction(0)) + term, self.marks.setdefault(key, set())
        limit = Fraction(2) ** 44 * (self.lanes if key[1] is None else 1)
        if not before and not -limit <= total < limit:
            before.add(1 if total > 0 else -1)
        before |= marks
        self.sums[key] = total

    def step(self, op: int, *, axpy: int, first: int, half: int, context: int, slot: int, row: Any, vector: Any) -> int | None:
        keys: list[Any] = [(context, lane) for lane in range(self.lanes)] if axpy else [(context, None)]
        exists = context < self.contexts
        if op == READ:
            key = keys[slot] if axpy else keys[0]
            marks, total = self.marks.get(key, set()), self.sums.get(key, Fraction(0))
            if marks:
                return QUIET[half] if len(marks) == 2 else INFINITE[half] | (SIGN[half] if -1 in marks else 0)
            return nearest(total, half)
        if exists and (op == CLEAR or (op == MULTIPLY and first)):
            for key in keys:
                self.sums.pop(key, None)
                self.marks.pop(key, None)
        if exists and op == MULTIPLY:
            pairs = [[x, vector[slot]] for x in row] if axpy else [[row, vector]]
            for key, (x, y) in zip(keys, pairs, strict=True):
                self._add(key, *self._term([x] if axpy else x, [y] if axpy else y, cut=not axpy))
        return None

    def _term(self, x: list[int], y: list[int], cut: bool) -> tuple[Fraction, set[int]]:
        with np.errstate(invalid="ignore"):
            floats = (halves(x).astype(np.float64) * halves(y).astype(np.float64)).tolist()
        marks = {sign for value in floats for sign in (1, -1) if math.isnan(value) or value == sign * math.inf}
        if marks:
            return Fraction(0), marks
        step = unit(x, y, self.bits) if cut else Fraction(1, 2**48)
        return sum((int(p / step) * step for p in products(x, y)), Fraction(0)), set()  # int() cuts toward zero


def beats(lanes: int, contexts: int, count: int, seed: int) -> Iterator[Beat]:
    rng = np.random.default_rng(seed)
    classes = list(vector_classes(rng, lanes).values())
    context_bits = ProcessingElement(lanes=2, contexts=contexts).context_bits
    for number in range(count):
        favoured = classes[number // 40 % len(classes)] if number % 4 else classes[int(rng.integers(len(classes)))]
        row, vector = favoured()
        yield {
            "op": int(rng.choice(4, p=(0.5, 0.4, 0.06, 0.04))), "axpy": int(rng.integers(2)), "first": int(rng.random() < 0.15),
            "half": int(rng.integers(2)), "context": int(rng.integers(1 << context_bits)), "slot": int(rng.integers(lanes)),
            "row": row, "vector": vector,
        }  # fmt: skip


def read_all(pe: ProcessingElement, axpy: int = 0, context: int = 0) -> list[int | None]:
    """Both formats, of the dot accumulator or of every lane."""
    slots = range(pe.lanes if axpy else 1)
    return [pe.step(READ, axpy=axpy, slot=slot, half=half, context=context) for slot in slots for half in (0, 1)]


def summed(*pairs: tuple[int, int], axpy: int = 0, **parameters: int) -> list[int | None]:
    """Add products one beat at a time in lane 0 and read both formats."""
    pe = ProcessingElement(lanes=2, **parameters)
    for x, y in pairs:
        pe.step(MULTIPLY, axpy=axpy, row=[x, 0], vector=[y, 0])
    return read_all(pe, axpy)[:2]


@pytest.mark.parametrize(
    ("lanes", "contexts", "bits"), [(2, 1, 20), (4, 3, 28), (8, 2, 78), (16, 1, 28), (16, 5, 24), (16, 16, 78), (64, 2, 28)]
)
def test_equals_the_fraction_model(lanes: int, contexts: int, bits: int) -> None:
    golden = ProcessingElement(lanes=lanes, contexts=contexts, align_frac_bits=bits)
    naive = Naive(lanes, contexts, bits)
    answers = 0
    for number, beat in enumerate(beats(lanes, contexts, 500 if lanes < 64 else 120, seed=lanes + bits)):
        value = golden.step(**beat)
        assert value == naive.step(**beat), (number, beat)
        answers += value is not None
    assert answers > 30


def test_modes_contexts_and_operations_leave_each_other_alone() -> None:
    pe = ProcessingElement(lanes=2, contexts=3)
    add: Beat = {"row": [ONE, TWO], "vector": [ONE, ONE]}
    for context in (0, 2, 2):
        pe.step(MULTIPLY, context=context, **add)  # dot 3, 0, 6
    pe.step(MULTIPLY, axpy=1, context=2, **add)  # lanes 1, 2
    for _ in range(2):  # reading changes nothing
        assert [pe.step(READ, context=c, half=1) for c in range(4)] == [0x4200, 0, 0x4600, 0]
        assert [pe.step(READ, context=2, axpy=1, slot=s, half=1) for s in (0, 1)] == [ONE, TWO]
    pe.step(MULTIPLY, context=3, **add)  # does not exist
    pe.step(CLEAR, context=3)
    pe.step(NOTHING, context=2, first=1, **add)
    pe.step(READ, context=2, first=1)
    pe.step(CLEAR, context=0, axpy=1)
    pe.step(MULTIPLY, axpy=1, first=1, context=2, slot=1, **add)  # a first of one mode is none of the other
    assert [pe.step(READ, context=c, half=1) for c in range(4)] == [0x4200, 0, 0x4600, 0]
    assert [pe.step(READ, context=2, axpy=1, slot=s, half=1) for s in (0, 1)] == [ONE, TWO]
    pe.step(CLEAR, context=2)
    assert [pe.step(READ, context=c, half=1) for c in range(4)] == [0x4200, 0, 0, 0]
    assert pe.step(READ, context=2, axpy=1, slot=1, half=1) == TWO
    pe.reset()
    assert set(read_all(pe) + read_all(pe, 1, context=2)) == {0}


@pytest.mark.parametrize("bits", [20, 28, 78])
@pytest.mark.parametrize("axpy", [0, 1])
def test_order_of_beats_does_not_matter(axpy: int, bits: int) -> None:
    rng = np.random.default_rng(bits)
    specials = [in_lanes({3: (INF, ONE)}), in_lanes({5: (INF | MINUS, ONE)}), in_lanes({6: (NAN, ONE)})]
    for extra in ([], specials[:1], specials[1:2], specials[:2], specials[2:]):
        work = [*finite_draws(16, 3, seed=bits), *extra]
        seen = set()
        for order in [list(range(len(work))), *(rng.permutation(len(work)).tolist() for _ in range(4))]:
            pe = ProcessingElement(align_frac_bits=bits)
            for k in order:
                pe.step(MULTIPLY, axpy=axpy, slot=k % 16, row=work[k][0], vector=work[k][1])
            seen.add(tuple(read_all(pe, axpy)))
        assert len(seen) == 1


@pytest.mark.parametrize("scale", [0, 4, 12])
def test_78_bits_round_a_long_sum_correctly(scale: int) -> None:
    """n = 4096 with heavy cancellation; ``scale`` moves the result through FP16's subnormals."""
    rng = np.random.default_rng(scale)
    a, b = (rng.normal(size=(256, 16)) * 2.0 ** (2 - scale) for _ in range(2))
    a[128:], b[128:] = -a[:128], np.nextafter(b[:128].astype(np.float16), np.float16(0)).astype(np.float64)
    rows, vectors = (x.astype(np.float16).view(np.uint16).tolist() for x in (a, b))
    pe, cut = ProcessingElement(align_frac_bits=78), ProcessingElement(align_frac_bits=20)
    for row, vector in zip(rows, vectors, strict=True):
        pe.step(MULTIPLY, row=row, vector=vector)
        cut.step(MULTIPLY, row=row, vector=vector)
    exact = sum((sum(products(row, vector), Fraction(0)) for row, vector in zip(rows, vectors, strict=True)), Fraction(0))
    assert read_all(pe) == [nearest_single(exact), nearest_half(exact)]
    assert read_all(cut)[0] != read_all(pe)[0]


@pytest.mark.parametrize("bits", [20, 28, 40])
def test_error_bound_of_accumulated_cuts(bits: int) -> None:
    lossy = 0
    for seed in range(12):
        pe, exact, bound, lossless = ProcessingElement(align_frac_bits=bits), Fraction(0), Fraction(0), True
        for row, vector in finite_draws(16, 4, seed=seed):
            pe.step(MULTIPLY, row=row, vector=vector)
            step = unit(row, vector, bits)
            bound += 15 * step * (step > Fraction(1, 2**48))  # Q <= F - 20 loses nothing
            exact += sum(products(row, vector), Fraction(0))
            for lane in range(16 * (seed % 2)):  # take the products back one by one, exactly: what was cut stays
                pe.step(MULTIPLY, row=in_lanes({lane: (row[lane] ^ MINUS, 0)})[0], vector=vector)
                exact -= products(row, vector)[lane]
        for half in (0, 1):
            code = pe.step(READ, half=half)
            assert code is not None
            if half and code & ~MINUS == INF:
                assert abs(exact) + bound >= 65520
                continue
            value = exact_value(code, FP32) if not half else Fraction(float(halves([code])[0]))
            spacing = Fraction(2) ** (max(math.frexp(float(value))[1], -13 if half else -48) - (11 if half else 24))
            assert abs(value - exact) <= bound + spacing / 2
            lossless &= code == nearest(exact, half)
        lossy += not lossless
    assert lossy >= 6


def test_opposite_products_cancel_in_every_pair_of_lanes() -> None:  # FP-01
    for one, other in itertools.permutations(range(16), 2):
        pe = ProcessingElement()
        row, vector = in_lanes({one: (TWO | MINUS, ONE), other: (TWO, ONE)})
        pe.step(MULTIPLY, first=1, row=row, vector=vector)
        assert read_all(pe) == [0, 0]
        for lane, sign in ((one, 0), (other, MINUS)):  # and over two beats
            row, vector = in_lanes({lane: (MAX | sign, MAX)})
            pe.step(MULTIPLY, row=row, vector=vector)
        assert read_all(pe) == [0, 0]


@pytest.mark.parametrize("axpy", [0, 1])
@pytest.mark.parametrize("sign", [0, MINUS])
def test_edges_of_the_half_read_out(sign: int, axpy: int) -> None:  # FP-02
    cases = {
        ((1, 0x3800),): 0x0000,  # 2^-25
        ((1, 0x3800), (1, 1)): 0x0001,  # 2^-25 + 2^-48, the next FP32
        ((3, 0x3800),): 0x0002,  # 3 * 2^-25
        ((3, 0x3800), (1, 0x8001)): 0x0001,
        ((MAX, ONE), (0x4C00, ONE), (0x2C00, 0xAC00)): MAX,  # 65520 - 2^-8, the FP32 below 65520
        ((MAX, ONE), (0x4C00, ONE), (1, 0x8001)): MAX,  # 65520 - 2^-48
        ((MAX, ONE), (0x4C00, ONE)): INF,  # 65520
        ((0x03FF, ONE), (1, 0x3800)): 0x0400,  # a tie between the last subnormal and the first normal
        ((0x03FF, ONE), (1, 0x3800), (1, 0x8001)): 0x03FF,
    }
    for pairs, code in cases.items():
        signed = [(x ^ sign, y) for x, y in pairs]
        assert summed(*signed, axpy=axpy)[1] == code | sign, pairs


def test_every_half_code_comes_back() -> None:  # FP-02
    pe = ProcessingElement()
    for first in range(0, 1 << 16, 16):
        pe.step(MULTIPLY, axpy=1, first=1, row=list(range(first, first + 16)), vector=[ONE] * 16)
        for lane, code in enumerate(range(first, first + 16)):
            wanted = NAN if code & ~MINUS > INF else 0 if code == MINUS else code
            assert pe.step(READ, axpy=1, slot=lane, half=1) == wanted

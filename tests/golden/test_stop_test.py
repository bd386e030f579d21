"""The golden stop test against fractions and against numpy's own conversion to FP16: two independent roads."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from golden_model.manager.stop_test import ONE, StopTest, probability_product


def value(code: int) -> Fraction:
    return Fraction(float(np.array(code, np.uint16).view(np.float16)))


def test_products_equal_numpys_rounding() -> None:
    """Both factors are exact in float64 and so is their product; one cast rounds it once."""
    rng = np.random.default_rng(1)
    h = np.concatenate([rng.integers(0, ONE + 1, 30000), rng.integers(0, 0x800, 10000)]).astype(np.uint16)
    p = np.concatenate([rng.integers(0, ONE + 1, 30000), rng.integers(0x3000, ONE + 1, 10000)]).astype(np.uint16)
    exact = h.view(np.float16).astype(np.float64) * p.view(np.float16).astype(np.float64)
    expected = exact.astype(np.float16).view(np.uint16)
    got = [probability_product(int(a), int(b)) for a, b in zip(h, p, strict=True)]
    assert got == expected.tolist()
    assert all(new <= old for new, old in zip(got, h.tolist(), strict=True))  # H never rises


def test_products_are_nearest_by_fractions() -> None:
    rng = np.random.default_rng(2)
    for a, b in rng.integers(0, ONE + 1, (2000, 2)).tolist():
        exact, got = value(a) * value(b), probability_product(a, b)
        errors = {code: abs(value(code) - exact) for code in (max(got - 1, 0), got, got + 1)}
        assert errors[got] == min(errors.values())
        ties = [code for code, error in errors.items() if error == errors[got]]
        assert got % 2 == 0 or len(ties) == 1


def test_nine_tenths_falls_below_a_half_at_the_seventh_token() -> None:
    """SD-14: 0.9^6 = 0.531, 0.9^7 = 0.478; six tokens are sent, or seven in the mode that keeps the last."""
    for keep_below, sent in ((0, 6), (1, 7)):
        model, h, kept, length = StopTest(), ONE, 0, 0
        while True:
            length += 1
            decision = model.decide(h, 0x3B33, length, tau=0x3800, max_length=16, keep_below=keep_below)
            kept += decision.keep
            h = decision.h
            if not decision.go_on:
                break
        assert (length, kept, h) == (7, sent, 0x37A6)


@pytest.mark.parametrize(
    ("h", "p", "length", "tau", "max_length", "keep_below", "expected"),
    [
        (ONE, 0x3800, 1, 0x3800, 16, 0, (0x3800, 1, 1, 0)),  # H = tau goes on
        (ONE, 0x3800, 1, 0x3801, 16, 0, (0x3800, 0, 0, 0)),
        (ONE, 0x3800, 1, 0x3801, 16, 1, (0x3800, 0, 1, 0)),
        (ONE, 0x3800, 16, 0, 16, 0, (0x3800, 0, 1, 0)),  # longest draft
        (ONE, ONE, 1, ONE, 0, 0, (ONE, 0, 1, 0)),
        (ONE, ONE, 1, 0x7C01, 16, 0, (ONE, 0, 0, 0)),  # a NaN for tau
        (ONE, 0x3C01, 1, 0, 16, 1, (0, 0, 0, 1)),
        (0x8000, ONE, 1, 0, 16, 1, (0, 0, 0, 1)),
        (0x7E00, 0, 1, 0, 16, 1, (0, 0, 0, 1)),
        (0x0001, 0x3800, 1, 0, 16, 0, (0, 1, 1, 0)),  # underflow: a tie to even, zero
    ],
)
def test_specials(
    h: int, p: int, length: int, tau: int, max_length: int, keep_below: int, expected: tuple[int, ...]
) -> None:
    assert tuple(StopTest().decide(h, p, length, tau=tau, max_length=max_length, keep_below=keep_below)) == expected

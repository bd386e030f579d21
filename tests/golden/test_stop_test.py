"""The golden stop test by three other roads to the rounded product.

1. Fractions, with a nearest-even rounding of its own (Python's ``round`` of a quotient by the unit in the last place).
2. numpy: the exact product in float64, cast once to float16.
3. numpy: float16 times float16 in the library's own half-precision multiplication.

Road 1 is compared with road 2 on ties and subnormals too, so that the million pairs of road 2 rest on the fractions.
"""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from golden_model.manager.stop_test import ONE, StopTest, probability_product
from golden_model.params import ParameterError

NINE_TENTHS, HALF = 0x3B33, 0x3800
CODES = np.arange(0x3C01, dtype=np.uint16)  # every code in [0, 1]
SPECIAL = (
    0, 1, 2, 0x3FF, 0x400, 0x401, 0x7FF, 0x800, 0x1400, 0x37FF, HALF, 0x3801, NINE_TENTHS, 0x3BFF, 0x3C00,
    0x3C01, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x8000, 0x8001, 0xB800, 0xBC00, 0xFC00, 0xFFFF,
)  # fmt: skip


def value(code: int) -> Fraction:
    exponent, fraction = code >> 10, code & 0x3FF
    return Fraction(1024 + fraction, 1024) * Fraction(2) ** (exponent - 15) if exponent else Fraction(fraction, 1 << 24)


def nearest(x: Fraction) -> int:
    """Code of the FP16 number in [0, 1] nearest to x, the even one of two."""
    exponent = -14
    while Fraction(2) ** (exponent + 1) <= x:
        exponent += 1
    steps = round(x / Fraction(2) ** (exponent - 10))  # half to even; 2048 carries into the exponent
    return steps + 1024 * (exponent + 14)


def by_numpy(h: NDArray[np.uint16], p: NDArray[np.uint16]) -> NDArray[np.uint16]:
    exact = h.view(np.float16).astype(np.float64) * p.view(np.float16).astype(np.float64)  # 22 bits
    return exact.astype(np.float16).view(np.uint16)


def reference(h: int, p: int, length: int, tau: int, max_length: int, keep_below: int) -> tuple[int, int, int, int]:
    """The contract's rules; tau is compared as a number, not as a code."""
    if h > 0x3C00 or p > 0x3C00:
        return 0, 0, 0, 1
    product = nearest(value(h) * value(p))
    enough = tau <= 0x3C00 and value(product) >= value(tau)
    return product, int(enough and length < max_length), int(enough or keep_below == 1), 0


def test_the_reference_itself() -> None:
    """Road 1 against numpy's table of all codes, on every code, every midpoint and beside the midpoints."""
    values = CODES.view(np.float16).astype(np.float64)
    assert [float(value(c)) for c in range(0x3C01)] == values.tolist()
    for code in range(0x3C00):
        low, high = Fraction(float(values[code])), Fraction(float(values[code + 1]))
        middle, sliver = (low + high) / 2, Fraction(1, 1 << 60)
        assert nearest(low) == code
        assert nearest(middle) == code + code % 2
        assert (nearest(middle - sliver), nearest(middle + sliver)) == (code, code + 1)


def test_every_h_with_many_p() -> None:
    """All 15,361 H times 72 p each (more than a million pairs): equal to road 2 and 3; H never rises."""
    rng = np.random.default_rng(14)
    fixed = [c for c in SPECIAL if c <= ONE]
    random_p = rng.integers(0, ONE + 1, (len(CODES), 72 - len(fixed) - 20), np.uint16)
    close_to_one = rng.integers(0x3800, ONE + 1, (len(CODES), 20), np.uint16)
    p = np.hstack([np.tile(np.array(fixed, np.uint16), (len(CODES), 1)), random_p, close_to_one])
    h = np.repeat(CODES[:, None], p.shape[1], axis=1)
    expected = by_numpy(h, p)
    assert expected.size > 1_000_000
    assert np.array_equal((h.view(np.float16) * p.view(np.float16)).view(np.uint16), expected)
    got = np.array([probability_product(a, b) for a, b in zip(h.ravel().tolist(), p.ravel().tolist(), strict=True)])
    assert np.array_equal(got, expected.ravel())
    assert (got <= h.ravel()).all()
    assert (got <= p.ravel()).all()


def test_products_by_fractions() -> None:
    """Random pairs, then pairs that lie exactly on a midpoint, normal and subnormal."""
    rng = np.random.default_rng(15)
    pairs = rng.integers(0, ONE + 1, (8000, 2)).tolist()
    pairs += np.stack([rng.integers(0, 0x1000, 3000), rng.integers(0x2000, ONE + 1, 3000)], 1).tolist()
    pairs += [(h, p) for h in range(64) for p in (0x2800, 0x2C00, 0x3000, 0x3400, 0x3600, HALF, 0x3A00)]
    pairs += [(0x3800 + h, 0x3A00) for h in range(1024)]  # times 0.75
    ties = [0, 0]
    for h, p in pairs:
        exact = value(h) * value(p)
        got = probability_product(h, p)
        assert got == nearest(exact) == probability_product(p, h), (hex(h), hex(p))
        if 2 * exact in (value(got) + value(max(got - 1, 0)), value(got) + value(got + 1)) and exact:
            ties[got >= 0x400] += got % 2 == 0
    assert min(ties) > 50


def test_one_is_the_identity_and_zero_stays() -> None:
    for code in range(ONE + 1):
        assert probability_product(code, ONE) == probability_product(ONE, code) == code
        assert probability_product(code, 0) == probability_product(0, code) == 0


@pytest.mark.parametrize("h", [1, 2, 3, 0x200, 0x3FF, 0x400, 0x401, 0x3555, NINE_TENTHS, 0x3BFF, ONE])
def test_the_product_is_monotone_in_p(h: int) -> None:
    """All 15,361 p in order: the codes do not fall, and end at H."""
    products = [probability_product(h, p) for p in range(ONE + 1)]
    assert products == sorted(products)
    assert products == by_numpy(np.full(len(CODES), h, np.uint16), CODES).tolist()
    assert products[-1] == h


@pytest.mark.parametrize(("keep_below", "sent"), [(0, 6), (1, 7)])
def test_nine_tenths_falls_below_a_half_at_the_seventh_token(keep_below: int, sent: int) -> None:
    """SD-14; a rule per token would run to 16."""
    model, h, path, kept = StopTest(), ONE, list[int](), 0
    for length in range(1, 17):
        decision = model.decide(h, NINE_TENTHS, length, tau=HALF, max_length=16, keep_below=keep_below)
        h, kept = decision.h, kept + decision.keep
        path.append(h)
        if not decision.go_on:
            break
    assert len(path) == 7
    assert path[5:] == [0x3840, 0x37A6]
    assert kept == sent


def test_special_codes_in_every_place() -> None:
    """All pairs of special codes; tau on, beside and far from the product; short, last and too long drafts."""
    model, seen = StopTest(), set[tuple[int, ...]]()
    settings = ((0, 0, 0), (1, 0, 1), (1, 2, 0), (1, 2, 1), (2, 2, 0), (31, 30, 1), (30, 31, 0))
    for h, p in itertools.product(SPECIAL, repeat=2):
        product = reference(h, p, 1, 0, 2, 0)[0]
        for tau in {0, 1, HALF, ONE, 0x3C01, 0x7C00, 0x7E00, 0x8000, 0xFFFF, max(product - 1, 0), product, product + 1}:
            for length, max_length, keep_below in settings:
                want = reference(h, p, length, tau, max_length, keep_below)
                got = model.decide(h, p, length, tau=tau, max_length=max_length, keep_below=keep_below)
                assert tuple(got) == want, (hex(h), hex(p), hex(tau), length, max_length, keep_below)
                seen.add(got[1:])
    assert seen == {(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 1, 0)}


def test_random_decisions() -> None:
    """Whole codes at random; tau within one step of the product for half of them."""
    rng = np.random.default_rng(16)
    model = StopTest(length_bits=8)
    for h, p, tau, length, maximum, step, mode in rng.integers(
        0, (0x3D00, 0x3D00, 0x3D00, 256, 256, 6, 2), (20_000, 7)
    ).tolist():
        if step < 3:
            tau = max(reference(h, p, 1, 0, 2, 0)[0] + step - 1, 0)
            maximum = min(max(length + step - 1, 0), 255) if mode else maximum
        want = reference(h, p, length, tau, maximum, mode)
        assert tuple(model.decide(h, p, length, tau=tau, max_length=maximum, keep_below=mode)) == want


@pytest.mark.parametrize(
    ("h", "p", "length", "tau", "max_length", "keep_below", "expected"),
    [
        (ONE, HALF, 1, HALF, 16, 0, (HALF, 1, 1, 0)),  # H = tau drafts on
        (ONE, HALF, 1, HALF + 1, 16, 0, (HALF, 0, 0, 0)),
        (ONE, HALF, 1, HALF + 1, 16, 1, (HALF, 0, 1, 0)),
        (ONE, ONE, 1, ONE, 31, 0, (ONE, 1, 1, 0)),
        (ONE, HALF, 15, 0, 16, 0, (HALF, 1, 1, 0)),
        (ONE, HALF, 16, 0, 16, 0, (HALF, 0, 1, 0)),  # the longest draft keeps its last token
        (ONE, ONE, 0, 0, 0, 0, (ONE, 0, 1, 0)),  # max_length 0 stops every draft
        (1, HALF, 1, 0, 16, 0, (0, 1, 1, 0)),  # underflow to 0 (a tie), tau 0: on
        (3, HALF, 1, 0, 16, 0, (2, 1, 1, 0)),  # 1.5 units, a tie up to even
        (0, 0, 1, 0, 16, 0, (0, 1, 1, 0)),
        (ONE, ONE, 1, 0x3C01, 16, 0, (ONE, 0, 0, 0)),  # tau larger than 1, infinite, NaN, -0, -1: stop
        (ONE, ONE, 1, 0x7C00, 16, 1, (ONE, 0, 1, 0)),
        (ONE, ONE, 1, 0x7E00, 16, 0, (ONE, 0, 0, 0)),
        (ONE, ONE, 1, 0x8000, 16, 0, (ONE, 0, 0, 0)),
        (ONE, ONE, 1, 0xBC00, 16, 0, (ONE, 0, 0, 0)),
        (0x3C01, ONE, 1, 0, 16, 1, (0, 0, 0, 1)),  # h or p outside [0, 1]
        (ONE, 0x7C00, 1, 0, 16, 1, (0, 0, 0, 1)),
        (0x7E00, 0, 1, 0, 16, 1, (0, 0, 0, 1)),
        (ONE, 0x8000, 1, 0, 16, 1, (0, 0, 0, 1)),  # -0
        (0xBC00, 0xBC00, 1, 0, 16, 1, (0, 0, 0, 1)),
    ],
)
def test_known_answers(
    h: int, p: int, length: int, tau: int, max_length: int, keep_below: int, expected: tuple[int, ...]
) -> None:
    assert tuple(StopTest().decide(h, p, length, tau=tau, max_length=max_length, keep_below=keep_below)) == expected


def test_fields_of_the_contract() -> None:
    model = StopTest(request_bits=9, length_bits=3)
    assert model.request_fields == (("request", 9), ("length", 3), ("h", 16), ("p", 16))
    assert model.decision_fields == (("request", 9), ("h", 16), ("go_on", 1), ("keep", 1), ("invalid", 1))
    assert ONE == nearest(Fraction(1))


@pytest.mark.parametrize(
    ("name", "top"), [("h", 65535), ("p", 65535), ("tau", 65535), ("length", 31), ("max_length", 31)]
)
def test_values_out_of_range_are_named(name: str, top: int) -> None:
    legal = {"h": ONE, "p": ONE, "length": 1, "tau": 0, "max_length": 16}
    for bad in (-1, top + 1, True, 0.5, None):
        arguments: dict[str, Any] = {**legal, name: bad}
        message = re.escape(f"{name} must be an integer in [0, {top}], not {bad}")
        with pytest.raises(ParameterError, match=rf"\A{message}\Z"):
            StopTest().decide(**arguments)
    StopTest().decide(**{**legal, name: top})


@pytest.mark.parametrize(("name", "value", "top"), [("request_bits", 0, 16), ("request_bits", 17, 16), ("length_bits", 9, 8)])
def test_a_parameter_out_of_range_is_named(name: str, value: int, top: int) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be an integer in \[1, {top}\], not {value}$"):
        StopTest(**{name: value})

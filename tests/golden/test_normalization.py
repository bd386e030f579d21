"""Golden LayerNorm and RMSNorm against mpmath with 60 digits, which shares no line with them."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from golden_model.arithmetic.formats import FP16, FP32, exact_value
from golden_model.params import ParameterError
from golden_model.pim.normalization import MAX_RELATIVE_ERROR, Normalization, row_beats
from golden_model.pim.normalization_vectors import EPSILONS, operand_classes, row_classes

LANES = 4
ONE, QUIET_NAN, INF, MINUS_INF, MINUS_ZERO = 0x3C00, 0x7E00, 0x7C00, 0xFC00, 0x8000
EPS = 0x3727C5AC  # 1e-5
LENGTHS = (1, 15, 16, 17, 33, 100)


def number(code: int) -> mpmath.mpf:
    value = exact_value(code, FP16)
    return mpmath.mpf(value.numerator) / value.denominator


def run(
    x: list[int], gamma: list[int], beta: list[int], *, epsilon: int = EPS, rms: bool = False, lanes: int = LANES
) -> list[int]:
    """y of one row by the beats, checked to be the vectorised model's."""
    unit = Normalization(lanes=lanes)
    for beat in row_beats(x, lanes, rms=rms, filler=QUIET_NAN):
        assert unit.accept(beat, epsilon) is None
    y = []
    for beat in row_beats(x, lanes, rms=rms, gamma=gamma, beta=beta, filler=QUIET_NAN):
        answer = unit.accept(beat, 0)
        assert answer is not None
        y += [answer[f"y_{k}"] for k in range(answer["count"])]
        assert not any(answer[f"y_{k}"] for k in range(answer["count"], lanes))
        assert answer["invalid"] == (not unit.row.usable) >= answer["masked"]
    arrays = [np.array(codes, np.uint16) for codes in (x, gamma, beta)]
    assert unit.normalise(*arrays, epsilon=epsilon, rms=rms).tolist() == y
    return y


def reference(x: list[int], epsilon: int, *, rms: bool) -> list[mpmath.mpf]:
    """z = (x - mean) / sqrt(variance + epsilon) by the textbook, with numbers long enough that nothing is lost."""
    values = [number(code) for code in x]
    eps = exact_value(epsilon, FP32)
    mean = mpmath.mpf(0) if rms else mpmath.fsum(values) / len(values)
    square = mpmath.fsum((value - mean) ** 2 for value in values) / len(values)
    root = mpmath.sqrt(square + mpmath.mpf(eps.numerator) / eps.denominator)
    return [(value - mean) / root if root else mpmath.mpf(0) for value in values]


def check(y: int, z: mpmath.mpf, gamma: int, beta: int) -> mpmath.mpf:
    """Compare with the stated bound; return the error beyond half a place, relative to |z gamma|."""
    product = z * number(gamma)
    exact = product + number(beta)
    slack = abs(product) * mpmath.mpf(MAX_RELATIVE_ERROR.numerator) / MAX_RELATIVE_ERROR.denominator
    if y & 0x7FFF == INF:
        assert abs(exact) + slack >= 65520
        assert (y > INF) == (exact < 0)
        return mpmath.mpf(0)
    got = number(y)
    field = max(y >> 10 & 31, 1)
    if abs(got) > abs(exact) and y & 0x3FF == 0 and field > 1:
        field -= 1  # below a power of two the places are half as wide
    half_place = mpmath.ldexp(1, field - 26)
    beyond = abs(got - exact) - half_place
    assert beyond <= slack, (hex(y), mpmath.nstr(exact, 12))
    return beyond / abs(product) if product and beyond > 0 else mpmath.mpf(0)


@pytest.fixture(autouse=True)
def _digits() -> None:
    mpmath.mp.dps = 60


@pytest.mark.parametrize("rms", [False, True], ids=["layer", "rms"])
@pytest.mark.parametrize("name", row_classes(np.random.default_rng(0)))
def test_stated_bound_against_mpmath(name: str, rms: bool) -> None:
    rng = np.random.default_rng(11)
    draw, operands = row_classes(rng)[name], operand_classes(rng)
    for k, length in enumerate(LENGTHS * 3):
        x, epsilon = draw(length), EPSILONS[k % len(EPSILONS)]
        gamma = operands[("ones", "usual")[k % 2]](length)
        beta = [0] * length if rms else operands[("blanks", "usual")[k // 2 % 2]](length)
        y = run(x, gamma, beta, epsilon=epsilon, rms=rms)
        for code, z, g, b in zip(y, reference(x, epsilon, rms=rms), gamma, beta, strict=True):
            check(code, z, g, b)


def test_long_rows() -> None:
    """8192 activations, and one outlier among 128,255 zeros: sqrt(n - 1) there, -1 / sqrt(n - 1) everywhere else."""
    rng, unit = np.random.default_rng(12), Normalization()
    x = np.array(row_classes(rng)["activations"](8192), np.uint16)
    gamma, beta = (rng.normal(size=8192).astype(np.float16).view(np.uint16) for _ in range(2))
    y = unit.normalise(x, gamma, beta, epsilon=EPS, rms=False)
    for values in zip(y.tolist(), reference(x.tolist(), EPS, rms=False), gamma.tolist(), beta.tolist(), strict=True):
        check(*values)
    row = np.zeros(128_256, np.uint16)
    ones, blank = np.full_like(row, ONE), np.zeros_like(row)
    for outlier in (0x7BFF, 0x0001):
        row[77_777] = outlier
        y = unit.normalise(row, ones, blank, epsilon=0, rms=False)
        root = mpmath.sqrt(128_255)
        check(int(y[77_777]), root, ONE, 0)
        check(int(y[0]), -1 / root, ONE, 0)
        assert set(np.delete(y, 77_777).tolist()) == {int(y[0])}
        y = unit.normalise(row, ones, blank, epsilon=0, rms=True)
        check(int(y[77_777]), mpmath.sqrt(128_256), ONE, 0)
        assert np.count_nonzero(y) == 1


def test_sx_09_squares_beyond_fp16() -> None:
    unit, ones, blank = Normalization(), np.full(4096, ONE, np.uint16), np.zeros(4096, np.uint16)
    for code in (0x5CB0, 0x5C00):  # 300 and 256
        assert set(unit.normalise(np.full(4096, code, np.uint16), ones, blank, epsilon=EPS, rms=True).tolist()) == {ONE}
    row = blank.copy()
    row[5] = 0x7BFF
    y = unit.normalise(row, ones, blank, epsilon=EPS, rms=True)
    assert y[5] == 0x5400
    assert not np.delete(y, 5).any()


def test_sx_11_short_ramp() -> None:
    ramp = [0x6800, 0x6801, 0x6802, 0x6803]
    assert run(ramp, [ONE] * 4, [0] * 4) == [0xBD5E, 0xB728, 0x3728, 0x3D5E]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_constant_and_zero_rows_give_exactly_beta(epsilon: int) -> None:
    rng = np.random.default_rng(13)
    beta = [*operand_classes(rng)["usual"](15), MINUS_ZERO, INF]
    gamma = operand_classes(rng)["usual"](17)
    for code in (0, MINUS_ZERO, 1, 0x3555, 0x7BFF, 0xFBFF):
        assert run([code] * 17, gamma, beta, epsilon=epsilon) == beta
    signs = [g & MINUS_ZERO ^ MINUS_ZERO for g in gamma]
    assert run([MINUS_ZERO] * 17, gamma, beta, epsilon=epsilon, rms=True) == signs


@pytest.mark.parametrize("bad", [QUIET_NAN, 0xFC01, INF, MINUS_INF])
def test_a_row_with_a_number_that_is_not_finite(bad: int) -> None:
    for rms in (False, True):
        assert run([ONE] * 16 + [bad, 0, 0], [ONE] * 19, [0] * 19, rms=rms) == [QUIET_NAN] * 19


@pytest.mark.parametrize("epsilon", [0x7F800000, 0x7FC00000, 0xFF800000, 0x80000001, 0xB727C5AC])
def test_unusable_epsilon(epsilon: int) -> None:
    assert run([ONE, 0], [ONE] * 2, [0] * 2, epsilon=epsilon) == [QUIET_NAN] * 2
    assert run([ONE, 0], [ONE] * 2, [0] * 2, epsilon=0x80000000) == [ONE, 0xBC00]  # -0 is 0


def test_special_gammas_and_betas() -> None:
    x = [0xBC00, ONE] * 3  # z = -1 and 1
    gamma = [INF, INF, MINUS_INF, QUIET_NAN, INF, 0]
    beta = [0, ONE, INF, 0, INF, 0xFC01]
    assert run(x, gamma, beta, epsilon=0) == [MINUS_INF, INF, INF, QUIET_NAN, QUIET_NAN, QUIET_NAN]
    assert run(x, gamma, beta, epsilon=0, rms=True) == [MINUS_INF, INF, INF, QUIET_NAN, MINUS_INF, 0]
    assert run([0, 0], [INF, ONE], [ONE, INF]) == [QUIET_NAN, INF]  # 0 * infinity
    row = [0x7BFF] + [0] * 15
    assert run(row, [0x7BFF] * 16, [MINUS_INF] + [0xFBFF] * 15)[0] == MINUS_INF  # a finite product beyond FP16
    assert run(row, [0x7BFF] * 16, [0xFBFF] * 16)[0] == INF


def test_any_operands_on_the_vectorised_path() -> None:
    rng = np.random.default_rng(14)
    rows, operands = row_classes(rng), operand_classes(rng)
    for k in range(60):
        x = list(rows.values())[k % len(rows)](20)
        run(x, operands["any_code"](20), operands["any_code"](20), epsilon=EPSILONS[k % 7], rms=bool(k & 8))


def test_scalars_of_another_row() -> None:
    """Apply beats need not be the row that was summed; every state is defined."""
    unit, beat = Normalization(lanes=4), row_beats([ONE] * 4, 4, rms=False, gamma=[ONE] * 4, beta=[1] * 4)[0]
    nothing = unit.accept(beat, 0)
    assert nothing is not None
    assert (nothing["invalid"], nothing["y_0"]) == (1, QUIET_NAN)
    for spoiled, value in ((1, 0x3C00), (0, 1)):  # a row of zeros: V = epsilon, or 0 with z = 0
        unit.accept(row_beats([0] * 4, 4, rms=False)[0], 0x3F800000 if spoiled else 0)
        answer = unit.accept(beat, 0)
        assert answer is not None
        assert answer["y_0"] == value
    late = unit.accept(beat | {"a_1": INF}, 0)
    assert late is not None
    assert (late["invalid"], late["y_0"], late["y_1"]) == (1, 1, QUIET_NAN)


def test_parameters_and_rows_are_checked() -> None:
    unit, row = Normalization(lanes=4), np.zeros(4, np.uint16)
    with pytest.raises(ParameterError, match=r"lanes must be a power of two in \[4, 16\], not 12"):
        Normalization(lanes=12)
    with pytest.raises(ParameterError, match=r"epsilon must be an integer in \[0, 4294967295\], not -1"):
        unit.normalise(row, row, row, epsilon=-1, rms=False)
    with pytest.raises(ParameterError, match="beta must be a one-dimensional array of 4 uint16 codes"):
        unit.normalise(row, row, row[:3], epsilon=0, rms=False)
    with pytest.raises(ParameterError, match="length of the row"):
        unit.normalise(row[:0], row[:0], row[:0], epsilon=0, rms=False)
    unit._sums.length = (1 << 17) - 1
    with pytest.raises(ParameterError, match=r"length of the row must be an integer in \[1, 131071\], not 131075"):
        unit.accept(row_beats([0] * 4, 4, rms=False)[0], 0)


def test_fields() -> None:
    unit = Normalization(lanes=4)
    names = [name for name, _ in unit.input_fields]
    assert names == ["apply", "rms", "last", "count", *(f"{side}_{k}" for side in "abc" for k in range(4))]
    assert dict(unit.output_fields)["count"] == 3
    assert MAX_RELATIVE_ERROR < 2**-17.9

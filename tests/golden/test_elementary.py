"""Golden evaluator against float64 on every argument, and against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from golden_model.arithmetic.elementary import MAX_RELATIVE_ERROR, ONE, Elementary, Function
from golden_model.arithmetic.elementary_tables import C0_BITS, C1_BITS, C2_BITS, STEP_BITS, Coefficients, table
from golden_model.params import ParameterError

BLOCK = Elementary()
ARGUMENTS = 1 << 24
Reals = npt.NDArray[np.float64]
FLOAT64: dict[Function, Callable[[Reals], Reals]] = {
    Function.EXP2: np.exp2,
    Function.RECIPROCAL: lambda a: 1 / (1 + a),
    Function.RSQRT: lambda a: 1 / np.sqrt(1 + a),
    Function.RSQRT_UPPER: lambda a: 1 / np.sqrt(2 + 2 * a),
}


def exact(function: Function, argument: int) -> mpmath.mpf:
    a = mpmath.mpf(argument) / ARGUMENTS
    if function is Function.EXP2:
        return mpmath.power(2, a)
    if function is Function.RECIPROCAL:
        return 1 / (1 + a)
    return 1 / mpmath.sqrt((1 + a) * (2 if function is Function.RSQRT_UPPER else 1))


@pytest.mark.parametrize("function", Function, ids=lambda function: function.name)
def test_error_and_monotonicity_on_every_argument(function: Function) -> None:
    """float64's own error, below 2^-51, is far below the bounds; the worst arguments are looked at in mpmath too."""
    chunk, previous, worst = 1 << 20, None, []
    for start in range(0, ARGUMENTS, chunk):
        arguments = np.arange(start, start + chunk)
        values = BLOCK.compute_many(function, arguments)
        real = FLOAT64[function](arguments / ARGUMENTS) * ONE
        error = np.abs(values - real) / real
        at = int(error.argmax())
        worst.append((float(error[at]), start + at))
        steps = np.diff(values if previous is None else np.concatenate([[previous], values]))
        assert (steps <= 0).all() if function is not Function.EXP2 else (steps >= 0).all()
        previous = values[-1]
    for error_at, argument in worst:
        value = BLOCK.compute(function, argument)
        with mpmath.workprec(100):
            relative = abs(value / exact(function, argument) / ONE - 1)
        assert relative <= mpmath.mpf(MAX_RELATIVE_ERROR[function].numerator) / MAX_RELATIVE_ERROR[function].denominator
        assert abs(float(relative) - error_at) < 2**-50
    bound = MAX_RELATIVE_ERROR[function]
    assert bound / 2 < Fraction(max(worst)[0]) < bound <= Fraction(1, 2**22)  # the stated bound is not idle


@pytest.mark.parametrize("function", Function, ids=lambda function: function.name)
def test_against_mpmath_at_every_segment(function: Function) -> None:
    bound = mpmath.mpf(1) / MAX_RELATIVE_ERROR[function].denominator
    rng = np.random.default_rng(5)
    with mpmath.workprec(100):
        for index in range(64):
            start = index << STEP_BITS
            for argument in (start, start + (1 << STEP_BITS) - 1, *(start + rng.integers(1 << STEP_BITS, size=20)).tolist()):
                assert abs(BLOCK.compute(function, argument) / exact(function, argument) / ONE - 1) <= bound


def test_the_starts_that_matter_are_exact() -> None:
    for function in (Function.EXP2, Function.RECIPROCAL, Function.RSQRT):
        assert BLOCK.compute(function, 0) == ONE
    assert BLOCK.compute(Function.EXP2, ARGUMENTS - 1) == 2 * ONE - 2  # 2 - 1.39 * 2^-24, below 2


def test_no_function_leaves_its_range() -> None:
    """So 2^a never wraps, and 1/m and 1/sqrt(m) never exceed 1; by monotonicity the ends suffice."""
    ends = {f: (BLOCK.compute(f, 0), BLOCK.compute(f, ARGUMENTS - 1)) for f in Function}
    assert ends[Function.RECIPROCAL] == (ONE, ONE // 2)
    assert ends[Function.RSQRT][0] == ONE
    assert ends[Function.RSQRT_UPPER][0] <= ends[Function.RSQRT][1]
    assert ends[Function.RSQRT_UPPER][1] == ONE // 2


def test_coefficients_fit_their_widths() -> None:
    for function in Function:
        for c in table(function):
            assert isinstance(c, Coefficients)
            assert 0 < c.c0 < 1 << C0_BITS
            assert 0 < c.c2 < 1 << C2_BITS
            assert (c.c1 > 0) == (function is Function.EXP2)
            assert abs(c.c1) + c.c2 < 1 << (C1_BITS - 1)  # so the inner sum does not overflow


def test_vectorised_model_equals_the_scalar_one() -> None:
    rng = np.random.default_rng(6)
    arguments = np.concatenate([rng.integers(ARGUMENTS, size=3000), [0, ARGUMENTS - 1]])
    for function in Function:
        assert BLOCK.compute_many(function, arguments).tolist() == [BLOCK.compute(function, a) for a in arguments.tolist()]


def test_arguments_are_checked() -> None:
    with pytest.raises(ParameterError, match=r"argument must be an integer in \[0, 16777215\], not 16777216"):
        BLOCK.compute(0, ARGUMENTS)
    with pytest.raises(ParameterError, match=r"function must be an integer in \[0, 3\], not 4"):
        BLOCK.compute(4, 0)
    with pytest.raises(ParameterError, match="argument must be"):
        BLOCK.compute_many(0, np.array([-1]))


def test_fields() -> None:
    assert BLOCK.operand_fields == (("function", 2), ("argument", 24))
    assert BLOCK.result_fields == (("value", 25),)

"""The error study: its models of tensor cores against exact fractions, its errors, and the committed table."""

from __future__ import annotations

import csv
from fractions import Fraction

import numpy as np
import pytest

from cosim.report import dot_product_error as study
from cosim.report.numerics import draw
from cosim.sources import ROOT
from cosim.system.output import to_csv

IMAGES = ROOT / "docs" / "img"


def floor_log2(x: Fraction) -> int:
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return exponent if abs(x) >= Fraction(2) ** exponent else exponent - 1


def cut(x: Fraction, unit: Fraction) -> Fraction:
    return int(x / unit) * unit  # int() cuts toward zero


def step(a: list[Fraction], b: list[Fraction], total: Fraction, bits: int) -> Fraction:
    """One step of a tensor core, term by term as the papers describe it."""
    terms = [(x * y, max(floor_log2(x), -14) + max(floor_log2(y), -14)) for x, y in zip(a, b, strict=True) if x * y]
    terms += [(total, max(floor_log2(total), -126))] if total else []
    if not terms:
        return Fraction(0)
    unit = Fraction(2) ** (max(exponent for _, exponent in terms) - bits)
    result = sum((cut(value, unit) for value, _ in terms), Fraction(0))
    return cut(result, Fraction(2) ** (floor_log2(result) - 23)) if result else result


@pytest.mark.parametrize("core", study.PROFILES, ids=lambda core: core.name)
@pytest.mark.parametrize("distribution", study.DISTRIBUTIONS)
def test_tensor_core_models_against_fractions(core: study.TensorCore, distribution: str) -> None:
    a, b = study.draw_vectors(distribution, 4096, 3, seed=5)
    a, b = a[:, :64], b[:, :64]
    a[0, ::3] *= np.float16(2**-14)  # subnormal operands, and zeros
    a[0, 1::7] = 0
    sums = core.sums(a, b)
    for row, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        x, y, total = [Fraction(v) for v in x], [Fraction(v) for v in y], Fraction(0)
        for start in range(0, 64, core.products):
            total = step(x[start : start + core.products], y[start : start + core.products], total, core.fraction_bits)
        assert Fraction(float(sums[row])) == total
        assert np.float32(sums[row]) == sums[row]


def test_a_tensor_core_loses_what_is_far_below_its_largest_term() -> None:
    """The dot product's own example: 65504^2 + 2^-24 - 65504^2 + 0."""
    a = np.array([[65504, 2**-24, -65504, 0]], np.float16)
    b = np.array([[65504, 1, 65504, 0]], np.float16)
    assert [core.sums(a, b).tolist() for core in study.PROFILES] == [[0.0]] * 3


def test_errors_are_exact() -> None:
    a, b = study.draw_vectors("wide exponents", 16, 20, seed=3)
    sums = study.fused_sums(a, b, 22)
    for row, error in enumerate(study.relative_errors(a, b, sums)):
        products = [Fraction(x) * Fraction(y) for x, y in zip(a[row].tolist(), b[row].tolist(), strict=True)]
        assert error == float((Fraction(sums[row]) - sum(products)) / sum(map(abs, products)))


def test_seventy_eight_bits_round_once() -> None:
    a, b = study.draw_vectors("cancelling", 16, 200, seed=4)
    for x, y, total in zip(a.tolist(), b.tolist(), study.fused_sums(a, b, 78).tolist(), strict=True):
        exact = sum((Fraction(u) * Fraction(v) for u, v in zip(x, y, strict=True)), Fraction(0))
        assert abs(Fraction(total) - exact) <= abs(exact) / 2**24


def test_the_cancelling_vectors_cancel() -> None:
    a, b = (x.astype(np.float64) for x in study.draw_vectors("cancelling", 16, 50, seed=1))
    products = a * b
    assert (products[:, ::4] + products[:, 1::4] == 0).all()
    assert (products.sum(axis=1) < 2**-8 * abs(products).sum(axis=1)).all()


def test_the_committed_table_is_what_the_command_gives() -> None:
    """A part of docs/img/dot_product_error.csv computed anew; `saddle numerics --out docs/img` makes all of it."""
    with (IMAGES / "dot_product_error.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(study.DISTRIBUTIONS) * len(study.LENGTHS) * (len(study.FRACTION_BITS) + len(study.PROFILES) + 1)
    for distribution in study.DISTRIBUTIONS:
        a, b = study.draw_vectors(distribution, 16, 1024, seed=1)
        for method, sums in [("fused", study.fused_sums(a, b, 28)), *((c.name, c.sums(a, b)) for c in study.PROFILES)]:
            errors = study.relative_errors(a, b, sums)
            fresh = {
                "max_error": float(abs(errors).max()), "mean_error": float(abs(errors).mean()),
                "mean_signed_error": float(errors.mean()),
            }  # fmt: skip
            row = next(
                row for row in table
                if (row["distribution"], row["length"], row["method"]) == (distribution, "16", method)
                and (method != "fused" or row["align_frac_bits"] == "28")
            )  # fmt: skip
            assert to_csv([fresh]).decode().splitlines()[1] == ",".join(row[key] for key in fresh)


def test_a_figure_drawn_twice_has_the_same_bytes() -> None:
    with (IMAGES / "dot_product_error.csv").open(newline="") as file:
        table = [
            {
                **row, "length": int(row["length"]), "align_frac_bits": int(row["align_frac_bits"] or 0),
                "max_error": float(row["max_error"]), "mean_error": float(row["mean_error"]),
            }
            for row in csv.DictReader(file)
        ]  # fmt: skip
    first = draw(table)
    assert draw(table) == first
    assert first["dot_product_error.svg"].startswith(b"<?xml")

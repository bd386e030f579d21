"""Error of the fused dot product against F, its alignment width, beside published models of tensor cores.

Everything is computed on the golden models and on exact integers; nothing is measured on a GPU.  The models of tensor
cores are those of Fasi, Higham, Mikaitis and Pranesh (PeerJ Computer Science 7:e330, 2021), Khattak and Mikaitis
(arXiv:2512.07004, 2025) and Xie et al. (arXiv:2511.10909, 2025): exact products and the accumulator aligned to the largest
exponent, cut to F fraction bits, added exactly, the sum cut to FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.dot_product import DotProduct
from golden_model.arithmetic.fp32_adder import Fp32Adder

__all__ = ["DISTRIBUTIONS", "LENGTHS", "PROFILES", "TensorCore", "draw_vectors", "fused_sums", "measure", "relative_errors"]

LANES = 16
LENGTHS = (16, 4096)
FRACTION_BITS = (*range(20, 41), 44, 48, 52, 56, 78)
"""The values of F that are tried; 78 is exact, and nothing happens on the way there."""

Halves = npt.NDArray[np.float16]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TensorCore:
    """A published model: ``products`` terms and the accumulator per step, ``fraction_bits`` kept after alignment."""

    name: str
    products: int
    fraction_bits: int

    def sums(self, a: Halves, b: Halves) -> Doubles:
        """Return the dot products of rows, an FP32 number each; the accumulator starts at zero."""
        total = np.zeros(len(a))
        for start in range(0, a.shape[1], self.products):
            total = self._step(a[:, start : start + self.products], b[:, start : start + self.products], total)
        return total

    def _step(self, a: Halves, b: Halves, total: Doubles) -> Doubles:
        values = [a.astype(np.float64) * b.astype(np.float64), total[:, None]]  # a product of FP16 is exact in float64
        # The exponents are not normalised: a product's is the sum of its operands', 1.5 * 1.5 counts as 2^0.
        exponents = [_exponent(a, -14) + _exponent(b, -14), _exponent(total[:, None], -126)]
        value, exponent = (np.concatenate(parts, axis=1) for parts in (values, exponents))
        largest = np.where(value != 0, exponent, -1000).max(axis=1, keepdims=True)
        cut = np.trunc(np.ldexp(value, self.fraction_bits - largest)).sum(axis=1)  # below 2^32: exact in float64
        _, length = np.frexp(cut)
        kept = np.ldexp(np.trunc(np.ldexp(cut, 24 - np.maximum(length, 24))), np.maximum(length, 24) - 24)
        result: Doubles = np.ldexp(kept, np.where(cut != 0, largest[:, 0] - self.fraction_bits, 0))
        return result


def _exponent(values: npt.NDArray[Any], lowest: int) -> npt.NDArray[np.int64]:
    """Return floor(log2 |value|), not below a format's ``lowest``; that is the exponent field, unbiased."""
    return np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1, lowest)


PROFILES = (TensorCore("Volta", 4, 23), TensorCore("Ampere", 8, 24), TensorCore("Hopper", 16, 25))


def _uniform(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Doubles, Doubles]:
    return rng.random(shape), rng.random(shape)


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Doubles, Doubles]:
    return rng.standard_normal(shape), rng.standard_normal(shape)


def _cancelling(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Doubles, Doubles]:
    """Of every four products two, of one exponent, cancel exactly; the other two are 2^-12 times as large."""
    a, b = (1 + 0.999 * rng.random(shape) for _ in range(2))
    a[:, 1::4], b[:, 1::4] = a[:, ::4], -b[:, ::4]
    for rest in (slice(2, None, 4), slice(3, None, 4)):
        a[:, rest] *= 2.0**-6
        b[:, rest] *= 2.0**-6
    return a, b


def _wide(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Doubles, Doubles]:
    """Exponents uniform over FP16's normal range, random signs."""

    def operand() -> Doubles:
        sign = 1.0 - 2.0 * rng.integers(2, size=shape)
        result: Doubles = sign * (1 + rng.random(shape) * 0.999) * 2.0 ** rng.integers(-14, 16, shape)
        return result

    return operand(), operand()


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, tuple[int, int]], tuple[Doubles, Doubles]]] = {
    "uniform(0, 1)": _uniform, "normal(0, 1)": _normal, "cancelling": _cancelling, "wide exponents": _wide,
}  # fmt: skip


def draw_vectors(distribution: str, length: int, vectors: int, seed: int) -> tuple[Halves, Halves]:
    """Draw pairs of FP16 vectors; the same for the same arguments, whatever else is drawn."""
    rng = np.random.default_rng([seed, list(DISTRIBUTIONS).index(distribution), length])
    a, b = DISTRIBUTIONS[distribution](rng, (vectors, length))
    return a.astype(np.float16), b.astype(np.float16)


def fused_sums(a: Halves, b: Halves, fraction_bits: int) -> Doubles:
    """Return our dot products: 16 lanes fused and rounded once, their results added in order by ``fp32_adder``."""
    block, adder = DotProduct(lanes=LANES, align_frac_bits=fraction_bits), Fp32Adder()
    parts = block.compute_many(*(x.view(np.uint16).reshape(-1, LANES) for x in (a, b))).reshape(len(a), -1)
    total = np.zeros(len(a), np.uint32)
    for part in parts.T:
        total = adder.compute_many(total, np.ascontiguousarray(part))
    return total.view(np.float32).astype(np.float64)


def _sequential_sums(a: Halves, b: Halves) -> Doubles:
    """Return FP32 sums from left to right, each product added with a rounding of its own."""
    total = np.zeros(len(a), np.float32)
    for x, y in zip(a.T.astype(np.float32), b.T.astype(np.float32), strict=True):
        total = total + x * y  # the product is exact in FP32
    return total.astype(np.float64)


def relative_errors(a: Halves, b: Halves, sums: Doubles) -> Doubles:
    """Return (sum - exact) / sum of |a b| of every row, exact up to the division."""
    # FP16 numbers are multiples of 2^-24, their products of 2^-48; FP32 results may be finer, so count in 2^-64.
    x, y = ((codes.astype(np.float64) * 2.0**24).astype(np.int64).astype(object) for codes in (a, b))
    products = x * y
    scaled = [int(value) for value in np.ldexp(sums, 64)]
    pairs = zip(scaled, products.sum(axis=1), abs(products).sum(axis=1), strict=True)
    return np.array([(value - (exact << 16)) / (size << 16) for value, exact, size in pairs])


def measure(*, seed: int, vectors: int = 64) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of the table: one per distribution, length and method.

    Parameters
    ----------
    seed
        Of the vectors.
    vectors
        Pairs of vectors of length 4096; of length 16 there are 16 times as many.
    """
    for distribution in DISTRIBUTIONS:
        for length in LENGTHS:
            count = vectors * (16 if length == LANES else 1)
            a, b = draw_vectors(distribution, length, count, seed)
            methods: list[tuple[str, int | None, int, Callable[[Halves, Halves], Doubles]]] = [
                *(("fused", bits, LANES, partial(fused_sums, fraction_bits=bits)) for bits in FRACTION_BITS),
                *((core.name, core.fraction_bits, core.products, core.sums) for core in PROFILES),
                ("sequential FP32", None, 1, _sequential_sums),
            ]
            for method, bits, products, sums in methods:
                errors = relative_errors(a, b, sums(a, b))
                yield {
                    "distribution": distribution, "length": length, "method": method, "align_frac_bits": bits,
                    "products_per_step": products, "vectors": count, "max_error": float(abs(errors).max()),
                    "mean_error": float(abs(errors).mean()), "mean_signed_error": float(errors.mean()),
                }  # fmt: skip

"""Paired ratios over seeds with a bootstrap interval."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "bootstrap_mean"]


class Interval(NamedTuple):
    """A mean and its 95 % percentile interval."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: NDArray[np.float64], resamples: int = 4000) -> Interval:
    """Return the mean over cells and seeds, with seeds resampled.

    Parameters
    ----------
    values
        Shape (cells, seeds).  A seed is drawn for all cells together, as they share their requests.
    resamples
        Bootstrap samples; the generator's seed is fixed, so equal inputs give equal intervals.

    With one seed the interval is the mean itself.
    """
    per_seed = values.mean(axis=0)
    picks = np.random.default_rng(20260131).integers(0, per_seed.size, size=(resamples, per_seed.size))
    low, high = np.percentile(per_seed[picks].mean(axis=1), [2.5, 97.5])
    return Interval(float(per_seed.mean()), float(low), float(high))

"""What a bench reads from the harness and hands back to it; runs inside the simulator."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import cocotb
import numpy as np

__all__ = ["bins", "random_generator", "settings", "stimulus", "timing", "transactions"]


def settings() -> dict[str, Any]:
    """Return what the harness passed: ``parameters`` (of the configuration) and ``effort``."""
    return dict(json.loads(os.environ["SADDLE_SETTINGS"]))


def random_generator() -> np.random.Generator:
    """Return the running test's own generator: the same numbers whether the test runs alone or with others."""
    return np.random.default_rng(cocotb.RANDOM_SEED)


def _record(kind: str, **values: Any) -> None:
    with open(os.environ["SADDLE_RECORDS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, **values}) + "\n")


def timing(operation: str, *, latency_cycles: int, interval_cycles: int) -> None:
    """Record the measured timing contract of one operation."""
    _record("timing", operation=operation, latency_cycles=latency_cycles, interval_cycles=interval_cycles)


def transactions(count: int) -> None:
    """Record how many transactions a test compared."""
    _record("transactions", count=count)


def stimulus(name: str, digest: str) -> None:
    """Record the hash of a test's stimulus, so that a replay can be seen to be one."""
    _record("stimulus", test=name, sha256=digest)


def bins(required: tuple[str, ...], hits: Counter[str]) -> None:
    """Record functional coverage: which bins must be hit in the whole run, and how often each was hit here."""
    _record("bins", required=list(required), hits=dict(hits))

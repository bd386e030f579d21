"""Speeds, printed and not judged: ``make benchmark``."""

from __future__ import annotations

import time

import pytest

from golden_model.manager.draft_pool import DraftPool, Op
from golden_model.manager.stop_test import ONE, StopTest
from tests.golden.test_draft_pool import NaivePool, stream


@pytest.mark.benchmarks
def test_golden_manager_events_per_second() -> None:
    seconds: dict[str, float] = {}
    commands = list(stream(512, (7, 5, 17), (64, 16), 4000))
    inserts = sum(command.op == Op.INSERT for command in commands)
    for name, pool in (("golden", DraftPool()), ("naive", NaivePool(512))):
        started = time.perf_counter()
        for command in commands:
            pool.execute(command)
        seconds[name] = time.perf_counter() - started
    print(f"\ndraft_pool, 512 entries: {len(commands) / seconds['golden']:,.0f} commands/s ({inserts} inserts), "
          f"{seconds['naive'] / seconds['golden']:.1f} times the naive pool")  # fmt: skip
    model, started = StopTest(), time.perf_counter()
    for number in range(50000):
        model.decide(ONE, number % ONE, 1, tau=0x3400, max_length=16)
    print(f"stop_test: {50000 / (time.perf_counter() - started):,.0f} decisions/s")

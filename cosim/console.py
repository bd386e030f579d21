"""Progress and messages on standard error, results on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Tick", "progress", "say"]


class Tick(Protocol):
    """Reports progress: how much is done, of how much, and what it is now."""

    def __call__(self, done: float, total: float, what: str) -> None: ...


def say(message: str) -> None:
    """Write one line to standard error."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def progress(title: str) -> Iterator[Tick]:
    """Show progress: a bar with elapsed and remaining time on a terminal, else one line at most every ten seconds."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def plain(done: float, total: float, what: str) -> None:
            nonlocal last
            if time.monotonic() - last >= 10:
                last = time.monotonic()
                say(f"{title}: {done:.0f} of {total:.0f}, {what}")

        yield plain
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def rich_tick(done: float, total: float, what: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{title}: {what}")

        yield rich_tick

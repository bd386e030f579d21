"""What all systems share while serving: request slots, commits, the measured window and its counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from cosim.system.costs import NO_COST, Cost
from cosim.system.workload import Request, RequestStream

__all__ = ["CommitHook", "Counters", "Measurement", "Serving"]

CommitHook = Callable[[Request, int, int], None]
"""Called with request, first position and number of tokens of every commit."""


@dataclass
class Counters:
    """Running totals; seconds of wall time unless the name says otherwise."""

    time_s: float = 0.0
    committed_tokens: int = 0
    drafted_tokens: int = 0
    verified_draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    verifications: int = 0
    request_verifications: int = 0
    prediction_s: float = 0.0  # a DLM step is in flight
    verification_s: float = 0.0  # a TLM pass is in flight
    overlap_s: float = 0.0  # both are
    manager_s: float = 0.0
    target_attention_on_pim: int = 0
    draft_steps: int = 0
    work: Cost = NO_COST

    def minus(self, other: Counters) -> Counters:
        """Return the difference of two snapshots."""
        values: dict[str, Any] = {}
        for item in fields(self):
            mine, others = getattr(self, item.name), getattr(other, item.name)
            if item.name == "work":
                values[item.name] = Cost._make([a - b for a, b in zip(mine, others, strict=True)])
            else:
                values[item.name] = mine - others
        return Counters(**values)

    def copy(self) -> Counters:
        """Return a snapshot."""
        return Counters(**{item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True)
class Measurement:
    """What one run measured inside its window."""

    counters: Counters
    batch: int
    tpot_s: tuple[float, ...]  # per finished request: time per output token

    @property
    def throughput_tok_s(self) -> float:
        return self.counters.committed_tokens / self.counters.time_s


@dataclass
class Serving:
    """A constant batch of requests.

    Parameters
    ----------
    stream
        Source of requests.
    batch
        Slots.
    window_tokens
        Length of the measured window in committed tokens per slot.  It opens when every slot has finished a request.
    on_commit
        Optional observer of every commit.
    """

    stream: RequestStream
    batch: int
    window_tokens: int
    on_commit: CommitHook | None = None
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self.requests = [self.stream.next() for _ in range(self.batch)]
        self.positions = [request.start for request in self.requests]
        self.contexts = [request.context + request.start for request in self.requests]
        self._entered = [0.0] * self.batch
        self._unfinished = set(range(self.batch))
        self._start: Counters | None = None
        self._tpot: list[float] = []

    def remaining(self, slot: int) -> int:
        """Positions that the request of a slot still has to commit."""
        return self.requests[slot].trace.length - self.positions[slot]

    def commit(self, slot: int, drafted: int) -> tuple[int, bool]:
        """Work in the verification of ``drafted`` tokens of a slot.

        The accepted prefix is committed and one token of the TLM behind it, none of them beyond the request's end.

        Returns
        -------
        accepted, finished
            Accepted draft tokens, and whether the request ended; its slot then holds the next one.
        """
        request, position, counters = self.requests[slot], self.positions[slot], self.counters
        accepted = min(drafted, request.trace.runs[position])
        count = min(accepted + 1, request.trace.length - position)
        if self.on_commit is not None:
            self.on_commit(request, position, count)
        counters.committed_tokens += count
        counters.verified_draft_tokens += drafted
        counters.accepted_draft_tokens += accepted
        counters.request_verifications += 1
        position += count
        finished = position == request.trace.length
        if finished:
            if self._start is not None:
                tokens = request.trace.length - request.start
                self._tpot.append((counters.time_s - self._entered[slot]) / tokens)
            self._unfinished.discard(slot)
            request = self.stream.next()
            self.requests[slot] = request
            self._entered[slot] = counters.time_s
            position = request.start
        self.positions[slot] = position
        self.contexts[slot] = request.context + position
        return accepted, finished

    def window_done(self) -> bool:
        """Open the window or tell that it is over; called after each verification."""
        if self._start is None:
            if not self._unfinished:
                self._start = self.counters.copy()
            return False
        done = self.counters.committed_tokens - self._start.committed_tokens
        return done >= self.batch * self.window_tokens

    def measurement(self) -> Measurement:
        """Return what the window holds."""
        assert self._start is not None
        return Measurement(self.counters.minus(self._start), self.batch, tuple(self._tpot))

"""The stream of requests: which recorded text a request decodes, and at which context length it starts.

Every system sees the same stream for a seed (common random numbers).  The batch is constant: a finished request is
replaced at once by the next.  Prompt lengths come from 151 records of databricks-dolly-15k, the committed text from the
acceptance trace; more requests than recorded ones reuse them in shuffled order.  Prefill is not modelled.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cosim.errors import UserError
from cosim.system.parameters import DATA, Workload
from cosim.system.trace import Trace, TraceRequest

__all__ = ["Context", "Request", "RequestStream", "dolly_prompt_words"]

Context = Literal["spread", "recorded", "near_max"]
"""Context length at the start of a request: uniform over what fits, its prompt's length, or near the maximum."""


@dataclass(frozen=True)
class Request:
    """A request to serve."""

    number: int
    trace: TraceRequest
    context: int  # tokens in the KV cache before committed position 0
    start: int = 0  # position at which it enters (the first request of a slot only)


def dolly_prompt_words() -> list[int]:
    """Return the prompt lengths in words."""
    with (DATA / "dolly_lengths.csv").open(newline="", encoding="utf-8") as file:
        return [int(row["prompt_words"]) for row in csv.DictReader(file)]


class RequestStream:
    """Requests in a seeded order.

    Parameters
    ----------
    trace
        Recorded requests.
    workload
        Maximum length, tokens per word.
    context
        Rule for the context length.
    seed
        Seed of order and contexts.
    batch
        Slots; their first requests enter at a random position, so that slots do not run in step.
    """

    def __init__(self, trace: Trace, workload: Workload, context: Context, seed: int, batch: int) -> None:
        self._trace = trace
        self._workload = workload
        self._context = context
        self._random = np.random.default_rng([seed, 0x5ADD1E])
        self._order: list[int] = []
        self._batch = batch
        self._count = 0
        self._prompt_words = dolly_prompt_words()
        longest = max(request.length for request in trace.requests)
        if longest > workload.max_sequence_length:
            raise UserError(
                f"max_sequence_length {workload.max_sequence_length} is below the longest recorded request ({longest})"
            )

    def next(self) -> Request:
        """Return the next request."""
        if not self._order:
            self._order = [int(index) for index in self._random.permutation(len(self._trace.requests))]
        recorded = self._trace.requests[self._order.pop()]
        unit, words, entry = self._random.random(), self._random.choice(self._prompt_words), self._random.random()
        room = self._workload.max_sequence_length - recorded.length
        if self._context == "recorded":
            context = min(room, round(int(words) * self._workload.tokens_per_word))
        else:
            low = self._workload.near_max_low * self._workload.max_sequence_length if self._context == "near_max" else 0
            low = min(float(low), float(room))
            context = round(low + unit * (room - low))
        start = int(entry * recorded.length) if self._count < self._batch else 0
        request = Request(self._count, recorded, context, start)
        self._count += 1
        return request

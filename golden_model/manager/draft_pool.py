"""Draft pool: a content-addressable store of draft tokens with greedy selection of a verification batch.

The Shared Pool and the Eager Pools are instances of it.  An entry is FREE, WAITING (drafted, not yet sent to the TLM)
or SENT (under verification).  Commands are executed one after the other, each one complete before the next:

========  =====================================================================================================
INSERT    store a token as WAITING in the lowest free entry; refused when LOCKED, DUPLICATE or FULL (in that order)
MATCH     count the entries of a request in ``scope``
DROP      free the entries of a request in ``scope``
DRAIN     hand out the entries of a request in ``scope`` and free them (a move to another pool)
SELECT    hand out the WAITING entries with the highest probability, at most ``capacity``, and mark them SENT
LOCK      refuse inserts from now on
UNLOCK    accept inserts again
FLUSH     free everything and unlock
========  =====================================================================================================

SELECT orders by probability (high first), then request id (low first), then position (low first).  Since H never rises
along a draft, the chosen set holds a prefix of every request's waiting tokens, equal H included.  Entries are handed
out in the order of their index in the store, not of their probability.

Source: paper sections IV-A, IV-C, IV-D (T2 to T10, T14); states, command set, tie rule and order of refusals are our
choice.
"""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import NamedTuple

from golden_model.layouts import Fields
from golden_model.params import check_code, check_range

__all__ = ["BOTH", "SENT", "WAITING", "Command", "DraftPool", "Entry", "Op", "Response", "Status"]

WAITING, SENT, BOTH = 1, 2, 3
"""Scope masks: which entries of a request a command means."""


class Op(IntEnum):
    """Command codes."""

    INSERT = 0
    MATCH = 1
    DROP = 2
    DRAIN = 3
    SELECT = 4
    LOCK = 5
    UNLOCK = 6
    FLUSH = 7


class Status(IntEnum):
    """Outcome of a command."""

    OK = 0
    LOCKED = 1
    DUPLICATE = 2
    FULL = 3


class Command(NamedTuple):
    """One command; fields that the operation does not use must fit and are ignored."""

    op: int
    request: int = 0
    position: int = 0
    probability: int = 0  # FP16 code in [0, 1], or any unsigned number that orders like it
    token: int = 0
    scope: int = BOTH
    capacity: int = 0


class Entry(NamedTuple):
    """A stored token."""

    request: int
    position: int
    probability: int
    token: int


class Response(NamedTuple):
    """One beat of an answer: a summary, then ``count`` entry beats after DRAIN and SELECT.

    ``waiting`` and ``sent`` count the pool's entries once the whole command is done.
    """

    is_entry: int
    last: int
    status: int
    count: int  # type: ignore[assignment]  # tokens stored, found, freed or handed out; 0 in entry beats
    waiting: int
    sent: int
    request: int = 0
    position: int = 0
    probability: int = 0
    token: int = 0


class DraftPool:
    """A pool of draft tokens.

    Parameters
    ----------
    entries
        Capacity in tokens (1 to 1024; the paper's pools hold 512).
    request_bits, position_bits, token_bits
        Widths of the request id, of the position within a draft and of the token id (17 bits hold Llama's
        128,256 ids).

    Raises
    ------
    ParameterError
        For a parameter, or a field given to :meth:`execute`, out of range.  The other methods do not check their fields.
    """

    def __init__(
        self, *, entries: int = 512, request_bits: int = 7, position_bits: int = 5, token_bits: int = 17
    ) -> None:
        self.entries = check_range("entries", entries, 1, 1024)
        self.request_bits = check_range("request_bits", request_bits, 1, 16)
        self.position_bits = check_range("position_bits", position_bits, 1, 16)
        self.token_bits = check_range("token_bits", token_bits, 1, 32)
        self.locked = False
        self._flush()

    def _flush(self) -> None:
        self._slots: list[Entry | None] = [None] * self.entries
        self._free = list(range(self.entries))  # a heap: the lowest index comes first
        self._waiting: dict[int, dict[int, int]] = {}  # request -> position -> index
        self._sent: dict[int, dict[int, int]] = {}
        self.waiting = 0
        self.sent = 0

    @property
    def count_bits(self) -> int:
        return self.entries.bit_length()  # 0..entries are entries + 1 values

    @property
    def command_fields(self) -> Fields:
        return (
            ("op", 3),
            ("request", self.request_bits),
            ("position", self.position_bits),
            ("probability", 16),
            ("token", self.token_bits),
            ("scope", 2),
            ("capacity", self.count_bits),
        )

    @property
    def response_fields(self) -> Fields:
        return (
            ("is_entry", 1),
            ("last", 1),
            ("status", 2),
            ("count", self.count_bits),
            ("waiting", self.count_bits),
            ("sent", self.count_bits),
            ("request", self.request_bits),
            ("position", self.position_bits),
            ("probability", 16),
            ("token", self.token_bits),
        )

    # Command interface: what the RTL answers, beat by beat.

    def execute(self, command: Command) -> list[Response]:
        """Carry out one command and return its beats."""
        widths = dict(self.command_fields)
        command = Command(**{name: check_code(name, value, widths[name]) for name, value in command._asdict().items()})
        status, count, handed_out = Status.OK, 0, []
        match Op(command.op):
            case Op.INSERT:
                status = self.insert(command.request, command.position, command.probability, command.token)
                count = int(status == Status.OK)
            case Op.MATCH:
                count = self.match(command.request, command.scope)
            case Op.DROP:
                count = self.drop(command.request, command.scope)
            case Op.DRAIN:
                handed_out = self.drain(command.request, command.scope)
                count = len(handed_out)
            case Op.SELECT:
                handed_out = self.select(command.capacity)
                count = len(handed_out)
            case Op.LOCK:
                self.locked = True
            case Op.UNLOCK:
                self.locked = False
            case Op.FLUSH:
                count = self.flush()
        beats = [Response(0, int(not handed_out), status, count, self.waiting, self.sent)]
        for number, entry in enumerate(handed_out, start=1):
            last = int(number == len(handed_out))
            beats.append(Response(1, last, Status.OK, 0, self.waiting, self.sent, *entry))
        return beats

    # The same operations for the system model, without beats and without range checks of the fields.

    def insert(self, request: int, position: int, probability: int, token: int = 0) -> Status:
        """Store a token; the status says whether it went in."""
        if self.locked:
            return Status.LOCKED
        waiting = self._waiting.setdefault(request, {})
        if position in waiting or position in self._sent.get(request, {}):
            return Status.DUPLICATE
        if not self._free:
            return Status.FULL
        index = heapq.heappop(self._free)
        self._slots[index] = Entry(request, position, probability, token)
        waiting[position] = index
        self.waiting += 1
        return Status.OK

    def match(self, request: int, scope: int = BOTH) -> int:
        """Count the tokens of a request."""
        return (len(self._waiting.get(request, ())) if scope & WAITING else 0) + (
            len(self._sent.get(request, ())) if scope & SENT else 0
        )

    def drop(self, request: int, scope: int = BOTH) -> int:
        """Free the tokens of a request and return how many there were."""
        return len(self.drain(request, scope))

    def drain(self, request: int, scope: int = BOTH) -> list[Entry]:
        """Free the tokens of a request and return them in the order of their index."""
        indices: list[int] = []
        if scope & WAITING:
            indices += self._waiting.pop(request, {}).values()
            self.waiting -= len(indices)
        if scope & SENT:
            sent = self._sent.pop(request, {}).values()
            self.sent -= len(sent)
            indices += sent
        return [self._release(index) for index in sorted(indices)]

    def select(self, capacity: int) -> list[Entry]:
        """Mark the best waiting tokens as sent and return them in the order of their index."""
        slots = self._slots
        candidates = [index for positions in self._waiting.values() for index in positions.values()]
        if capacity < len(candidates):

            def key(index: int) -> tuple[int, int, int]:
                entry = slots[index]
                assert entry is not None
                return -entry.probability, entry.request, entry.position

            candidates = heapq.nsmallest(capacity, candidates, key=key)
        chosen = []
        for index in sorted(candidates):
            entry = slots[index]
            assert entry is not None
            del self._waiting[entry.request][entry.position]
            self._sent.setdefault(entry.request, {})[entry.position] = index
            chosen.append(entry)
        self.waiting -= len(chosen)
        self.sent += len(chosen)
        return chosen

    def contents(self, scope: int = BOTH) -> list[Entry]:
        """Return the stored tokens in the order of their index (for inspection; the RTL has no such command)."""
        chosen = []
        for mask, table in ((WAITING, self._waiting), (SENT, self._sent)):
            if scope & mask:
                chosen += [index for positions in table.values() for index in positions.values()]
        return [entry for index in sorted(chosen) if (entry := self._slots[index]) is not None]

    def flush(self) -> int:
        """Free everything, unlock, and return how many tokens there were."""
        count = self.waiting + self.sent
        self.locked = False
        self._flush()
        return count

    def _release(self, index: int) -> Entry:
        entry = self._slots[index]
        assert entry is not None
        self._slots[index] = None
        heapq.heappush(self._free, index)
        return entry

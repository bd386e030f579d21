"""The golden draft pool against a naive one: a plain list of slots, scanned from end to end for every command."""

from __future__ import annotations

import random
import re

import pytest

from golden_model.manager.draft_pool import BOTH, SENT, WAITING, Command, DraftPool, Op, Status
from golden_model.params import ParameterError

Slot = dict[str, int]


class NaivePool:
    """Slots hold None or a token with its state; nothing is indexed, counted or cached."""

    def __init__(self, entries: int) -> None:
        self.slots: list[Slot | None] = [None] * entries
        self.locked = False

    def matches(self, request: int, scope: int) -> list[int]:
        states = [state for state in (WAITING, SENT) if scope & state]
        return [i for i, s in enumerate(self.slots) if s and s["request"] == request and s["state"] in states]

    def execute(self, c: Command) -> list[tuple[int, ...]]:
        """Return beats as (is_entry, last, status, count, waiting, sent, request, position, probability, token)."""
        status, count, out = 0, 0, list[Slot]()
        if c.op == Op.INSERT:
            taken = any(s and (s["request"], s["position"]) == (c.request, c.position) for s in self.slots)
            status = 1 if self.locked else 2 if taken else 3 if None not in self.slots else 0
            if status == 0:
                self.slots[self.slots.index(None)] = {
                    "request": c.request, "position": c.position, "probability": c.probability, "token": c.token,
                    "state": WAITING,
                }  # fmt: skip
                count = 1
        elif c.op in (Op.MATCH, Op.DROP, Op.DRAIN):
            found = self.matches(c.request, c.scope)
            count = len(found)
            for index in found if c.op != Op.MATCH else []:
                slot = self.slots[index]
                assert slot
                if c.op == Op.DRAIN:
                    out.append(slot)
                self.slots[index] = None
        elif c.op == Op.SELECT:
            waiting = [i for i, s in enumerate(self.slots) if s and s["state"] == WAITING]

            def order(index: int) -> tuple[int, int, int]:
                slot = self.slots[index]
                assert slot
                return -slot["probability"], slot["request"], slot["position"]

            for index in sorted(sorted(waiting, key=order)[: c.capacity]):
                slot = self.slots[index]
                assert slot
                slot["state"] = SENT
                out.append(slot)
            count = len(out)
        elif c.op == Op.FLUSH:
            count = sum(s is not None for s in self.slots)
            self.slots = [None] * len(self.slots)
            self.locked = False
        elif c.op in (Op.LOCK, Op.UNLOCK):
            self.locked = c.op == Op.LOCK
        totals = tuple(sum(bool(s and s["state"] == state) for s in self.slots) for state in (WAITING, SENT))
        beats = [(0, int(not out), status, count, *totals, 0, 0, 0, 0)]
        for number, s in enumerate(out, start=1):
            word = (s["request"], s["position"], s["probability"], s["token"])
            beats.append((1, int(number == len(out)), 0, 0, *totals, *word))
        return beats


def random_command(rng: random.Random, entries: int, filling: bool) -> Command:
    weights = [60 if filling else 25, 6, 6, 6, 6, 1, 3, 0.05]
    return Command(
        op=rng.choices(list(Op), weights)[0],
        request=rng.randrange(max(2, entries // 4)) % 128,
        position=rng.randrange(8),
        probability=rng.choice((0, 1, 0x3800, 0x3BFF, 0x3C00, rng.randrange(0x3C01))),
        token=rng.randrange(1 << 17),
        scope=rng.randrange(4),
        capacity=min(rng.randrange(entries + 2), (1 << entries.bit_length()) - 1),
    )


@pytest.mark.parametrize(("entries", "count"), [(1, 5000), (2, 10000), (5, 20000), (32, 20000), (512, 2000)])
def test_equals_the_naive_pool(entries: int, count: int) -> None:
    rng, pool, naive = random.Random(entries), DraftPool(entries=entries), NaivePool(entries)
    seen = set()
    for number in range(count):
        command = random_command(rng, entries, filling=number // (4 * entries) % 2 == 0)
        beats = pool.execute(command)
        assert [tuple(beat) for beat in beats] == naive.execute(command), (number, command)
        seen.add(beats[0].status)
        assert pool.waiting + pool.sent + naive.slots.count(None) == entries
    assert seen == set(Status) or entries == 512


def test_selection_takes_prefixes_when_h_does_not_rise() -> None:
    rng = random.Random(7)
    for _ in range(300):
        pool = DraftPool(entries=64)
        for request in range(8):
            h = 0x3C00
            for position in range(rng.randrange(9)):
                h -= rng.choice((0, 0, 1, 500))
                assert pool.insert(request, position, h) == Status.OK
        chosen = pool.select(rng.randrange(65))
        least = min((entry.probability for entry in chosen), default=0x3C00)
        assert all(entry.probability <= least for entry in pool.contents(WAITING))
        for request in range(8):
            positions = sorted(entry.position for entry in chosen if entry.request == request)
            assert positions == list(range(len(positions)))


def test_count_at_exactly_full_and_nothing_after_a_flush() -> None:
    """CQ-01 and CQ-07: levels 1..512; no request matches after the flush; 512 fresh inserts go in."""
    pool = DraftPool()
    for _ in range(2):
        levels = [pool.execute(Command(Op.INSERT, n // 32, n % 32))[0].waiting for n in range(512)]
        assert levels == list(range(1, 513))
        assert pool.execute(Command(Op.INSERT, 100, 0))[0].status == Status.FULL
        assert pool.execute(Command(Op.FLUSH))[0].count == 512
        assert not any(pool.match(request, BOTH) for request in range(128))


@pytest.mark.parametrize(("field", "value", "top"), [("request", 128, 127), ("capacity", 1024, 1023), ("token", -1, 131071)])
def test_fields_out_of_range(field: str, value: int, top: int) -> None:
    message = f"{field} must be an integer in [0, {top}], not {value}"
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        DraftPool().execute(Command(Op.INSERT)._replace(**{field: value}))

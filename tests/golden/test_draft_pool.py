"""The golden draft pool against a naive one written from ``docs/spec/draft_pool.md``.

The naive pool is a plain list of slots: free entry = the first None, match = look at every slot, select = sort all
waiting tokens.  It keeps no counter and no index.  A second road checks the selection with ``heapq`` (CQ-10).
Codes are written as the numbers of the contract's tables, not as the golden model's names.
"""

from __future__ import annotations

import heapq
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_model.manager.draft_pool import Command, DraftPool, Entry
from golden_model.params import ParameterError

INSERT, MATCH, DROP, DRAIN, SELECT, LOCK, UNLOCK, FLUSH = range(8)
OK, LOCKED, DUPLICATE, FULL = range(4)
FREELY = settings(max_examples=150, deadline=None, database=None, derandomize=True)


class Token(NamedTuple):
    request: int
    position: int
    probability: int
    token: int
    sent: bool


class NaivePool:
    def __init__(self, entries: int) -> None:
        self.slots: list[Token | None] = [None] * entries
        self.locked = False

    def tokens(self, scope: int = 3) -> list[Token]:
        """Scope bit 0: waiting, bit 1: sent."""
        return [s for s in self.slots if s is not None and scope & (2 if s.sent else 1)]

    def objections(self, c: Command) -> list[int]:
        """Every reason to refuse an insert, lowest code first."""
        held = any(t.request == c.request and t.position == c.position for t in self.tokens())
        reasons = {LOCKED: self.locked, DUPLICATE: held, FULL: None not in self.slots}
        return [code for code, holds in reasons.items() if holds]

    def execute(self, c: Command) -> list[tuple[int, ...]]:
        status, count, handed = OK, 0, list[Token]()
        if c.op == INSERT:
            status = min(self.objections(c), default=OK)
            if status == OK:
                self.slots[self.slots.index(None)] = Token(c.request, c.position, c.probability, c.token, False)
                count = 1
        elif c.op in (MATCH, DROP, DRAIN):
            found = [t for t in self.tokens(c.scope) if t.request == c.request]
            count = len(found)
            if c.op != MATCH:
                self.slots = [None if s in found else s for s in self.slots]
            handed = found if c.op == DRAIN else []
        elif c.op == SELECT:
            ranking = sorted(self.tokens(1), key=lambda t: (-t.probability, t.request, t.position))
            best = ranking[: c.capacity]
            handed = [t for t in self.tokens() if t in best]  # in the order of the slots
            self.slots = [s._replace(sent=True) if s is not None and s in best else s for s in self.slots]
            count = len(handed)
        elif c.op in (LOCK, UNLOCK):
            self.locked = c.op == LOCK
        elif c.op == FLUSH:
            count = len(self.tokens())
            self.slots = [None] * len(self.slots)
            self.locked = False
        waiting, sent = len(self.tokens(1)), len(self.tokens(2))
        beats: list[tuple[int, ...]] = [(0, 0, status, count, waiting, sent, 0, 0, 0, 0)]
        beats += [(1, 0, OK, 0, waiting, sent, *t[:4]) for t in handed]
        beats[-1] = (beats[-1][0], 1, *beats[-1][2:])
        return beats


def stream(entries: int, bits: tuple[int, ...], keys: tuple[int, ...], count: int) -> Iterator[Command]:
    """Commands over few keys and few probabilities, in phases that fill and empty the pool."""
    rng = random.Random(entries)
    requests, positions = (  # both ends of the range among them
        sorted({0, (1 << width) - 1} | {rng.randrange(1 << width) for _ in range(number)})
        for width, number in zip(bits, keys, strict=False)
    )
    for number in range(count):
        filling = number // (6 * entries + 10) % 2 == 0
        weights = (70, 4, 1, 1, 3, 1, 4, 0) if filling else (25, 8, 8, 8, 8, 3, 3, max(4 / entries, 0.3))
        yield Command(
            rng.choices(range(8), weights)[0],
            rng.choice(requests),
            rng.choice(positions),
            rng.choice((0, 1, 0x3BFF, 0x3C00, 0x3C00, 0x8000, 0xFFFF, rng.randrange(0x3C01))),
            rng.randrange(1 << bits[2]),
            rng.choice((0, 1, 2, 3, 3)),
            rng.choice((rng.randrange(1 << entries.bit_length()), rng.randrange(min(entries, 4) + 1))),
        )


def bins(naive: NaivePool, c: Command) -> Iterator[object]:
    """What a command is about to meet in the pool: the test asks for all of it."""
    if c.op == INSERT:
        yield "insert", *naive.objections(c)
    elif c.op in (MATCH, DROP, DRAIN) and any(t.request == c.request for t in naive.tokens(c.scope)):
        yield c.op, c.scope
    elif c.op == SELECT and 0 < c.capacity < len(naive.tokens(1)):
        order = sorted(naive.tokens(1), key=lambda t: (-t.probability, t.request, t.position))
        last, first_left = order[c.capacity - 1 : c.capacity + 1]
        yield "cut by", next(i for i in (2, 0, 1) if last[i] != first_left[i])
    elif c.op == FLUSH and naive.tokens(1) and naive.tokens(2):
        yield "flush", naive.locked


ALL_BINS: set[object] = {("insert", *x) for n in range(4) for x in combinations((LOCKED, DUPLICATE, FULL), n)}
ALL_BINS |= {(op, scope) for op in (MATCH, DROP, DRAIN) for scope in (1, 2, 3)}
ALL_BINS |= {("cut by", field) for field in range(3)} | {("flush", False), ("flush", True)}


@pytest.mark.parametrize(
    ("entries", "bits", "keys", "count"),
    [
        (1, (7, 5, 17), (2, 2), 15_000),
        (2, (1, 1, 1), (2, 2), 20_000),
        (5, (16, 16, 32), (2, 3), 30_000),
        (32, (7, 5, 17), (5, 9), 40_000),
        (512, (7, 5, 17), (60, 30), 8_000),
    ],
)
def test_beats_equal_the_naive_pool(entries: int, bits: tuple[int, ...], keys: tuple[int, ...], count: int) -> None:
    pool = DraftPool(entries=entries, request_bits=bits[0], position_bits=bits[1], token_bits=bits[2])
    naive, seen = NaivePool(entries), set[object]()
    for number, command in enumerate(stream(entries, bits, keys, count)):
        seen.update(bins(naive, command))
        got = [tuple(beat) for beat in pool.execute(command)]
        assert got == naive.execute(command), (number, command)
        assert naive.slots.count(None) + pool.waiting + pool.sent == entries  # free + waiting + sent
        assert (pool.waiting, pool.sent, pool.locked) == (*got[0][4:6], naive.locked)
        for scope in (1, 2, 3):
            assert [tuple(e) for e in pool.contents(scope)] == [t[:4] for t in naive.tokens(scope)], (number, command)
    assert entries < 32 or seen == ALL_BINS


commands = st.builds(
    Command, st.integers(0, 7), st.integers(0, 2), st.integers(0, 2), st.sampled_from((0, 7, 0x3C00)),
    st.integers(0, 999), st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip


@FREELY
@given(entries=st.integers(2, 6), script=st.lists(commands, max_size=40))
def test_methods_and_execute_agree(entries: int, script: list[Command]) -> None:
    """The same script through ``execute``, the method interface and the naive pool."""
    pool, other, naive = DraftPool(entries=entries), DraftPool(entries=entries), NaivePool(entries)
    for c in script:
        beats = pool.execute(c)
        assert [tuple(b) for b in beats] == naive.execute(c)
        handed = [Entry(*b[6:]) for b in beats[1:]]
        if c.op == INSERT:
            assert other.insert(c.request, c.position, c.probability, c.token) == beats[0].status
        elif c.op in (MATCH, DROP):
            assert (other.match if c.op == MATCH else other.drop)(c.request, c.scope) == beats[0].count
        elif c.op == DRAIN:
            assert other.drain(c.request, c.scope) == handed
        elif c.op == SELECT:
            assert other.select(c.capacity) == handed
        elif c.op == FLUSH:
            assert other.flush() == beats[0].count
        else:
            assert other.execute(c) == beats
        assert all(pool.contents(scope) == other.contents(scope) for scope in (1, 2, 3))


def test_extraction_equals_a_heap_and_nothing_is_lost() -> None:
    """CQ-10: random insert and extract, empty, full and equal probabilities included; what went in comes out once."""
    rng, pool, seen = random.Random(10), DraftPool(entries=16), Counter[str]()
    heap: list[tuple[int, int, int, int]] = []
    into, out = Counter[Entry](), Counter[Entry]()
    for number in range(30_000):
        if rng.random() < (0.8 if number // 200 % 2 else 0.2):
            entry = Entry(rng.randrange(5), rng.randrange(6), rng.choice((0, 5, 6, 0x3C00)), number)
            held = any(h[1:3] == entry[:2] for h in heap)
            want = DUPLICATE if held else FULL if len(heap) == 16 else OK
            assert pool.insert(*entry) == want
            if want == OK:
                heapq.heappush(heap, (-entry.probability, entry.request, entry.position, entry.token))
                into[entry] += 1
            seen[str(want)] += 1
        else:
            best = heapq.heappop(heap) if heap else None
            expected = [Entry(best[1], best[2], -best[0], best[3])] if best else []
            assert pool.select(1) == expected
            assert pool.drain(expected[0].request if expected else 0, 2) == expected
            out.update(expected)
            seen["some" if expected else "empty"] += 1
    assert into == out + Counter(pool.contents())
    assert min(seen[x] for x in ("0", "2", "3", "some", "empty")) > 100


def drafts(h: st.SearchStrategy[list[int]]) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """(request, position, H) in any order of arrival; H never rises with the position."""
    places = st.lists(st.integers(0, 31), unique=True, max_size=8).map(sorted)
    one = st.tuples(places, h).map(lambda x: list(zip(x[0], sorted(x[1], reverse=True), strict=False)))
    rows = st.lists(one, min_size=1, max_size=5).map(lambda d: [(r, *row) for r, rows in enumerate(d) for row in rows])
    return rows.flatmap(st.permutations)


@FREELY
@given(
    rows=drafts(st.lists(st.integers(0, 0x3C00), min_size=8, max_size=8))
    | drafts(st.lists(st.sampled_from((9, 10)), min_size=8, max_size=8))
    | drafts(st.just([0x3800] * 8)),  # all H equal
    capacities=st.lists(st.integers(0, 12), min_size=1, max_size=5),
)
def test_selection_takes_maxima_and_prefixes(rows: list[tuple[int, int, int]], capacities: list[int]) -> None:
    pool, waiting = DraftPool(entries=64), {(-h, request, position) for request, position, h in rows}
    assert all(pool.insert(*row) == OK for row in rows)
    for capacity in capacities:
        chosen = {(-e.probability, e.request, e.position) for e in pool.select(capacity)}
        assert chosen == set(heapq.nsmallest(capacity, waiting))
        for request in range(5):
            before = sorted(p for _, r, p in waiting if r == request)
            taken = sorted(p for _, r, p in chosen if r == request)
            assert taken == before[: len(taken)]
        waiting -= chosen
    assert {(-e.probability, e.request, e.position) for e in pool.contents(1)} == waiting


@pytest.mark.parametrize("entries", [1, 2, 512, 513, 1024])
def test_exactly_full_and_nothing_matches_after_a_flush(entries: int) -> None:
    """CQ-01 and CQ-07: levels 1, 2, ... entries; the next is refused; after a flush no key hits and all fit again."""
    pool = DraftPool(entries=entries)
    for _ in range(2):
        for n in range(entries):
            assert pool.execute(Command(INSERT, n // 32, n % 32)) == [(0, 1, OK, 1, n + 1, 0, 0, 0, 0, 0)]
        assert pool.execute(Command(INSERT, 127, 31)) == [(0, 1, FULL, 0, entries, 0, 0, 0, 0, 0)]
        pool.execute(Command(SELECT, capacity=entries // 2))
        assert pool.execute(Command(LOCK)) == [(0, 1, OK, 0, entries - entries // 2, entries // 2, 0, 0, 0, 0)]
        assert pool.execute(Command(FLUSH)) == [(0, 1, OK, entries, 0, 0, 0, 0, 0, 0)]
        for op in (MATCH, DROP, DRAIN, SELECT):
            for request in range(128):
                command = Command(op, request, scope=3, capacity=entries)
                assert pool.execute(command) == [(0, 1, OK, 0, 0, 0, 0, 0, 0, 0)]


def test_a_key_is_held_once() -> None:
    """CQ-03: the second insert is refused, waiting or sent, and the first token stays; a freed key is welcome."""
    pool, first, second = DraftPool(entries=4), Entry(7, 3, 0x3000, 0x0F0), Entry(7, 3, 0x3C00, 0x10F)
    for free in (lambda: pool.drop(7), lambda: pool.drain(7), pool.flush):
        assert pool.insert(*first) == OK
        assert pool.insert(*second) == DUPLICATE
        assert pool.select(4) == [first]
        assert pool.insert(*second) == DUPLICATE
        assert pool.contents(2) == pool.contents() == [first]
        free()
        assert pool.insert(*second) == OK
        assert pool.contents(1) == pool.contents() == [second]
        assert (pool.drop(7, 2), pool.drop(7, 1)) == (0, 1)


@pytest.mark.parametrize("entries", [*range(1, 18), 255, 256, 511, 512, 513, 1023, 1024])
def test_widths_of_the_contract(entries: int) -> None:
    pool, n = DraftPool(entries=entries, request_bits=6, position_bits=4, token_bits=18), len(f"{entries:b}")
    assert pool.count_bits == n
    key = (("request", 6), ("position", 4), ("probability", 16), ("token", 18))
    assert pool.command_fields == (("op", 3), *key, ("scope", 2), ("capacity", n))
    numbers = (("status", 2), ("count", n), ("waiting", n), ("sent", n))
    assert pool.response_fields == (("is_entry", 1), ("last", 1), *numbers, *key)


@pytest.mark.parametrize(("field", "top"), list(zip(Command._fields, (7, 63, 15, 65535, 7, 3, 15), strict=True)))
def test_a_field_out_of_range_is_named_and_changes_nothing(field: str, top: int) -> None:
    pool = DraftPool(entries=8, request_bits=6, position_bits=4, token_bits=3)
    pool.insert(1, 2, 3, 4)
    for op in range(8):
        for value in (-1, top + 1, True, 1.0, None):
            bad: dict[str, Any] = {"op": op, "request": 1, field: value}
            message = re.escape(f"{field} must be an integer in [0, {top}], not {value}")
            with pytest.raises(ParameterError, match=rf"\A{message}\Z"):
                pool.execute(Command(**bad))
    assert pool.execute(Command(MATCH, 1)) == [(0, 1, OK, 1, 1, 0, 0, 0, 0, 0)]
    pool.execute(Command(**{**dict.fromkeys(Command._fields, 0), field: top}))  # the end of the range is legal


@pytest.mark.parametrize(
    ("name", "top"), [("entries", 1024), ("request_bits", 16), ("position_bits", 16), ("token_bits", 32)]
)
def test_a_parameter_out_of_range_is_named(name: str, top: int) -> None:
    for value in (0, -1, top + 1, True, 8.0):
        bad: dict[str, Any] = {name: value}
        message = re.escape(f"{name} must be an integer in [1, {top}], not {value}")
        with pytest.raises(ParameterError, match=rf"\A{message}\Z"):
            DraftPool(**bad)
    assert all(DraftPool(**{name: value}).execute(Command(FLUSH)) for value in (1, top))

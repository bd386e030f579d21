"""Placement of K and V against a naive dealer that fills banks column by column, and its properties for all shapes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosim.sources import ROOT
from golden_model.params import ParameterError
from golden_model.pim.kv_mapping import Element, KvMapping, Place

HEAD_DIMS, CHANNELS, LENGTHS = (1, 64, 80, 96, 128), (1, 2, 32, 64), (1, 33, 512, 1000)
SMALL = [
    {"capacity": t, "pseudo_channels": p, "bank_groups": g, "banks": b, "lanes": n, "columns_per_row": c, "chunk_contexts": x}
    for t, p, g, b, n, c, x in itertools.product((1, 7), (1, 3), (1, 2), (1, 3), (2, 4), (1, 3, 4), (1, 2, 8))
]


def deal(m: KvMapping, tokens: int) -> dict[Place, Element]:
    """Fill the banks by hand: deal tokens round, cut the head dimension, append columns, count rows."""
    slices: list[list[int]] = [[] for _ in range(m.slices)]
    for token in range(tokens):
        slices[token % m.slices].append(token)
    parts = [list(range(m.head_dim))[start : start + m.dims_per_bank] for start in range(0, m.head_dim, m.dims_per_bank)]
    found: dict[Place, Element] = {}

    def put(columns: list[tuple[int, list[int]]], is_value: int, where: tuple[int, int, int], row: int) -> None:
        column = 0
        for token, dims in columns:
            if column == m.columns_per_row:
                row, column = row + 1, 0
            for lane, dim in enumerate(dims):
                place = Place(*where, row, column, lane)
                assert place not in found
                found[place] = Element(is_value, token, dim)
            column += 1

    for channel, group in itertools.product(range(m.pseudo_channels), range(m.bank_groups)):
        mine = slices[channel * m.bank_groups + group]
        for bank, part in enumerate(parts):
            cuts = [part[start : start + m.lanes] for start in range(0, m.lanes * m.chunks, m.lanes)]
            put([(token, cut) for token in mine for cut in cuts], 0, (channel, group, bank), m.base_row)
            for number, start in enumerate(range(0, len(cuts), m.chunk_contexts)):
                some = cuts[start : start + m.chunk_contexts]
                first = m.value_row + number * m.value_rows_per_group
                put([(token, cut) for token in mine for cut in some], 1, (channel, group, bank), first)
    return found


def all_places(m: KvMapping, tokens: int) -> list[Place]:
    """Places of K, then of V, as arrays over all tokens and dimensions."""
    token, dim = (grid.ravel() for grid in np.meshgrid(np.arange(tokens), np.arange(m.head_dim), indexing="ij"))
    return [m.key_place(token, dim), m.value_place(token, dim)]


@pytest.mark.parametrize("head_dim", [1, 2, 3, 5, 8, 13])
def test_small_shapes_equal_the_dealer_everywhere(head_dim: int) -> None:
    for shape in SMALL:
        m = KvMapping(head_dim=head_dim, **shape, base_row=2, rows_per_bank=128)
        found = deal(m, m.capacity)
        for place, (is_value, token, dim) in found.items():
            assert (m.value_place if is_value else m.key_place)(token, dim) == place
        assert len(found) == 2 * m.capacity * m.head_dim
        ranges = (m.pseudo_channels, m.bank_groups, m.banks, m.base_row + m.rows + 2, m.columns_per_row, m.lanes)
        everywhere = np.indices(ranges).reshape(len(ranges), -1)
        elements = zip(*(field.tolist() for field in m.elements(Place(*everywhere))), strict=True)
        assert list(elements) == [found.get(Place(*place), (-1, -1, -1)) for place in everywhere.T.tolist()]


@pytest.mark.parametrize(("head_dim", "channels"), list(itertools.product(HEAD_DIMS, CHANNELS)))
def test_usual_shapes_are_bijections(head_dim: int, channels: int) -> None:
    m = KvMapping(head_dim=head_dim, capacity=1000, pseudo_channels=channels, base_row=5)
    for tokens in LENGTHS:
        codes = []
        for is_value, places in enumerate(all_places(m, tokens)):
            back = m.elements(places, tokens)
            assert (back.is_value == is_value).all()
            assert (back.token * head_dim + back.dim == np.arange(tokens * head_dim)).all()
            assert (m.elements(places, 0).token == -1).all()
            limits = (m.pseudo_channels, m.bank_groups, m.banks, m.base_row + m.rows, m.columns_per_row, m.lanes)
            for field, limit in zip(places, limits, strict=True):
                assert field.min() >= 0
                assert field.max() < limit
            codes.append(np.ravel_multi_index(tuple(places), limits))
        assert len(np.unique(np.concatenate(codes))) == 2 * tokens * head_dim  # K and V share no place


SHAPES: Any = st.fixed_dictionaries({
    "head_dim": st.integers(1, 512), "capacity": st.integers(1, 131072), "pseudo_channels": st.integers(1, 64),
    "banks": st.integers(1, 8), "columns_per_row": st.integers(1, 256), "base_row": st.integers(0, 99),
    "chunk_contexts": st.integers(1, 8),
    "bank_groups": st.sampled_from((1, 2, 4, 8)), "lanes": st.sampled_from((8, 16, 24, 64)),
})  # fmt: skip


@settings(deadline=None)
@given(SHAPES, st.data())
def test_any_shape_there_and_back(shape: dict[str, int], data: st.DataObject) -> None:
    try:
        m = KvMapping(**shape, rows_per_bank=65536)
    except ParameterError:  # only for want of rows: all else is in range
        assert shape["capacity"] * shape["head_dim"] > 65000 * shape["columns_per_row"] // 8
        return
    token, dim = data.draw(st.integers(0, m.capacity - 1)), data.draw(st.integers(0, m.head_dim - 1))
    for is_value, place in enumerate((m.key_place(token, dim), m.value_place(token, dim))):
        assert m.element(place) == Element(is_value, token, dim)
        assert m.element(place, token + 1) == Element(is_value, token, dim)
        assert m.element(place, token) is None  # not there before it is appended
        assert m.base_row <= place.row < m.base_row + m.rows
        assert (place.row >= m.value_row) == bool(is_value)
        assert m.token(place.pseudo_channel, place.bank_group, token // m.slices) == token
    sizes = m.slice_sizes(token + 1)
    assert sizes.sum() == token + 1
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() == m.steps(token + 1)


@pytest.mark.parametrize(("head_dim", "channels", "tokens"), list(itertools.product((*HEAD_DIMS, 300), CHANNELS, LENGTHS)))
@pytest.mark.parametrize("contexts", [1, 2])
def test_schedules_read_every_element_once_and_use_rows_fully(
    head_dim: int, channels: int, tokens: int, contexts: int
) -> None:
    m = KvMapping(head_dim=head_dim, capacity=1000, pseudo_channels=channels, chunk_contexts=contexts)
    for is_value, reads in enumerate((list(m.key_schedule(tokens)), list(m.value_schedule(tokens)))):
        assert len(reads) == m.columns_read(tokens) == m.slice_sizes(tokens).max() * m.chunks
        assert len({(read.row, read.column) for read in reads}) == len(reads)
        rows = [row for row, _ in itertools.groupby(reads, key=lambda read: read.row)]
        assert len(rows) == len(set(rows)) == (m.value_rows_opened if is_value else m.key_rows_opened)(tokens)
        # Every row but the last of its run is read whole, in order of its columns.
        used = [[read.column for read in group] for _, group in itertools.groupby(reads, key=lambda read: read.row)]
        assert all(columns == list(range(len(columns))) for columns in used)
        assert sum(len(columns) < m.columns_per_row for columns in used) <= (-(-m.chunks // contexts) if is_value else 1)
        if is_value:  # a context's chunk is finished before another one takes its place
            groups = [read.chunk // contexts for read in reads]
            assert groups == sorted(groups)
        # Together the banks see each element once, at the step and chunk that the schedule says.
        grid = np.indices((len(reads), channels, m.bank_groups, m.banks, m.lanes)).reshape(5, -1)
        row, column, step, chunk = np.array(reads).T[:, grid[0]]
        seen = m.elements(Place(grid[1], grid[2], grid[3], row, column, grid[4]), tokens)
        there = seen.token >= 0
        assert there.sum() == tokens * head_dim == len(np.unique(seen.token[there] * head_dim + seen.dim[there]))
        assert (seen.is_value[there] == is_value).all()
        assert (seen.token[there] // m.slices == step[there]).all()
        assert (seen.dim[there] % m.dims_per_bank // m.lanes == chunk[there]).all()


def test_appended_tokens_move_nothing() -> None:
    """What is stored depends on the capacity alone: the places of t tokens are a part of those of t + 1."""
    m = KvMapping(head_dim=80, capacity=40, pseudo_channels=2)
    previous: dict[Place, Element] = {}
    for tokens in range(1, 41):
        stored = deal(m, tokens)
        assert previous.items() <= stored.items()
        assert len(stored) - len(previous) == 2 * 80
        assert len({place[:2] for place in stored.keys() - previous.keys()}) == 1  # one bank group takes the new token
        previous = stored


def test_reference_attention_in_schedule_order() -> None:
    """q K^T and s V computed bank by bank from the schedules and the buffer layouts give the matrix products."""
    rng = np.random.default_rng(1)
    for head_dim, tokens, contexts in ((80, 33, 1), (128, 20, 2), (1, 9, 1), (130, 70, 2)):
        m = KvMapping(head_dim=head_dim, capacity=100, pseudo_channels=2, chunk_contexts=contexts)
        k, v = rng.integers(-9, 9, (2, tokens, head_dim))
        q, s = rng.integers(-9, 9, head_dim), rng.integers(-9, 9, tokens)
        memory = np.zeros((2, 4, 4, m.rows, 32, 16), int)
        for places, matrix in zip(all_places(m, tokens), (k, v), strict=True):
            memory[tuple(places)] = matrix.ravel()
        queries = np.zeros((m.words_per_query, 16), int)
        queries[m.query_place(np.arange(head_dim))] = q
        probabilities = np.zeros((2, m.probability_place(m.capacity - 1).word + 1, 16), int)
        owner = np.arange(tokens) % m.slices // 4
        probabilities[(owner, *m.probability_place(np.arange(tokens)))] = s

        scores = np.zeros((m.steps(m.capacity), 2, 4, 4), int)  # step, channel, group, bank
        for row, column, step, chunk in m.key_schedule(tokens):
            words = queries[chunk * 4 : chunk * 4 + 4]
            scores[step] += (memory[:, :, :, row, column] * words).sum(axis=-1)
        by_token = scores.sum(axis=-1).reshape(-1)  # the accumulator of a group adds its banks
        assert (by_token[:tokens] == k @ q).all()
        assert not by_token[tokens:].any()

        outputs = np.zeros((m.chunks, 2, 4, 4, 16), int)  # chunk, channel, group, bank, lane
        for row, column, step, chunk in m.value_schedule(tokens):
            scalars = probabilities[:, step // 4, step % 4 * 4 : step % 4 * 4 + 4]  # one per group
            outputs[chunk] += memory[:, :, :, row, column] * scalars[:, :, None, None]
        total = outputs.sum(axis=(1, 2))  # accumulators add the groups, the buffer die the channels
        parts = total.transpose(1, 0, 2).reshape(4, -1)[:, : m.dims_per_bank]
        assert (parts.reshape(-1)[:head_dim] == s @ v).all()


def test_head_dimension_80() -> None:  # DR-15
    m = KvMapping(head_dim=80, capacity=2048)
    assert (m.dims_per_bank, m.chunks, m.stored_per_token) == (20, 2, 128)
    assert [m.key_place(0, dim)[2:] for dim in (0, 15, 16, 19, 20, 79)] == [
        (0, 0, 0, 0), (0, 0, 0, 15), (0, 0, 1, 0), (0, 0, 1, 3), (1, 0, 0, 0), (3, 0, 1, 3),
    ]  # fmt: skip
    layers, heads = 32, 32  # OPT-2.7B
    assert layers * heads * 2 * m.head_dim * 2 == 327680
    assert [KvMapping(head_dim=80, capacity=1, lanes=n, banks=1).stored_per_token for n in (64, 16)] == [128, 80]


def test_column_reads_of_a_published_mapping() -> None:
    """16 token slices and 4 banks (one HBM3 channel of two ranks, AttAcc's simulator): L / 4 all-bank reads for K and V."""
    m = KvMapping(head_dim=128, capacity=4096, pseudo_channels=4)
    assert [2 * m.columns_read(tokens) for tokens in (128, 1024, 4096)] == [32, 256, 1024]


def test_the_page_states_what_the_model_gives() -> None:
    page = (ROOT / "docs" / "spec" / "kv_mapping.md").read_text()
    rows = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len(rows) >= 8
    for row in rows:
        head_dim, channels, tokens, steps, columns, key_rows, value_rows, stored, share = (
            cell.strip().replace(",", "") for cell in row
        )
        m = KvMapping(head_dim=int(head_dim), capacity=131072, pseudo_channels=int(channels))
        n = int(tokens)
        stated = [int(cell) for cell in (steps, columns, key_rows, value_rows, stored)]
        assert stated == [
            m.steps(n), m.columns_read(n), m.key_rows_opened(n), m.value_rows_opened(n), m.stored_per_token,
        ]  # fmt: skip
        useful = n * m.head_dim / (m.columns_read(n) * m.slices * m.banks * m.lanes)
        assert share == f"{100 * useful:.1f} %", row


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"head_dim": 0}, r"head_dim must be an integer in \[1, 512\], not 0"),
        ({"capacity": 131073}, r"capacity must be an integer in \[1, 131072\], not 131073"),
        ({"pseudo_channels": 65}, r"pseudo_channels must be an integer in \[1, 64\], not 65"),
        ({"lanes": 18}, "lanes must be a multiple of bank_groups, 4, not 18"),
        ({"pseudo_channels": 1, "capacity": 131072, "head_dim": 512, "base_row": 1},
         "capacity must leave room in a bank's 16384 rows: 131072 tokens take 16384 rows from row 1 on"),
    ],
)  # fmt: skip
def test_parameters_are_checked(parameters: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}$"):
        KvMapping(**{"head_dim": 128, "capacity": 4096, **parameters})


def test_indices_are_checked() -> None:
    m = KvMapping(head_dim=80, capacity=100)
    for call, message in (
        (lambda: m.key_place(100, 0), r"token must be an integer in \[0, 99\], not 100"),
        (lambda: m.value_place(0, 80), r"dim must be an integer in \[0, 79\], not 80"),
        (lambda: m.key_place(np.array([0, 100]), 0), r"token must be an array of integers in \[0, 99\]"),
        (lambda: m.key_place(np.array([0.5]), 0), "token must be an array of integers"),
        (lambda: m.element(Place(64, 0, 0, 0, 0, 0)), r"pseudo_channel must be an array of integers in \[0, 63\]"),
        (lambda: m.query_place(80), r"dim must be an integer in \[0, 79\], not 80"),
        (lambda: m.probability_place(-1), r"token must be an integer in \[0, 99\], not -1"),
        (lambda: m.key_schedule(101), r"tokens must be an integer in \[0, 100\], not 101"),
        (lambda: m.value_schedule(101), r"tokens must be an integer in \[0, 100\], not 101"),
        (lambda: m.value_schedule(-1), r"tokens must be an integer in \[0, 100\], not -1"),
        (lambda: m.steps(101), r"tokens must be an integer in \[0, 100\], not 101"),
        (lambda: m.slice_sizes(101), r"tokens must be an integer in \[0, 100\], not 101"),
        (lambda: m.value_rows_opened(101), r"tokens must be an integer in \[0, 100\], not 101"),
        (lambda: m.query_place(0, -1), r"query must be an integer in \[0, 511\], not -1"),
        (lambda: m.query_place(0, 512), r"query must be an integer in \[0, 511\], not 512"),
    ):
        with pytest.raises(ParameterError, match=message):
            call()
    assert m.query_place(79, 511).word == 4095


def test_schedules_end_with_the_rows() -> None:
    m = KvMapping(head_dim=80, capacity=100, base_row=3)
    for schedule in (m.key_schedule, m.value_schedule):
        assert list(schedule(0)) == []
        assert max(read.row for read in schedule(100)) < m.base_row + m.rows


def test_narrow_integers_do_not_wrap_around() -> None:
    mapping = KvMapping(head_dim=512, capacity=131072, pseudo_channels=1)
    narrow = mapping.key_place(np.array([65535], np.uint16), np.array([100], np.uint16))
    assert [int(field[0]) for field in narrow] == list(mapping.key_place(65535, 100))
    place = mapping.key_place(65535, 100)
    small = mapping.elements(Place(*(np.array([field], np.int16) for field in place)))
    assert (int(small.token[0]), int(small.dim[0])) == (65535, 100)

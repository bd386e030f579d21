"""Placement of one head's K and V in the banks of a stack, and the order in which a bank reads its columns.

K^T (head_dim x L) is split column-wise over pseudo-channels and bank groups, row-wise over the banks of a group; V
(L x head_dim) row-wise over pseudo-channels and bank groups, column-wise over banks.  So for both: a *slice* of the tokens
per bank group, a *part* of the head dimension per bank.

- Token t is in slice t mod ``slices`` at step t // ``slices``; slice s is bank group s mod 4 of pseudo-channel s // 4.
- Dimension e is in bank e // n, n = ceil(head_dim / banks); there in lane (e mod n) mod 16 of chunk (e mod n) // 16.
- K: step-major.  The chunks of a token lie in consecutive columns, since one score needs all of them.
- V: in groups of ``chunk_contexts`` chunks, each group in rows of its own and step-major inside.  A processing element
  that accumulates one chunk of outputs at a time so reads each row once; one that holds all chunks has K's layout.

All lanes that hold no element must read as zero.  No place depends on the number of tokens, only on ``capacity``, for
which space is reserved.

Source: paper section IV-B and Fig. 10 (the splits, the reserve); dealing, order and layouts of buffer words are our choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from golden_model.params import ParameterError, check_range
from golden_model.pim.pseudo_channel import MAX_WORDS

__all__ = ["BufferPlace", "Element", "KvMapping", "Place", "Read"]

Index = Any
"""An int, or a numpy array of integers where a method says that it takes arrays."""


class Place(NamedTuple):
    """Where an element is; of arrays, the fields are arrays."""

    pseudo_channel: Index
    bank_group: Index
    bank: Index
    row: Index
    column: Index
    lane: Index


class Element(NamedTuple):
    """An element of K or V."""

    is_value: Index  # 0: of K, 1: of V
    token: Index
    dim: Index


class BufferPlace(NamedTuple):
    """Where a number is in the global buffer of a pseudo-channel."""

    word: Index
    lane: Index


class Read(NamedTuple):
    """One column read of the schedule, the same in every bank."""

    row: int
    column: int
    step: int  # the bank group's token is slice + slices * step, if there is such a token
    chunk: int  # which 16 (``lanes``) dimensions of the bank's part


def _ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


class KvMapping:
    """Place the K and V of one head.

    Parameters
    ----------
    head_dim
        Dimensions of the head, 1 to 512.
    capacity
        Tokens for which rows are reserved, 1 to 131072.
    pseudo_channels
        Pseudo-channels that hold the head, 1 to 64.
    bank_groups, banks
        Bank groups per pseudo-channel and banks per group, 1 to 8.
    lanes
        FP16 numbers per column, 1 to 64, a multiple of ``bank_groups``.
    chunk_contexts
        Chunks of outputs that a processing element accumulates side by side in s V, 1 to 8.
    columns_per_row
        1 to 256; 32 columns of 32 bytes are a row of 1 KB.
    base_row
        First row used, in every bank; K first, V behind it.
    rows_per_bank
        Rows of a bank, 1 to 65536.
    """

    def __init__(
        self,
        *,
        head_dim: int,
        capacity: int,
        pseudo_channels: int = 64,
        bank_groups: int = 4,
        banks: int = 4,
        lanes: int = 16,
        chunk_contexts: int = 1,
        columns_per_row: int = 32,
        base_row: int = 0,
        rows_per_bank: int = 16384,
    ) -> None:
        self.head_dim = check_range("head_dim", head_dim, 1, 512)
        self.capacity = check_range("capacity", capacity, 1, 131072)
        self.pseudo_channels = check_range("pseudo_channels", pseudo_channels, 1, 64)
        self.bank_groups = check_range("bank_groups", bank_groups, 1, 8)
        self.banks = check_range("banks", banks, 1, 8)
        self.lanes = check_range("lanes", lanes, 1, 64)
        self.chunk_contexts = check_range("chunk_contexts", chunk_contexts, 1, 8)
        self.columns_per_row = check_range("columns_per_row", columns_per_row, 1, 256)
        self.rows_per_bank = check_range("rows_per_bank", rows_per_bank, 1, 65536)
        if self.lanes % self.bank_groups:
            raise ParameterError(f"lanes must be a multiple of bank_groups, {self.bank_groups}, not {self.lanes}")

        self.slices = self.pseudo_channels * self.bank_groups
        self.dims_per_bank = _ceil_div(self.head_dim, self.banks)
        self.chunks = _ceil_div(self.dims_per_bank, self.lanes)
        """Columns that a token takes in each bank, of K and of V."""
        most = self.steps(self.capacity)
        self.key_rows = _ceil_div(most * self.chunks, self.columns_per_row)
        self._group = min(self.chunk_contexts, self.chunks)
        self._groups = _ceil_div(self.chunks, self._group)
        self.value_rows_per_group = _ceil_div(most * self._group, self.columns_per_row)
        self.rows = self.key_rows + self.value_rows_opened(self.capacity)
        """Rows reserved in every bank."""
        self.base_row = check_range("base_row", base_row, 0, self.rows_per_bank - 1)
        if self.base_row + self.rows > self.rows_per_bank:
            raise ParameterError(
                f"capacity must leave room in a bank's {self.rows_per_bank} rows: {self.capacity} tokens take "
                f"{self.rows} rows from row {self.base_row} on"
            )
        self.value_row = self.base_row + self.key_rows

    # Sizes, for a number of tokens from 0 to the capacity; more have no rows and are refused.

    def steps(self, tokens: int) -> int:
        """Return the size of the largest slice, which is the length of the lockstep."""
        return _ceil_div(check_range("tokens", tokens, 0, self.capacity), self.slices)

    def slice_sizes(self, tokens: int) -> npt.NDArray[np.int64]:
        """Return the tokens of every slice, shape (pseudo_channels, bank_groups); they differ by at most one."""
        tokens = check_range("tokens", tokens, 0, self.capacity)
        first = np.arange(self.slices).reshape(self.pseudo_channels, self.bank_groups)
        return np.maximum((tokens - first + self.slices - 1) // self.slices, 0)

    def columns_read(self, tokens: int) -> int:
        """Return the columns that every bank reads for one q K^T; s V reads as many."""
        return self.steps(tokens) * self.chunks

    def key_rows_opened(self, tokens: int) -> int:
        """Return the rows that every bank opens for one q K^T."""
        return _ceil_div(self.columns_read(tokens), self.columns_per_row)

    def value_rows_opened(self, tokens: int) -> int:
        """Return the rows that every bank opens for one s V."""
        steps = self.steps(tokens)
        return sum(_ceil_div(steps * self._width(group), self.columns_per_row) for group in range(self._groups))

    @property
    def stored_per_token(self) -> int:
        """Elements that a token of K (or V) takes, empty lanes included."""
        return self.banks * self.chunks * self.lanes

    # Element -> place and back.  The arithmetic is the same for ints and arrays.

    def key_place(self, token: Index, dim: Index) -> Place:
        """Return the place of K[token, dim]; takes arrays that numpy broadcasts.

        >>> KvMapping(head_dim=128, capacity=4096).key_place(513, 40)
        Place(pseudo_channel=0, bank_group=1, bank=1, row=0, column=4, lane=8)
        """
        pseudo_channel, bank_group, step, bank, chunk, lane = self._split(token, dim)
        index = step * self.chunks + chunk
        row, column = self.base_row + index // self.columns_per_row, index % self.columns_per_row
        return Place(pseudo_channel, bank_group, bank, row, column, lane)

    def value_place(self, token: Index, dim: Index) -> Place:
        """Return the place of V[token, dim]; takes arrays that numpy broadcasts."""
        pseudo_channel, bank_group, step, bank, chunk, lane = self._split(token, dim)
        group = chunk // self._group
        index = step * self._width(group) + chunk % self._group
        row = self.value_row + group * self.value_rows_per_group + index // self.columns_per_row
        return Place(pseudo_channel, bank_group, bank, row, index % self.columns_per_row, lane)

    def _width(self, group: Index) -> Index:
        """Return the chunks in a group of V; the last may have fewer."""
        return self._group - (group == self._groups - 1) * (self._groups * self._group - self.chunks)

    def _split(self, token: Index, dim: Index) -> tuple[Index, ...]:
        token = self._check("token", token, self.capacity)
        dim = self._check("dim", dim, self.head_dim)
        slice_, step = token % self.slices, token // self.slices
        part = dim % self.dims_per_bank
        return (
            slice_ // self.bank_groups, slice_ % self.bank_groups, step,
            dim // self.dims_per_bank, part // self.lanes, part % self.lanes,
        )  # fmt: skip

    @staticmethod
    def _check(name: str, value: Index, limit: int) -> Index:
        """Return a number as a Python int, or an array as int64: narrow integers would wrap around in the products."""
        if not isinstance(value, np.ndarray):
            return check_range(name, value, 0, limit - 1)
        if value.dtype.kind not in "iu" or value.size and not (0 <= value.min() and value.max() < limit):
            raise ParameterError(f"{name} must be an array of integers in [0, {limit - 1}]")
        return value.astype(np.int64)

    def element(self, place: Place, tokens: int | None = None) -> Element | None:
        """Return the element at ``place`` while the head has ``tokens`` tokens (default: all of the capacity), or None."""
        is_value, token, dim = (int(field[()]) for field in self.elements(Place(*map(np.asarray, place)), tokens))
        return None if token < 0 else Element(is_value, token, dim)

    def elements(self, places: Place, tokens: int | None = None) -> Element:
        """Return the elements at arrays of places; all fields are -1 where there is none."""
        limits = (self.pseudo_channels, self.bank_groups, self.banks, self.rows_per_bank, self.columns_per_row, self.lanes)
        fields = zip(Place._fields, places, limits, strict=True)
        places = Place(*(self._check(name, np.asarray(field), limit) for name, field, limit in fields))
        row = places.row - self.base_row
        is_value = row >= self.key_rows
        group, value_row = np.divmod(row - self.key_rows, self.value_rows_per_group)
        group = np.where(is_value, group, 0)
        width = np.where(is_value, self._width(group), self.chunks)
        index = np.where(is_value, value_row, row) * self.columns_per_row + places.column
        step, chunk = index // width, index % width + group * self._group
        token = step * self.slices + places.pseudo_channel * self.bank_groups + places.bank_group
        part = chunk * self.lanes + places.lane
        dim = places.bank * self.dims_per_bank + part
        limit = self.capacity if tokens is None else check_range("tokens", tokens, 0, self.capacity)
        known = (row >= 0) & (token < limit) & (part < self.dims_per_bank) & (dim < self.head_dim)
        return Element(*(np.where(known, field, -1) for field in (is_value.astype(np.int64), token, dim)))

    # Order of the reads.  All banks work in lockstep; a bank group without a token at a step adds nothing.

    def token(self, pseudo_channel: int, bank_group: int, step: int) -> int:
        """Return the token that a bank group holds at a step of the schedule."""
        return step * self.slices + pseudo_channel * self.bank_groups + bank_group

    def key_schedule(self, tokens: int) -> Iterator[Read]:
        """Iterate over the reads of q K^T: a score is complete after the last chunk of its step."""
        per_row, reads = self.columns_per_row, self.columns_read(tokens)  # refused now, not at the first read
        return (
            Read(self.base_row + index // per_row, index % per_row, *divmod(index, self.chunks)) for index in range(reads)
        )

    def value_schedule(self, tokens: int) -> Iterator[Read]:
        """Iterate over the reads of s V: the outputs of a group of chunks are complete after its last step."""
        per_row, steps = self.columns_per_row, self.steps(tokens)
        firsts = range(self.value_row, self.value_row + self._groups * self.value_rows_per_group, self.value_rows_per_group)
        return (
            Read(first + index // per_row, index % per_row, index // width, index % width + group * self._group)
            for group, first in enumerate(firsts)
            for width in [self._width(group)]
            for index in range(steps * width)
        )

    # What the global buffer holds.

    @property
    def words_per_query(self) -> int:
        """Buffer words of one query: every bank needs its own part."""
        return self.chunks * self.banks

    def query_place(self, dim: Index, query: int = 0) -> BufferPlace:
        """Return where q[dim] of a query lies in the buffer: the words that the banks need for one read are neighbours.

        The word of a bank and chunk is ``query * words_per_query + chunk * banks + bank``; queries that no buffer can hold
        are refused.
        """
        query = check_range("query", query, 0, MAX_WORDS // self.words_per_query - 1)
        dim = self._check("dim", dim, self.head_dim)
        bank, part = dim // self.dims_per_bank, dim % self.dims_per_bank
        return BufferPlace(query * self.words_per_query + part // self.lanes * self.banks + bank, part % self.lanes)

    def probability_place(self, token: Index) -> BufferPlace:
        """Return where a token's score and probability lie in the buffer of its own pseudo-channel.

        The bank groups' scores of one step are neighbours; with 16 lanes and 4 bank groups a word holds four steps.
        """
        token = self._check("token", token, self.capacity)
        steps_per_word = self.lanes // self.bank_groups
        bank_group, step = token % self.slices % self.bank_groups, token // self.slices
        return BufferPlace(step // steps_per_word, step % steps_per_word * self.bank_groups + bank_group)

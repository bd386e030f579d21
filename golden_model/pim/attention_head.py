"""Attention of one head on pseudo-channels and the special function unit: programs of commands, and their composition.

The data flow of one step of generation, for the queries that share a KV head (1, or the group of grouped-query attention):

1. score: every pseudo-channel gets the queries, reads its K once per batch of queries and gives its tokens' scores, FP16;
2. softmax: the special function unit reduces each query's row to a pair, then turns it into probabilities, FP16;
3. context: every pseudo-channel gets its tokens' probabilities, reads its V chunk by chunk and gives FP32 partial sums;
4. sum: the special function unit adds the pseudo-channels' partial sums in their order and rounds to FP16.

The programs are the same for golden models and RTL: :meth:`AttentionHead.compute` takes the two machines as functions.
Queries come scaled by 1/sqrt(head_dim).
Source: paper sections IV-A and IV-B, Fig. 10; batches and segments are our choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from golden_model.params import ParameterError, check_power_of_two, check_range
from golden_model.pim.kv_mapping import KvMapping
from golden_model.pim.processing_element import MAX_CONTEXTS
from golden_model.pim.pseudo_channel import MAX_WORDS, Command, Op
from golden_model.pim.softmax_pair import PAIR_FIELDS
from golden_model.pim.special_function_unit import Operation, SpecialFunctionUnit

__all__ = ["MAX_HEAD_DIM", "Attention", "AttentionHead", "Channel", "FunctionUnit", "Step"]

MAX_HEAD_DIM = 256
"""16 slots of the special function unit times 16 lanes."""
Codes = npt.NDArray[np.uint16]
Step = tuple[Command, list[int]]
"""A command, and the columns of the 16 banks if it is a MAC."""
Channel = Callable[[int, Sequence[Step]], list[list[int]]]
"""Runs a program on pseudo-channel k and returns the results, each four codes."""
FunctionUnit = Callable[[Sequence[Mapping[str, int]]], list[Mapping[str, int]]]
"""Runs items on the special function unit and returns its answers."""


class Attention(NamedTuple):
    """What the head gives, FP16 codes."""

    scores: Codes  # (queries, tokens)
    probabilities: Codes  # (queries, tokens)
    context: Codes  # (queries, head_dim)


class AttentionHead:
    """Programs for one KV head.

    Parameters
    ----------
    head_dim, tokens
        Shape of K and V; 1 to 256 dimensions, so that all pieces of an output have a slot of the special function unit.
    queries
        Query heads that share it, 1 to 64.
    pseudo_channels
        Pseudo-channels that hold it.
    contexts
        Contexts of the processing elements, 1 to 16: so many queries share one read of a column.
    words
        Words per half of the global buffer, a power of two from 4 to 4096.
    lanes
        FP16 numbers per column.
    """

    def __init__(
        self,
        *,
        head_dim: int,
        tokens: int,
        queries: int = 1,
        pseudo_channels: int = 1,
        contexts: int = 1,
        words: int = 64,
        lanes: int = 16,
    ) -> None:
        tokens = check_range("tokens", tokens, 1, 131072)
        check_range("head_dim", head_dim, 1, MAX_HEAD_DIM)
        contexts = check_range("contexts", contexts, 1, MAX_CONTEXTS)
        check_power_of_two("words", words, 4, MAX_WORDS)
        self.mapping = KvMapping(head_dim=head_dim, capacity=tokens, pseudo_channels=pseudo_channels, lanes=lanes)
        self.head_dim, self.tokens, self.lanes, self.words = head_dim, tokens, lanes, words
        self.queries = check_range("queries", queries, 1, 64)
        fits = words // self.mapping.words_per_query
        if not fits:
            raise ParameterError(f"words must be at least {self.mapping.words_per_query}, one query, not {words}")
        size = min(contexts, fits, queries)
        self.batches = [range(first, min(first + size, queries)) for first in range(0, queries, size)]
        self._blank = dict.fromkeys((name for name, _ in SpecialFunctionUnit(lanes=lanes).input_fields), 0)
        self._steps = self.mapping.steps(tokens)
        # Scores and probabilities lie step-major in a word: (steps per word) x (bank groups).
        self._steps_per_word = lanes // self.mapping.bank_groups

    def compute(self, q: Codes, k: Codes, v: Codes, *, channel: Channel, unit: FunctionUnit) -> Attention:
        """Run the head.

        Parameters
        ----------
        q
            Queries, shape (queries, head_dim), FP16 codes as uint16.
        k, v
            Shape (tokens, head_dim).
        channel, unit
            The machines.
        """
        for name, codes, shape in (("q", q, (self.queries, self.head_dim)), ("k", k, (self.tokens, self.head_dim)),
                                   ("v", v, (self.tokens, self.head_dim))):  # fmt: skip
            if not isinstance(codes, np.ndarray):
                raise ParameterError(f"{name} must be an array of uint16 codes, not {type(codes).__name__}")
            if codes.dtype != np.uint16 or codes.shape != shape:
                raise ParameterError(f"{name} must have shape {shape} of uint16 codes, not {codes.shape} of {codes.dtype}")
        scores = np.zeros((self.queries, self.tokens), np.uint16)
        for number in range(self.mapping.pseudo_channels):
            results = channel(number, list(self.score_program(number, q, k)))
            self._take_scores(number, results, scores)
        probabilities = self._softmax(scores, unit)
        partials = []
        for number in range(self.mapping.pseudo_channels):
            results = channel(number, list(self.context_program(number, probabilities, v)))
            partials.append(self._take_partials(results))
        return Attention(scores, probabilities, self._sum(partials, unit))

    # Scores.

    def score_program(self, number: int, q: Codes, k: Codes) -> Iterator[Step]:
        """Yield the commands of q K^T on pseudo-channel ``number``."""
        columns = self._columns(number, k)
        per_query = self.mapping.words_per_query
        for batch in self.batches:
            buffer = np.zeros((self.words, self.lanes), np.uint16)
            for place, query in enumerate(batch):
                at = self.mapping.query_place(np.arange(self.head_dim), place)
                buffer[at.word, at.lane] = q[query]
            yield from self._write(buffer[: len(batch) * per_query])
            more = {"queries": len(batch) - 1, "stride": per_query % self.words}
            for read in self.mapping.key_schedule(self.tokens):
                addr = read.chunk * self.mapping.banks
                mac = Command(Op.MAC_ALL_BANKS, first=int(read.chunk == 0), addr=addr, **more)
                yield mac, columns[read.step, read.chunk]
                if read.chunk == self.mapping.chunks - 1:
                    yield Command(Op.MOVE_RESULT, half=1, queries=len(batch) - 1), []
            yield Command(Op.BARRIER), []

    def _take_scores(self, number: int, results: Sequence[Sequence[int]], scores: Codes) -> None:
        taken = iter(results)
        for batch in self.batches:
            for step in range(self._steps):
                tokens = [self.mapping.token(number, group, step) for group in range(self.mapping.bank_groups)]
                for query in batch:
                    for token, code in zip(tokens, next(taken), strict=True):
                        if token < self.tokens:  # others are scores of nothing
                            scores[query, token] = code

    # Probabilities.

    def _softmax(self, scores: Codes, unit: FunctionUnit) -> Codes:
        rows = [list(self._beats(row)) for row in scores]
        pairs = self._run(unit, [{**beat, "operation": Operation.SOFTMAX_STATISTICS} for row in rows for beat in row])
        items = [
            {**beat, "operation": Operation.SOFTMAX_NORMALIZE} | {name: pair[name] for name, _ in PAIR_FIELDS}
            for row, pair in zip(rows, pairs, strict=True)
            for beat in row
        ]
        answers = self._run(unit, items)
        codes = [[answer[f"y_{lane}"] for lane in range(self.lanes)] for answer in answers]
        return np.array(codes, np.uint16).reshape(self.queries, -1)[:, : self.tokens]

    def _run(self, unit: FunctionUnit, items: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
        return unit([{**self._blank, **item} for item in items])

    def _beats(self, row: Codes) -> Iterator[dict[str, int]]:
        for first in range(0, len(row), self.lanes):
            part = row[first : first + self.lanes].tolist()
            beat = {f"a_{lane}": code for lane, code in enumerate(part)}
            yield beat | {"last": int(first + self.lanes >= len(row)), "count": len(part)}

    # Context.

    def context_program(self, number: int, probabilities: Codes, v: Codes) -> Iterator[Step]:
        """Yield the commands of s V on pseudo-channel ``number``.

        The probabilities of a batch go through the buffer in segments of as many steps as fit.
        """
        columns = self._columns(number, v)
        words = -(-self._steps // self._steps_per_word)
        padded = np.zeros((self.queries, words * self._steps_per_word, self.mapping.bank_groups), np.uint16)
        for group in range(self.mapping.bank_groups):
            own = probabilities[:, self.mapping.token(number, group, 0) :: self.mapping.slices]
            padded[:, : own.shape[1], group] = own
        own_words = padded.reshape(self.queries, words, self.lanes)
        for batch in self.batches:
            room = self.words // len(batch)
            more = {"queries": len(batch) - 1, "stride": room % self.words}
            held = -1
            for read in self.mapping.value_schedule(self.tokens):
                segment, word = divmod(read.step // self._steps_per_word, room)
                if segment != held:
                    held = segment
                    buffer = np.zeros((len(batch), room, self.lanes), np.uint16)
                    part = own_words[batch.start : batch.stop, segment * room : (segment + 1) * room]
                    buffer[:, : part.shape[1]] = part
                    yield from self._write(buffer.reshape(-1, self.lanes))
                slot = read.step % self._steps_per_word * self.mapping.bank_groups
                mac = Command(Op.MAC_ALL_BANKS, axpy=1, first=int(read.step == 0), slot=slot, addr=word, **more)
                yield mac, columns[read.step, read.chunk]
                if read.step == self._steps - 1:
                    yield Command(Op.MOVE_RESULT, axpy=1, queries=len(batch) - 1), []
            yield Command(Op.BARRIER), []

    def _take_partials(self, results: Sequence[Sequence[int]]) -> npt.NDArray[np.uint32]:
        """Return FP32 partial sums, shape (queries, banks, chunks, lanes)."""
        shape = (self.queries, self.mapping.banks, self.mapping.chunks, self.lanes)
        partials = np.zeros(shape, np.uint32)
        taken = iter(results)
        for batch in self.batches:
            for chunk in range(self.mapping.chunks):
                for query in batch:
                    for lane in range(self.lanes):
                        partials[query, :, chunk, lane] = next(taken)
        return partials

    def _sum(self, partials: Sequence[npt.NDArray[np.uint32]], unit: FunctionUnit) -> Codes:
        chunks, pieces = self.mapping.chunks, self.mapping.banks * self.mapping.chunks
        items = []
        for query in range(self.queries):
            for number, partial in enumerate(partials):
                ends = {"first": int(number == 0), "last": int(number == len(partials) - 1)}
                for slot, codes in enumerate(partial[query].reshape(pieces, self.lanes).tolist()):
                    halves = {f"a_{k}": code & 0xFFFF for k, code in enumerate(codes)}
                    halves |= {f"b_{k}": code >> 16 for k, code in enumerate(codes)}
                    items.append({"operation": int(Operation.SUM), "slot": slot, "count": self.lanes, **ends, **halves})
        context = np.zeros((self.queries, self.mapping.banks, chunks * self.lanes), np.uint16)
        answers = iter(self._run(unit, items))
        for query in range(self.queries):
            for slot in range(pieces):
                bank, chunk = divmod(slot, chunks)
                answer = next(answers)
                codes = [answer[f"y_{lane}"] for lane in range(self.lanes)]
                context[query, bank, chunk * self.lanes : (chunk + 1) * self.lanes] = codes
        return context[:, :, : self.mapping.dims_per_bank].reshape(self.queries, -1)[:, : self.head_dim]

    # Both.

    def _columns(self, number: int, matrix: Codes) -> Mapping[tuple[int, int], list[int]]:
        """Return the 16 columns of every (step, chunk); lanes that hold nothing are zero."""
        mapping = self.mapping
        dims = np.zeros((self.tokens, mapping.banks * mapping.dims_per_bank), np.uint16)
        dims[:, : self.head_dim] = matrix
        parts = np.zeros((self._steps * mapping.slices, mapping.banks, mapping.chunks * self.lanes), np.uint16)
        parts[: self.tokens, :, : mapping.dims_per_bank] = dims.reshape(self.tokens, mapping.banks, -1)
        words = parts.reshape(self._steps, mapping.slices, mapping.banks, mapping.chunks, self.lanes)
        first = number * mapping.bank_groups
        return {
            (step, chunk): [
                _word(words[step, first + group, bank, chunk])
                for group in range(mapping.bank_groups)
                for bank in range(mapping.banks)
            ]
            for step in range(self._steps)
            for chunk in range(mapping.chunks)
        }

    @staticmethod
    def _write(buffer: Codes) -> Iterator[Step]:
        """Yield the commands that fill the half that is not read, and exchange the halves."""
        for addr, codes in enumerate(buffer):
            yield Command(Op.WRITE_BUFFER, addr=addr, data=_word(codes)), []
        yield Command(Op.SWAP_BUFFER), []


def _word(codes: Codes) -> int:
    return int.from_bytes(np.ascontiguousarray(codes, dtype="<u2").tobytes(), "little")


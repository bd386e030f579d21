"""Random work for the special function unit: for each of its units items in the order that the unit needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from golden_model.arithmetic.formats import FP16, FP32
from golden_model.arithmetic.fp32_adder_vectors import pair_classes
from golden_model.pim import normalization_vectors, softmax_vectors
from golden_model.pim.half_vectors import half_classes
from golden_model.pim.softmax_pair import Pair, to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.special_function_unit import Operation, SpecialFunctionUnit

__all__ = ["Item", "Jobs"]

Item = tuple[dict[str, int], int]
"""Fields of an item, and epsilon while it is offered."""

LONGEST = 5  # beats of a row


class Jobs:
    """Draws jobs; every method returns the items of one job.

    Parameters
    ----------
    model
        For the layout and for pairs of rows.
    rng
        Source of all choices.
    """

    def __init__(self, model: SpecialFunctionUnit, rng: np.random.Generator) -> None:
        self.model = model
        self.lanes = model.lanes
        self.rng = rng
        self.statistics = SoftmaxStatistics(lanes=model.lanes)

    def below(self, top: int) -> int:
        return int(self.rng.integers(top))

    def item(self, operation: int, *, epsilon: int = FP32.quiet_nan, **fields: int) -> Item:
        """One item; fields that are not given hold rubbish, lanes NaN."""
        item = {name: self.below(1 << min(bits, 60)) for name, bits in self.model.input_fields}
        item |= {f"{side}_{lane}": FP16.quiet_nan for side in "abc" for lane in range(self.lanes)}
        return item | {"operation": operation} | fields, epsilon

    def row(
        self, operation: int, *operands: Sequence[int], epsilon: int = FP32.quiet_nan, pair: Mapping[str, int] | None = None
    ) -> list[Item]:
        """A row's beats; epsilon comes with the last one."""
        items, length = [], len(operands[0])
        for start in range(0, length, self.lanes):
            stop = min(start + self.lanes, length)
            fields = dict(pair or {}) | {"last": int(stop == length), "count": stop - start}
            for side, codes in zip("abc", operands, strict=False):
                fields |= {f"{side}_{k}": code for k, code in enumerate(codes[start:stop])}
            items.append(self.item(operation, epsilon=epsilon if stop == length else FP32.quiet_nan, **fields))
        return items

    def sums(self) -> list[Item]:
        """Partial results of a few pseudo-channels in a few slots, the slots in turn."""
        draw = list(pair_classes(self.rng).values())[self.below(7)]
        slots = [int(slot) for slot in self.rng.permutation(self.model.slots)[: 1 + self.below(4)]]
        channels, items = 1 + self.below(6), []
        for channel in range(channels):
            for slot in slots:
                singles = [draw()[0] for _ in range(self.lanes)]
                halves = {f"a_{k}": single & 0xFFFF for k, single in enumerate(singles)}
                halves |= {f"b_{k}": single >> FP16.width for k, single in enumerate(singles)}
                ends = {"first": int(channel == 0), "last": int(channel == channels - 1)}
                items.append(self.item(Operation.SUM, slot=slot, **ends, **halves))
        return items

    def additions(self) -> list[Item]:
        draw = list(half_classes(self.rng).values())[self.below(7)]
        pairs = [draw() for _ in range(1 + self.below(LONGEST * self.lanes))]
        return self.row(Operation.ADD, [a for a, _ in pairs], [b for _, b in pairs])

    def softmax_row(self) -> list[int]:
        classes = softmax_vectors.row_classes(self.rng, LONGEST * self.lanes)
        return list(classes.values())[self.below(len(classes))]()

    def softmax_statistics(self) -> list[Item]:
        return self.row(Operation.SOFTMAX_STATISTICS, self.softmax_row())

    def softmax_merges(self) -> list[Item]:
        """Pairs of parts of a row, now and then with a beat among them."""
        parts = 1 + self.below(6)
        items = []
        for part in range(parts):
            last = int(part == parts - 1)
            if self.below(4):
                pair = to_fields(self.statistics.row(self.softmax_row()))
                items.append(self.item(Operation.SOFTMAX_MERGE, last=last, count=self.below(self.lanes), **pair))
            else:
                beat, epsilon = self.row(Operation.SOFTMAX_STATISTICS, self.softmax_row()[:1] * self.lanes)[0]
                items.append((beat | {"last": last}, epsilon))
        return items

    def softmax_probabilities(self) -> list[Item]:
        row = self.softmax_row()
        own = self.statistics.row(row)
        pair = own if self.below(4) else Pair(own.maximum + self.below(3), own.sum // 2, own.invalid)
        return self.row(Operation.SOFTMAX_NORMALIZE, row, pair=to_fields(pair))

    def functions(self) -> list[Item]:
        """A row for exp to silu, codes of any kind."""
        row = [self.below(1 << FP16.width) for _ in range(1 + self.below(LONGEST * self.lanes))]
        return self.row(Operation.EXP + self.below(5), row)

    def norms(self) -> list[Item]:
        """Statistics of a row, then mostly the same row applied."""
        rows, operands = normalization_vectors.row_classes(self.rng), normalization_vectors.operand_classes(self.rng)
        x = list(rows.values())[self.below(len(rows))](1 + self.below(LONGEST * self.lanes))
        if self.below(12) == 0:
            x[self.below(len(x))] = FP16.infinity
        operation = (Operation.LAYER_NORM_STATISTICS, Operation.RMS_NORM_STATISTICS)[self.below(2)]
        items = self.row(operation, x, epsilon=normalization_vectors.EPSILONS[self.below(7)])
        gamma, beta = (list(operands.values())[self.below(4)](len(x)) for _ in range(2))
        return items + (self.row(Operation.NORM_APPLY, x, gamma, beta) if self.below(8) else [])

    def nothing(self) -> list[Item]:
        """A code without meaning."""
        return [self.item(max(Operation) + 1 + self.below(15 - max(Operation)))]

    def mixed(self, count: int) -> list[Item]:
        """At least ``count`` items of all units, in runs of 1 to 8 of one unit."""
        kinds = (
            (self.sums,),
            (self.additions,),
            (self.softmax_statistics, self.softmax_merges),
            (self.softmax_probabilities,),
            (self.functions,),
            (self.norms,),
            (self.nothing,),
        )
        waiting: list[list[Item]] = [[] for _ in kinds]
        items: list[Item] = []
        while len(items) < count:
            unit = self.below(len(kinds))
            run = 1 if kinds[unit] == (self.nothing,) else 1 + self.below(8)
            while len(waiting[unit]) < run:
                waiting[unit] += kinds[unit][self.below(len(kinds[unit]))]()
            items += waiting[unit][:run]
            waiting[unit] = waiting[unit][run:]
        return items + [item for rest in waiting for item in rest]

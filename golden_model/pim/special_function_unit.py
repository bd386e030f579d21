"""The special function unit of the buffer die: one stream of operations in, one stream of answers out, in order.

The answers are those of the units' golden models, one after the other.
Source: the functions are the paper's (section IV-B); encoding and order are our choice.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from golden_model.arithmetic.formats import FP16
from golden_model.layouts import Fields
from golden_model.params import check_code
from golden_model.pim.activation import Activation, Op
from golden_model.pim.normalization import Normalization
from golden_model.pim.partial_sum import PartialSum
from golden_model.pim.residual_add import ResidualAdd
from golden_model.pim.softmax_normalizer import SoftmaxNormalizer
from golden_model.pim.softmax_pair import PAIR_FIELDS, Pair, from_fields, merge, to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.vector_beat import check_lanes, input_fields, output_fields, valid_codes

__all__ = ["OPERATION_BITS", "Operation", "SpecialFunctionUnit"]

OPERATION_BITS = 4


class Operation(enum.IntEnum):
    """What an item asks for; other codes are taken and have no answer."""

    SUM = 0  # a partial result: FP32 lanes (a_k: low halves, b_k: high halves), slot, first, last
    ADD = 1  # a + b
    SOFTMAX_STATISTICS = 2  # a beat of a row: its pair after the last one
    SOFTMAX_MERGE = 3  # a pair of a part of the row
    SOFTMAX_NORMALIZE = 4  # a beat of the row with the row's pair: probabilities
    EXP = 5  # EXP to SILU: the codes of ``activation.Op``, in its order
    RECIPROCAL = 6
    RSQRT = 7
    RELU = 8
    SILU = 9
    LAYER_NORM_STATISTICS = 10  # a beat of a row, no answer
    RMS_NORM_STATISTICS = 11
    NORM_APPLY = 12  # a beat of the row that was summed last, b: gamma, c: beta


class SpecialFunctionUnit:
    """All units behind one stream.

    Parameters
    ----------
    lanes
        Elements per beat: a power of two from 4 to 16.
    slots
        Slots of SUM: a power of two from 2 to 64.
    """

    def __init__(self, *, lanes: int = 16, slots: int = 16) -> None:
        self.lanes = check_lanes(lanes)
        self.sums = PartialSum(lanes=lanes, slots=slots)
        self.slots = self.sums.slots
        self.adder = ResidualAdd(lanes=lanes)
        self.statistics = SoftmaxStatistics(lanes=lanes)
        self.normalizer = SoftmaxNormalizer(lanes=lanes)
        self.activation = Activation(lanes=lanes)
        self.normalization = Normalization(lanes=lanes)
        self._pair = Pair()

    @property
    def input_fields(self) -> Fields:
        """Every operation reads its own part of the fields and ignores the rest."""
        operands = ((f"{side}_{lane}", FP16.width) for side in "bc" for lane in range(self.lanes))
        control = (("operation", OPERATION_BITS), ("first", 1), ("slot", self.sums.slot_bits))
        return (*control, *input_fields(self.lanes), *operands, *PAIR_FIELDS)

    @property
    def output_fields(self) -> Fields:
        """The operation; the slot of a SUM, else 0; an output beat; the pair of a softmax row, else 0."""
        control = (("operation", OPERATION_BITS), ("slot", self.sums.slot_bits))
        return (*control, *output_fields(self.lanes), *PAIR_FIELDS[:2])

    def reset(self) -> None:
        """Forget all sums and rows."""
        self.sums.reset()
        self.normalization.reset()
        self._pair = Pair()

    def accept(self, item: Mapping[str, int], epsilon: int) -> dict[str, int] | None:
        """Take one item; return its answer, if it has one.

        Parameters
        ----------
        item
            Fields of :attr:`input_fields`.
        epsilon
            FP32 code, counts in a row's last statistics beat of a norm.
        """
        code = check_code("operation", item["operation"], OPERATION_BITS)
        if code not in set(Operation):
            return None
        answer = self._answer(Operation(code), item, epsilon)
        if answer is None:
            return None
        blank = dict.fromkeys((name for name, _ in self.output_fields), 0)
        return blank | {"operation": code} | answer

    def _answer(self, operation: Operation, item: Mapping[str, int], epsilon: int) -> dict[str, int] | None:
        if operation == Operation.SUM:
            low, high = (
                [check_code(f"{side}_{k}", item[f"{side}_{k}"], FP16.width) for k in range(self.lanes)] for side in "ab"
            )
            singles = {f"a_{k}": low[k] | high[k] << FP16.width for k in range(self.lanes)}
            total = self.sums.accept({name: item[name] for name in ("first", "last", "slot")} | singles)
            return None if total is None else total | {"last": 1, "count": self.lanes}
        if operation == Operation.ADD:
            return self.adder.accept(item)
        if operation in (Operation.SOFTMAX_STATISTICS, Operation.SOFTMAX_MERGE):
            return self._reduce(operation, item)
        if operation == Operation.SOFTMAX_NORMALIZE:
            return self.normalizer.compute(item)
        if Operation.EXP <= operation <= Operation.SILU:
            return self.activation.compute({**item, "op": operation - Operation.EXP})
        rms = operation == Operation.RMS_NORM_STATISTICS
        applied = operation == Operation.NORM_APPLY
        return self.normalization.accept({**item, "apply": int(applied), "rms": int(rms)}, epsilon)

    def _reduce(self, operation: Operation, item: Mapping[str, int]) -> dict[str, int] | None:
        """Return the pair at the end of a softmax row; no element counts in its beat."""
        if operation == Operation.SOFTMAX_MERGE:
            self._pair = merge(self._pair, from_fields(dict(item)))
        else:
            self._pair = self.statistics.add_beat(self._pair, valid_codes(item, self.lanes))
        if not check_code("last", item["last"], 1):
            return None
        pair, self._pair = self._pair, Pair()
        return to_fields(pair) | {"last": 1, "count": 0, "masked": int(pair.masked)}


assert [op.name for op in Op] == [Operation(Operation.EXP + op).name for op in Op]

"""Sums the partial results of the pseudo-channels of a stack, piece by piece of a vector, in FP32.

A vector is cut into pieces of ``lanes`` elements, one slot each.  The order of the additions is the order of arrival:
((first + second) + third) + ..., every addition rounded once to nearest even.  Source: our choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP16, FP32
from golden_model.arithmetic.fp16_rounder import Fp16Rounder
from golden_model.arithmetic.fp32_adder import Fp32Adder
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_power_of_two
from golden_model.pim.vector_beat import check_lanes

__all__ = ["PartialSum"]


class PartialSum:
    """Accumulators of ``slots`` pieces of a vector.

    Parameters
    ----------
    lanes
        Elements of a piece: a power of two from 4 to 16.
    slots
        Pieces that can be open at a time: a power of two from 2 to 64.
    """

    def __init__(self, *, lanes: int = 16, slots: int = 16) -> None:
        self.lanes = check_lanes(lanes)
        self.slots = check_power_of_two("slots", slots, 2, 64)
        self._adder, self._rounder = Fp32Adder(), Fp16Rounder()
        self._sums: dict[int, list[int]] = {}

    @property
    def slot_bits(self) -> int:
        return (self.slots - 1).bit_length()

    @property
    def input_fields(self) -> Fields:
        """``first`` starts the slot, ``last`` emits its sum; ``a_k`` are FP32 codes."""
        lanes = ((f"a_{lane}", FP32.width) for lane in range(self.lanes))
        return (("first", 1), ("last", 1), ("slot", self.slot_bits), *lanes)

    @property
    def output_fields(self) -> Fields:
        """The slot and its sum, ``y_k`` as FP16 codes."""
        return (("slot", self.slot_bits), *((f"y_{lane}", FP16.width) for lane in range(self.lanes)))

    def reset(self) -> None:
        """Forget all sums."""
        self._sums.clear()

    def accept(self, item: Mapping[str, int]) -> dict[str, int] | None:
        """Add one partial result; return the answer if the item is the slot's last.

        An item without ``first`` in a slot that was not started since the reset starts it.  ``last`` leaves the sum as it
        is, so that it may grow on.

        >>> ones = {"first": 1, "last": 0, "slot": 0} | {f"a_{lane}": 0x3F800000 for lane in range(4)}
        >>> unit = PartialSum(lanes=4)
        >>> unit.accept(ones)
        >>> unit.accept(ones | {"first": 0, "last": 1})
        {'slot': 0, 'y_0': 16384, 'y_1': 16384, 'y_2': 16384, 'y_3': 16384}
        """
        slot = check_code("slot", item["slot"], self.slot_bits)
        first, last = (check_code(name, item[name], 1) for name in ("first", "last"))
        starts = first or slot not in self._sums
        # -0 is the neutral element of the addition: +0 would turn a first -0 into +0.
        before = [FP32.sign_bit] * self.lanes if starts else self._sums[slot]
        after = [self._adder.compute(acc, item[f"a_{lane}"]) for lane, acc in enumerate(before)]
        self._sums[slot] = after
        if not last:
            return None
        return {"slot": slot} | {f"y_{lane}": self._rounder.compute(acc) for lane, acc in enumerate(after)}

    def sum_many(self, partials: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
        """Return the FP16 sums over the first axis, in its order, as slots started and emitted once would.

        Parameters
        ----------
        partials
            FP32 codes as a ``uint32`` array; axis 0 is the order of arrival.
        """
        if partials.ndim < 1 or not len(partials):
            raise ParameterError("partials must hold at least one partial result")
        acc = np.full(partials.shape[1:], FP32.sign_bit, np.uint32)
        for partial in partials:
            acc = self._adder.compute_many(acc, partial)
        return self._rounder.compute_many(acc)

"""The special function unit of the buffer die: one stream of operations in, one stream of answers out, in order.

Latency and throughput: those of the units.  A queue of the operations whose answers are due keeps the order, so that units
work side by side.  Reset: everything is empty.
Source: the functions are the paper's (section IV-B); numbers as in ``golden_model.pim.special_function_unit``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Signal, ValueLike
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP32
from golden_model.pim import special_function_unit as golden
from golden_model.pim.activation import OP_BITS, Op
from golden_model.pim.special_function_unit import OPERATION_BITS, Operation
from hdl.pim.activation import Activation
from hdl.pim.normalization import Normalization
from hdl.pim.partial_sum import PartialSum
from hdl.pim.residual_add import ResidualAdd
from hdl.pim.softmax_normalizer import SoftmaxNormalizer
from hdl.pim.softmax_statistics import SoftmaxStatistics
from hdl.shapes import struct

__all__ = ["SpecialFunctionUnit"]

ORDER_DEPTH = 32
"""Answers that can be due: more than the units hold together between two that wait for each other."""

NORM_STATISTICS = (Operation.LAYER_NORM_STATISTICS, Operation.RMS_NORM_STATISTICS)
FUNCTIONS = tuple(Operation(Operation.EXP + op) for op in Op)
AT_THE_END = (Operation.SUM, Operation.SOFTMAX_STATISTICS, Operation.SOFTMAX_MERGE)  # answer their last item only


@dataclass(frozen=True)
class Unit:
    """A unit with the operations it serves and how its payloads map to ours."""

    component: Any
    operations: tuple[Operation, ...]
    takes: Mapping[str, ValueLike]  # fields of its input that are not fields of ours
    gives: Mapping[str, ValueLike]  # fields of our output that it has not; all that neither has read 0


class SpecialFunctionUnit(wiring.Component):
    """All units behind one stream.

    Parameters
    ----------
    lanes : int
        Elements per beat: a power of two from 4 to 16.
    slots : int
        Slots of SUM: a power of two from 2 to 64.

    Members
    -------
    i : In(stream)
        operation, first, slot, last, count, a_k, b_k, c_k, maximum, sum, invalid.
    o : Out(stream)
        operation, slot, last, count, masked, invalid, y_k, maximum, sum.
    epsilon : In(32)
        FP32 code, taken with a row's last statistics beat of a norm.

    Notes
    -----
    ``i.ready`` depends on ``i.payload``.
    """

    i: stream.Interface
    o: stream.Interface
    epsilon: Signal

    predicted_timing = {
        "sum": PartialSum.predicted_timing["emit"],
        "add": ResidualAdd.predicted_timing["add"],
        "softmax_statistics": SoftmaxStatistics.predicted_timing["statistics"],
        "softmax_merge": SoftmaxStatistics.predicted_timing["merge"],
        "softmax_normalize": SoftmaxNormalizer.predicted_timing["normalize"],
        **Activation.predicted_timing,  # exp to silu
        "norm_row": Normalization.predicted_timing["row"],
        "norm_apply": Normalization.predicted_timing["apply"],
    }

    def __init__(self, *, lanes: int = 16, slots: int = 16) -> None:
        fields = golden.SpecialFunctionUnit(lanes=lanes, slots=slots)  # checks both
        self.lanes = fields.lanes
        self.slots = fields.slots
        super().__init__({
            "i": In(stream.Signature(struct(fields.input_fields))),
            "o": Out(stream.Signature(struct(fields.output_fields))),
            "epsilon": In(FP32.width),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.order = order = fifo.SyncFIFO(width=OPERATION_BITS, depth=ORDER_DEPTH)
        item, answer = self.i.payload, self.o.payload
        units = self._units()

        answers = Signal()
        chosen_ready = Signal()
        with m.Switch(item.operation):
            with m.Case(*AT_THE_END):
                m.d.comb += answers.eq(item.last)
            with m.Case(*NORM_STATISTICS):
                m.d.comb += answers.eq(0)
            with m.Default():
                m.d.comb += answers.eq(item.operation <= max(Operation))
        room = Signal()
        m.d.comb += [
            room.eq(order.w_rdy | ~answers),
            self.i.ready.eq(chosen_ready & room),
            order.w_data.eq(item.operation),
            order.w_en.eq(self.i.valid & self.i.ready & answers),
            order.r_en.eq(self.o.valid & self.o.ready),
            answer.operation.eq(order.r_data),
        ]
        with m.Switch(item.operation):
            for unit in units.values():
                with m.Case(*unit.operations):
                    m.d.comb += chosen_ready.eq(unit.component.i.ready)
            with m.Default():
                m.d.comb += chosen_ready.eq(1)  # codes without meaning are dropped

        for name, unit in units.items():
            m.submodules[name] = component = unit.component
            mine = Signal(name=f"{name}_chosen")
            due = Signal(name=f"{name}_due")
            m.d.comb += [
                mine.eq(Cat(item.operation == operation for operation in unit.operations).any()),
                due.eq(order.r_rdy & Cat(order.r_data == operation for operation in unit.operations).any()),
                component.i.valid.eq(self.i.valid & mine & room),
                component.o.ready.eq(due & self.o.ready),
            ]
            for field in _fields(component.i):
                m.d.comb += component.i.payload[field].eq(unit.takes[field] if field in unit.takes else item[field])
            given = {field: component.o.payload[field] for field in _fields(component.o)} | dict(unit.gives)
            with m.If(due):
                m.d.comb += self.o.valid.eq(component.o.valid)
                m.d.comb += [answer[field].eq(value) for field, value in given.items()]
        m.d.comb += units["normalization"].component.epsilon.eq(self.epsilon)
        return m

    def _units(self) -> dict[str, Unit]:
        item = self.i.payload
        sums = PartialSum(lanes=self.lanes, slots=self.slots)
        adder = ResidualAdd(lanes=self.lanes)
        statistics = SoftmaxStatistics(lanes=self.lanes)
        normalizer = SoftmaxNormalizer(lanes=self.lanes)
        activation = Activation(lanes=self.lanes)
        norm = Normalization(lanes=self.lanes)
        singles = {f"a_{k}": Cat(item[f"a_{k}"], item[f"b_{k}"]) for k in range(self.lanes)}
        pair = statistics.o.payload
        masked = ~pair["sum"].any() & ~pair.invalid
        merges = item.operation == Operation.SOFTMAX_MERGE
        norm_fields = {
            "apply": item.operation == Operation.NORM_APPLY,
            "rms": item.operation == Operation.RMS_NORM_STATISTICS,
        }
        return {
            "partial_sum": Unit(sums, (Operation.SUM,), singles, {"last": 1, "count": self.lanes}),
            "residual_add": Unit(adder, (Operation.ADD,), {}, {}),
            "softmax_statistics": Unit(
                statistics,
                (Operation.SOFTMAX_STATISTICS, Operation.SOFTMAX_MERGE),
                {"merge": merges},
                {"last": 1, "masked": masked},
            ),
            "softmax_normalizer": Unit(normalizer, (Operation.SOFTMAX_NORMALIZE,), {}, {}),
            "activation": Unit(activation, FUNCTIONS, {"op": (item.operation - Operation.EXP)[:OP_BITS]}, {}),
            "normalization": Unit(norm, (*NORM_STATISTICS, Operation.NORM_APPLY), norm_fields, {}),
        }


def _fields(interface: stream.Interface) -> list[str]:
    return list(interface.payload.shape().members)

"""The SADDLE Manager of the system model: golden models decide, certificates give the cycles.

Source: paper sections IV-A, IV-C, IV-D, IV-E.  Cycles of an operation are those of its measured timing; operations of
one step are charged one after the other although the hardware could overlap some of them.  The softmax that gives p
is not included in this version.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosim.certificates import Timing
from cosim.errors import UserError
from golden_model.manager.draft_pool import SENT, WAITING, DraftPool, Entry, Status
from golden_model.manager.operator_mapping import FRACTION_BITS, Operator, OperatorMapping
from golden_model.manager.stop_test import Decision, StopTest

__all__ = ["REQUIRED_TIMING", "Manager", "MappingDecision", "Thresholds", "check_timing"]

REQUIRED_TIMING: dict[str, tuple[str, ...]] = {
    "processing_element": ("dot", "axpy"),
    "stop_test": ("decide",),
    "draft_pool": ("insert", "match", "drop", "drain", "select", "lock", "unlock", "flush"),
    "operator_mapping": ("map",),
}


def check_timing(timing: Timing) -> None:
    """Raise one line that names the first missing block or operation."""
    for block, operations in REQUIRED_TIMING.items():
        if block not in timing:
            raise UserError(f"no measured timing of block {block}; run the regression to get its certificate")
        for operation in operations:
            if operation not in timing[block]:
                raise UserError(f"the timing of block {block} lacks operation {operation!r}")


@dataclass(frozen=True)
class Thresholds:
    """Threshold registers in FLOP/byte, steps of 1/16."""

    dlm_fc: int
    tlm_attention: int


@dataclass(frozen=True)
class MappingDecision:
    """One entry of the decision log."""

    time_s: float
    operator: str
    intensity: float
    threshold: float
    side: str


class Manager:
    """Stop test, Shared Pool, Eager Pools and Scheduler.

    Parameters
    ----------
    batch, micro_batches
        Request slots, and groups of them with a Draft Generator each.
    capacity
        Entries of the Shared Pool; the Eager Pools share as many.
    tau, max_draft
        Stop rule: FP16 code of the threshold, longest draft in tokens.
    thresholds, kv_group
        Registers of the Scheduler.
    timing, clock_hz
        Measured cycles, and the clock that they count.
    """

    def __init__(
        self, *, batch: int, micro_batches: int, capacity: int, tau: int, max_draft: int, thresholds: Thresholds,
        kv_group: int, timing: Timing, clock_hz: float, log: bool = False,
    ) -> None:
        self.shared = DraftPool(entries=capacity)
        self.eager = [DraftPool(entries=max(1, capacity // micro_batches)) for _ in range(micro_batches)]
        self._stop = StopTest()
        tokens = max(10, (capacity + batch).bit_length())
        self._mapping = OperatorMapping(token_bits=tokens, group_bits=max(4, kv_group.bit_length()))
        self._micro_batches = micro_batches
        self._tau = tau
        self._max_draft = max_draft
        self._thresholds = thresholds
        self._kv_group = kv_group
        self._timing = timing
        self._period = 1 / clock_hz
        self._sides: dict[tuple[int, int, int], bool] = {}
        self.log: list[MappingDecision] | None = [] if log else None

    # Decisions

    def decide(self, h: int, p: int, length: int) -> Decision:
        """Stop test for one sampled token (rules A1, A2)."""
        return self._stop.decide(h, p, length, tau=self._tau, max_length=self._max_draft)

    def store(self, slot: int, position: int, h: int) -> bool:
        """Store a new token (rules T3, T5, T13); False if the pool it belongs to is full.

        A request with tokens under verification goes to its Eager Pool.  So does one whose verification holds no
        draft token: the Shared Pool is locked then and refuses it.
        """
        if not self.shared.match(slot, SENT):
            status = self.shared.insert(slot, position, h)
            if status != Status.LOCKED:
                assert status != Status.DUPLICATE
                return status == Status.OK
        status = self.eager[slot % self._micro_batches].insert(slot, position, h)
        assert status in (Status.OK, Status.FULL)
        return status == Status.OK

    def send(self) -> list[Entry]:
        """Take the verification batch (T4, T6) and lock.

        The pool holds what one verification takes, so every waiting token goes.
        """
        chosen = self.shared.select(self.shared.entries)
        self.shared.locked = True
        return chosen

    def retire(self, slots: list[int]) -> None:
        """Free the verified tokens of these slots and unlock (T5, T14)."""
        for slot in slots:
            self.shared.drop(slot, SENT)
        self.shared.locked = False

    def void(self, slot: int) -> int:
        """Drop the Eager tokens of a slot (T10)."""
        return self.eager[slot % self._micro_batches].drop(slot, WAITING)

    def move(self, slot: int) -> list[Entry]:
        """Take the Eager tokens of a slot out (T9)."""
        return self.eager[slot % self._micro_batches].drain(slot, WAITING)

    def on_pim(self, operator: Operator, tokens: int, requests: int, time_s: float) -> bool:
        """Side of an operator (S1 to S4)."""
        key = (operator, tokens, requests)
        side = self._sides.get(key)
        if side is None:
            side = bool(self._mapping.on_pim(
                operator, tokens, requests, dlm_fc_threshold=self._thresholds.dlm_fc,
                tlm_attention_threshold=self._thresholds.tlm_attention, kv_group=self._kv_group,
            ))
            self._sides[key] = side
        if self.log is not None:
            draft = operator == Operator.DLM_FC
            threshold = self._thresholds.dlm_fc if draft else self._thresholds.tlm_attention
            intensity = float(tokens) if draft else tokens * self._kv_group / max(1, requests)
            scale = 1 << FRACTION_BITS
            self.log.append(
                MappingDecision(time_s, operator.name.lower(), intensity, threshold / scale, "pim" if side else "gpu")
            )
        return side

    # Time

    def _seconds(self, block: str, operation: str, count: int = 1) -> float:
        return self._timing[block][operation].cycles(count) * self._period

    def draft_seconds(self, tokens: int, mapped: int) -> float:
        """Time of one draft step's decisions: every token tested, looked up and stored, ``mapped`` operators mapped."""
        return (
            self._seconds("stop_test", "decide", tokens)
            + self._seconds("draft_pool", "match", tokens)
            + self._seconds("draft_pool", "insert", tokens)
            + self._seconds("operator_mapping", "map", mapped)
        )

    def send_seconds(self, tokens: int, mapped: int) -> float:
        """Time between the decision to verify and the start of the TLM."""
        return (
            self._seconds("draft_pool", "select", tokens)
            + self._seconds("draft_pool", "lock")
            + self._seconds("operator_mapping", "map", mapped)
        )

    def result_seconds(self, retired: int, voided: int, moves: list[int]) -> float:
        """Time to work a result into the pools: drops, unlock, and per moved draft a burst that is tested anew."""
        moved = sum(moves)
        return (
            self._seconds("draft_pool", "drop", retired)
            + self._seconds("draft_pool", "drop", voided)
            + self._seconds("draft_pool", "unlock")
            + sum(self._seconds("draft_pool", "drain", count) for count in moves)
            + self._seconds("stop_test", "decide", moved)
            + self._seconds("draft_pool", "insert", moved)
        )

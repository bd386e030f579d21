"""Where the models live and where their operators run: chosen before the run, for every system alike.

The TLM is tensor-parallel over all devices.  The DLM exists in r replicas, each tensor-parallel over devices / r; a
request's micro-batch is its slot modulo r.  ``placement = "auto"`` takes the fastest r at the initial batch and the
maximum length.  PIM-SD's static mapping is found the same way among 16 (a reduced stand-in for SpecPIM's search:
paper sections II-C and V-A).  SADDLE's thresholds are where the predicted times of GPU and PIM cross (rule S3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from cosim.certificates import OperationTiming
from cosim.errors import UserError
from cosim.system.costs import NO_COST, Cost, CostModel, combine
from cosim.system.llm import ModelShape
from cosim.system.manager import Thresholds
from cosim.system.parameters import Machine, SystemRow
from golden_model.manager.operator_mapping import FRACTION_BITS

__all__ = ["Plan", "SystemCosts", "check_memory", "make_plan"]

MAX_THRESHOLD = (1 << 12) - 1


@dataclass(frozen=True)
class Plan:
    """A placement and a static mapping; ``dynamic`` operators are mapped by the Scheduler instead."""

    replicas: int
    draft_fc_on_pim: bool
    draft_attention_on_pim: bool
    target_fc_on_pim: bool
    target_attention_on_pim: bool
    dynamic: bool
    thresholds: Thresholds


class SystemCosts:
    """Costs of DLM steps and TLM passes under a placement."""

    def __init__(
        self, target: ModelShape, draft: ModelShape, machine: Machine, replicas: int,
        processing_element: OperationTiming,
    ) -> None:
        self.replicas = replicas
        self.target = CostModel(target, machine, machine.devices, processing_element)
        self.draft = CostModel(draft, machine, machine.devices // replicas, processing_element)

    def verify(
        self, positions: int, requests: int, context_sum: float, query_context_sum: float, *, fc_on_pim: bool,
        attention_on_pim: bool,
    ) -> Cost:
        """One pass of the TLM over ``positions`` positions of ``requests`` requests."""
        fc = self.target.fc(positions, on_pim=fc_on_pim)
        return fc.then(self.target.attention(
            requests, positions, context_sum, query_context_sum, on_pim=attention_on_pim, fc_on_pim=fc_on_pim
        ))

    def draft_step(
        self, counts: Sequence[int], contexts: Sequence[float], *, fc_on_pim: Sequence[bool], attention_on_pim: bool
    ) -> Cost:
        """One DLM step of all replicas side by side; the slowest one sets the time."""
        parts = []
        for count, context, side in zip(counts, contexts, fc_on_pim, strict=True):
            if count:
                fc = self.draft.fc(count, on_pim=side)
                parts.append(fc.then(self.draft.attention(
                    count, count, context, context, on_pim=attention_on_pim, fc_on_pim=side
                )))
            else:
                parts.append(NO_COST)
        return combine(parts)


def check_memory(
    target: ModelShape, draft: ModelShape | None, machine: Machine, replicas: int, batch: int, length: int
) -> None:
    """Refuse what does not fit: weights and KV caches of all requests at the maximum length.

    Raises
    ------
    UserError
        Needed and available bytes per device, and how the need is made up.
    """
    weights = target.weight_bytes + (replicas * draft.weight_bytes if draft else 0)
    caches = batch * length * (target.kv_bytes_per_token + (draft.kv_bytes_per_token if draft else 0))
    needed, available = (weights + caches) / machine.devices / 1e9, machine.device_memory_gb
    if needed > available:
        raise UserError(
            f"does not fit: {needed:.1f} GB needed per device, {available:.1f} GB available ({machine.devices} devices;"
            f" weights {weights / 1e9:.1f} GB, KV caches of {batch} requests x {length} tokens {caches / 1e9:.1f} GB)"
        )


def _spread(batch: int, replicas: int) -> list[int]:
    """Requests per replica: slot s belongs to replica s mod r."""
    return [len(range(index, batch, replicas)) for index in range(replicas)]


def _thresholds(costs: SystemCosts, batch: int, length: int) -> Thresholds:
    """Find the smallest intensities at which the GPU is at least as fast, at half the maximum length."""
    context = length / 2

    def draft_on_gpu(count: int) -> bool:
        sides = [
            costs.draft_step([count], [count * context], fc_on_pim=[side], attention_on_pim=True).seconds
            for side in (False, True)
        ]
        return sides[0] <= sides[1]

    def target_on_gpu(sixteenths: int) -> bool:
        positions = sixteenths * batch / 16
        sides = [
            costs.target.attention(
                batch, round(positions), batch * context, positions * context, on_pim=side
            ).seconds
            for side in (False, True)
        ]
        return sides[0] <= sides[1]

    scale = 1 << FRACTION_BITS
    count = next((n for n in range(1, MAX_THRESHOLD // scale + 1) if draft_on_gpu(n)), MAX_THRESHOLD // scale)
    group = costs.target.model.kv_group
    steps = range(1, MAX_THRESHOLD // group + 1)
    queries = next((step for step in steps if target_on_gpu(step)), MAX_THRESHOLD // group)
    return Thresholds(count * scale, queries * group)


def make_plan(
    row: SystemRow, target: ModelShape, draft: ModelShape, machine: Machine, processing_element: OperationTiming, *,
    batch: int, length: int, draft_length: int, placement: int | None,
) -> tuple[Plan, SystemCosts]:
    """Choose placement and mapping of a system.

    Parameters
    ----------
    row
        The system.
    batch, length
        Initial batch and maximum sequence length.
    draft_length
        Fixed draft length; not looked at for adaptive drafts.
    placement
        DLM replicas, or None for the fastest.
    """
    speculative = row.draft != "none"
    options = [placement] if placement else [r for r in range(1, machine.devices + 1) if machine.devices % r == 0]
    if not speculative:
        options = [1]
    if placement and machine.devices % placement:
        raise UserError(f"placement must divide the {machine.devices} devices, not {placement}")
    if not (placement and speculative):  # the smallest placement must fit; larger ones are tried if they do
        check_memory(target, draft if speculative else None, machine, 1, batch, length)
    mappings: dict[str, list[tuple[bool, ...]]] = {
        "gpu": [(False, False, False, False)],
        "attention_pim": [(False, True, False, True)],
        "dynamic": [(False, True, False, True), (True, True, False, True)],
        "searched": list(product((False, True), repeat=4)),
    }
    best: tuple[float, int, tuple[bool, ...], SystemCosts] | None = None
    for replicas in options:
        try:
            check_memory(target, draft if speculative else None, machine, replicas, batch, length)
        except UserError:
            if placement:
                raise
            continue
        costs = SystemCosts(target, draft, machine, replicas, processing_element)
        counts = _spread(batch, replicas)
        contexts = [float(count * length) for count in counts]
        for mapping in mappings[row.mapping]:
            draft_fc, draft_attention, target_fc, target_attention = mapping
            step = costs.draft_step(
                counts, contexts, fc_on_pim=[draft_fc] * replicas, attention_on_pim=draft_attention
            ).seconds
            if row.draft == "adaptive":
                seconds = step
            else:
                queries = draft_length + 1 if speculative else 1
                seconds = (queries - 1) * step + costs.verify(
                    batch * queries, batch, batch * length, batch * queries * length, fc_on_pim=target_fc,
                    attention_on_pim=target_attention,
                ).seconds
            if best is None or seconds < best[0]:
                best = (seconds, replicas, mapping, costs)
    assert best is not None
    _, replicas, mapping, costs = best
    dynamic = row.mapping == "dynamic"
    thresholds = _thresholds(costs, batch, length) if dynamic else Thresholds(0, 0)
    return Plan(replicas, mapping[0], mapping[1], mapping[2], mapping[3], dynamic, thresholds), costs

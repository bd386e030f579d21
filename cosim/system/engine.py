"""Serving engine: autoregressive and fixed-length systems here, adaptive ones in :mod:`cosim.system.adaptive`.

A fixed-length system runs d DLM steps for the whole batch, then one TLM pass; requests near their end draft no further
than it.  An autoregressive system is the same with d = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosim.certificates import Timing
from cosim.system.adaptive import AdaptiveServing
from cosim.system.llm import ModelShape
from cosim.system.manager import Manager, MappingDecision
from cosim.system.parameters import Machine, SystemRow
from cosim.system.placement import Plan, SystemCosts, make_plan
from cosim.system.serving import CommitHook, Measurement, Serving
from cosim.system.trace import fp16_code
from cosim.system.workload import RequestStream

__all__ = ["Run", "simulate"]


@dataclass(frozen=True)
class Run:
    """Result of one simulation."""

    measurement: Measurement
    plan: Plan
    decisions: tuple[MappingDecision, ...]


def simulate(
    row: SystemRow, target: ModelShape, draft: ModelShape, machine: Machine, stream: RequestStream, timing: Timing, *,
    batch: int, length: int, tau: float, max_draft: int, fixed_draft: int, capacity: int, placement: int | None,
    window_tokens: int, on_commit: CommitHook | None = None, log: bool = False,
) -> Run:
    """Serve ``stream`` on one system and measure a window.

    Parameters
    ----------
    row, target, draft, machine
        What runs on what.
    stream
        The requests, made for the same ``batch``.
    timing
        Measured cycles of the PE and of the Manager's parts.
    batch, length
        Slots, and the maximum sequence length (for memory, placement and thresholds).
    tau, max_draft, capacity
        Stop threshold, longest draft and entries of the Shared Pool (adaptive drafts).
    fixed_draft
        Draft length (fixed drafts).
    placement
        DLM replicas, or None for the fastest.
    window_tokens
        Committed tokens per slot in the window.
    on_commit, log
        Observer of commits; whether to keep the mapping decisions.

    Raises
    ------
    UserError
        If models and KV caches do not fit.
    """
    plan, costs = make_plan(
        row, target, draft, machine, timing["processing_element"]["dot"], batch=batch, length=length,
        draft_length=fixed_draft, placement=placement,
    )
    serving = Serving(stream, batch, window_tokens, on_commit)
    if row.draft == "adaptive":
        manager = Manager(
            batch=batch, micro_batches=plan.replicas, capacity=capacity, tau=fp16_code(tau), max_draft=max_draft,
            thresholds=plan.thresholds, kv_group=target.kv_group, timing=timing,
            clock_hz=machine.manager_clock_ghz * 1e9, log=log,
        )
        AdaptiveServing(serving, costs, plan, manager, row, max_draft).run()
        return Run(serving.measurement(), plan, tuple(manager.log or ()))
    _run_fixed(serving, costs, plan, fixed_draft if row.draft == "fixed" else 0)
    return Run(serving.measurement(), plan, ())


def _run_fixed(serving: Serving, costs: SystemCosts, plan: Plan, draft_length: int) -> None:
    """Draft ``draft_length`` tokens for everybody, verify, repeat."""
    slots, counters, replicas = range(serving.batch), serving.counters, costs.replicas
    draft_sides = [plan.draft_fc_on_pim] * replicas
    while not serving.window_done():
        drafts = [min(draft_length, serving.remaining(slot)) for slot in slots]
        contexts = serving.contexts
        for step in range(max(drafts)):
            counts, sums = [0] * replicas, [0.0] * replicas
            for slot in slots:
                if drafts[slot] > step:
                    counts[slot % replicas] += 1
                    sums[slot % replicas] += contexts[slot] + step + 1
            cost = costs.draft_step(counts, sums, fc_on_pim=draft_sides, attention_on_pim=plan.draft_attention_on_pim)
            counters.time_s += cost.seconds
            counters.prediction_s += cost.seconds
            counters.draft_steps += 1
            counters.drafted_tokens += sum(counts)
            counters.work = counters.work.then(cost)
        cost = costs.verify(
            sum(drafts) + serving.batch,
            serving.batch,
            float(sum(context + drafts[slot] + 1 for slot, context in enumerate(contexts))),
            float(sum((drafts[slot] + 1) * (context + drafts[slot] + 1) for slot, context in enumerate(contexts))),
            fc_on_pim=plan.target_fc_on_pim,
            attention_on_pim=plan.target_attention_on_pim,
        )
        counters.time_s += cost.seconds
        counters.verification_s += cost.seconds
        counters.verifications += 1
        counters.target_attention_on_pim += plan.target_attention_on_pim
        counters.work = counters.work.then(cost)
        for slot in slots:
            serving.commit(slot, drafts[slot])

"""Event-driven serving with drafts of adaptive length: Shared Pool, Eager Pools, run-time mapping.

Two things can be in flight: one DLM step (all micro-batches side by side) and one TLM pass.  Every request takes part
in every verification, with its pooled draft tokens and one position more; one without drafts gets one token.  The event
rules and which of them are ours stand in ``docs/system_model.md``.

Source: paper sections IV-C to IV-E, rules T2 to T15 and S1 to S4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cosim.system.costs import NO_COST, Cost
from cosim.system.dispatch import rate_falls, should_send
from cosim.system.manager import Manager
from cosim.system.parameters import SystemRow
from cosim.system.placement import Plan, SystemCosts
from cosim.system.serving import Serving
from golden_model.arithmetic.formats import FP16, exact_value
from golden_model.manager.operator_mapping import Operator
from golden_model.manager.stop_test import ONE

__all__ = ["AdaptiveServing", "Draft"]

MIN_RATE = 0.02
"""Slowest progress of a DLM step beside a TLM pass (our choice, so that it cannot stand still)."""


@dataclass
class Draft:
    """Unverified tokens of a slot: first those under verification, then those that wait."""

    p: list[int] = field(default_factory=list)  # FP16 code of each token's probability
    h: list[int] = field(default_factory=list)  # FP16 code of the cumulative probability after each token
    sent: int = 0  # tokens under verification
    stopped: bool = False
    dropped: int | None = None  # p of the token that fell below tau
    epoch: int = 0  # changes when a token in flight becomes void

    def restart(self) -> None:
        """Begin anew behind the committed text; a token in flight is void."""
        self.p, self.h, self.sent, self.stopped, self.dropped = [], [], 0, False, None
        self.epoch += 1


class AdaptiveServing:
    """One adaptive system at work.

    Parameters
    ----------
    serving
        Slots and counters.
    costs, plan
        Step times, and the static part of the mapping.
    manager
        Golden Manager.
    row
        Pools, mapping and dispatch rule.
    max_draft
        Longest draft, tokens under verification and Eager tokens included.
    """

    def __init__(
        self, serving: Serving, costs: SystemCosts, plan: Plan, manager: Manager, row: SystemRow, max_draft: int
    ) -> None:
        self.serving = serving
        self.costs = costs
        self.plan = plan
        self.manager = manager
        self.dispatch = row.dispatch
        self.overlap = row.overlap
        self.max_draft = max_draft
        self.drafts = [Draft() for _ in range(serving.batch)]
        self._values = [float(exact_value(code, FP16)) for code in range(ONE + 1)]
        self._step: list[tuple[int, int]] = []  # slots and epochs of the DLM step in flight
        self._step_cost = NO_COST
        self._step_left = 0.0  # seconds of it at full rate
        self._rate = 1.0
        self._pass_cost: Cost | None = None  # TLM pass in flight
        self._pass_end = 0.0
        self._idle_since = 0.0
        self._pending_s = 0.0  # Manager time that the next TLM pass waits for
        self._p_sum, self._p_count = 1.0, 1  # running mean of p; starts high so that drafting is tried

    def run(self) -> None:
        """Serve until the window is over."""
        while True:
            if self._pass_cost is None and (self.overlap or not self._step) and self._should_verify():
                self._start_pass()
            if not self._step and (self.overlap or self._pass_cost is None):
                self._start_step()
            if self._advance():
                self._finish_step()
            else:
                self._finish_pass()
                if self.serving.window_done():
                    return

    # Time

    def _advance(self) -> bool:
        """Go to the next event; True if it is the end of the DLM step, False if that of the TLM pass."""
        counters = self.serving.counters
        verifying = self._pass_cost is not None
        left = self._step_left / self._rate if self._step else float("inf")
        until_pass = self._pass_end - counters.time_s if verifying else float("inf")
        elapsed = max(0.0, min(left, until_pass))
        assert elapsed < float("inf"), "nothing in flight"
        counters.time_s += elapsed
        if self._step:
            counters.prediction_s += elapsed
            self._step_left = max(0.0, self._step_left - elapsed * self._rate)
        if verifying:
            counters.verification_s += elapsed
            if self._step:
                counters.overlap_s += elapsed
        return left <= until_pass

    def _update_rate(self) -> None:
        """The TLM has priority on every resource; the DLM gets what is left."""
        self._rate = 1.0
        if self._pass_cost is None or not self._step:
            return
        target, draft = self._pass_cost, self._step_cost
        for used, wanted in ((target.gpu, draft.gpu), (target.pim, draft.pim), (target.link, draft.link)):
            if wanted > 0.0:
                free = 1.0 - used / target.seconds
                self._rate = min(self._rate, free * draft.seconds / wanted)
        self._rate = max(MIN_RATE, self._rate)

    # DLM

    def _drafting(self, slot: int) -> bool:
        draft = self.drafts[slot]
        return not draft.stopped and len(draft.p) < min(self.max_draft, self.serving.remaining(slot))

    def _candidates(self) -> list[int]:
        """Slots that draft and whose pool has room."""
        manager, replicas = self.manager, self.plan.replicas
        verifying = self._pass_cost is not None
        if verifying:
            room = [pool.entries - pool.waiting for pool in manager.eager]
        else:
            room = [manager.shared.entries - manager.shared.waiting]
        slots = []
        for slot in range(self.serving.batch):
            if self._drafting(slot):
                pool = slot % replicas if verifying else 0
                if room[pool] > 0:
                    room[pool] -= 1
                    slots.append(slot)
        return slots

    def _start_step(self) -> None:
        slots = self._candidates()
        if not slots:
            return
        replicas, contexts, now = self.plan.replicas, self.serving.contexts, self.serving.counters.time_s
        counts, sums = [0] * replicas, [0.0] * replicas
        for slot in slots:
            counts[slot % replicas] += 1
            sums[slot % replicas] += contexts[slot] + len(self.drafts[slot].p) + 1
        mapped = 0
        if self.plan.dynamic:
            mapped = sum(count > 0 for count in counts)
            sides = [count > 0 and self.manager.on_pim(Operator.DLM_FC, count, 1, now) for count in counts]
        else:
            sides = [self.plan.draft_fc_on_pim] * replicas
        self._step = [(slot, self.drafts[slot].epoch) for slot in slots]
        self._step_cost = self.costs.draft_step(
            counts, sums, fc_on_pim=sides, attention_on_pim=self.plan.draft_attention_on_pim
        )
        decision_s = self.manager.draft_seconds(len(slots), mapped)
        self._step_left = self._step_cost.seconds + decision_s
        counters = self.serving.counters
        counters.manager_s += decision_s
        counters.draft_steps += 1
        counters.drafted_tokens += len(slots)
        self._update_rate()

    def _finish_step(self) -> None:
        requests, positions, counters = self.serving.requests, self.serving.positions, self.serving.counters
        for slot, epoch in self._step:
            draft = self.drafts[slot]
            if draft.epoch != epoch:
                continue
            p = requests[slot].trace.draft_probability(positions[slot], len(draft.p))
            self._p_sum += self._values[p]
            self._p_count += 1
            self._take(slot, p)
        counters.work = counters.work.then(self._step_cost)
        self._step = []
        self._rate = 1.0

    def _take(self, slot: int, p: int) -> None:
        """Test a token and store it if it stays; a full pool loses it, and it is drafted again."""
        draft = self.drafts[slot]
        decision = self.manager.decide(draft.h[-1] if draft.h else ONE, p, len(draft.p) + 1)
        if decision.keep:
            if not self.manager.store(slot, len(draft.p), decision.h):
                return
            draft.p.append(p)
            draft.h.append(decision.h)
        else:
            draft.dropped = p
        draft.stopped = not decision.go_on

    # TLM

    def _should_verify(self) -> bool:
        """Ask the dispatch rule, whenever the TLM is idle."""
        shared, slots = self.manager.shared, range(self.serving.batch)
        drafting = [slot for slot in slots if self._drafting(slot)]
        if not (self._step or drafting) or shared.waiting >= shared.entries:
            return True
        if self.dispatch != "rate":
            return should_send(self.dispatch, waiting=shared.waiting, drafting=len(drafting), batch=len(slots))
        if self._step:
            drafting = [slot for slot, epoch in self._step if self.drafts[slot].epoch == epoch]
        values, positions = self._values, self.serving.batch + shared.waiting
        return rate_falls(
            expected=self.serving.batch + sum([values[code] for draft in self.drafts for code in draft.h]),
            gain=self._p_sum / self._p_count
            * sum(values[self.drafts[slot].h[-1]] if self.drafts[slot].h else 1.0 for slot in drafting),
            now_s=self.serving.counters.time_s - self._idle_since + self._pass_estimate(positions),
            later_s=self.serving.counters.time_s - self._idle_since
            + (self._step_left if self._step else self._step_cost.seconds)
            + self._pass_estimate(positions + len(drafting)),
        )

    def _pass_estimate(self, positions: int) -> float:
        """Predicted time of a pass with the mean number of positions per request."""
        context = float(sum(self.serving.contexts))
        batch = self.serving.batch
        sides = (True, False) if self.plan.dynamic else (self.plan.target_attention_on_pim,)
        return min(
            self.costs.verify(
                positions, batch, context, context * positions / batch, fc_on_pim=False, attention_on_pim=side
            ).seconds
            for side in sides
        )

    def _start_pass(self) -> None:
        serving, manager, counters = self.serving, self.manager, self.serving.counters
        chosen = manager.send()
        for entry in chosen:
            self.drafts[entry.request].sent += 1
        contexts, batch = serving.contexts, serving.batch
        context_sum = query_context_sum = 0.0
        for slot, draft in enumerate(self.drafts):
            queries = draft.sent + 1
            context_sum += contexts[slot] + queries
            query_context_sum += queries * (contexts[slot] + queries)
        positions = len(chosen) + batch
        on_pim, mapped = self.plan.target_attention_on_pim, 0
        if self.plan.dynamic:
            mapped = 1
            on_pim = manager.on_pim(Operator.TLM_ATTENTION, positions, batch, counters.time_s)
        cost = self.costs.verify(
            positions, batch, context_sum, query_context_sum, fc_on_pim=self.plan.target_fc_on_pim,
            attention_on_pim=on_pim,
        )
        decision_s = manager.send_seconds(len(chosen), mapped)
        counters.manager_s += decision_s
        self._pass_cost = cost
        self._pass_end = counters.time_s + self._pending_s + decision_s + cost.seconds
        self._pending_s = 0.0
        counters.verifications += 1
        counters.target_attention_on_pim += on_pim
        self._update_rate()

    def _finish_pass(self) -> None:
        serving, manager, counters = self.serving, self.manager, self.serving.counters
        assert self._pass_cost is not None
        counters.work = counters.work.then(self._pass_cost)
        self._pass_cost = None
        self._idle_since = counters.time_s
        retired = [slot for slot, draft in enumerate(self.drafts) if draft.sent]
        manager.retire(retired)
        voided, moves = 0, []
        for slot, draft in enumerate(self.drafts):
            sent = draft.sent
            run = serving.requests[slot].trace.runs[serving.positions[slot]]
            _, finished = serving.commit(slot, sent)
            if not finished and run > sent and len(draft.p) > sent:
                # All accepted and the first Eager token is the bonus token: the others live on.
                moves.append(self._survive(slot))
            else:
                if len(draft.p) > sent:
                    manager.void(slot)
                    voided += 1
                draft.restart()
        decision_s = manager.result_seconds(len(retired), voided, moves)
        counters.manager_s += decision_s
        self._pending_s += decision_s
        self._update_rate()

    def _survive(self, slot: int) -> int:
        """Move the Eager tokens behind the bonus token to the Shared Pool, with H over them alone.

        Returns the length of the burst.
        """
        draft = self.drafts[slot]
        moved = self.manager.move(slot)
        survivors, dropped = draft.p[draft.sent + 1 :], draft.dropped
        assert len(moved) == len(survivors) + 1
        draft.p, draft.h, draft.sent, draft.stopped, draft.dropped = [], [], 0, False, None
        for count, p in enumerate(survivors):
            if len(draft.p) == count:
                self._take(slot, p)
        # H over fewer tokens is no smaller, so all pass the test again.  Room can only be short if the Shared Pool has
        # fewer entries than there are Eager Pools; then the rest is lost and drafted anew.
        if len(draft.p) < len(survivors):
            draft.epoch += 1
        elif dropped is not None and not draft.stopped:
            self._take(slot, dropped)
        return len(moved)

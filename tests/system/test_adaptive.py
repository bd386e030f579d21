"""Adaptive serving: stop rule, pools, eager drafts, dispatch rules, priority of the TLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cosim.system.adaptive import MIN_RATE, AdaptiveServing
from cosim.system.engine import Run
from cosim.system.trace import TraceRequest, fp16_code, load_trace, make_request
from golden_model.manager.draft_pool import SENT, WAITING
from golden_model.manager.stop_test import ONE, probability_product

Simulate = Callable[..., Run]
Steady = Callable[[int, int], TraceRequest]


def watch(monkeypatch: pytest.MonkeyPatch, name: str, look: Callable[[AdaptiveServing], None]) -> None:
    """Call ``look`` after every call of a method."""
    method = getattr(AdaptiveServing, name)

    def watched(self: AdaptiveServing) -> Any:
        result = method(self)
        look(self)
        return result

    monkeypatch.setattr(AdaptiveServing, name, watched)


def check_state(engine: AdaptiveServing) -> None:
    """Drafts, pools and trace must tell the same story."""
    manager = engine.manager
    for slot, draft in enumerate(engine.drafts):
        request, position = engine.serving.requests[slot], engine.serving.positions[slot]
        assert draft.p == [request.trace.draft_probability(position, count) for count in range(len(draft.p))]
        h, expected = ONE, []
        for p in draft.p:
            h = probability_product(h, p)
            expected.append(h)
        assert draft.h == expected
        assert len(draft.p) <= min(engine.max_draft, request.trace.length - position)
        eager = manager.eager[slot % engine.plan.replicas]
        assert manager.shared.match(slot, SENT) == draft.sent
        assert manager.shared.match(slot, WAITING) + eager.match(slot, WAITING) == len(draft.p) - draft.sent
        if engine._pass_cost is None:
            assert draft.sent == 0 == eager.match(slot)
        else:
            assert manager.shared.match(slot, WAITING) == 0
    assert manager.shared.locked == (engine._pass_cost is not None)
    assert manager.shared.waiting + manager.shared.sent <= manager.shared.entries


@pytest.mark.parametrize("system", ["SADDLE", "SADDLE-literal", "SADDLE-p", "SADDLE-s"])
@pytest.mark.parametrize("capacity", [16, 40, 512])
def test_state_is_consistent_after_every_event(
    run: Simulate, monkeypatch: pytest.MonkeyPatch, system: str, capacity: int
) -> None:
    calls = Counter[str]()

    def look(engine: AdaptiveServing) -> None:
        calls["events"] += 1
        calls["eager"] += sum(pool.waiting for pool in engine.manager.eager)
        check_state(engine)

    for name in ("_finish_step", "_finish_pass", "_start_pass"):
        watch(monkeypatch, name, look)
    run(system, load_trace().requests[:30], batch=12, capacity=capacity, window_tokens=100)
    assert calls["events"] > 100
    assert (calls["eager"] > 0) == (system in ("SADDLE", "SADDLE-literal", "SADDLE-s"))


def drafted_lengths(run: Simulate, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Counter[int]:
    """Draft lengths that one system sends."""
    lengths = Counter[int]()
    watch(monkeypatch, "_start_pass", lambda engine: lengths.update(draft.sent for draft in engine.drafts))
    run("SADDLE-d", settings.pop("requests"), batch=2, **settings)
    return lengths


@pytest.mark.parametrize(("tau", "max_draft", "length"), [(0.5, 16, 6), (0.5, 4, 4), (0.0, 16, 16), (0.95, 16, 0)])
def test_stop_rule_multiplies(
    run: Simulate, monkeypatch: pytest.MonkeyPatch, tau: float, max_draft: int, length: int
) -> None:  # SD-14: 0.9^6 = 0.531, 0.9^7 = 0.478; the token below tau is not sent
    request = make_request("t", [0.9] * 150, [1] * 150)
    lengths = drafted_lengths(
        run, monkeypatch, requests=[request], tau=tau, max_draft=max_draft, window_tokens=150
    )
    assert lengths.most_common(1)[0][0] == max(lengths) == length


def test_result_survives_only_if_the_first_eager_token_is_the_bonus(
    run: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    survived: list[int] = []
    survive = AdaptiveServing._survive

    def watched(self: AdaptiveServing, slot: int) -> int:
        survived.append(slot)
        return survive(self, slot)

    monkeypatch.setattr(AdaptiveServing, "_survive", watched)
    run("SADDLE-literal", [make_request("t", [1.0] * 60, [0] * 60)], batch=4)
    assert not survived  # nothing is ever accepted
    run("SADDLE-literal", [make_request("t", [1.0] * 60, [1] * 60)], batch=4)
    assert survived


def test_a_token_in_flight_is_void_after_a_rejection(run: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, void = AdaptiveServing._finish_step, []

    def watched(self: AdaptiveServing) -> None:
        stale = [slot for slot, epoch in self._step if self.drafts[slot].epoch != epoch]
        before = [list(self.drafts[slot].p) for slot in stale]
        finish(self)
        assert [self.drafts[slot].p for slot in stale] == before
        void.extend(stale)

    monkeypatch.setattr(AdaptiveServing, "_finish_step", watched)
    # One tensor-parallel DLM is slow enough for drafting to last longer than a pass.
    run("SADDLE-literal", load_trace().requests, batch=16, tau=0.0, max_draft=31, placement=1)
    assert void


def test_a_dropped_token_is_tested_again_behind_a_shorter_draft(run: Simulate, steady: Steady) -> None:
    # p = 0.9, tau = 0.5: drafts stop after 6 tokens; survivors make room for more without a new DLM step for the 7th.
    request = make_request("t", [0.9] * 100, [1] * 100)
    counters = run("SADDLE-literal", [request], tau=0.5, window_tokens=100).measurement.counters
    assert counters.accepted_draft_tokens == counters.verified_draft_tokens > 0


def test_dispatch_rules_differ_as_named(run: Simulate) -> None:
    recorded = load_trace().requests
    length = {}
    for rule in ("idle", "half_stopped", "all_stopped"):
        counters = run("SADDLE-p", recorded, batch=16, dispatch=rule, window_tokens=100).measurement.counters
        length[rule] = counters.verified_draft_tokens / counters.request_verifications
    assert length["idle"] < length["half_stopped"] < length["all_stopped"]


def test_without_overlap_the_models_take_turns(run: Simulate) -> None:
    recorded = load_trace().requests
    turns = run("SADDLE-p", recorded, batch=16).measurement.counters
    assert turns.overlap_s == 0
    # Whatever is neither drafting nor verifying would be time in which nothing happens.
    assert turns.prediction_s + turns.verification_s == pytest.approx(turns.time_s, rel=1e-9)
    both = run("SADDLE-s", recorded, batch=16).measurement.counters
    assert both.overlap_s > 0
    assert both.prediction_s + both.verification_s - both.overlap_s == pytest.approx(both.time_s, rel=1e-9)


def test_target_model_has_priority(run: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []

    def look(engine: AdaptiveServing) -> None:
        if engine._pass_cost is None or not engine._step:
            assert engine._rate == 1.0
            return
        rates.append(engine._rate)
        target, draft = engine._pass_cost, engine._step_cost
        for used, wanted in ((target.gpu, draft.gpu), (target.pim, draft.pim), (target.link, draft.link)):
            together = used / target.seconds + engine._rate * wanted / draft.seconds
            assert together <= 1 + 1e-9 or engine._rate == MIN_RATE

    watch(monkeypatch, "_update_rate", look)
    run("SADDLE-s", load_trace().requests, batch=16)
    assert rates
    assert min(rates) < 0.9


def test_mapping_decisions_are_logged(run: Simulate) -> None:
    result = run("SADDLE", load_trace().requests, batch=100, placement=4, log=True)
    threshold = result.plan.thresholds.dlm_fc / 16
    draft = [entry for entry in result.decisions if entry.operator == "dlm_fc"]
    target = [entry for entry in result.decisions if entry.operator == "tlm_attention"]
    assert {entry.side for entry in draft} == {"gpu", "pim"}
    assert all((entry.side == "pim") == (entry.intensity < threshold) for entry in draft)
    assert target
    assert all(entry.threshold == result.plan.thresholds.tlm_attention / 16 for entry in target)
    times = [entry.time_s for entry in result.decisions]
    assert times == sorted(times)
    assert not run("SADDLE", load_trace().requests, batch=8).decisions


def test_long_drafts_send_target_attention_to_the_gpu(run: Simulate, steady: Steady) -> None:
    counters = run(
        "SADDLE", [steady(120, 1)], batch=16, dispatch="all_stopped", placement=8, window_tokens=120
    ).measurement.counters
    assert 0 < counters.target_attention_on_pim < counters.verifications


def test_fp16_code() -> None:
    assert (fp16_code(1.0), fp16_code(0.9), fp16_code(0.0)) == (ONE, 0x3B33, 0)

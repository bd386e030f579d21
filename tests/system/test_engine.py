"""Serving engine: losslessness, closed forms, end of requests, speculation switched off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosim.certificates import OperationTiming, Timing
from cosim.system.engine import Run
from cosim.system.parameters import Parameters
from cosim.system.serving import Serving
from cosim.system.trace import TraceRequest, load_trace, make_request
from cosim.system.workload import Request, RequestStream
from golden_model.manager.draft_pool import DraftPool

SYSTEMS = ("GPU-AD", "GPU-SD", "PIM-AD", "PIM-SD", "SADDLE", "SADDLE-literal", "SADDLE-d", "SADDLE-p", "SADDLE-s")
RULES = ("idle", "all_stopped", "half_stopped", "rate")
Steady = Callable[[int, int], TraceRequest]
Simulate = Callable[..., Run]


class Recorder:
    """Checks on the fly that every request commits 0, 1, 2, ... each once and in order."""

    def __init__(self) -> None:
        self.next: dict[int, int] = defaultdict(int)
        self.tokens = 0

    def __call__(self, request: Request, position: int, count: int) -> None:
        assert position == self.next[request.number]
        assert 1 <= count
        assert position + count <= request.trace.length
        self.next[request.number] = position + count
        self.tokens += count


class Slots:
    """Stream for tests that commit by hand."""

    def __init__(self, request: TraceRequest) -> None:
        self._request = request

    def next(self) -> Request:
        return Request(0, self._request, 10)


def by_hand(accepted: list[int], drafted: int, on_commit: Recorder | None = None) -> tuple[int, int, bool]:
    """Return accepted tokens, committed tokens, finished."""
    request = make_request("t", [0.9] * len(accepted), accepted)
    serving = Serving(Slots(request), 1, 10, on_commit)  # type: ignore[arg-type]
    count, finished = serving.commit(0, drafted)
    return count, serving.counters.committed_tokens, finished


def test_accepted_tokens_end_at_the_first_rejection() -> None:  # SD-01
    assert by_hand([1, 0, 1, 1, 1, 1], 4) == (1, 2, False)
    assert by_hand([1, 0, 1, 1], 3) == (1, 2, False)
    assert by_hand([1, 1, 1, 1], 3) == (3, 4, True)  # the fourth is the TLM's own token


def test_end_of_request_inside_the_accepted_block() -> None:  # SD-03
    assert by_hand([1, 1, 1], 5) == (3, 3, True)  # neither tokens beyond the end nor a bonus token count


@pytest.mark.parametrize("system", SYSTEMS)
def test_length_limit_inside_a_draft(run: Simulate, steady: Steady, system: str) -> None:  # SD-19
    recorder = Recorder()
    # Eight tokens up to the model limit of 2048; reading the trace beyond them would raise an IndexError.
    result = run(system, [steady(8, 1)], batch=1, contexts=(2040,), length=2048, window_tokens=16, on_commit=recorder)
    assert result.measurement.counters.committed_tokens == 16
    assert set(recorder.next.values()) == {8}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("accepted", [0, 1])
def test_lossless_at_the_extremes(run: Simulate, steady: Steady, system: str, accepted: int) -> None:
    recorder = Recorder()
    result = run(system, [steady(23, accepted), steady(7, 1 - accepted)], on_commit=recorder)
    assert recorder.tokens >= result.measurement.counters.committed_tokens >= 4 * 40


probabilities = st.floats(0.0, 1.0, width=16)
requests = st.lists(
    st.lists(st.tuples(probabilities, st.integers(0, 1), st.lists(probabilities, max_size=7)), min_size=1, max_size=24),
    min_size=1, max_size=4,
).map(lambda rows: [
    make_request("h", [p for p, _, _ in row], [a for _, a, _ in row], [[] if a else s for _, a, s in row])
    for row in rows
])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    recorded=requests, system=st.sampled_from(SYSTEMS), rule=st.sampled_from(RULES), batch=st.integers(1, 9),
    tau=st.sampled_from((0.0, 0.05, 0.3, 0.9, 1.0)), max_draft=st.integers(0, 31), fixed_draft=st.integers(0, 12),
    capacity=st.integers(1, 24), placement=st.sampled_from((None, 1, 8)),
)
def test_every_system_commits_the_recorded_text(
    run: Simulate, recorded: list[TraceRequest], system: str, rule: str, batch: int, tau: float, max_draft: int,
    fixed_draft: int, capacity: int, placement: int | None,
) -> None:
    recorder = Recorder()
    changes: dict[str, Any] = {"dispatch": rule} if system.startswith("SADDLE") else {}
    result = run(
        system, recorded, batch=batch, on_commit=recorder, tau=tau, max_draft=max_draft, fixed_draft=fixed_draft,
        capacity=capacity, placement=placement, window_tokens=12, **changes,
    )
    counters = result.measurement.counters
    assert counters.committed_tokens >= 12 * batch
    assert counters.accepted_draft_tokens <= counters.verified_draft_tokens
    # What is verified was drafted; tokens drafted before the window may be verified inside it.
    assert counters.verified_draft_tokens <= counters.drafted_tokens + capacity + 32 * batch
    assert counters.overlap_s <= min(counters.prediction_s, counters.verification_s) + 1e-12


@pytest.mark.parametrize("system", ["GPU-AD", "PIM-AD"])
def test_autoregressive_run_equals_its_closed_form(
    run: Simulate, steady: Steady, parameters: Parameters, system: str
) -> None:
    machine, contexts, length = parameters.machine, (0, 300, 777), 50
    measured = run(system, [steady(length, 0)], batch=3, contexts=contexts, window_tokens=length).measurement
    # FC and overheads do not depend on the context: 3 tokens, memory-bound.
    seconds = 64 * 22.03e-6 + 128 * 7 * 6.06e-6 + 128 * 7 * 0.009e-9 * 2 * 3 * 9216 / 8
    for inputs, outputs, count in (
        (9216, 27648, 64), (9216, 9216, 64), (9216, 36864, 64), (36864, 9216, 64), (9216, 50272, 1)
    ):
        seconds += count * 2 * (inputs * outputs / 8 + 3 * (inputs + outputs / 8)) / 1.7e12
    if system == "GPU-AD":  # 27 blocks on 108 processors
        per_token, fixed = 2359296 / (8 * 1.7e12 * 0.25), 0.0
    else:
        per_token = 2359296 / 144e12
        vectors = 2 * 64 * 3 * 4 * 9216 / 8 / 2000e9
        fixed = 2 * 64 * (1e-6 + 7 / 1e9) + 2 * 64 * 1e-6 + vectors
    tokens = sum(context + step + 1 for context in contexts for step in range(length))
    assert machine.devices == 8
    assert measured.counters.time_s == pytest.approx(length * (seconds + fixed) + tokens * per_token, rel=1e-12)
    assert measured.counters.committed_tokens == 3 * length
    assert measured.tpot_s == pytest.approx([measured.counters.time_s / length] * 3)


def test_kv_cache_grows_with_every_output_token(run: Simulate, steady: Steady) -> None:  # DR-12
    times = {}
    for length in (1, 2, 257):
        recorder = Recorder()
        result = run("PIM-AD", [steady(length, 0)], contexts=(1, 127, 128, 129), window_tokens=length,
                     on_commit=recorder)
        assert set(recorder.next.values()) == {length}
        times[length] = result.measurement.counters.time_s
    assert times[2] > 2 * times[1]  # the second step sees one token more
    assert times[257] > 257 * times[1]


@pytest.mark.parametrize("batch", [16, 64, 128])
def test_fixed_draft_of_length_zero_equals_autoregressive(run: Simulate, batch: int) -> None:  # SD-09
    recorded = load_trace().requests[:20]
    for speculative, plain in (("GPU-SD", "GPU-AD"), ("PIM-SD", "PIM-AD")):
        with_zero = run(speculative, recorded, batch=batch, fixed_draft=0).measurement
        without = run(plain, recorded, batch=batch).measurement
        assert with_zero == without


@pytest.mark.parametrize("system", ["SADDLE", "SADDLE-literal"])
def test_adaptive_draft_of_length_zero_costs_only_the_manager(run: Simulate, system: str) -> None:  # SD-09
    recorded = load_trace().requests[:20]
    adaptive = run(system, recorded, batch=32, max_draft=0).measurement.counters
    plain = run("PIM-AD", recorded, batch=32).measurement.counters
    assert adaptive.committed_tokens == plain.committed_tokens
    assert adaptive.manager_s > 0
    assert adaptive.time_s - adaptive.manager_s == pytest.approx(plain.time_s, rel=1e-9)
    assert adaptive.work == pytest.approx(plain.work, rel=1e-9)


@pytest.mark.parametrize(("length", "emitted"), [(8, 4.3289), (4, 3.3616)])
def test_expected_tokens_per_step(length: int, emitted: float) -> None:  # SD-17
    import numpy as np

    accepted = (np.random.default_rng(1).random(1_000_000) < 0.8).astype(int).tolist()
    request = make_request("synthetic", [0.8] * len(accepted), accepted)
    serving = Serving(Slots(request), 1, 1)  # type: ignore[arg-type]
    while not serving.commit(0, length)[1]:
        pass
    counters = serving.counters
    assert counters.committed_tokens == 1_000_000
    assert counters.committed_tokens / counters.request_verifications == pytest.approx(emitted, rel=0.005)
    assert emitted == pytest.approx((1 - 0.8 ** (length + 1)) / (1 - 0.8), abs=1e-4)


def test_all_accepted_gives_draft_plus_bonus(run: Simulate, steady: Steady) -> None:
    counters = run("GPU-SD", [steady(90, 1)], window_tokens=90).measurement.counters
    assert counters.committed_tokens / counters.request_verifications == 9
    counters = run("GPU-SD", [steady(90, 0)], window_tokens=90).measurement.counters
    assert counters.committed_tokens / counters.request_verifications == 1


def test_drafts_never_exceed_the_pool(run: Simulate, steady: Steady, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    select = DraftPool.select

    def watched(pool: DraftPool, capacity: int) -> Any:
        chosen = select(pool, capacity)
        sizes.append(len(chosen))
        return chosen

    monkeypatch.setattr(DraftPool, "select", watched)
    run("SADDLE-d", [steady(120, 1)], batch=64, capacity=100)
    assert max(sizes) == 100


def test_manager_cycles_come_from_the_timing(run: Simulate, timing: Timing) -> None:
    recorded = load_trace().requests[:10]
    slow = {**timing, "stop_test": {"decide": OperationTiming(300_003, 1)}}
    fast_run = run("SADDLE-p", recorded, batch=8).measurement.counters
    slow_run = run("SADDLE-p", recorded, batch=8, timing=slow).measurement.counters
    assert slow_run.manager_s > fast_run.manager_s + 0.25e-3 * slow_run.draft_steps
    assert slow_run.time_s / slow_run.committed_tokens > fast_run.time_s / fast_run.committed_tokens


def test_pe_timing_reaches_the_throughput(run: Simulate, timing: Timing) -> None:
    recorded = load_trace().requests[:10]
    slow = {**timing, "processing_element": {"dot": OperationTiming(7, 90), "axpy": OperationTiming(7, 90)}}
    assert (
        run("PIM-AD", recorded, batch=8, timing=slow).measurement.throughput_tok_s
        < run("PIM-AD", recorded, batch=8).measurement.throughput_tok_s
    )
    assert run("GPU-AD", recorded, batch=8, timing=slow) == run("GPU-AD", recorded, batch=8)


def test_contexts_stay_inside_the_maximum(parameters: Parameters) -> None:
    trace = load_trace()
    for context, low in (("spread", 0), ("recorded", 0), ("near_max", 800)):
        stream = RequestStream(trace, parameters.workload, context, 3, 16)  # type: ignore[arg-type]
        drawn = [stream.next() for _ in range(300)]
        assert all(low <= request.context <= 1024 - 160 for request in drawn)
        assert all(request.start == 0 for request in drawn[16:])
        assert any(request.start > 0 for request in drawn[:16])
        # Every recorded request comes once before any comes again.
        assert len({id(request.trace) for request in drawn[:60]}) == 60


def test_all_systems_see_the_same_requests(parameters: Parameters) -> None:
    trace = load_trace()
    first, second = (RequestStream(trace, parameters.workload, "spread", 5, 8) for _ in range(2))
    assert [first.next() for _ in range(100)] == [second.next() for _ in range(100)]
    other = RequestStream(trace, parameters.workload, "spread", 6, 8)
    order = [trace.requests.index(first.next().trace) for _ in range(20)]
    assert order not in (sorted(order), sorted(order, reverse=True))
    assert [first.next() for _ in range(20)] != [other.next() for _ in range(20)]

"""Made-up timing, packaged parameters and hand-made requests for the system tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cosim.certificates import OperationTiming, Timing
from cosim.system.engine import Run, simulate
from cosim.system.parameters import Parameters, load_parameters
from cosim.system.serving import CommitHook
from cosim.system.trace import TraceRequest, make_request
from cosim.system.workload import Request

POOL_OPERATIONS = ("insert", "match", "drop", "drain", "select", "lock", "unlock", "flush")


class FixedStream:
    """Hands out the same recorded requests over and over, each at a given context."""

    def __init__(self, requests: Sequence[TraceRequest], contexts: Sequence[int] = (100,)) -> None:
        self._requests, self._contexts, self.count = requests, contexts, 0

    def next(self) -> Request:
        number = self.count
        self.count += 1
        return Request(
            number, self._requests[number % len(self._requests)], self._contexts[number % len(self._contexts)]
        )


@pytest.fixture(scope="session")
def timing() -> Timing:
    """A made-up timing; no test depends on a real one."""
    return {
        "processing_element": {"dot": OperationTiming(7, 1), "axpy": OperationTiming(7, 1)},
        "stop_test": {"decide": OperationTiming(3, 1)},
        "draft_pool": {name: OperationTiming(2, 1) for name in POOL_OPERATIONS},
        "operator_mapping": {"map": OperationTiming(2, 1)},
    }


@pytest.fixture(scope="session")
def parameters() -> Parameters:
    return load_parameters()


Simulate = Callable[..., Run]


@pytest.fixture(scope="session")
def run(timing: Timing, parameters: Parameters) -> Simulate:
    """Simulate a system by name on hand-made requests."""

    def call(
        system: str, requests: Sequence[TraceRequest], *, batch: int = 4, contexts: Sequence[int] = (100,),
        on_commit: CommitHook | None = None, timing: Timing = timing, **changes: object,
    ) -> Run:
        target, draft = parameters.pair("opt-66b")
        settings: dict[str, object] = {
            "length": 1024, "tau": 0.3, "max_draft": 16, "fixed_draft": 8, "capacity": 512, "placement": None,
            "window_tokens": 40, **changes,
        }
        row = parameters.system(system)
        if "dispatch" in settings:
            row = row.model_copy(update={"dispatch": settings.pop("dispatch")})
        return simulate(
            row, target, draft, parameters.machine, FixedStream(requests, contexts), timing,  # type: ignore[arg-type]
            batch=batch, on_commit=on_commit, **settings,  # type: ignore[arg-type]
        )

    return call


@pytest.fixture(scope="session")
def steady() -> Callable[[int, int], TraceRequest]:
    """A request whose every token is accepted (1) or rejected (0), drafted with probability 1."""

    def call(length: int, accepted: int) -> TraceRequest:
        return make_request("test", [1.0] * length, [accepted] * length)

    return call

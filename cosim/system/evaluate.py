"""Evaluate systems x batches x seeds and write results, claims and figure into one directory.

The same inputs give byte-identical CSV, JSON, Markdown and SVG files.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosim.certificates import Timing
from cosim.errors import UserError
from cosim.files import check_folder, write_set
from cosim.report.claims import check_claims, claims_csv, claims_markdown
from cosim.report.figures import draw_fig12
from cosim.system.config import EvaluationConfig
from cosim.system.engine import Run, simulate
from cosim.system.manager import check_timing
from cosim.system.output import to_csv, to_json
from cosim.system.parameters import Machine, Parameters
from cosim.system.placement import make_plan
from cosim.system.trace import Trace, load_trace
from cosim.system.workload import RequestStream

__all__ = ["NOT_MODELLED", "EvaluationConfig", "evaluate_cell", "run_evaluation"]

NOT_MODELLED = (
    "prefill and time to first token",
    "static power (energy is dynamic only)",
    "softmax of the Manager (its share covers stop test, pools and operator mapping)",
    "DRAM row activation, refresh and power limits at command level",
    "imbalance of attention heads over stacks, GPU and PIM that disturb each other in one stack",
    "cost of moving an operator between GPU and PIM beyond its own vectors",
)


class Cell(NamedTuple):
    """One simulation."""

    system: str
    batch: int
    seed: int


@lru_cache(maxsize=4)
def _trace(path: str) -> Trace:
    return load_trace(Path(path))


@lru_cache(maxsize=4)
def _parameters(overrides: tuple[tuple[str, float], ...], systems_file: str | None) -> Parameters:
    return EvaluationConfig(machine=dict(overrides), systems_file=systems_file).parameters()


def evaluate_cell(config: EvaluationConfig, timing: Timing, cell: Cell) -> tuple[dict[str, Any], list[list[Any]]]:
    """Simulate one cell; return its row of results and its rows of the decision log."""
    parameters = _parameters(tuple(sorted(config.machine.items())), config.systems_file)
    target, draft = parameters.pair(config.pair)
    row = parameters.system(cell.system)
    workload = parameters.workload
    if config.max_sequence_length is not None:
        workload = workload.model_copy(update={"max_sequence_length": config.max_sequence_length})
    stream = RequestStream(_trace(str(config.trace_path)), workload, config.context, cell.seed, cell.batch)
    run = simulate(
        row, target, draft, parameters.machine, stream, timing, batch=cell.batch, length=workload.max_sequence_length,
        tau=config.tau, max_draft=config.max_draft, fixed_draft=config.fixed_draft, capacity=config.capacity,
        placement=None if config.placement == "auto" else int(config.placement), window_tokens=config.window_tokens,
        log=config.decision_log,
    )
    decisions = [[*cell, *decision.__dict__.values()] for decision in run.decisions]
    return _row(cell, run, parameters.machine, row.draft, row.dispatch), decisions


def _row(cell: Cell, run: Run, machine: Machine, draft: str, dispatch: str) -> dict[str, Any]:
    """Reduce a run to named numbers with units; what a system does not have is an empty cell."""
    counters, plan = run.measurement.counters, run.plan
    work, tokens, seconds = counters.work, counters.committed_tokens, counters.time_s
    picojoule = {
        "gpu_memory": work.gpu_bytes * machine.gpu_memory_pj_per_byte,
        "pim_memory": work.pim_bytes * machine.pim_memory_pj_per_byte,
        "link": work.link_bytes * machine.link_pj_per_byte,
        "compute": (work.gpu_macs + work.pim_macs) * machine.mac_pj + work.gpu_macs * machine.gpu_on_chip_pj_per_mac,
    }
    tpot = np.array(run.measurement.tpot_s) * 1e3
    speculative, dynamic = draft != "none", plan.dynamic
    side = {True: "pim", False: "gpu"}
    return {
        **cell._asdict(),
        "output_throughput_tok_s": run.measurement.throughput_tok_s,
        "tpot_mean_ms": cell.batch * seconds / tokens * 1e3,
        "tpot_p50_ms": float(np.percentile(tpot, 50)) if tpot.size else None,
        "tpot_p99_ms": float(np.percentile(tpot, 99)) if tpot.size else None,
        "finished_requests": int(tpot.size),
        "tokens_per_verification": tokens / counters.request_verifications,
        "draft_length_tok": counters.verified_draft_tokens / counters.request_verifications if speculative else None,
        "acceptance_rate_percent": (
            100 * counters.accepted_draft_tokens / counters.verified_draft_tokens
            if counters.verified_draft_tokens else None
        ),
        "prediction_ms_per_tok": counters.prediction_s / tokens * 1e3 if speculative else None,
        "verification_ms_per_tok": counters.verification_s / tokens * 1e3,
        "overlap_ms_per_tok": counters.overlap_s / tokens * 1e3 if draft == "adaptive" else None,
        "manager_share_percent": 100 * counters.manager_s / seconds if draft == "adaptive" else None,
        "gpu_busy_percent": 100 * work.gpu / seconds,
        "pim_busy_percent": 100 * work.pim / seconds,
        "link_busy_percent": 100 * work.link / seconds,
        "pim_mac_share_percent": 100 * work.pim_macs / (work.pim_macs + work.gpu_macs),
        **{f"energy_{name}_mj_per_tok": value * 1e-9 / tokens for name, value in picojoule.items()},
        "energy_dynamic_mj_per_tok": sum(picojoule.values()) * 1e-9 / tokens,
        "window_s": seconds,
        "window_tok": tokens,
        "dispatch": dispatch,
        "draft_replicas": plan.replicas if speculative else None,
        "draft_fc_side": ("dynamic" if dynamic else side[plan.draft_fc_on_pim]) if speculative else None,
        "draft_attention_side": side[plan.draft_attention_on_pim] if speculative else None,
        "target_fc_side": side[plan.target_fc_on_pim],
        "target_attention_side": "dynamic" if dynamic else side[plan.target_attention_on_pim],
        "target_attention_on_pim_percent": 100 * counters.target_attention_on_pim / counters.verifications,
        "dlm_fc_threshold_flop_per_byte": plan.thresholds.dlm_fc / 16 if dynamic else None,
        "tlm_attention_threshold_flop_per_byte": plan.thresholds.tlm_attention / 16 if dynamic else None,
    }


def _run_cells(
    config: EvaluationConfig, timing: Timing, cells: Sequence[Cell], jobs: int,
    progress: Callable[[int, int, str], None] | None,
) -> list[tuple[dict[str, Any], list[list[Any]]]]:
    def report(done: int) -> None:
        if progress is not None:
            cell = cells[done - 1]
            progress(done, len(cells), f"{cell.system}, batch {cell.batch}, seed {cell.seed}")

    results = []
    if jobs == 1:
        for done, cell in enumerate(cells, start=1):
            results.append(evaluate_cell(config, timing, cell))
            report(done)
        return results
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(evaluate_cell, config, timing, cell) for cell in cells]
        for done, future in enumerate(futures, start=1):
            results.append(future.result())
            report(done)
    return results


def _check_plans(config: EvaluationConfig, parameters: Parameters, timing: Timing) -> None:
    """Find out before the first run whether every cell fits into the memory."""
    target, draft = parameters.pair(config.pair)
    for name in config.systems:
        make_plan(
            parameters.system(name), target, draft, parameters.machine, timing["processing_element"]["dot"],
            batch=max(config.batches), length=config.max_sequence_length or parameters.workload.max_sequence_length,
            draft_length=config.fixed_draft, placement=None if config.placement == "auto" else int(config.placement),
        )


def run_evaluation(
    config: EvaluationConfig,
    timing: Timing,
    out: Path,
    *,
    unverified: bool = False,
    certificates: list[dict[str, Any]] | None = None,
    jobs: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Run the evaluation and write its files.

    Parameters
    ----------
    config
        What to evaluate.
    timing
        Block -> operation -> measured timing; :data:`~cosim.system.manager.REQUIRED_TIMING` lists what is needed.
    out
        Directory for ``results.csv``, ``results.json``, ``claims.csv``, ``claims.md``, ``fig12.png``, ``fig12.svg`` and
        on demand ``decisions.csv``; made if missing.  They appear as one set, ``results.json`` last.
    unverified
        Whether the timing is predicted rather than certified; marks every table and figure.
    certificates
        What the timing was taken from; kept in the result.
    jobs
        Worker processes.
    progress
        Called with (cells done, cells in all, name of the cell).

    Returns
    -------
    dict
        The content of ``results.json``.

    Raises
    ------
    UserError
        One line for bad input.
    """
    if jobs < 1:
        raise UserError(f"jobs must be 1 or more, not {jobs}")
    check_timing(timing)
    parameters = config.parameters()
    trace = _trace(str(config.trace_path))
    _check_plans(config, parameters, timing)
    check_folder("the results", out)
    cells = [Cell(*key) for key in _product(config)]
    results = _run_cells(config, timing, cells, jobs, progress)
    rows = [row for row, _ in results]
    claims = check_claims(rows)
    note = (
        f"pair {config.pair}; acceptance from {trace.name} (sha256 {trace.sha256[:12]}), "
        + ("recorded with a 4-gram draft and a 260 K-parameter target, not with the pair's own models; "
           if config.trace is None else "given by the user; ")
        + f"context {config.context}, tau {config.tau:g}, fixed draft {config.fixed_draft}, prefill not modelled"
    )
    document = {
        "format": 1,
        "unverified": unverified,
        "note": note,
        "not_modelled": list(NOT_MODELLED),
        "config": config.model_dump(mode="json"),
        "parameters": {
            "machine": parameters.machine.model_dump(),
            "workload": parameters.workload.model_dump(),
            "models": {name: model.model_dump() for name, model in parameters.models.items()},
            "pairs": {name: pair.model_dump() for name, pair in parameters.pairs.items()},
            "systems": {name: parameters.systems[name].model_dump() for name in config.systems},
        },
        "sources": parameters.sources,
        "trace": {
            "name": trace.name, "sha256": trace.sha256, "requests": len(trace.requests),
            "acceptance_percent": 100 * trace.acceptance,
        },
        "timing": {
            block: {name: dict(operation.__dict__) for name, operation in sorted(operations.items())}
            for block, operations in sorted(timing.items())
        },
        "certificates": certificates or [],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "matplotlib", "pydantic")},
        },
        "results": rows,
        "claims": [claim._asdict() for claim in claims],
    }
    mark = {"unverified": unverified, "trace": trace.name}
    files: dict[str, str | bytes | None] = {
        "results.csv": to_csv([row | mark for row in rows]),
        "results.json": to_json(document),
        "claims.csv": claims_csv(claims, unverified=unverified),
        "claims.md": claims_markdown(claims, note=note, not_modelled=NOT_MODELLED, unverified=unverified),
        **draw_fig12(rows, note=note, unverified=unverified),
        "decisions.csv": None,
    }
    if config.decision_log:
        names = ["system", "batch", "seed", "time_s", "operator", "intensity_flop_per_byte",
                 "threshold_flop_per_byte", "side"]
        log = [dict(zip(names, row, strict=True)) for _, decisions in results for row in decisions]
        files["decisions.csv"] = to_csv(log, names)
    write_set(out, files, manifest="results.json")
    return document


def _product(config: EvaluationConfig) -> list[tuple[str, int, int]]:
    return [
        (system, batch, seed) for system in config.systems for batch in config.batches for seed in config.seeds
    ]



"""What ``saddle evaluate`` does: check the certificates, run what is not up to date, sum it up in a few lines."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from cosim.certificates import load_timing
from cosim.console import Tick
from cosim.files import write_atomically
from cosim.sources import closure, content_hash, text_hash
from cosim.system.config import EvaluationConfig
from cosim.system.parameters import DATA
from cosim.system.trace import load_trace

__all__ = ["evaluate_and_print"]

_STAMP = ".up-to-date.json"


def evaluate_and_print(
    out: Path,
    *,
    config: Path | None,
    systems: list[str] | None,
    batches: list[int] | None,
    trace: Path | None,
    seed: int | None,
    unverified: bool,
    force: bool,
    jobs: int,
    tick: Tick,
) -> list[str]:
    """Evaluate and return the lines to print.

    Parameters
    ----------
    out
        Folder of the results.
    config
        File to start from; the other options replace what it says.
    systems, batches, trace, seed
        As in :class:`EvaluationConfig`; ``seed`` is the first of as many seeds as there were.
    unverified
        Go on with predicted cycles where a certificate has a problem.
    force
        Run even if the results are up to date.
    jobs
        Worker processes.
    tick
        Takes the progress.

    Raises
    ------
    UserError
        One line for bad input and for a missing, corrupt or stale certificate.
    """
    base = EvaluationConfig.read(config) if config else EvaluationConfig()
    chosen: dict[str, Any] = {"systems": systems, "batches": batches, "trace": str(trace) if trace else None}
    if seed is not None:
        chosen["seeds"] = [seed + number for number in range(len(base.seeds))]
    merged = EvaluationConfig(**{**base.model_dump(), **{k: v for k, v in chosen.items() if v is not None}})
    merged.parameters()
    loaded = load_trace(merged.trace_path)
    timing, certificates = load_timing(unverified=unverified)
    problems = [certificate["problem"] for certificate in certificates if "problem" in certificate]
    key = _key(merged, loaded.sha256, certificates)
    if force or not _up_to_date(out, key):
        from cosim.system.evaluate import run_evaluation

        document = run_evaluation(
            merged, timing, out, unverified=bool(problems), certificates=certificates, jobs=jobs, progress=tick
        )
        written = {path.name: _file_hash(path) for path in sorted(out.iterdir()) if path.name[0] != "." and path.is_file()}
        write_atomically(out / _STAMP, json.dumps({"key": key, "files": written}, indent=1))
        again = ""
    else:
        document = json.loads((out / "results.json").read_text(encoding="utf-8"))
        again = " (up to date; --force runs it again)"
    return [
        *(f"UNVERIFIED: {problem}" for problem in problems),
        *_table(document),
        f"claims: {_verdicts(document)}",
        f"results in {out}{again}: results.csv results.json claims.md fig12.png",
    ]


def _key(config: EvaluationConfig, trace: str, certificates: list[dict[str, Any]]) -> str:
    """Hash everything that the results depend on."""
    code = content_hash(closure(["cosim.system.evaluate"], within=("cosim", "golden_model")))
    data = {path.name: _file_hash(path) for path in sorted(DATA.glob("*.*"))}
    if config.systems_file:
        data["systems_file"] = _file_hash(Path(config.systems_file))
    versions = [version(name) for name in ("numpy", "matplotlib")]
    return text_hash(json.dumps([config.model_dump(mode="json"), trace, certificates, code, data, versions]))


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _up_to_date(out: Path, key: str) -> bool:
    try:
        stamp = json.loads((out / _STAMP).read_text(encoding="utf-8"))
        files: dict[str, str] = stamp["files"]
        return bool(stamp["key"] == key and all(_file_hash(out / name) == digest for name, digest in files.items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _table(document: dict[str, Any]) -> list[str]:
    """Mean throughput per system and batch, and its ratio to the first system."""
    rows, config = document["results"], document["config"]
    mark = "UNVERIFIED " if document["unverified"] else ""
    mean = {
        (system, batch): np.mean([r["output_throughput_tok_s"] for r in rows if (r["system"], r["batch"]) == (system, batch)])
        for system in config["systems"]
        for batch in config["batches"]
    }
    first = config["systems"][0]
    lines = [f"{mark}output throughput in tok/s (ratio to {first}), pair {config['pair']}, {len(config['seeds'])} seeds"]
    lines.append("  ".join(["system".ljust(15), *(f"batch {batch}".rjust(15) for batch in config["batches"])]))
    for system in config["systems"]:
        cells = [
            f"{mean[system, batch]:8.0f} ({mean[system, batch] / mean[first, batch]:.2f})".rjust(15)
            for batch in config["batches"]
        ]
        lines.append("  ".join([system.ljust(15), *cells]))
    return lines


def _verdicts(document: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for claim in document["claims"]:
        counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none"

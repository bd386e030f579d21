"""Evaluation: files, units, marks, determinism, headless drawing, claims."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.certificates import Timing
from cosim.errors import UserError
from cosim.files import write_atomically
from cosim.report.claims import check_claims
from cosim.system.config import EvaluationConfig
from cosim.system.evaluate import run_evaluation
from cosim.system.output import to_csv
from cosim.system.statistics import bootstrap_mean

FILES = ("results.csv", "results.json", "claims.csv", "claims.md", "fig12.png", "fig12.svg")
UNITS = ("_tok_s", "_ms", "_ms_per_tok", "_mj_per_tok", "_percent", "_tok", "_s", "_flop_per_byte")


def small(**changes: Any) -> EvaluationConfig:
    settings = {"systems": ("GPU-AD", "PIM-SD", "SADDLE"), "batches": (4, 6), "seeds": (0, 1), "window_tokens": 20}
    return EvaluationConfig(**(settings | changes))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, timing: Timing) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("out with space") / "deep"
    return out, run_evaluation(small(decision_log=True), timing, out, certificates=[{"block": "stop_test"}])


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_files(evaluated: tuple[Path, dict[str, Any]]) -> None:
    out, document = evaluated
    assert sorted(path.name for path in out.iterdir()) == sorted((*FILES, "decisions.csv"))
    rows = table(out / "results.csv")
    assert len(rows) == 3 * 2 * 2
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(document))
    assert (out / "fig12.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "fig12.svg").read_text()


def test_every_number_has_a_unit(evaluated: tuple[Path, dict[str, Any]]) -> None:  # DR-14
    rows = table(evaluated[0] / "results.csv")
    counts = {"batch", "seed", "finished_requests", "tokens_per_verification", "draft_replicas"}
    for name in rows[0]:
        numeric = all(row[name].replace(".", "").replace("-", "").replace("e", "").isdigit() for row in rows)
        assert not numeric or name in counts or name.endswith(UNITS), name


def test_energy_is_counts_times_picojoules(evaluated: tuple[Path, dict[str, Any]]) -> None:  # DR-14
    document = evaluated[1]
    for row in document["results"]:
        parts = sum(row[f"energy_{name}_mj_per_tok"] for name in ("gpu_memory", "pim_memory", "link", "compute"))
        assert row["energy_dynamic_mj_per_tok"] == pytest.approx(parts)
    assert any("static power" in item for item in document["not_modelled"])


def test_what_a_system_lacks_is_empty_not_zero(evaluated: tuple[Path, dict[str, Any]]) -> None:
    row = next(row for row in table(evaluated[0] / "results.csv") if row["system"] == "GPU-AD")
    for name in ("acceptance_rate_percent", "manager_share_percent", "prediction_ms_per_tok", "draft_replicas"):
        assert row[name] == ""


def test_result_holds_what_a_rerun_needs(
    evaluated: tuple[Path, dict[str, Any]], timing: Timing, tmp_path: Path
) -> None:
    out, document = evaluated
    config = EvaluationConfig.read(out / "results.json")
    assert config == small(decision_log=True)
    assert len(document["trace"]["sha256"]) == 64
    assert document["certificates"] == [{"block": "stop_test"}]
    assert {"numpy", "python", "pydantic", "matplotlib"} == set(document["versions"])
    assert document["timing"]["stop_test"]["decide"] == {"latency_cycles": 3, "interval_cycles": 1}
    run_evaluation(config, timing, tmp_path, certificates=[{"block": "stop_test"}], jobs=2)
    for name in (*FILES, "decisions.csv"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes(), name


def test_unverified_marks_everything(evaluated: tuple[Path, dict[str, Any]], timing: Timing, tmp_path: Path) -> None:
    run_evaluation(small(batches=(2,), seeds=(0,)), timing, tmp_path, unverified=True)
    assert {row["unverified"] for row in table(tmp_path / "results.csv")} == {"true"}
    assert {row["unverified"] for row in table(tmp_path / "claims.csv")} == {"true"}
    assert "UNVERIFIED" in (tmp_path / "claims.md").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["unverified"] is True
    assert "UNVERIFIED" in (tmp_path / "fig12.svg").read_text()
    out = evaluated[0]
    assert {row["unverified"] for row in table(out / "results.csv")} == {"false"}
    assert "UNVERIFIED" not in (out / "claims.md").read_text() + (out / "fig12.svg").read_text()


def test_trace_is_named_beside_every_result(evaluated: tuple[Path, dict[str, Any]]) -> None:
    out, document = evaluated
    for text in ((out / "claims.md").read_text(), document["note"], (out / "fig12.svg").read_text()):
        assert "not with the" in text
        assert document["trace"]["sha256"][:12] in text
    assert {row["trace"] for row in table(out / "results.csv")} == {"recorded_trace.csv"}


@pytest.mark.parametrize("display", [None, "localhost:64.0"])
def test_no_display_needed(tmp_path: Path, display: str | None) -> None:  # UX-03
    code = """
from pathlib import Path
import sys
from cosim.report.figures import draw_fig12
rows = [{"system": s, "batch": 2, "seed": 0, "output_throughput_tok_s": 1.0 + i}
        for i, s in enumerate(("GPU-AD", "SADDLE"))]
for name, content in draw_fig12(rows, note="n", unverified=False).items():
    (Path(sys.argv[1]) / name).write_bytes(content)
"""
    environment = {key: value for key, value in os.environ.items() if key != "DISPLAY"} | {"MPLBACKEND": "TkAgg"}
    if display is not None:
        environment["DISPLAY"] = display
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True, timeout=120)
    assert (tmp_path / "fig12.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "fig12.svg").stat().st_size > 1000


def test_progress_is_reported(timing: Timing, tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    config = small(systems=("GPU-AD", "GPU-SD"), batches=(2,))
    (tmp_path / "decisions.csv").write_text("of an earlier run")
    run_evaluation(config, timing, tmp_path, progress=lambda *call: calls.append(call))
    assert not (tmp_path / "decisions.csv").exists()
    assert [call[:2] for call in calls] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert calls[0][2] == "GPU-AD, batch 2, seed 0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": {"devices": 1}}, "does not fit"),
        ({"placement": 3}, "must divide the 8 devices"),
        ({"trace": "/nonexistent.csv"}, "no such trace file"),
        ({"max_sequence_length": 100}, "longest recorded request"),
    ],
)
def test_faults_before_anything_is_written(timing: Timing, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        run_evaluation(small(**change), timing, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def test_missing_timing_is_named(timing: Timing, tmp_path: Path) -> None:
    partial = {block: operations for block, operations in timing.items() if block != "draft_pool"}
    with pytest.raises(UserError, match="block draft_pool"):
        run_evaluation(small(), partial, tmp_path)
    with pytest.raises(UserError, match="lacks operation 'insert'"):
        run_evaluation(small(), {**timing, "draft_pool": {}}, tmp_path)
    with pytest.raises(UserError, match="jobs must be 1 or more"):
        run_evaluation(small(), timing, tmp_path, jobs=0)


def test_output_directory_that_is_a_file(timing: Timing, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("here")
    with pytest.raises(UserError, match=str(tmp_path / "out")):
        run_evaluation(small(), timing, tmp_path / "out")


def test_files_appear_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["x.csv"]


def test_csv_cells() -> None:
    assert to_csv([{"a": 1.0 / 3, "b": None, "c": True, "d": "x, y"}]) == b'a,b,c,d\n0.333333333,,true,"x, y"\n'


def test_bootstrap() -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]])
    interval = bootstrap_mean(values)
    assert interval == bootstrap_mean(values)
    assert interval.mean == 3.5
    assert 2.0 <= interval.low < 3.0
    assert 4.0 < interval.high <= 5.0
    assert bootstrap_mean(np.array([[2.0]])) == (2.0, 2.0, 2.0)


def rows(**throughput: float) -> list[dict[str, Any]]:
    """Results whose other columns are 1, at batch 16 to 128 and two seeds."""
    return [
        {
            "system": system.replace("_", "-"), "batch": batch, "seed": seed,
            "output_throughput_tok_s": value * 100 / (batch if system.endswith("SD") else 1),
            "energy_dynamic_mj_per_tok": 1 / value, "prediction_ms_per_tok": 1.0, "verification_ms_per_tok": 1.0,
            "tpot_mean_ms": 1.0, "gpu_busy_percent": 1.0, "pim_busy_percent": 1.0, "manager_share_percent": 0.5,
        }
        for system, value in throughput.items() for batch in (16, 32, 64, 128) for seed in (0, 1)
    ]


def test_claims_are_judged() -> None:
    claims = {
        claim.id: claim
        for claim in check_claims(rows(GPU_AD=1.0, GPU_SD=40.0, PIM_AD=1.7, PIM_SD=56.0, SADDLE=3.6))
    }
    assert claims["F12-1"].model == pytest.approx(3.6)
    assert claims["F12-1"].verdict == "holds"
    assert claims["F12-3"].model_over_paper == pytest.approx(3.6 / 1.7 / 1.94)
    assert claims["F12-5"].verdict == "holds"  # PIM-SD comes nearest at batch 16: 56 / 16 = 3.5
    assert claims["F12-6"].verdict == "holds"
    assert claims["F12-8"].verdict == "holds"
    assert claims["F13-1"].model == pytest.approx(3.6)
    assert claims["F13-1"].verdict == "misses"
    assert claims["F13-1"].why
    assert claims["F14-1"].verdict == "not evaluated"
    assert claims["F14-1"].model is None
    assert claims["F16-4"].verdict == "misses"  # 0.5 is below 0.8 of 0.83


def test_claims_that_miss_say_so() -> None:
    claims = {
        claim.id: claim
        for claim in check_claims(rows(GPU_AD=1.0, GPU_SD=200.0, PIM_AD=1.7, PIM_SD=300.0, SADDLE=1.2))
    }
    for name in ("F12-1", "F12-4", "F12-5", "F12-6", "F12-7", "F12-9", "F12-10"):
        assert claims[name].verdict == "misses", name
        assert claims[name].why, name
    only = {claim.id: claim.verdict for claim in check_claims(rows(GPU_AD=1.0))}
    assert set(only.values()) == {"not evaluated"}

"""``saddle synth`` as a user calls it: files, cache, the page, and bad input."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest

from cosim import synthesis
from cosim.console import Tick
from cosim.errors import UserError
from cosim.synthesis import find_liberty
from cosim.synthesis_report import COLUMNS, problems, summary_row
from tests.conftest import Saddle


def test_table_files_and_cache(saddle: Saddle, liberty: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table by saddle synth: begin -->old<!-- table by saddle synth: end -->\nafter\n")
    out = tmp_path / "out"
    arguments = ("synth", "fp16_rounder", "--recipe", "balance-once", "--out", out, "--write-docs", page)
    first = saddle(*arguments)
    assert first.returncode == 0, first.stderr
    assert "FO4 0.099" in first.stdout
    assert "fp16_rounder_default" in first.stdout
    result = json.loads((out / "fp16_rounder_default.json").read_text())
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [tuple(row) for row in rows] == [COLUMNS]
    assert float(rows[0]["nand2_equivalents"]) == pytest.approx(result["area"] / 24, abs=0.1)
    assert json.loads((out / "summary.json").read_text())["blocks"][0]["top"] == "fp16_rounder_default"
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("end -->\nafter\n")
    assert "| `fp16_rounder_default` |" in text
    started = time.monotonic()
    again = saddle(*arguments)
    assert time.monotonic() - started < 10
    assert again.stdout == first.stdout
    assert page.read_text() == text


def test_bad_input_is_one_line_and_exit_code_2(saddle: Saddle, tmp_path: Path) -> None:
    (tmp_path / "bad.lib").write_text("library (x) {")
    cases = {
        ("--liberty", "/no/such.lib"): "no Liberty file /no/such.lib",
        ("--liberty", str(tmp_path / "bad.lib")): "not a Liberty file, or it ends early",
        ("--recipe", "magic"): "unknown recipe 'magic'",
        ("--adder", "ripple"): "unknown adder 'ripple'",
        ("--memory-bits", "-1"): "--memory-bits must be",
        ("fp16_runder",): "did you mean",
    }
    for arguments, message in cases.items():
        run = saddle("synth", *(arguments if len(arguments) == 1 else ("fp16_rounder", *arguments)))
        assert run.returncode == 2
        assert message in run.stderr
        assert len(run.stderr.strip().splitlines()) == 1


def test_a_page_that_cannot_be_written_is_refused_before_the_work(saddle: Saddle, tmp_path: Path) -> None:
    """No Liberty file stops the command later, so what it says about the page was found out before."""
    (tmp_path / "page.md").write_text("no marks\n")
    cases = {
        "page.md": "has no lines '<!-- table by saddle synth: begin -->'",
        "nowhere.md": f"cannot read {tmp_path}/nowhere.md: No such file or directory",
        "page.md/page.md": f"--write-docs: cannot write to {tmp_path}/page.md: {tmp_path}/page.md is not a folder",
        ".": f"cannot read {tmp_path}: Is a directory",
    }
    for page, message in cases.items():
        run = saddle("synth", "fp16_rounder", "--write-docs", tmp_path / page, SADDLE_LIBERTY="nowhere.lib")
        assert run.returncode == 2
        assert message in run.stderr
        assert len(run.stderr.strip().splitlines()) == 1


def test_without_liberty_the_line_to_type_is_printed(build: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SADDLE_LIBERTY", raising=False)
    monkeypatch.setattr(synthesis, "_SYSTEM", tmp_path)
    with pytest.raises(UserError, match="apt-get install -y --no-install-recommends qflow-tech-osu018"):
        find_liberty()
    monkeypatch.setenv("SADDLE_LIBERTY", str(tmp_path / "mine.lib"))
    with pytest.raises(UserError, match=r"no Liberty file .*mine.lib"):
        find_liberty()
    (tmp_path / "mine.lib").write_text("")
    assert find_liberty() == tmp_path / "mine.lib"


def test_targets_are_marked() -> None:
    path = {"start": "a", "end": "b", "kind": "register to register", "delay_ns": 5.1, "delay_fo4": 51.0, "levels": 40}
    split = {"paper_arithmetic": 57.0, "paper_buffers": 16.0, "paper_control": 27.0}
    result = {"top": "t", "block": "processing_element", "area": 100.0, "nand2": 80_001, "flip_flop_area": 1.0, "split": split,
              "critical": path}  # fmt: skip
    assert problems(result) == [
        "a to b takes 51.0 FO4, target 50",
        "80,001 NAND2 equivalents, target 80,000",
    ]
    assert summary_row(result)["meets_targets"] is False
    assert problems(result | {"nand2": 80_000, "critical": path | {"delay_fo4": 50.0}}) == []
    assert problems(result | {"block": "dot_product", "critical": None}) == []


def test_a_broken_cache_entry_is_made_anew(build: Path, liberty: Path) -> None:
    from cosim import blocks
    from synth.flow import Options

    def quiet(done: float, total: float, what: str) -> None: ...

    tick: Tick = quiet
    options = Options(recipes=("balance-once",))
    chosen = blocks.find("fp16_rounder")

    def run() -> list[dict[str, object]]:
        return synthesis.synthesise_blocks(chosen, liberty=None, options=options, workers=1, force=False, tick=tick)

    first = run()
    for file in (build / "cache").glob("synth-fp16_rounder*.json"):
        file.write_text("{")
    assert run() == first

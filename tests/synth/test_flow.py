"""The flow from Verilog to cells: known areas, a planted slow path, memories, reports that are no reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosim import blocks
from cosim.rtl import rtl_text
from synth.flow import RECIPES, Options, SynthesisError
from synth.liberty import Liberty
from synth.report import parse_stat, read_liberty, synthesise
from synth.split import shift_stages

FAST = Options(recipes=("balance-once",))


def _run(text: str, liberty: Path, library: Liberty, options: Options = FAST, top: str = "top") -> dict[str, Any]:
    return synthesise(text, top, liberty, library, options)


def _module(body: str, ports: str = "input clk, input [7:0] a, input [7:0] b, output reg [7:0] q") -> str:
    return f"module top({ports});\n{body}\nendmodule\n"


def test_a_register_is_its_flip_flops(liberty: Path, library: Liberty) -> None:
    result = _run(_module("always @(posedge clk) q <= a;"), liberty, library)
    assert result["cells_by_type"] == {"DFFPOSX1": 8}
    assert (result["area"], result["nand2"], result["flip_flops"]) == (8 * 96, 8 * 96 / 24, 8)
    assert result["split"]["paper_buffers"] == 8 * 96
    assert result["split"]["paper_arithmetic"] == result["split"]["paper_control"] == 0
    assert result["critical"]["levels"] == 0
    assert result["critical"]["delay_ns"] == pytest.approx(0.37, abs=0.03)  # clock-to-Q and setup


def test_a_module_without_logic_has_no_path(liberty: Path, library: Liberty) -> None:
    result = _run(_module("always @* q = 0;"), liberty, library)
    assert (result["area"], result["critical"], result["paths"]) == (0, None, [])


def test_a_planted_slow_path_raises_the_figure_and_is_named(liberty: Path, library: Liberty) -> None:
    body = "reg [7:0] x_r, slow_r;\nalways @(posedge clk) begin x_r <= a; slow_r <= %s; q <= slow_r; end"
    quick = _run(_module(body % "x_r ^ b"), liberty, library)["critical"]
    slow = _run(_module(body % "((x_r * b) * x_r + b) * x_r"), liberty, library)["critical"]
    assert slow["delay_fo4"] > 3 * quick["delay_fo4"]
    assert (slow["end"], slow["kind"].split(" to ")[1]) == ("slow_r", "register")
    assert slow["start"] in ("x_r", "b")
    assert slow["delay_ns"] == pytest.approx(slow["steps"][-1]["arrival"] + slow["setup_ns"], abs=1e-3)


@pytest.mark.parametrize("name", ["fp16_rounder", "operator_mapping"])
def test_our_timing_agrees_with_abcs(name: str, build: Path, liberty: Path, library: Liberty) -> None:
    """ABC times the logic alone: what we add is clock-to-Q (instead of its driving cell) and setup, 0.2 to 0.45 ns."""
    ((block, configuration),) = blocks.find(name)
    top = block.top(configuration)
    result = synthesise(rtl_text(block, configuration), top, liberty, library, FAST)
    assert 0.2 < result["critical"]["delay_ns"] - result["abc_delay_ns"] < 0.45


def test_a_recipe_that_crashes_abc_is_passed_over(liberty: Path, library: Liberty, monkeypatch: pytest.MonkeyPatch) -> None:
    text = _module("always @(posedge clk) q <= a & b;")
    monkeypatch.setitem(RECIPES, "broken", ("no such command",))
    assert _run(text, liberty, library, Options(recipes=("broken", "area")))["recipe"] == "area"
    with pytest.raises(SynthesisError, match="top: Yosys failed: .*ABC"):
        _run(text, liberty, library, Options(recipes=("broken",)))


MEMORY = _module(
    "reg [15:0] store [0:31];\nalways @(posedge clk) begin if (we) store[a] <= d; q <= store[b]; end",
    "input clk, input we, input [4:0] a, input [4:0] b, input [15:0] d, output reg [15:0] q",
)


def test_a_memory_that_becomes_flip_flops_is_named_with_its_bits(liberty: Path, library: Liberty) -> None:
    """YS-01: 512 bits of memory, and the flip-flops that they and the read register became."""
    result = _run(MEMORY, liberty, library)
    (memory,) = result["memories"]
    assert memory == {"name": "store", "depth": 32, "width": 16, "flip_flops": True, "bits": 512}
    assert (result["memory_bits_in_flip_flops"], result["memory_bits_in_macros"]) == (512, 0)
    assert result["flip_flops"] == 512 + 16


def test_a_large_memory_stays_a_macro_outside_of_the_area(liberty: Path, library: Liberty) -> None:
    result = _run(MEMORY, liberty, library, Options(memory_bits=511, recipes=FAST.recipes))
    assert (result["memory_bits_in_flip_flops"], result["memory_bits_in_macros"]) == (0, 512)
    assert result["flip_flops"] < 100
    assert any(path["kind"].startswith("memory") or path["kind"].endswith("memory") for path in result["paths"])


def test_split_follows_operators_and_resets(liberty: Path, library: Liberty) -> None:
    adder = _run(_module("always @(posedge clk) q <= a + b;"), liberty, library)
    assert adder["split"]["selection"] == 0
    assert adder["split"]["paper_arithmetic"] == adder["area"] - 8 * 96
    ports = "input clk, input rst, input [7:0] a, output reg [7:0] q"
    text = _module("always @(posedge clk) if (rst) q <= 0; else q <= a;", ports)
    assert _run(text, liberty, library)["split"]["control_flip_flops"] == 8 * 96
    payload = text.replace(" q", " o__payload")
    assert _run(payload, liberty, library)["split"]["data_flip_flops"] == 8 * 96


def test_multiplexers_that_shift_are_arithmetic() -> None:
    def mux(a: list[int | str], b: list[int | str]) -> bool:
        cell = {"type": "$mux", "connections": {"A": a, "B": b}}
        return bool(shift_stages({"cells": {"m": cell}}))

    word: list[int | str] = list(range(10, 18))
    assert mux(word, ["0", "0", *word[:6]])  # left by 2
    assert mux([*word[1:], "0"], word)  # right by 1
    assert mux(word, [*word[3:], *[word[7]] * 3])  # arithmetic right by 3
    assert not mux(word, word)
    assert not mux(word, list(range(20, 28)))
    assert not mux(word, ["0"] * 8)


def test_carry_networks_and_booth_are_really_chosen(liberty: Path, library: Liberty) -> None:
    text = _module("always @(posedge clk) q <= (a * b) >> 6;")
    areas = {
        _run(text, liberty, library, Options(booth=booth, adder=adder, recipes=FAST.recipes))["area"]
        for booth in (False, True) for adder in ("brent-kung", "kogge-stone")
    }  # fmt: skip
    assert len(areas) >= 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module top(input a", "top: Yosys failed: design.v:1: ERROR: syntax error"),
        ("module other(); endmodule", "top: Yosys failed: ERROR.*top"),
        (_module("missing m(.a(a));"), "top: Yosys failed: ERROR.*missing"),
        (_module("wire l = ~l & a[0];\nalways @* q = {8{l}};"), "top: combinational loop"),
    ],
)
def test_bad_verilog_is_one_line(text: str, message: str, liberty: Path, library: Liberty) -> None:
    with pytest.raises(SynthesisError, match=message) as error:
        _run(text, liberty, library)
    assert "\n" not in str(error.value)


def test_liberty_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match="cannot read Liberty"):
        read_liberty(tmp_path / "no.lib")
    (tmp_path / "bad.lib").write_text("hello")
    with pytest.raises(SynthesisError, match=r"bad.lib: not a Liberty file"):
        read_liberty(tmp_path / "bad.lib")


GOOD = "   Chip area for module '\\top': 768.000000\n     of which used for sequential elements: 768.000000 (100.00%)\n"


def test_area_reports() -> None:
    """YS-03: what is missing is None and says why, never 0 or NaN."""
    assert parse_stat(GOOD) == {"area": 768.0, "sequential_area": 768.0, "problem": None}
    odd = parse_stat(GOOD.replace("elements: 768.000000 (100.00%)", "elements: -nan (-nan%)"))
    assert (odd["area"], odd["sequential_area"]) == (768.0, None)
    for text in (GOOD.replace(": 768", ": nan"), GOOD.replace(": 768.000000", ": inf"), GOOD[:20], ""):
        report = parse_stat(text)
        assert report["area"] is None
        assert report["problem"]
    unknown = parse_stat("   Area for cell type \\FOO is unknown!\n" + GOOD)
    assert (unknown["area"], unknown["problem"]) == (None, "area of cell FOO is unknown")
    assert parse_stat("   Area for cell type $mem_v2 is unknown!\n" + GOOD)["area"] == 768.0

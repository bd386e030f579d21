"""Prints what single operators cost between two registers, for designers who cut a datapath into stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from synth.flow import Options
from synth.liberty import Liberty
from synth.report import synthesise

ZEROS = """
function [5:0] zeros(input [31:0] v);
  integer k;
  begin zeros = 32; for (k = 0; k < 32; k = k + 1) if (v[k]) zeros = 31 - k; end
endfunction
"""
SIXTEEN = dict.fromkeys("abcdefghijklmnop", 32)
OPERATORS: dict[str, tuple[dict[str, int], str, int, str]] = {
    "no logic": ({"a": 8}, "a", 8, ""),
    "16 + 16 bits": ({"a": 16, "b": 16}, "a + b", 17, ""),
    "32 + 32 bits": ({"a": 32, "b": 32}, "a + b", 33, ""),
    "48 + 48 bits": ({"a": 48, "b": 48}, "a + b", 49, ""),
    "32 bits + 1": ({"a": 32, "c": 1}, "a + c", 32, ""),
    "-32 bits, if negative": ({"a": 32}, "a[31] ? -a : a", 32, ""),
    "sum of 3 words of 32 bits": ({"a": 32, "b": 32, "c": 32}, "a + b + c", 34, ""),
    "sum of 16 words of 32 bits": (SIXTEEN, " + ".join(SIXTEEN), 36, ""),
    "32 < 32 bits": ({"a": 32, "b": 32}, "a < b", 1, ""),
    "maximum of 2 words of 16 bits": ({"a": 16, "b": 16}, "a > b ? a : b", 16, ""),
    "8 x 8 bits": ({"a": 8, "b": 8}, "a * b", 16, ""),
    "11 x 11 bits": ({"a": 11, "b": 11}, "a * b", 22, ""),
    "16 x 16 bits": ({"a": 16, "b": 16}, "a * b", 32, ""),
    "24 x 24 bits": ({"a": 24, "b": 24}, "a * b", 48, ""),
    "11 x 11 + 32 bits": ({"a": 11, "b": 11, "c": 32}, "a * b + c", 33, ""),
    "32 bits shifted": ({"a": 32, "s": 5}, "a >> s", 32, ""),
    "64 bits shifted": ({"a": 64, "s": 6}, "a >> s", 64, ""),
    "leading zeros of 32 bits": ({"a": 32}, "zeros(a)", 6, ZEROS),
    "leading zeros, shift, 32 bits": ({"a": 32}, "a << zeros(a)", 32, ZEROS),
    "leading zeros, shift, + 1": ({"a": 32}, "((a << zeros(a)) >> 8) + 1", 25, ZEROS),
    "one of 32 words of 16 bits": ({"a": 512, "s": 5}, "a[16*s +: 16]", 16, ""),
    "lowest one of 32 bits": ({"a": 32}, "a & -a", 32, ""),
    "ones in 32 bits": ({"a": 32}, " + ".join(f"a[{k}]" for k in range(32)), 6, ""),
    "enable of 512 bits": ({"a": 512, "e": 1}, "e ? a : q", 512, ""),
}


@pytest.mark.benchmarks
def test_operators(liberty: Path, library: Liberty) -> None:
    print("\n| between two registers | FO4 | levels | NAND2 eq. of the logic |\n|---|--:|--:|--:|")
    slowest = 0.0
    for name, (words, value, width, more) in OPERATORS.items():
        inputs = ", ".join(f"input [{bits - 1}:0] {word}_i" for word, bits in words.items())
        registers = " ".join(f"reg [{bits - 1}:0] {word};" for word, bits in words.items())
        loads = " ".join(f"{word} <= {word}_i;" for word in words)
        text = f"module top(input clk, {inputs}, output reg [{width - 1}:0] q);\n{registers}\n{more}"
        text += f"always @(posedge clk) begin {loads} q <= {value}; end\nendmodule\n"
        result = synthesise(text, "top", liberty, library, Options(recipes=("balance-twice",)))
        path = max(result["paths"], key=lambda path: path["delay_fo4"])
        logic = (result["area"] - result["flip_flop_area"]) / library.nand2.area
        print(f"| {name} | {path['delay_fo4']:.0f} | {path['levels']} | {logic:,.0f} |", flush=True)
        slowest = max(slowest, path["delay_fo4"])
    assert slowest < 100

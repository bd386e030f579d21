"""Break each block on purpose: its regression fails and names the first wrong transaction."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

from cosim.blocks import BLOCKS
from cosim.harness.toolchain import find_simulator
from cosim.regress import regress
from cosim.sources import ROOT
from synth.emit import emit
from tests.hdl.faults import FAULTS

EFFORTS = (0.1, 1.0)
"""Most faults show within a tenth of the usual stimulus; only those that do not get all of it."""
SMALLEST = {block.stem: block.configurations[-1] for block in BLOCKS}


def broken_verilog(stem: str, old: str, new: str) -> str:
    """Return the Verilog of a block whose source, or one of its helpers ``<stem>_*.py``, has ``new`` in place of ``old``."""
    block = next(block for block in BLOCKS if block.stem == stem)
    folder = ROOT / "hdl" / block.area
    sources = {path: path.read_text() for path in [*folder.glob(f"{stem}_*.py"), folder / f"{stem}.py"]}
    found = sum(source.count(old) for source in sources.values())
    assert found == 1, f"{old!r} occurs {found} times in {', '.join(path.name for path in sources)}"
    broken = next(path for path, source in sources.items() if old in source)
    package = importlib.import_module(f"hdl.{block.area}")
    names = {path: f"hdl.{block.area}.{path.stem}" for path in sources}
    before = {name: sys.modules.pop(name) for name in names.values() if name in sys.modules}
    try:
        module = types.ModuleType(names[broken])
        sys.modules[names[broken]] = module
        exec(compile(sources[broken].replace(old, new), str(broken), "exec"), module.__dict__)
        setattr(package, broken.stem, module)
        main = importlib.import_module(names[folder / f"{stem}.py"])
        component = getattr(main, block.class_name)(**SMALLEST[stem].parameters)
        return emit(component, block.top(SMALLEST[stem]))
    finally:
        for path, name in names.items():
            if sys.modules.pop(name, None) is not None:
                delattr(package, path.stem)  # nobody may find a broken helper later
            if name in before:
                sys.modules[name] = before[name]
                setattr(package, path.stem, before[name])


@pytest.mark.rtl
@pytest.mark.parametrize(("stem", "what", "old", "new"), FAULTS, ids=[f"{f[0]}-{f[1]}".replace(" ", "_") for f in FAULTS])
def test_regression_catches(stem: str, what: str, old: str, new: str, build: Path) -> None:
    if find_simulator("icarus") is None:
        pytest.skip("Icarus is not installed")
    block = next(block for block in BLOCKS if block.stem == stem)
    text = broken_verilog(stem, old, new)
    seen = ("transaction", "changed from", "hung after")
    for effort in EFFORTS:
        result = regress(block, SMALLEST[stem], simulators=["icarus"], verilog=text, effort=effort, max_failures=1)
        if any(word in problem for problem in result.problems for word in seen):
            break
    else:
        pytest.fail(f"nobody noticed: {what}; {result.problems}")
    assert result.certificate is None


def test_every_block_is_broken_in_three_ways() -> None:
    for block in BLOCKS:
        assert sum(fault[0] == block.stem for fault in FAULTS) >= 3, block.stem

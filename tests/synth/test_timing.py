"""The longest paths of netlists small enough to add up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from synth.liberty import LibertyError, parse
from synth.netlist import Netlist
from synth.timing import longest_paths
from tests.synth.cells import LIBERTY

TINY = parse(LIBERTY)
# At a load of n fF the tables of tests.synth.cells add 10 n ps; a slew of 20 ps adds 2 ps, the clock's slew too.


def _cell(kind: str, **ports: int) -> dict[str, Any]:
    return {"type": kind, "parameters": {}, "attributes": {}, "connections": {name: [bit] for name, bit in ports.items()}}


def _netlist(cells: dict[str, Any], names: dict[str, list[int]], **ports: tuple[str, list[int]]) -> Netlist:
    nets = {name: {"hide_name": 0, "bits": bits} for name, bits in names.items()}
    sides = {name: {"direction": side, "bits": bits} for name, (side, bits) in ports.items()}
    return Netlist({"cells": cells, "ports": sides, "netnames": nets})


def test_register_to_register() -> None:
    """from_r - INV - INV - to_r: 70/60 + 20 + 2; 30/10 + 20 + 2; 30/10 + 40 + 2; setup 42/52, all in ps.

    Rising at the start: 92, falls at 92 + 32 = 124, rises at 124 + 72 = 196; setup for a rise with clock and data slew of
    20 ps: 40 + 20 + 4 = 64.  Falling at the start: 82, rises at 82 + 52 = 134, falls at 134 + 52 = 186; setup for a fall:
    50 + 20 + 4 = 74.  Both give 260.
    """
    netlist = _netlist(
        {"f": _cell("DFF", C=1, D=9, Q=2), "i": _cell("INV", A=2, Y=3), "j": _cell("INV", A=3, Y=4),
         "t": _cell("DFF", C=1, D=4, Q=5)},
        {"from_r": [2], "to_r": [5], "d": [9]}, clk=("input", [1]), d=("input", [9]),
    )  # fmt: skip
    path, second = longest_paths(netlist, TINY)
    assert (path.start, path.end, path.kind, path.levels) == ("from_r", "to_r", "register to register", 2)
    assert path.delay == pytest.approx(0.260)
    assert path.delay - path.setup in (pytest.approx(0.196), pytest.approx(0.186))
    assert [step.cell for step in path.steps] == ["DFF", "INV", "INV"]
    # The input comes from a flip-flop that drives one D pin: 70 + 40 + 2, setup 64; or 60 + 40 + 2, setup 74.
    assert (second.start, second.end, second.kind, second.levels) == ("d", "from_r", "input to register", 0)
    assert second.delay == pytest.approx(0.176)


def test_load_of_every_sink_counts() -> None:
    """Each further inverter on the start adds 2 fF, that is 20 ps."""
    cells = {"f": _cell("DFF", C=1, D=9, Q=2), "t": _cell("DFF", C=1, D=3, Q=5), "i": _cell("INV", A=2, Y=3)}
    alone = longest_paths(_netlist(cells, {"f": [2], "t": [5], "x": [9]}, clk=("input", [1])), TINY)[0]
    more = {f"n{k}": _cell("INV", A=2, Y=20 + k) for k in range(3)}
    loaded = longest_paths(_netlist(cells | more, {"f": [2], "t": [5], "x": [9]}, clk=("input", [1])), TINY)[0]
    assert loaded.delay - alone.delay == pytest.approx(0.060)
    assert loaded.steps[0].fanout == 4


def test_the_worst_slew_of_all_inputs_counts() -> None:
    """Pin B of NAND2 is as fast as pin A and gives a slew of 60 ps: 4 ps more in the inverter behind it than 20 ps would.

    Rising at the start: 70 + 40 + 2, falls after 20 + 20 + 2, rises after 30 + 40 + 6; setup for a rise 64.
    """
    cells = {"f": _cell("DFF", C=1, D=9, Q=2), "n": _cell("NAND2", A=2, B=2, Y=3), "i": _cell("INV", A=3, Y=4),
             "t": _cell("DFF", C=1, D=4, Q=5)}  # fmt: skip
    path = longest_paths(_netlist(cells, {"f": [2], "t": [5], "x": [9]}, clk=("input", [1])), TINY)[0]
    assert path.delay == pytest.approx((112 + 42 + 76 + 64) / 1000)


def test_output_ports_end_at_a_flip_flop() -> None:
    ports = {"a": ("input", [2]), "b": ("input", [3]), "y": ("output", [4])}
    netlist = _netlist({"x": _cell("XOR2", A=2, B=3, Y=4)}, {"a": [2], "b": [3], "y": [4]}, **ports)
    (path,) = longest_paths(netlist, TINY)
    # 70 + 20 + 2, then 50 + 40 (D pin) + 2; setup for a fall with a data slew of 60 ps (from pin B) 50 + 20 + 12.
    assert path.delay == pytest.approx((92 + 92 + 82) / 1000)
    assert (path.start, path.end, path.kind) in {(name, "y", "input to output") for name in "ab"}


def test_bits_of_a_register_are_one_end() -> None:
    cells = {f"f{k}": _cell("DFF", C=1, D=10 + k, Q=20 + k) for k in range(4)}
    netlist = _netlist(cells, {"word_r": [20, 21, 22, 23]}, clk=("input", [1]), d=("input", [10, 11, 12, 13]))
    assert [path.end for path in longest_paths(netlist, TINY)] == ["word_r"]


def test_memory_macros_start_and_end_paths() -> None:
    memory = {
        "type": "$mem_v2", "parameters": {}, "attributes": {},
        "connections": {"RD_ADDR": [2], "RD_DATA": [3], "RD_CLK": [1], "WR_ADDR": ["0"]},
    }  # fmt: skip
    netlist = _netlist({"m": memory, "t": _cell("DFF", C=1, D=3, Q=5)}, {"t_r": [5]}, clk=("input", [1]), a=("input", [2]))
    assert {path.kind for path in longest_paths(netlist, TINY)} == {"memory to register", "input to memory"}


def test_constants_and_undriven_nets_are_no_paths() -> None:
    netlist = _netlist({"n": _cell("NAND2", A=7, B=8, Y=4), "t": _cell("DFF", C=1, D=4, Q=5)}, {}, clk=("input", [1]))
    assert longest_paths(netlist, TINY) == []


def test_loops_and_unknown_cells_are_refused() -> None:
    loop = {"i": _cell("INV", A=2, Y=3), "j": _cell("NAND2", A=3, B=4, Y=2)}
    with pytest.raises(LibertyError, match="combinational loop near around"):
        longest_paths(_netlist(loop, {"around": [2], "back": [3]}, x=("input", [4])), TINY)
    with pytest.raises(LibertyError, match="FOO is not in Liberty tiny"):
        longest_paths(_netlist({"f": _cell("FOO", A=1)}, {}), TINY)

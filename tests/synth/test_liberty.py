"""Liberty files: lookups against figures worked out by hand, units, FO4, and what is no Liberty file."""

from __future__ import annotations

import pytest

from synth.liberty import Liberty, LibertyError, Table, parse
from tests.synth.cells import LIBERTY


def test_lookups_of_the_open_library(library: Liberty) -> None:
    """Points of INVX1's and DFFPOSX1's tables, read off the file by eye; between points, the mean of the neighbours."""
    (arc,) = library.cells["INVX1"].pins["Y"].arcs
    fall = arc.tables["cell_fall"]
    assert fall.at(0.06, 0.005) == pytest.approx(0.030906)
    assert fall.at(1.2, 0.15) == pytest.approx(0.51187)
    assert fall.at(0.12, 0.005) == pytest.approx((0.030906 + 0.037434) / 2)
    assert fall.at(0.06, 0.05) == pytest.approx((0.064368 + 0.139135) / 2)
    setup = next(a for a in library.cells["DFFPOSX1"].pins["D"].arcs if a.kind == "setup_rising")
    assert setup.tables["rise_constraint"].at(0.06, 1.2) == pytest.approx(0.26875)  # clock 0.06, data 1.2
    assert setup.tables["rise_constraint"].at(0.6, 0.06) == pytest.approx(0.45)
    assert (library.inverter.name, library.nand2.name, library.nand2.area) == ("INVX1", "NAND2X1", 24)
    assert library.flip_flop.name == "DFFPOSX1"


def test_fo4_of_the_open_library(library: Liberty) -> None:
    """About 0.1 ns at 180 nm; and a fixed point: the slew that goes in comes out."""
    assert library.fo4 == pytest.approx(0.099, abs=0.001)
    (arc,) = library.inverter.outputs[0].arcs
    load = 4 * 0.00932456
    rise = fall = library.fo4_slew
    for _ in range(20):
        rise, fall = arc.tables["rise_transition"].at(fall, load), arc.tables["fall_transition"].at(rise, load)
    assert (rise + fall) / 2 == pytest.approx(library.fo4_slew, rel=1e-3)


def test_units_and_fo4_by_hand() -> None:
    library = parse(LIBERTY)
    assert library.inverter.inputs[0].capacitance == pytest.approx(0.002)  # 2 fF
    # Load 4 x 2 fF: 8/10 of 100 ps on top; slew 20 ps: 20/100 of 10 ps on top; edges 30 and 10 ps.
    assert library.fo4 == pytest.approx(((30 + 80 + 2) + (10 + 80 + 2)) / 2 / 1000)
    assert library.fo4_slew == pytest.approx(0.020)
    assert library.nand2.name == "NAND2"


def test_axes_may_come_in_either_order() -> None:
    swapped = LIBERTY.replace(
        "variable_1 : total_output_net_capacitance; variable_2 : input_net_transition;\n"
        '    index_1 ("0, 1"); index_2 ("0, 100");',
        'variable_1 : input_net_transition; variable_2 : total_output_net_capacitance; index_1 ("0, 100"); index_2 ("0, 1");',
    )
    assert swapped != LIBERTY
    (arc,) = parse(swapped).cells["INV"].pins["Y"].arcs
    assert arc.tables["cell_rise"].at(0.1, 0.0) == pytest.approx(0.130)  # was the value at load 10, slew 0
    (arc,) = parse(LIBERTY).cells["INV"].pins["Y"].arcs
    assert arc.tables["cell_rise"].at(0.1, 0.0) == pytest.approx(0.040)


def test_tables_go_on_beyond_their_points() -> None:
    table = Table((0.0, 1.0), (0.0, 2.0), ((0.0, 2.0), (1.0, 3.0)))  # x + y
    for x, y in ((0.5, 0.5), (2.0, 1.0), (-1.0, 0.0), (0.25, 4.0)):
        assert table.at(x, y) == pytest.approx(x + y)
    assert Table((0.0,), (0.0,), ((7.0,),)).at(3.0, 5.0) == 7.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a Liberty file"),
        ("%PDF-1.4 \x00\x01", "not a Liberty file|not understood"),
        (LIBERTY[: len(LIBERTY) // 2], "ends early"),
        ("library (x) { }", "without cells"),
        ("technology (x) { a : 1; }", "does not start with a library"),
        (LIBERTY.replace("area : 12", "area : nan"), "area of cell DFF is 'nan'"),
        (LIBERTY.replace('"40, 60"', '"40, inf"'), "'inf'"),
        (LIBERTY.replace('"40, 60"', '"40"'), "has 3 values, not 2 x 2"),
        (LIBERTY.replace('"1ps"', '"1 fortnight"'), "unit '1 fortnight'"),
    ],
)
def test_what_is_no_liberty_file(text: str, message: str) -> None:
    with pytest.raises(LibertyError, match=message):
        parse(text)


def test_a_library_without_the_cells_we_need() -> None:
    for name, what in (("INV", "inverter"), ("NAND2", "NAND"), ("DFF", "flip-flop")):
        library = parse(LIBERTY)
        del library.cells[name]
        with pytest.raises(LibertyError, match=what):
            _ = library.inverter, library.nand2, library.flip_flop

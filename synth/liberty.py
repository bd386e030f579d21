"""Reads what timing and area need from a Liberty file: cells, pins, delay and constraint tables, units, FO4.

Delays are nanoseconds and capacitances picofarads whatever the file's units.  Source: Liberty user guide, NLDM tables.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["Arc", "Cell", "Liberty", "LibertyError", "Pin", "Table", "parse"]

_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|\\\r?\n|"((?:[^"\\]|\\.)*)"|([{}():;,])|([^\s{}():;,"]+)', re.DOTALL)
_EDGE_TABLES = ("cell_rise", "cell_fall", "rise_transition", "fall_transition", "rise_constraint", "fall_constraint")
_PREFIX = {"f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
_INVERTER = re.compile(r"\(*!\(*(\w+)\)*|\(*(\w+)\)*'")
_NAND2 = re.compile(r"\(*!\((\w+)\s*[&*\s]\s*(\w+)\)+|\(*!(\w+)\)*\s*[|+]\s*\(*!(\w+)\)*|\((\w+)\s*[&*\s]\s*(\w+)\)+'")


class LibertyError(ValueError):
    """The Liberty file cannot be used; the message is one line."""


@dataclass
class _Group:
    kind: str
    names: list[str]
    values: dict[str, list[str]] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)

    def text(self, key: str, default: str = "") -> str:
        return self.values[key][0] if self.values.get(key) else default

    def number(self, key: str, default: float = 0.0) -> float:
        text = self.text(key)
        if not text:
            return default
        return _number(text, f"{key} of {self.kind} {' '.join(self.names)}")

    def of_kind(self, kind: str) -> Iterator[_Group]:
        return (group for group in self.groups if group.kind == kind)


@dataclass(frozen=True)
class Table:
    """A table over input slew and load, or over data slew and clock slew; linear between and beyond its points."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]

    def at(self, x: float, y: float) -> float:
        """Return the value at ``x`` (first axis) and ``y`` (second axis)."""
        i, s = _place(self.xs, x)
        j, t = _place(self.ys, y)
        low, high = self.rows[i], self.rows[i + 1] if s else self.rows[i]
        if not t:
            return low[j] + s * (high[j] - low[j])
        below = low[j] + t * (low[j + 1] - low[j])
        return below + s * (high[j] + t * (high[j + 1] - high[j]) - below)


@dataclass(frozen=True)
class Arc:
    """One ``timing`` group: from ``related`` to the pin that holds it.

    Tables of delays have the axes input slew and load, those of constraints clock slew and data slew.
    """

    related: str
    sense: str
    kind: str
    tables: dict[str, Table]


@dataclass(frozen=True)
class Pin:
    """A pin; ``capacitance`` in pF."""

    name: str
    output: bool
    capacitance: float
    function: str
    arcs: tuple[Arc, ...]


@dataclass(frozen=True)
class Cell:
    """A cell; ``area`` in the file's unit (µm² in all open libraries we know)."""

    name: str
    area: float
    pins: dict[str, Pin]
    sequential: bool
    plain_flip_flop: bool  # no set, no clear

    @property
    def inputs(self) -> list[Pin]:
        return [pin for pin in self.pins.values() if not pin.output]

    @property
    def outputs(self) -> list[Pin]:
        return [pin for pin in self.pins.values() if pin.output]


@dataclass(frozen=True)
class Liberty:
    """A library of cells."""

    name: str
    cells: dict[str, Cell]

    def _smallest(self, what: str, cells: list[Cell]) -> Cell:
        if not cells:
            raise LibertyError(f"Liberty {self.name} has no {what}")
        return min(cells, key=lambda cell: (cell.area, cell.name))

    def _gate(self, what: str, inputs: int, pattern: re.Pattern[str]) -> Cell:
        return self._smallest(what, [
            cell for cell in self.cells.values()
            if not cell.sequential and len(cell.inputs) == inputs and len(cell.outputs) == 1 and cell.area > 0
            and pattern.fullmatch(cell.outputs[0].function.strip())
        ])  # fmt: skip

    @cached_property
    def inverter(self) -> Cell:
        """The smallest inverter."""
        return self._gate("inverter", 1, _INVERTER)

    @cached_property
    def nand2(self) -> Cell:
        """The smallest two-input NAND: the unit of gate equivalents."""
        return self._gate("two-input NAND", 2, _NAND2)

    @cached_property
    def flip_flop(self) -> Cell:
        """The smallest rising-edge D flip-flop without set and clear."""
        return self._smallest("D flip-flop", [
            cell for cell in self.cells.values() if cell.plain_flip_flop and cell.area > 0
            and any(arc.kind == "rising_edge" for pin in cell.outputs for arc in pin.arcs)
        ])  # fmt: skip

    @cached_property
    def _fo4(self) -> tuple[float, float]:
        cell = self.inverter
        load = 4 * cell.inputs[0].capacitance
        (arc,) = cell.outputs[0].arcs
        rise = fall = 0.0
        for _ in range(50):
            rise = arc.tables["rise_transition"].at(fall, load)
            fall = arc.tables["fall_transition"].at(rise, load)
        delay = (arc.tables["cell_rise"].at(fall, load) + arc.tables["cell_fall"].at(rise, load)) / 2
        return delay, (rise + fall) / 2

    @property
    def fo4(self) -> float:
        """Delay of an inverter that drives four of its kind, in a long chain of such, mean of both edges, in ns."""
        return self._fo4[0]

    @property
    def fo4_slew(self) -> float:
        """Slew in that chain, in ns: the slew that this flow gives the clock."""
        return self._fo4[1]


def parse(text: str) -> Liberty:
    """Parse the text of a Liberty file.

    Raises
    ------
    LibertyError
        When it is no Liberty file, ends early, or a number in it is none.
    """
    library = _groups(text)
    if library.kind != "library":
        raise LibertyError("not a Liberty file: it does not start with a library group")
    time_unit = _unit(library.text("time_unit", "1ns"), "s") / 1e-9
    quantity, unit = (library.values.get("capacitive_load_unit") or ["1", "pf"])[:2]
    load_unit = _number(quantity, "capacitive_load_unit") * _unit(f"1{unit.lower()}", "f") / 1e-12
    templates = {group.names[0]: group for group in library.of_kind("lu_table_template") if group.names}
    cells = {}
    for group in library.of_kind("cell"):
        cell = _cell(group, templates, time_unit, load_unit)
        cells[cell.name] = cell
    if not cells:
        raise LibertyError("Liberty file without cells")
    return Liberty(" ".join(library.names), cells)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise LibertyError(f"Liberty: {what} is {text!r}, not a finite number")
    return value


def _unit(text: str, base: str) -> float:
    match = re.fullmatch(rf"([\d.]+)\s*([fpnum]?){base}", text.strip().lower())
    if not match:
        raise LibertyError(f"Liberty: unit {text!r} not understood")
    return float(match[1]) * _PREFIX[match[2]]


def _place(points: tuple[float, ...], value: float) -> tuple[int, float]:
    """Return the index of the interval to interpolate in and the place in it (outside of 0 to 1: extrapolation)."""
    if len(points) < 2:
        return 0, 0.0
    i = min(max(bisect_right(points, value) - 1, 0), len(points) - 2)
    return i, (value - points[i]) / (points[i + 1] - points[i])


def _groups(text: str) -> _Group:
    tokens = [(m[1] is not None, m[1] if m[1] is not None else m[2] or m[3]) for m in _TOKEN.finditer(text)]
    words = [(quoted, word) for quoted, word in tokens if word is not None]
    stack = [_Group("file", [])]
    i, end = 0, len(words)
    try:
        while i < end:
            quoted, word = words[i]
            if word == "}" and not quoted:
                stack.pop()
                i += 1
            elif word == ";" and not quoted:
                i += 1
            elif words[i + 1] == (False, ":"):
                i += 2
                parts: list[str] = []
                while words[i] not in ((False, ";"), (False, "}")) and not (parts and words[i + 1][1] in "(:"):
                    parts.append(words[i][1])
                    i += 1
                stack[-1].values[word] = [" ".join(parts)]
            elif words[i + 1] == (False, "("):
                i += 2
                arguments = []
                while words[i] != (False, ")"):
                    if words[i] != (False, ","):
                        arguments.append(words[i][1])
                    i += 1
                i += 1
                if i < end and words[i] == (False, "{"):
                    group = _Group(word, arguments)
                    stack[-1].groups.append(group)
                    stack.append(group)
                    i += 1
                else:
                    stack[-1].values[word] = arguments
            else:
                raise LibertyError(f"Liberty: {word!r} not understood")
        if len(stack) != 1 or not stack[0].groups:
            raise IndexError
    except IndexError:
        raise LibertyError("not a Liberty file, or it ends early") from None
    return stack[0].groups[0]


def _numbers(texts: list[str], what: str) -> tuple[float, ...]:
    return tuple(_number(word, what) for text in texts for word in re.split(r"[,\s]+", text.strip()) if word)


def _table(group: _Group, templates: dict[str, _Group], time_unit: float, load_unit: float) -> Table:
    template = templates.get(group.names[0] if group.names else "", _Group("", []))
    axes = []
    for k in "12":
        variable = template.text(f"variable_{k}")
        points = _numbers(group.values.get(f"index_{k}") or template.values.get(f"index_{k}") or [], f"index_{k}")
        scale = load_unit if "capacitance" in variable else time_unit
        axes.append((variable, tuple(point * scale for point in points) or (0.0,)))
    (first, xs), (second, ys) = axes
    values = [value * time_unit for value in _numbers(group.values.get("values", []), "values")]
    if len(values) != len(xs) * len(ys):
        raise LibertyError(f"Liberty: table {group.kind} has {len(values)} values, not {len(xs)} x {len(ys)}")
    rows = tuple(tuple(values[k : k + len(ys)]) for k in range(0, len(values), len(ys)))
    if "capacitance" in first or "constrained" in first or "related" in second:  # slew first; clock slew first
        return Table(ys, xs, tuple(zip(*rows, strict=True)))
    return Table(xs, ys, rows)


def _cell(group: _Group, templates: dict[str, _Group], time_unit: float, load_unit: float) -> Cell:
    pins = {}
    for part in group.of_kind("pin"):
        arcs = []
        for timing in part.of_kind("timing"):
            tables = {
                table.kind: _table(table, templates, time_unit, load_unit)
                for table in timing.groups if table.kind in _EDGE_TABLES
            }  # fmt: skip
            sense, kind = timing.text("timing_sense", "non_unate"), timing.text("timing_type", "combinational")
            arcs += [Arc(pin, sense, kind, tables) for pin in timing.text("related_pin").split()]
        for name in part.names:
            pins[name] = Pin(
                name, part.text("direction") in ("output", "inout"), part.number("capacitance") * load_unit,
                part.text("function"), tuple(arcs),
            )  # fmt: skip
    flip_flops = list(group.of_kind("ff"))
    plain = len(flip_flops) == 1 and not {"clear", "preset"} & set(flip_flops[0].values)
    sequential = bool(flip_flops) or any(True for _ in group.of_kind("latch"))
    return Cell(group.names[0], group.number("area"), pins, sequential, plain)

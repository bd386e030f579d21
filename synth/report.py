"""Size and speed of one block: runs the flow, adds up areas, finds the longest paths.

The result is plain data, ready for JSON; figures that are missing are None, never 0 or NaN.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from synth import flow
from synth.flow import Mapped, Options, Prepared, SynthesisError
from synth.liberty import Liberty, LibertyError, parse
from synth.netlist import Netlist
from synth.split import split
from synth.timing import Path as TimingPath
from synth.timing import longest_paths

__all__ = ["AREA_LIMITS", "FO4_LIMIT", "parse_stat", "read_liberty", "synthesise"]

FO4_LIMIT = 50.0
"""Longest path allowed from register to register, in FO4 delays of the Liberty."""

AREA_LIMITS = {"processing_element": 80_000}
"""Largest size allowed of a block, in NAND2 equivalents."""

_KEPT_PATHS = 8

def read_liberty(path: Path) -> tuple[Liberty, str]:
    """Read a Liberty file; return it with its text.

    Raises
    ------
    SynthesisError
        When it cannot be read or used.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        library = parse(text)
        _ = library.fo4, library.nand2, library.flip_flop
    except OSError as error:
        raise SynthesisError(f"cannot read Liberty {path}: {error.strerror}") from None
    except LibertyError as error:
        raise SynthesisError(f"{path}: {error}") from None
    return library, text


def synthesise(text: str, top: str, liberty: Path, library: Liberty, options: Options) -> dict[str, Any]:
    """Map the Verilog ``text`` and return its areas (µm² and NAND2 equivalents), memories and paths (ns and FO4).

    Raises
    ------
    SynthesisError
        When the flow fails or contradicts itself.
    """
    data_pin = next(pin for pin in library.flip_flop.inputs if any(arc.kind.startswith("setup") for arc in pin.arcs))
    tried: list[_Trial] = []
    failed: SynthesisError | None = None
    forms = (replace(options, booth=False), replace(options, booth=True)) if options.smallest else (options,)
    with tempfile.TemporaryDirectory(prefix="saddle-synth-") as folder:
        for form in forms:
            place = Path(folder) / ("booth" if form.booth else "plain")
            place.mkdir()
            prepared = flow.prepare(
                text, top, liberty, form, place, inverter=library.inverter.name, load_ff=data_pin.capacitance * 1000
            )
            for recipe in prepared.recipes:
                try:
                    tried.append(_try(prepared, recipe, form, library))
                except SynthesisError as error:  # ABC crashes on some designs with some recipes
                    failed = error
                    continue
                if tried[-1].delay <= FO4_LIMIT and not options.smallest:
                    break
    if not tried:
        raise failed or SynthesisError(f"{top}: no recipe")
    within = [trial for trial in tried if trial.delay <= FO4_LIMIT]
    best = min(within, key=lambda trial: trial.area) if within else min(tried, key=lambda trial: trial.delay)
    prepared, recipe, mapped, netlist, paths = best.prepared, best.recipe, best.mapped, best.netlist, best.paths
    counts, areas = _areas(netlist, library, mapped.stat, top)
    unit, area = library.nand2.area, sum(areas.values())
    flip_flops = {kind: count for kind, count in counts.items() if library.cells[kind].sequential}
    sequential = sum(areas[kind] for kind in flip_flops)
    return {
        "recipe": recipe + ("+booth" if best.booth else ""),
        "gates_before_mapping": len(prepared.gates["cells"]),
        "area": area,
        "nand2": area / unit,
        "cells": sum(counts.values()),
        "cells_by_type": dict(sorted(counts.items())),
        "flip_flops": sum(flip_flops.values()),
        "flip_flop_area": sequential,
        "memories": [asdict(memory) | {"bits": memory.bits} for memory in prepared.memories],
        "memory_bits_in_flip_flops": sum(memory.bits for memory in prepared.memories if memory.flip_flops),
        "memory_bits_in_macros": sum(memory.bits for memory in prepared.memories if not memory.flip_flops),
        "split": split(netlist, prepared.gates, library),
        "levels_before_mapping": prepared.levels,
        "abc_delay_ns": mapped.abc_delay_ns,
        "critical": _described(paths[0], library, steps=True) if paths else None,
        "paths": [_described(path, library) for path in _different(paths)[:_KEPT_PATHS]],
    }


@dataclass(frozen=True)
class _Trial:
    prepared: Prepared
    recipe: str
    booth: bool
    mapped: Mapped
    netlist: Netlist
    paths: list[TimingPath]
    delay: float  # FO4
    area: float


def _try(prepared: Prepared, recipe: str, form: Options, library: Liberty) -> _Trial:
    mapped = flow.map_cells(prepared, recipe)
    netlist = Netlist(mapped.netlist)
    try:
        paths = longest_paths(netlist, library)
    except LibertyError as error:
        raise SynthesisError(f"{prepared.top}: {error}") from None
    delay = paths[0].delay / library.fo4 if paths else 0.0
    area = sum(library.cells[kind].area for _, kind, _ in netlist.cells if kind in library.cells)
    return _Trial(prepared, recipe, form.booth, mapped, netlist, paths, delay, area)


def _areas(netlist: Netlist, library: Liberty, stat: str, top: str) -> tuple[Counter[str], dict[str, float]]:
    """Return how many cells of each type there are, and their areas, which must add up to what Yosys reports."""
    counts = Counter(kind for _, kind, _ in netlist.cells if kind in library.cells)
    areas = {kind: library.cells[kind].area * count for kind, count in counts.items()}
    area, reported = sum(areas.values()), parse_stat(stat)
    if reported["area"] is None and counts:  # without any cell Yosys states no area
        raise SynthesisError(f"{top}: Yosys reports no area: {reported['problem']}")
    if not math.isclose(reported["area"] or 0.0, area, rel_tol=1e-6, abs_tol=1e-3):
        raise SynthesisError(f"{top}: Yosys reports an area of {reported['area']}, its netlist adds up to {area}")
    return counts, areas


def _different(paths: Sequence[TimingPath]) -> list[TimingPath]:
    """Return the longest path of each pair of ends whose names differ in more than numbers."""
    seen: dict[tuple[str, str], TimingPath] = {}
    for path in paths:
        seen.setdefault((re.sub(r"\d+", "", path.start), re.sub(r"\d+", "", path.end)), path)
    return list(seen.values())


def _described(path: TimingPath, library: Liberty, *, steps: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {
        "start": path.start, "end": path.end, "kind": path.kind, "delay_ns": round(path.delay, 4),
        "delay_fo4": round(path.delay / library.fo4, 2), "levels": path.levels,
        "clock_to_q_ns": round(path.steps[0].arrival, 4), "setup_ns": round(path.setup, 4),
    }  # fmt: skip
    if steps:
        row["steps"] = [asdict(step) | {"arrival": round(step.arrival, 4)} for step in path.steps]
    return row


def parse_stat(text: str) -> dict[str, Any]:
    """Return area and sequential area of a ``stat -liberty`` report; what is missing or no number is None, with the reason."""
    found: dict[str, Any] = {"area": None, "sequential_area": None, "problem": None}
    unknown = re.findall(r"Area for cell type (\S+) is unknown", text)
    patterns = {"area": r"Chip area for (?:top )?module .*?: +(\S+)", "sequential_area": r"sequential elements: +(\S+)"}
    for key, pattern in patterns.items():
        values = re.findall(pattern, text)
        try:
            value = float(values[-1]) if values else math.nan
        except ValueError:
            value = math.nan
        found[key] = value if math.isfinite(value) else None
    unknown = [kind for kind in unknown if kind.strip("\\:") not in flow.MEMORY]
    if unknown:
        found["area"], found["problem"] = None, f"area of cell {unknown[0].strip(chr(92))} is unknown"
    elif found["area"] is None:
        found["problem"] = "the report has no number for it"
    return found

"""Prints what synthesis found and writes it as files: a table of sizes and paths, the split by purpose, slow ends by name."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cosim.blocks import BLOCKS
from cosim.errors import UserError
from cosim.files import check_folder, write_atomically, write_set
from synth.report import AREA_LIMITS, FO4_LIMIT

__all__ = ["COLUMNS", "print_results", "problems", "read_page", "summary_row", "sums_of_parts", "write_docs", "write_files"]

COLUMNS = (
    "top", "cells", "area_um2", "nand2_equivalents", "flip_flops", "flip_flop_area_um2", "memory_bits_in_flip_flops",
    "memory_bits_in_macros", "delay_ns", "delay_fo4", "clock_to_q_ns", "setup_ns", "levels", "levels_before_mapping", "start",
    "end", "kind", "arithmetic_percent", "buffers_percent", "control_percent", "meets_targets", "recipe", "abc_delay_ns",
    "rtl_sha256", "flow_sha256", "liberty", "liberty_sha256", "pyosys",
)  # fmt: skip
_BEGIN, _END = "<!-- table by saddle synth: begin -->", "<!-- table by saddle synth: end -->"


def problems(result: dict[str, Any]) -> list[str]:
    """Return the targets that a block misses."""
    found = []
    path = result["critical"]
    if path is not None and path["delay_fo4"] > FO4_LIMIT:
        found.append(f"{path['start']} to {path['end']} takes {path['delay_fo4']:.1f} FO4, target {FO4_LIMIT:.0f}")
    limit = AREA_LIMITS.get(result["block"])
    if limit is not None and result["nand2"] > limit:
        found.append(f"{result['nand2']:,.0f} NAND2 equivalents, target {limit:,}")
    return found


def summary_row(result: dict[str, Any]) -> dict[str, Any]:
    """Return one result as a flat row of :data:`COLUMNS`; what is missing is None."""
    path, area = result["critical"] or {}, result["area"]
    percent = {
        f"{name}_percent": round(100 * result["split"][f"paper_{name}"] / area, 1) if area else None
        for name in ("arithmetic", "buffers", "control")
    }
    row = {
        "area_um2": round(area, 1), "nand2_equivalents": round(result["nand2"], 1),
        "flip_flop_area_um2": result["flip_flop_area"], "meets_targets": not problems(result),
    } | percent  # fmt: skip
    return {name: row[name] if name in row else result[name] if name in result else path.get(name) for name in COLUMNS}


def write_files(results: Sequence[dict[str, Any]], place: Path) -> None:
    """Write ``<top>.json`` for each result, and ``summary.csv`` and ``summary.json`` over all of them, as one set."""
    files = {f"{result['top']}.json": json.dumps(result, indent=1, allow_nan=False) + "\n" for result in results}
    rows = [summary_row(result) for result in results]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files["summary.csv"] = text.getvalue()
    keys = ("liberty", "liberty_sha256", "fo4_ns", "nand2_area", "pyosys", "flow_sha256", "options")
    common = {key: results[0][key] for key in keys}
    files["summary.json"] = json.dumps(common | {"blocks": rows}, indent=1, allow_nan=False) + "\n"
    write_set(place, files, manifest="summary.json")


def sums_of_parts(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line for each block made of others whose parts are all among the results."""
    sizes = {result["top"]: result["nand2"] for result in results}
    lines = []
    for block in BLOCKS:
        if block.parts and all(top in sizes for top, _ in block.parts):
            total = sum(number * sizes[top] for top, number in block.parts)
            terms = " + ".join(f"{number} x {top}" if number > 1 else top for top, number in block.parts)
            lines.append(f"{block.stem}: {total:,.0f} NAND2 equivalents in its parts ({terms}), without the logic between")
    return lines


def print_results(results: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """Print the tables."""
    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=200)
    first = results[0]
    console.print(
        f"Liberty {first['liberty']}: FO4 {first['fo4_ns']:.4f} ns ({first['inverter_cell']} driving four), "
        f"NAND2 {first['nand2_area']:g} um2 ({first['nand2_cell']}); pyosys {first['pyosys']}",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    numbers = ("cells", "area um2", "NAND2", "flip-flops", "ff area", "mem bits", "ns", "FO4", "levels", "split")
    for name in ("configuration", *numbers, "longest path"):
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for result in results:
        row = summary_row(result)
        table.add_row(
            row["top"], f"{row['cells']:,}", f"{row['area_um2']:,.0f}", f"{row['nand2_equivalents']:,.0f}",
            f"{row['flip_flops']:,}", f"{row['flip_flop_area_um2']:,.0f}",
            f"{row['memory_bits_in_flip_flops'] + row['memory_bits_in_macros']:,}",
            _figure(row["delay_ns"], ".2f"), _figure(row["delay_fo4"], ".1f"), _figure(row["levels"], "d"), _split(row),
            f"{row['start']} -> {row['end']}" if row["start"] else "none",
        )  # fmt: skip
    console.print(table)
    note = "split: arithmetic / buffers / control in % of the area; flip-flops include those of memories"
    console.print(note, highlight=False)
    for result in results:
        for memory in result["memories"]:
            fate = "became flip-flops" if memory["flip_flops"] else "stays a macro, NOT in the area"
            size = f"{memory['depth']} x {memory['width']} = {memory['bits']:,} bits"
            console.print(f"{result['top']}: memory {memory['name']}, {size}, {fate}", highlight=False)
    for result in results:
        for path in result["paths"]:
            if path["delay_fo4"] > 0.8 * FO4_LIMIT:
                console.print(
                    f"{result['top']}: {path['delay_fo4']:.1f} FO4, {path['levels']} levels: {path['start']} -> {path['end']}"
                    f" ({path['kind']})", highlight=False,
                )  # fmt: skip
    for line in sums_of_parts(results):
        console.print(line, highlight=False)
    missed = [f"{result['top']}: over target: {problem}" for result in results for problem in problems(result)]
    for line in missed or [f"all within the targets ({FO4_LIMIT:.0f} FO4 from register to register)"]:
        console.print(line, highlight=False)


def read_page(page: Path) -> str:
    """Return the text of a Markdown page that can take the table.

    Raises
    ------
    UserError
        When it cannot be read or written, or its two marks are missing.
    """
    check_folder("--write-docs", page.parent)
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {page}: {error.strerror}") from None
    if not 0 <= text.find(_BEGIN) < text.find(_END):
        raise UserError(f"{page} has no lines {_BEGIN!r} and {_END!r} to write between")
    return text


def write_docs(results: Sequence[dict[str, Any]], page: Path) -> None:
    """Put the table into a Markdown page, between its two marks; errors as of :func:`read_page`."""
    text, first = read_page(page), results[0]
    heads = ("configuration", "NAND2 eq.", "area µm²", "cells", "flip-flops", "memory bits", "ns", "FO4", "levels",
             "arithmetic / buffers / control %", "longest path", "recipe")  # fmt: skip
    origin = f"Liberty {first['liberty']} (SHA-256 {first['liberty_sha256'][:12]}), FO4 {first['fo4_ns']:.4f} ns, "
    origin += f"NAND2 {first['nand2_area']:g} µm², pyosys {first['pyosys']}, flow {first['flow_sha256'][:12]}."
    lines = [origin, "", f"| {' | '.join(heads)} |", f"|---|{'--:|' * 8}---|---|---|"]
    for result in results:
        row = summary_row(result)
        mark = "" if row["meets_targets"] else " (over target)"
        bits = f"{row['memory_bits_in_flip_flops']:,}"
        if row["memory_bits_in_macros"]:
            bits += f" + {row['memory_bits_in_macros']:,} in macros"
        figures = (
            f"`{row['top']}`", f"{row['nand2_equivalents']:,.0f}", f"{row['area_um2']:,.0f}", f"{row['cells']:,}",
            f"{row['flip_flops']:,}", bits, _figure(row["delay_ns"], ".2f"), _figure(row["delay_fo4"], ".1f") + mark,
            _figure(row["levels"], "d"), _split(row), f"`{row['start']}` to `{row['end']}`", row["recipe"],
        )  # fmt: skip
        lines.append(f"| {' | '.join(figures)} |")
    lines += ["", *(f"- {line}" for line in sums_of_parts(results))]
    block = "\n".join([_BEGIN, *lines, _END])
    write_atomically(page, re.sub(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", lambda _: block, text, flags=re.DOTALL))


def _figure(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def _split(row: dict[str, Any]) -> str:
    parts = [row[f"{name}_percent"] for name in ("arithmetic", "buffers", "control")]
    return " / ".join(_figure(part, ".0f") for part in parts)

"""The open flow from Verilog to a mapped netlist: Yosys (``pyosys``) with its ABC, on the cells of a Liberty file.

Source: our choice.  The steps, and why they are these, are in ``docs/synthesis.md``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synth.split import tags

__all__ = ["ADDERS", "RECIPES", "Mapped", "Memory", "Options", "Prepared", "SynthesisError", "map_cells", "prepare"]

_SIZE = ("topo", "buffer -c", "upsize", "dnsize", "stime -p")  # buffer what fans out, then size by the Liberty's delays
RECIPES = {
    "balance-twice": ("strash", "&get -n", "&dch", "&if -g -K 6", "&dch", "&if -g -K 6", "&dch", "&nf", "&put", *_SIZE),
    "balance-once": ("strash", "&get -n", "&st", "&if -g -K 6", "&dch", "&nf", "&put", *_SIZE),
    "choices-first": ("strash", "st", "dch", "if -g -K 6", "st", "dch", "map -B 0.9", *_SIZE),
    "no-choices": ("strash", "&get -n", "&st", "&if -g -K 6", "&nf", "&put", *_SIZE),
    "area": ("strash", "ifraig", "scorr", "dc2", "dch -f", "map -B 0.9", *_SIZE),
}
"""Scripts of ABC.  Which one is fastest differs by ten percent from block to block; ``area`` is Yosys's own, to compare."""
USUAL = ("balance-twice", "balance-once", "choices-first")
LARGE = 100_000
"""Gates of two inputs above which ABC's search for choices (``&dch``) does not end in a quarter of an hour."""
ABC_CONSTRAINTS = ("set_driving_cell {inverter}", "set_load {load_ff:.3f} [all_outputs]")
ADDERS = ("brent-kung", "kogge-stone")
MEMORY = ("$mem", "$mem_v2")
_RUN = (
    "import sys\nfrom pyosys import libyosys as ys\ndesign = ys.Design()\n"
    "for line in sys.stdin.read().splitlines(): ys.run_pass(line, design)"
)


class SynthesisError(ValueError):
    """Synthesis cannot go on; the message is one line."""


@dataclass(frozen=True)
class Options:
    """What the user may choose.

    Parameters
    ----------
    memory_bits
        Bits of the largest memory that becomes flip-flops; a larger one stays a macro, without area.
    booth
        Whether multipliers take Booth's form.
    adder
        Carry networks: ``brent-kung`` or ``kogge-stone``.
    smallest
        Whether every recipe is tried, with plain and with Booth's multipliers, and the smallest result within the target
        counts.
    recipes
        Names of :data:`RECIPES`, tried in turn until the longest path is within the target; else the fastest counts.
        Empty means what suits the size: three of them, or ``no-choices`` alone above :data:`LARGE` gates.
    """

    memory_bits: int = 32768
    booth: bool = False
    adder: str = "brent-kung"
    smallest: bool = False
    recipes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """A memory of the design and what became of it."""

    name: str
    depth: int
    width: int
    flip_flops: bool

    @property
    def bits(self) -> int:
        return self.depth * self.width


@dataclass(frozen=True)
class Prepared:
    """A design as gates and flip-flops, ready for ABC, in a folder of its own."""

    top: str
    place: Path
    memories: tuple[Memory, ...]
    gates: Mapping[str, Any]  # JSON module
    levels: int  # gates of two inputs on the longest path
    recipes: tuple[str, ...]  # to be tried


@dataclass(frozen=True)
class Mapped:
    """What ABC left: the netlist of cells as a JSON module, Yosys's area report, the delay of the logic that ABC states."""

    netlist: Mapping[str, Any]
    stat: str
    abc_delay_ns: float | None


def prepare(text: str, top: str, liberty: Path, options: Options, place: Path, *, inverter: str, load_ff: float) -> Prepared:
    """Bring the Verilog ``text`` with top module ``top`` to gates, in the empty folder ``place``.

    Parameters
    ----------
    inverter
        Cell that ABC takes to drive the inputs of the logic.
    load_ff
        Load of the logic's outputs in fF.

    Raises
    ------
    SynthesisError
        When Yosys is missing or rejects the text.
    """
    if importlib.util.find_spec("pyosys") is None:
        raise SynthesisError("pyosys is not installed; type: pip install pyosys==0.70")
    (place / "design.v").write_text(text, encoding="utf-8")
    (place / "cells.lib").symlink_to(liberty.resolve())
    lines = (line.format(inverter=inverter, load_ff=load_ff) for line in ABC_CONSTRAINTS)
    (place / "abc.constr").write_text("".join(f"{line}\n" for line in lines))
    _yosys(_front(top), place, top)
    words = _module(place / "words.json", top)
    memories = _memories(words, options)
    macros = [name for name, memory in memories.items() if not memory.flip_flops]
    _yosys(_gates(options, tags(words), macros), place, top)
    levels = re.search(r"length=(\d+)", (place / "levels.txt").read_text())
    gates = _module(place / "gates.json", top)
    suitable = USUAL if len(gates["cells"]) <= LARGE else ("no-choices",)
    return Prepared(
        top, place, tuple(memories.values()), gates, int(levels[1]) if levels else 0, options.recipes or suitable
    )


def map_cells(prepared: Prepared, recipe: str) -> Mapped:
    """Map to cells with one of the :data:`RECIPES`.

    Raises
    ------
    SynthesisError
        When Yosys or ABC fails.
    """
    place, top = prepared.place, prepared.top
    (place / "abc.script").write_text("\n".join(RECIPES[recipe]) + "\n")
    log = _yosys(_cells(), place, top)
    delays = re.findall(r"ABC: .*Delay *= *([\d.]+) ps", log)
    return Mapped(
        _module(place / "netlist.json", top), (place / "stat.txt").read_text(), float(delays[-1]) / 1000 if delays else None
    )


def _front(top: str) -> list[str]:
    return [
        "read_verilog -sv design.v", f"hierarchy -check -top {top}", "proc", "flatten", "opt -full", "wreduce", "peepopt",
        "opt_clean", "memory -nomap", "opt_clean", "write_json words.json", "write_rtlil words.il",
    ]  # fmt: skip


def _gates(options: Options, tagging: Sequence[str], macros: Sequence[str]) -> list[str]:
    """Return the commands from words to gates; the attribute ``src`` carries the class of each operator to its gates."""
    return [
        "read_rtlil words.il", *tagging,
        *(f"setattr -set saddle_macro 1 c:{name}" for name in macros),
        "memory_map -attr !saddle_macro", "opt -full",
        *(["booth"] if options.booth else []),
        "alumacc", "share", "opt",
        f"techmap -map +/techmap.v{' -map +/choices/kogge-stone.v' if options.adder == 'kogge-stone' else ''}", "opt -fast",
        "tee -q -o levels.txt ltp -noff", "write_json gates.json",
        "dfflibmap -liberty cells.lib", "opt -fast", "write_rtlil gates.il",
    ]  # fmt: skip


def _cells() -> list[str]:
    return [
        "read_rtlil gates.il",
        "abc -liberty cells.lib -script abc.script -constr abc.constr", "opt_clean -purge",
        "tee -q -o stat.txt stat -liberty cells.lib", "write_json netlist.json",
    ]  # fmt: skip


def _yosys(lines: Sequence[str], place: Path, top: str) -> str:
    env = os.environ | {"TMPDIR": str(place)}  # Yosys and ABC share files there between processes otherwise
    run = subprocess.run(
        [sys.executable, "-c", _RUN], input="\n".join(lines), capture_output=True, text=True, cwd=place, env=env
    )
    if run.returncode:
        errors = [line for line in (run.stdout + run.stderr).splitlines() if "ERROR" in line]
        raise SynthesisError(f"{top}: Yosys failed: {errors[-1] if errors else run.stderr.strip()[-200:]}")
    return run.stdout


def _module(path: Path, top: str) -> dict[str, Any]:
    modules: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["modules"]
    return modules[top]


def _memories(module: Mapping[str, Any], options: Options) -> dict[str, Memory]:
    found = {}
    for name, cell in module["cells"].items():
        if cell["type"] in MEMORY:
            depth, width = (int(cell["parameters"][key], 2) for key in ("SIZE", "WIDTH"))
            label = re.sub(r"\W", "", str(cell["parameters"].get("MEMID", name)).replace("\\", "").replace(".", "_"))
            found[name] = Memory(label, depth, width, depth * width <= options.memory_bits)
    return found

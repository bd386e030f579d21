"""Writes the Verilog of blocks and a manifest that says what each file is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cosim.blocks import Block, Configuration
from cosim.console import Tick
from cosim.files import write_set
from cosim.rtl import rtl_text
from cosim.sources import text_hash

__all__ = ["port_table", "write_verilog"]


def port_table(component: Any) -> list[dict[str, Any]]:
    """Return name, direction and width of every port of a component, as they stand in its Verilog."""
    from amaranth.hdl import Shape
    from amaranth.lib.wiring import In

    rows = []
    for path, member, _ in component.signature.flatten(component):
        rows.append({
            "name": "__".join(str(part) for part in path),
            "direction": "input" if member.flow == In else "output",
            "width": Shape.cast(member.shape).width,
        })
    return rows


def write_verilog(work: Sequence[tuple[Block, Configuration]], place: Path, tick: Tick) -> Iterable[str]:
    """Write one file per configuration and ``manifest.json``, as one set; return one line for each.

    Raises
    ------
    UserError
        When the folder cannot be written.
    """
    files, manifest, lines = dict[str, str](), {}, []
    for number, (block, configuration) in enumerate(work):
        top = block.top(configuration)
        tick(number, len(work), top)
        text = rtl_text(block, configuration)
        header = f"// {top}: {block.summary}\n// parameters {json.dumps(dict(configuration.parameters))}\n"
        header += f"// RTL sha256 {text_hash(text)} (of the text below this line)\n"
        files[f"{top}.v"] = header + text
        manifest[top] = {
            "block": block.stem,
            "parameters": dict(configuration.parameters),
            "rtl_sha256": text_hash(text),
            "ports": port_table(block.component(configuration)),
        }
        lines.append(f"  {top}.v  {len(text.splitlines())} lines")
    files["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    write_set(place, files, manifest="manifest.json")
    return lines

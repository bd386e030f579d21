"""Prints what synthesis found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_results"]


def print_results(results: Sequence[dict[str, Any]]) -> None:
    """Print the table of sizes and the longest paths by name."""
    table = Table(box=None)
    table.add_column("configuration", no_wrap=True)
    for name in ("cells", "area um2", "NAND2 eq.", "flip-flops", "ff area", "mem bits", "path ns", "FO4", "levels"):
        table.add_column(name, justify="right")
    table.add_column("longest path", no_wrap=True)
    for row in results:
        path = row["critical"]
        table.add_row(
            row["top"], f"{row['cells']:,}", f"{row['area']:,.0f}", f"{row['nand2']:,.0f}", f"{row['flip_flops']:,}",
            f"{row['flip_flop_area']:,.0f}", f"{row['memory_bits_in_flip_flops'] + row['memory_bits_in_macros']:,}",
            f"{path['delay_ns']:.2f}", f"{path['delay_fo4']:.1f}", str(path["levels"]), f"{path['start']} -> {path['end']}",
        )  # fmt: skip
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
    for row in results:
        print(row["top"], {k: round(v) for k, v in row["split"].items()}, "abc", row["abc_delay_ns"], "ltp", row["levels_before_mapping"])
        for path in row["paths"][:4]:
            print("   ", {k: v for k, v in path.items() if k != "steps"})

"""A flat netlist as Yosys writes it in JSON, with names for its nets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Netlist"]

Bits = list[int | str]


class Netlist:
    """Cells, ports and names of one module.

    Parameters
    ----------
    module
        The module's object of ``write_json``.
    memory_types
        Cell types that are memories kept whole.
    """

    def __init__(self, module: Mapping[str, Any], memory_types: tuple[str, ...] = ("$mem_v2", "$mem")) -> None:
        self.memory_types = memory_types
        self.cells: list[tuple[str, str, dict[str, Bits]]] = [
            (name, cell["type"], cell["connections"]) for name, cell in module["cells"].items()
        ]
        self.parameters: dict[str, dict[str, str]] = {name: cell["parameters"] for name, cell in module["cells"].items()}
        ports = module["ports"]
        self.inputs = [(name, port["bits"]) for name, port in ports.items() if port["direction"] == "input"]
        self.outputs = [(name, port["bits"]) for name, port in ports.items() if port["direction"] == "output"]
        self._names: dict[int, tuple[bool, int, str, int | None]] = {}
        for name, net in module["netnames"].items():
            hidden = bool(net["hide_name"]) or "$" in name
            single = len(net["bits"]) == 1
            for index, bit in enumerate(net["bits"]):
                entry = (hidden, len(name), name, None if single else index + net.get("offset", 0))
                if isinstance(bit, int) and (bit not in self._names or entry[:3] < self._names[bit][:3]):
                    self._names[bit] = entry

    @staticmethod
    def plain(name: str) -> str:
        """Return a name without the escapes and numbers that tools add."""
        return re.sub(r"\[\d+\]$", "", name.replace("\\", ""))

    def name_of(self, bit: int | str | None, *, hidden: str | None = None) -> str:
        """Return the name of a net with its index; ``hidden`` stands for names that a tool made up."""
        if not isinstance(bit, int) or bit not in self._names:
            return hidden if hidden is not None else f"net {bit}"
        made_up, _, name, index = self._names[bit]
        if made_up and hidden is not None:
            return hidden
        return name if index is None else f"{name}[{index}]"

    def register_of(self, bit: int | str | None) -> str:
        """Return the name of the register or port that drives a net, without index."""
        if not isinstance(bit, int) or bit not in self._names:
            return "unnamed"
        return self.plain(self._names[bit][2])

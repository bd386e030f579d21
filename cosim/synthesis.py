"""The verb ``synth``: size and speed of blocks, cached by content, as a table and as files."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cosim.blocks import Block, Configuration
from cosim.console import Tick
from cosim.errors import UserError
from cosim.files import build_root, write_atomically
from cosim.rtl import rtl_text
from cosim.sources import closure, content_hash, text_hash
from synth.flow import Options, SynthesisError
from synth.report import read_liberty, synthesise

__all__ = ["PACKAGE", "find_liberty", "synthesise_blocks"]

PACKAGE = "qflow-tech-osu018"
INSTALL = f"apt-get install -y --no-install-recommends {PACKAGE}"
_USUAL = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")


def find_liberty(given: Path | None) -> Path:
    """Return the Liberty file: the given one, ``$SADDLE_LIBERTY``, or the one of Debian's package.

    Raises
    ------
    UserError
        When there is none.
    """
    named = given or (Path(os.environ["SADDLE_LIBERTY"]) if os.environ.get("SADDLE_LIBERTY") else None)
    if named is not None:
        if not named.is_file():
            raise UserError(f"no Liberty file {named}")
        return named.absolute()
    if _USUAL.is_file():
        return _USUAL
    try:
        listed = subprocess.run(["dpkg", "-L", PACKAGE], capture_output=True, text=True).stdout.splitlines()
    except OSError:
        listed = []
    for line in listed:
        if line.endswith(".lib") and Path(line).is_file():
            return Path(line)
    raise UserError(f"no Liberty file; type: {INSTALL} (or name one with --liberty or SADDLE_LIBERTY)")


def synthesise_blocks(
    chosen: Sequence[tuple[Block, Configuration]], *, liberty: Path | None, options: Options, workers: int, force: bool, tick: Tick
) -> list[dict[str, Any]]:
    """Synthesise configurations and return one result each, in order; unchanged ones come from the cache.

    Raises
    ------
    UserError
        When the Liberty file, Yosys or a block is not usable.
    """
    path = find_liberty(liberty)
    try:
        library, text = read_liberty(path)
    except SynthesisError as error:
        raise UserError(str(error)) from None
    common = {
        "liberty": library.name, "liberty_file": path.name, "liberty_sha256": text_hash(text),
        "flow_sha256": content_hash(closure(["synth.report"], within=("synth",))),
        "pyosys": _version("pyosys"), "options": vars(options), "fo4_ns": round(library.fo4, 5), "nand2_area": library.nand2.area,
        "nand2_cell": library.nand2.name, "inverter_cell": library.inverter.name,
    }  # fmt: skip
    done = 0

    def one(job: tuple[Block, Configuration]) -> dict[str, Any]:
        nonlocal done
        block, configuration = job
        top = block.top(configuration)
        rtl = rtl_text(block, configuration)
        key = text_hash(json.dumps([rtl, common], sort_keys=True))
        cached = build_root() / "cache" / f"synth-{top}-{key[:20]}.json"
        if cached.is_file() and not force:
            result = json.loads(cached.read_text(encoding="utf-8"))
        else:
            result = {"top": top, "block": block.stem, "parameters": dict(configuration.parameters)} | common
            result |= {"rtl_sha256": text_hash(rtl)} | synthesise(rtl, top, path, library, options)
            write_atomically(cached, json.dumps(result) + "\n")
        write_atomically(build_root() / "synth" / f"{top}.json", json.dumps(result, indent=1) + "\n")
        done += 1
        tick(done, len(chosen), top)
        return dict(result)

    tick(0, len(chosen), "Verilog")
    for job in chosen:
        rtl_text(*job)
    tick(0, len(chosen), "Yosys")
    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            return list(pool.map(one, chosen))
        except SynthesisError as error:
            pool.shutdown(cancel_futures=True)
            raise UserError(str(error)) from None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"

"""The verb ``synth``: size and speed of blocks, cached by content, as tables and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cosim.blocks import Block, Configuration
from cosim.console import Tick
from cosim.errors import UserError
from cosim.files import build_root, write_atomically
from cosim.rtl import rtl_text
from cosim.sources import closure, content_hash, text_hash
from cosim.synthesis_report import print_results, read_page, write_docs, write_files
from synth.flow import ADDERS, RECIPES, Options, SynthesisError
from synth.report import read_liberty, synthesise

__all__ = ["INSTALL", "find_liberty", "synthesise_and_print", "synthesise_blocks"]

PACKAGE = "qflow-tech-osu018"
INSTALL = f"apt-get install -y --no-install-recommends {PACKAGE}"
_FILE = Path("usr/share/qflow/tech/osu018/osu018_stdcells.lib")  # of the package
_SYSTEM = Path("/")


def find_liberty(given: Path | None = None) -> Path:
    """Return the Liberty file: the given one, ``$SADDLE_LIBERTY``, the one that set-up unpacked, or an installed one.

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
    for folder in (build_root() / "liberty", _SYSTEM):
        if (folder / _FILE).is_file():
            return folder / _FILE
    raise UserError(f"no Liberty file; type: {INSTALL} (or name one with --liberty or SADDLE_LIBERTY)")


def synthesise_and_print(
    chosen: Sequence[tuple[Block, Configuration]],
    *,
    liberty: Path | None,
    memory_bits: int,
    recipes: Sequence[str] | None,
    adder: str,
    booth: bool,
    smallest: bool,
    place: Path,
    page: Path | None,
    workers: int,
    force: bool,
    tick: Tick,
) -> Callable[[], None]:
    """Synthesise, write the files, and return what prints the tables.

    Raises
    ------
    UserError
        For an unknown choice, or when the Liberty file, Yosys or a block is not usable.
    """
    for what, name, known in (("adder", adder, ADDERS), *(("recipe", name, tuple(RECIPES)) for name in recipes or ())):
        if name not in known:
            raise UserError(f"unknown {what} {name!r} (known: {', '.join(known)})")
    if page is not None:
        read_page(page)  # before the work starts
    options = Options(memory_bits=memory_bits, booth=booth, adder=adder, smallest=smallest, recipes=tuple(recipes or ()))
    results = synthesise_blocks(chosen, liberty=liberty, options=options, workers=workers, force=force, tick=tick)
    write_files(results, place)
    if page is not None:
        write_docs(results, page)

    def show() -> None:
        print_results(results)
        print(f"results in {place}")

    return show


def synthesise_blocks(
    chosen: Sequence[tuple[Block, Configuration]],
    *,
    liberty: Path | None,
    options: Options,
    workers: int,
    force: bool,
    tick: Tick,
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
        "flow_sha256": content_hash(closure(["synth.report"], within=("synth",))), "pyosys": _version("pyosys"),
        "options": asdict(options) | {"recipes": list(options.recipes)}, "fo4_ns": round(library.fo4, 5),
        "nand2_area": library.nand2.area, "nand2_cell": library.nand2.name, "inverter_cell": library.inverter.name,
    }  # fmt: skip
    done = 0

    def one(job: tuple[Block, Configuration], rtl: str) -> dict[str, Any]:
        nonlocal done
        block, configuration = job
        top = block.top(configuration)
        cached = build_root() / "cache" / f"synth-{top}-{text_hash(json.dumps([rtl, common], sort_keys=True))[:20]}.json"
        result = None if force else _read(cached)
        if result is None:
            result = {"top": top, "block": block.stem, "parameters": dict(configuration.parameters)} | common
            result |= {"rtl_sha256": text_hash(rtl)} | synthesise(rtl, top, path, library, options)
            write_atomically(cached, json.dumps(result, allow_nan=False) + "\n")
        done += 1
        tick(done, len(chosen), top)
        return result

    tick(0, len(chosen), "Verilog")
    texts = [rtl_text(*job) for job in chosen]
    tick(0, len(chosen), "Yosys")
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        return list(pool.map(one, chosen, texts))
    except SynthesisError as error:
        raise UserError(str(error)) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _read(path: Path) -> dict[str, Any] | None:
    """Return a cached result, or None if there is none that can be read."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"

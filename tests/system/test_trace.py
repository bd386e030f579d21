"""Loader of the acceptance trace: every fault is one line with file and line number."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.errors import UserError
from cosim.system.trace import COLUMNS, fp16_code, load_trace, make_request

HEADER = ",".join(COLUMNS)
GOOD = [HEADER, "t,0,0,0.5,1,", "t,0,1,0.25,0,0.5 0.75", "t,0,2,1.0,1,", "t,1,0,0.5,0,"]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_packaged_trace() -> None:
    trace = load_trace()
    assert len(trace.requests) == 60
    assert {request.length for request in trace.requests} == {160}
    assert trace.acceptance == pytest.approx(6666 / 9600)
    assert len(trace.sha256) == 64


def test_acceptance_is_not_the_probability() -> None:
    # Unlikely tokens are accepted far more often than p says: never set P(accept) = p.
    trace = load_trace()
    low = [
        run > 0 for request in trace.requests
        for p, run in zip(request.probabilities, request.runs, strict=True) if p < fp16_code(0.05)
    ]
    assert 0.40 < sum(low) / len(low) < 0.46


def test_runs_and_strays(tmp_path: Path) -> None:
    request = load_trace(write(tmp_path / "t.csv", GOOD)).requests[0]
    assert request.runs == (1, 0, 1)
    # Draft from position 0: accepted, rejected, then along the wrong text; the last stray repeats.
    expected = [0.5, 0.25, 0.5, 0.75, 0.75]
    assert [request.draft_probability(0, count) for count in range(5)] == [fp16_code(p) for p in expected]
    assert request.draft_probability(2, 0) == fp16_code(1.0)


def test_rejection_without_strays_repeats_its_own_probability() -> None:
    request = make_request("t", [0.5, 0.25, 1.0], [0, 1, 1])
    assert request.draft_probability(0, 2) == fp16_code(0.5)


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        (["task,request,position,accepted,draft_prob,stray_draft_probs", *GOOD[1:]], 1, "columns must be"),
        (["task,request,position,draft_prob", "t,0,0,0.5"], 1, "columns must be"),
        ([HEADER], 1, "no rows"),
        ([*GOOD, "t,1,1,nan,1,"], 6, "draft_prob must be in [0, 1]"),
        ([*GOOD, "t,1,1,1.01,1,"], 6, "draft_prob must be in [0, 1]"),
        ([*GOOD, "t,1,1,-0.1,1,"], 6, "draft_prob must be in [0, 1]"),
        ([*GOOD, "t,1,1,high,1,"], 6, "draft_prob must be a number"),
        ([*GOOD, "t,1,1,0.5,2,"], 6, "accepted must be 0 or 1"),
        ([*GOOD, "t,1,1,0.5,,"], 6, "accepted must be 0 or 1"),
        ([*GOOD, "t,1,0,0.5,1,"], 6, "duplicate position"),
        ([*GOOD, "t,1,2,0.5,1,"], 6, "missing position"),
        ([*GOOD, "t,0,3,0.5,1,"], 6, "not contiguous"),
        ([*GOOD, "t,1,-1,0.5,1,"], 6, "position must be a whole number"),
        ([*GOOD, "t,x,1,0.5,1,"], 6, "request must be a whole number"),
        ([*GOOD, "t,1,1,0.5"], 6, "truncated row"),
        ([*GOOD, "t,1,1,0.5,0,0.5,0.5"], 6, "7 found"),
        ([*GOOD, "t,1,1,0.5,0,0.5 ?"], 6, "stray_draft_probs must be a number"),
        ([*GOOD, "t,1,1,0.5,0,0.5 2"], 6, "stray_draft_probs must be in [0, 1]"),
        ([*GOOD, "t,1,1,0.5,1,0.5"], 6, "must be empty where accepted is 1"),
        ([*GOOD, "t,1,1,0.5,0," + " ".join(["0.5"] * 8)], 6, "at most 7"),
    ],
)
def test_faults(tmp_path: Path, lines: list[str], line: int, words: str) -> None:
    path = write(tmp_path / "bad.csv", lines)
    with pytest.raises(UserError) as error:
        load_trace(path)
    message = str(error.value)
    assert message.startswith(f"{path}:{line}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(("content", "words"), [(b"", "empty"), (b" \n", "empty"), (b"\xff\xfe\x00", "UTF-8")])
def test_foreign_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        load_trace(path)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such trace file"):
        load_trace(tmp_path / "none.csv")
    with pytest.raises(UserError, match=str(tmp_path)):
        load_trace(tmp_path)

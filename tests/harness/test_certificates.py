"""Certificates bind cycles to sources: the system model refuses what is missing, corrupt or stale, and says how to mend."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Saddle


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    path.write_text(text.replace(old, new))


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], lines[0]


QUICK = ("evaluate", "--batch", "16", "--system", "GPU-AD", "--system", "SADDLE", "--jobs", "1")

STALE = [
    ("hdl/manager/draft_pool.py", "with m.If(waiting_count > quota_r):", "with m.If(waiting_count >= quota_r):",
     "draft_pool_512 is stale: the RTL changed"),
    ("golden_model/manager/stop_test.py", "above = product >= tau", "above = product > tau",
     "stop_test_default is stale: the golden model changed"),
    ("cosim/bench/manager/tb_stop_test.py", "Bench of the", "bench of the", "stop_test_default is stale: the bench changed"),
    ("cosim/blocks.py", 'Configuration("512", {"entries": 512},', 'Configuration("512", {"entries": 256},',
     "draft_pool_512 is stale: the configuration and the RTL changed"),
]  # fmt: skip


@pytest.mark.rtl
@pytest.mark.parametrize(("file", "old", "new", "message"), STALE, ids=[row[0].split("/")[-1] for row in STALE])
def test_an_edit_makes_stale(
    file: str, old: str, new: str, message: str, certified: Path, source_copy: Path, saddle: Saddle
) -> None:
    edit(source_copy / file, old, new)
    result = saddle(*QUICK, cwd=source_copy)
    top = message.split(" ")[0]
    refused(result, message, f"saddle regress {top}")
    assert not (certified / "evaluation").exists()


@pytest.mark.rtl
def test_a_comment_in_the_rtl_does_not(certified: Path, source_copy: Path, saddle: Saddle) -> None:
    edit(source_copy / "hdl/manager/draft_pool.py", "# Stage 2: count the hits", "# Second stage: count the hits")
    result = saddle(*QUICK, cwd=source_copy)
    assert result.returncode == 0, result.stderr


@pytest.mark.rtl
@pytest.mark.parametrize("damage", ["cut", "empty", "digit", "list", "binary"])
def test_damage_is_noticed(damage: str, certified: Path, saddle: Saddle) -> None:
    place = certified / "certificates" / "draft_pool_512.json"
    text = place.read_text()
    assert '"latency_cycles": 2' in text
    place.write_bytes({
        "cut": text[: len(text) // 2].encode(),
        "empty": b"",
        "digit": text.replace('"latency_cycles": 2', '"latency_cycles": 1').encode(),
        "list": b"[1, 2]",
        "binary": bytes(range(256)),
    }[damage])
    refused(saddle(*QUICK), "certificate of draft_pool_512 is corrupt", "saddle regress draft_pool_512")


@pytest.mark.rtl
def test_missing_then_unverified(certified: Path, saddle: Saddle) -> None:
    (certified / "certificates" / "stop_test_default.json").unlink()
    refused(saddle(*QUICK), "certificate of stop_test_default is missing", "saddle regress stop_test_default")
    result = saddle(*QUICK, "--unverified")
    assert result.returncode == 0, result.stderr
    assert "UNVERIFIED" in result.stdout
    out = certified / "evaluation"
    assert "UNVERIFIED" in (out / "claims.md").read_text()
    assert "UNVERIFIED" in (out / "fig12.svg").read_text()
    document = json.loads((out / "results.json").read_text())
    assert document["unverified"] is True
    assert any("problem" in certificate for certificate in document["certificates"])


@pytest.mark.rtl
def test_the_cycles_come_from_the_certificate(certified: Path, saddle: Saddle) -> None:
    """Another measured cycle count, properly signed, reaches the result: no count is written by hand."""
    from cosim.certificates import write

    def manager_share() -> float:
        assert saddle(*QUICK).returncode == 0
        rows = json.loads((certified / "evaluation" / "results.json").read_text())["results"]
        return float(next(row["manager_share_percent"] for row in rows if row["system"] == "SADDLE"))

    before = manager_share()
    place = certified / "certificates" / "draft_pool_512.json"
    content = json.loads(place.read_text())
    content["timing"]["select"]["latency_cycles"] *= 100
    write(content, place)
    assert manager_share() > 2 * before

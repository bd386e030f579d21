"""Sets of files survive a kill at any moment as one run, and places that cannot be written are refused beforehand."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cosim.errors import UserError
from cosim.files import check_folder, write_set
from cosim.sources import ROOT

OLD = {"a.csv": "old", "b.csv": "old", "gone.csv": "old", "list.json": "old"}
NEW = {"a.csv": "new", "b.csv": b"new", "gone.csv": None, "list.json": "new"}
DYING = """
import ast, os, signal, sys
from pathlib import Path
from cosim.files import write_set

left = int(sys.argv[2])

def dying(change):
    def act(*arguments, **options):
        global left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return change(*arguments, **options)
    return act

os.replace, Path.unlink = dying(os.replace), dying(Path.unlink)
write_set(Path(sys.argv[1]), ast.literal_eval(sys.argv[3]), manifest="list.json")
"""


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name[0] != "."}


def test_a_set_replaces_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    write_set(folder, OLD, manifest="list.json")
    assert content(folder) == OLD
    (folder / "mine.txt").write_text("stays")
    write_set(folder, NEW, manifest="list.json")
    assert content(folder) == {"a.csv": "new", "b.csv": "new", "list.json": "new", "mine.txt": "stays"}
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("moment", range(6))
def test_a_kill_leaves_no_manifest_over_a_mix(moment: int, tmp_path: Path) -> None:
    """The process dies at its ``moment``-th change of a file's name, for every one of them."""
    write_set(tmp_path, OLD, manifest="list.json")
    command = [sys.executable, "-c", DYING, str(tmp_path), str(moment), repr(NEW)]
    status = subprocess.run(command, check=False, cwd=ROOT).returncode
    found = content(tmp_path)
    assert status == (-signal.SIGKILL if moment < 5 else 0)
    if moment == 0:
        assert found == OLD
    elif moment < 5:
        assert "list.json" not in found
    else:
        assert found == {"a.csv": "new", "b.csv": "new", "list.json": "new"}


def test_nothing_changes_when_a_set_cannot_be_written(tmp_path: Path) -> None:
    write_set(tmp_path, OLD, manifest="list.json")
    with pytest.raises(UserError, match=f"^cannot write to {tmp_path}: File name too long$"):
        write_set(tmp_path, {**NEW, "n" * 300: "new"}, manifest="list.json")
    assert content(tmp_path) == OLD
    assert not list(tmp_path.glob(".*"))


def test_places_that_can_be_written_pass_and_stay_untouched(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "a" / "b", tmp_path / "link" / "c"):
        check_folder("--out", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for folder, why in (
        (tmp_path / "file", f"{tmp_path}/file is not a folder"),
        (tmp_path / "file" / "deep" / "er", f"{tmp_path}/file is not a folder"),
        (tmp_path / "dangling", f"{tmp_path}/dangling is not a folder"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with pytest.raises(UserError, match=f"^--out: cannot write to {folder}: {why}$"):
            check_folder("--out", folder)


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(UserError, match=f"^--out: cannot write to {tmp_path}: Permission denied$"):
        check_folder("--out", tmp_path)

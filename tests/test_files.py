"""Places that cannot be written are refused before the work starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.errors import UserError
from cosim.files import check_folder


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

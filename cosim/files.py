"""Files are written whole or not at all, sets of files as one run; where they go."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cosim.errors import UserError

__all__ = ["build_root", "check_folder", "write_atomically", "write_set"]


def build_root() -> Path:
    """Return the folder for everything that is made: ``$BUILD``, or ``build`` in the current folder."""
    return Path(os.environ.get("BUILD") or "build").absolute()


def check_folder(name: str, folder: Path) -> None:
    """Check that a folder, or the one in which it is to be made, can be written, and leave nothing there.

    Parameters
    ----------
    name
        What the user calls it.

    Raises
    ------
    UserError
        When it cannot.
    """
    place = folder.absolute()
    try:
        while True:
            try:
                place.lstat()
                break
            except (FileNotFoundError, NotADirectoryError):
                place = place.parent
        if not place.is_dir():
            raise UserError(f"{name}: cannot write to {folder}: {place} is not a folder")
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UserError(f"{name}: cannot write to {folder}: {error.strerror}") from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` so that a reader sees the old file or the new one, never a part.

    Raises
    ------
    UserError
        When the folder cannot be made or written.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def write_set(folder: Path, files: Mapping[str, str | bytes | None], *, manifest: str) -> None:
    """Write the files of one run so that a kill leaves all of the old run, all of the new one, or no manifest.

    Everything is written under temporary names first; then the old manifest goes, and the new one comes last.

    Parameters
    ----------
    files
        Name and content; a file with content None is removed.
    manifest
        The file of the set that speaks for the others.

    Raises
    ------
    UserError
        When the folder cannot be made or written.
    """
    new = {name: content for name, content in files.items() if content is not None}
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=f".{manifest}."))
        for name, content in new.items():
            (temporary / name).write_bytes(content.encode() if isinstance(content, str) else content)
        for name in (manifest, *(files.keys() - new.keys())):
            (folder / name).unlink(missing_ok=True)
        for name in sorted(new, key=lambda name: name == manifest):
            os.replace(temporary / name, folder / name)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

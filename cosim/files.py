"""Files are written whole or not at all; where they go."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cosim.errors import UserError

__all__ = ["build_root", "check_folder", "write_atomically"]


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

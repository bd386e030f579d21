"""Files of results: written whole or not at all, and byte-identical for equal content."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cosim.errors import UserError

__all__ = ["to_csv", "to_json", "write_atomically"]


def _cell(value: Any) -> Any:
    """Floats to 9 significant digits, truth values in lower case, nothing for None."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format(value, ".9g")
    return "" if value is None else value


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> bytes:
    """Return a table as CSV: header, comma, UTF-8, newline; empty where a row has no value."""
    names = list(columns if columns is not None else rows[0])
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in rows)
    return stream.getvalue().encode()


def to_json(document: Mapping[str, Any]) -> bytes:
    """Return a document as indented JSON."""
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside ``path`` and rename, so that a reader never sees half a file.

    Raises
    ------
    UserError
        The path and the reason.
    """
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise UserError(f"{path}: {error.strerror}") from None

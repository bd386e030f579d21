"""Results as text, byte-identical for equal content."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["to_csv", "to_json"]


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

"""Which of our source files a module rests on, and the hash of their content."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "closure", "content_hash", "text_hash"]

ROOT = Path(__file__).resolve().parents[1]
"""Folder that holds the packages (the source tree, or site-packages of an installed wheel)."""

_PACKAGES = ("golden_model", "hdl", "cosim", "synth")


def _file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _imports(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(name for name in names if name.split(".")[0] in _PACKAGES)


def closure(modules: Iterable[str], *, within: tuple[str, ...] = _PACKAGES) -> list[Path]:
    """Return our files that ``modules`` import, directly or not, themselves included, sorted by path.

    Parameters
    ----------
    modules
        Dotted names.
    within
        First-level packages to follow; others are left out.
    """
    todo, seen = list(modules), set[Path]()
    while todo:
        name = todo.pop()
        path = _file_of(name) if name.split(".")[0] in within else None
        if path is not None and path not in seen:
            seen.add(path)
            todo.extend(_imports(path))
    return sorted(seen)


def content_hash(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the files' names (relative to :data:`ROOT`) and contents."""
    return text_hash(json.dumps([[p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8")] for p in files]))


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()

"""Shared fixtures: a build folder of the session's own, so that no test touches the user's certificates."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
Saddle = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh build folder; compiled simulations and Verilog are shared with the user's, certificates are not."""
    shared = Path(os.environ.get("BUILD") or ROOT / "build").absolute()
    place = tmp_path / "build"
    place.mkdir()
    for name in ("sim", "cache", "ccache"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(shared / name)
    monkeypatch.setenv("BUILD", str(place))
    return place


@pytest.fixture
def saddle(build: Path) -> Saddle:
    """Run the command line as a user does; keyword arguments are environment variables, None removes one."""

    def run(*arguments: str | Path, cwd: Path = ROOT, **env: str | None) -> subprocess.CompletedProcess[str]:
        merged = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **env}
        return subprocess.run(
            [sys.executable, "-m", "cosim.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd,
            env={name: value for name, value in merged.items() if value is not None},
            timeout=900,
        )

    return run

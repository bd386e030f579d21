#!/usr/bin/env python3
"""Sets the project up and runs a command in it: system tools, virtual environment, pinned packages.

    python3 bootstrap.py [COMMAND [ARGUMENT ...]]

Nothing but Python's standard library is needed.  Repeating it is safe; with nothing changed it takes well under a
second and needs no network.  ``BUILD`` names the folder for everything that is made (default ``build``); with ``BUILD``
set the virtual environment lies in it too, so that the source tree may be read-only.
"""

import ctypes.util
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OLDEST = (3, 11)
REQUIRED = {"g++": "g++", "make": "make"}  # Verilator's output is compiled by them
WELCOME = {"iverilog": "iverilog", "ccache": "ccache"}  # second simulator; faster rebuilds

LIBERTY = "usr/share/qflow/tech/osu018/osu018_stdcells.lib"  # of this Debian package; only `saddle synth` reads it
LIBERTY_PACKAGE = "qflow-tech-osu018"


def stop(message):
    print(f"setup: {message}", file=sys.stderr)
    raise SystemExit(2)


def newer_python():
    """Run this script again on a Python that is new enough, or say what to install."""
    for minor in range(14, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            os.execv(found, [found, *sys.argv])
    stop(f"Python {sys.version_info[0]}.{sys.version_info[1]} found, 3.11 or newer needed; apt-get install python3.11-venv")


def has_libpython():
    """Simulators load Python as a shared library; distributions ship it separately."""
    name = f"python3.{sys.version_info[1]}"
    folders = [sysconfig.get_config_var(key) or "" for key in ("LIBDIR", "LIBPL")]
    names = [sysconfig.get_config_var(key) or "" for key in ("INSTSONAME", "LDLIBRARY")]
    there = any(n.split(".so")[0] != n and Path(f, n).exists() for f in folders for n in names)
    return there or ctypes.util.find_library(name) is not None


def system_packages():
    """Install missing system tools with apt where we may; otherwise print the line to type."""
    version = f"3.{sys.version_info[1]}"
    required = [package for tool, package in REQUIRED.items() if not shutil.which(tool)]
    if not has_libpython():
        required.append(f"libpython{version}")
    if importlib.util.find_spec("ensurepip") is None:
        required.append(f"python{version}-venv")
    welcome = [package for tool, package in WELCOME.items() if not shutil.which(tool)]
    if not required + welcome:
        return
    line = ["apt-get", "install", "-y", "--no-install-recommends", *required, *welcome]
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    may = shutil.which("apt-get") and (not prefix or (shutil.which("sudo") and quiet([*prefix, "true"])))
    if may:
        print(f"setup: {' '.join(prefix + line)}", file=sys.stderr)
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        attempts = ([*prefix, "apt-get", "update", "-qq"], [*prefix, *line, "-qq"])
        if all(subprocess.call(a, env=env, stdout=subprocess.DEVNULL) == 0 for a in attempts):
            return
    text = f"sudo {' '.join(line)}"
    if required:
        stop(f"missing system packages ({', '.join(required)}); type: {text}")
    print(f"setup: going on without {', '.join(welcome)}; to add: {text}", file=sys.stderr)


def liberty(build):
    """Unpack the standard-cell library into the build folder: installing its package would draw in a whole tool chain."""
    place = build / "liberty"
    there = (Path("/", LIBERTY), place / LIBERTY, Path(os.environ.get("SADDLE_LIBERTY") or place / LIBERTY))
    if any(path.is_file() for path in there):
        return
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        place.mkdir(parents=True, exist_ok=True)
        fetch = ["apt-get", "download", "-qq", LIBERTY_PACKAGE]
        done = quiet(fetch, place) or (os.geteuid() == 0 and quiet(["apt-get", "update", "-qq"]) and quiet(fetch, place))
        packages = sorted(place.glob(f"{LIBERTY_PACKAGE}_*.deb"))
        if done and packages and quiet(["dpkg-deb", "-x", str(packages[-1]), str(place)]) and (place / LIBERTY).is_file():
            return
    line = f"apt-get install -y --no-install-recommends {LIBERTY_PACKAGE}"
    print(f"setup: going on without a Liberty file (saddle synth needs one); to add: sudo {line}", file=sys.stderr)


def quiet(command, folder=None):
    return subprocess.call(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def environment(place, build):
    """Make the virtual environment with the pinned packages, unless it is there already."""
    lock = ROOT / "requirements.lock"
    key = repr((lock.read_text(), (ROOT / "pyproject.toml").read_text(), str(ROOT), str(place), sys.version))
    digest = hashlib.sha256(key.encode()).hexdigest()
    stamp = place / "saddle-stamp"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    system_packages()
    liberty(build)
    print(f"setup: Python packages into {place} (one to three minutes)", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    steps = (
        [sys.executable, "-m", "venv", str(place)],
        [*pip, "-r", str(lock)],
        [*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
    )
    for step in steps:
        if subprocess.call(step, stdout=sys.stderr) != 0:
            stop(f"failed: {' '.join(step)} (is a package index reachable?)")
    stamp.write_text(digest)


def main():
    if sys.version_info < OLDEST:
        newer_python()
    build = Path(os.environ.get("BUILD") or ROOT / "build").absolute()
    place = build / "venv" if os.environ.get("BUILD") else ROOT / ".venv"
    try:
        build.mkdir(parents=True, exist_ok=True)
        environment(place, build)
    except OSError as error:
        stop(f"{error.strerror}: {error.filename} (BUILD=FOLDER names another place)")
    if len(sys.argv) < 2:
        return
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    env |= {
        "BUILD": str(build),
        "VIRTUAL_ENV": str(place),
        "PATH": f"{place / 'bin'}{os.pathsep}{env.get('PATH', '')}",
        "PYTHONPYCACHEPREFIX": str(build / "pycache"),
        "RUFF_CACHE_DIR": str(build / "ruff"),
        "MYPY_CACHE_DIR": str(build / "mypy"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(build / "hypothesis"),
    }
    command = shutil.which(sys.argv[1], path=env["PATH"])
    if command is None:
        stop(f"no command {sys.argv[1]!r}")
    os.chdir(ROOT)
    raise SystemExit(subprocess.call([command, *sys.argv[2:]], env=env))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None

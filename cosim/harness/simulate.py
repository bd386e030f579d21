"""Builds a simulation of one Verilog top and runs one bench on it.

Builds are kept in a folder named by the hash of everything that goes into them (Verilog text, simulator, options), so a
changed parameter can never meet an old binary.  Only ports are visible to the bench: this halves Verilator's C++ and
doubles its speed against cocotb's default of making every signal public.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosim.errors import UserError
from cosim.files import build_root, write_atomically
from cosim.harness.toolchain import Simulator, is_safe, made, safe_folder, safe_path, verilator_tools
from cosim.sources import ROOT, text_hash

__all__ = ["Outcome", "build", "run"]

_TIMESCALE = "1ns/1ns"
_PORTS_ONLY = '`verilator_config\npublic_flat_rw -module "{top}" -port "*"\n'


@dataclass(frozen=True)
class Outcome:
    """What one run of a bench showed.

    Parameters
    ----------
    tests, failures
        Executed tests, and one line for each that failed.
    records
        What the bench recorded through ``cosim.harness.record``.
    seed
        Seed that replays the run.
    log
        File with the simulator's output.
    """

    tests: tuple[str, ...]
    failures: tuple[str, ...]
    records: tuple[dict[str, Any], ...]
    seed: int
    log: Path
    folder: Path = field(default=Path())


def build(simulator: Simulator, verilog: str, top: str, *, waves: bool = False, root: Path | None = None) -> Path:
    """Compile ``verilog`` and return the folder of the simulation.

    Raises
    ------
    UserError
        When the compiler fails; the message names its log.
    """
    parts = {"verilog": verilog, "simulator": simulator.name, "version": simulator.version, "waves": waves, "rules": 1}
    key = text_hash(json.dumps(parts, sort_keys=True))
    folder = (root or build_root()) / "sim" / f"{top}-{simulator.name}-{key[:16]}"
    done = folder / "built"
    if done.is_file():
        return folder
    compile_with = _compile_verilator if simulator.name == "verilator" else _compile_icarus
    with (made(folder.parent) / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building the same
        if done.is_file():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        write_atomically(folder / f"{top}.v", verilog)
        with (folder / "build.log").open("w") as log:
            status = compile_with(simulator, folder, top, waves, log)
        if status:
            raise UserError(f"{simulator.name} cannot build {top} (exit {status}); see {folder / 'build.log'}")
        write_atomically(done, key)
    return folder


def _compile_icarus(simulator: Simulator, folder: Path, top: str, waves: bool, log: Any) -> int:
    command = [str(simulator.executable), "-g2012", "-o", "sim.vvp", "-s", top, "-f", "cmds.f", f"{top}.v"]
    write_atomically(folder / "cmds.f", f"+timescale+{_TIMESCALE}\n")
    if waves:
        dump = f'module dump;\ninitial begin $dumpfile("dump.fst"); $dumpvars(0, {top}); end\nendmodule\n'
        write_atomically(folder / "dump.v", dump)
        command += ["-s", "dump", "dump.v"]
    return subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False).returncode


def _compile_verilator(simulator: Simulator, folder: Path, top: str, waves: bool, log: Any) -> int:
    import cocotb_tools.config

    write_atomically(folder / "ports.vlt", _PORTS_ONLY.format(top=top))
    libs = safe_path(Path(cocotb_tools.config.libs_dir))
    share = safe_path(Path(cocotb_tools.config.share_dir))
    executable, make, env = verilator_tools(simulator)
    translate = [
        str(executable), "-cc", "--exe", "--vpi", "-Mdir", ".", "--prefix", "Vtop", "-o", top, "--top-module", top,
        "--timescale", _TIMESCALE, "-Wno-fatal",
        "-LDFLAGS", f"-Wl,-rpath,{libs} -L{libs} -lcocotbvpi_verilator",
        *(["--trace"] if waves else []), "ports.vlt", str(share / "lib" / "verilator" / "verilator.cpp"), f"{top}.v",
    ]  # fmt: skip
    make += ["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1"]
    # Verilator's makefile refuses a folder whose real path has spaces, so such a build is made elsewhere and brought back.
    place = folder if is_safe(folder) else Path(tempfile.mkdtemp(dir=safe_folder()))
    try:
        if place != folder:
            for name in ("ports.vlt", f"{top}.v"):
                shutil.copy(folder / name, place)
        for command in (translate, [*make, f"VM_TRACE={int(waves)}"]):
            status = subprocess.run(command, cwd=place, env=env, stdout=log, stderr=log, check=False).returncode
            if status:
                return status
        if place != folder:
            shutil.move(place / top, folder / top)
    finally:
        if place != folder:
            shutil.rmtree(place, ignore_errors=True)
    return 0


def run(
    simulator: Simulator,
    folder: Path,
    top: str,
    bench: str,
    *,
    seed: int,
    settings: dict[str, Any],
    only: str | None = None,
    max_failures: int = 0,
    waves: bool = False,
    tag: str = "run",
    timeout: float = 1800,
) -> Outcome:
    """Run a bench on a built simulation.

    Parameters
    ----------
    simulator, folder, top
        As for :func:`build`.
    bench
        Dotted name of the bench module.
    seed
        Seed of the regression; each test derives its own from it, alone or in company.
    settings
        What the bench reads with ``cosim.harness.record.settings`` (JSON).
    only
        Regular expression of test names.
    max_failures
        Failed tests after which no other is started; 0 runs them all.
    waves
        The simulation was built with ``waves=True`` and shall write them.
    tag
        Name of the sub-folder for the run's files.
    timeout
        Seconds until the run is ended.
    """
    import cocotb_tools.config
    import find_libpython

    place = folder / tag
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    results, records, log = place / "results.xml", place / "records.jsonl", place / "run.log"
    libs = safe_path(Path(cocotb_tools.config.libs_dir))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("COCOTB_", "PYTEST_", "GPI_"))}
    env |= {
        "PATH": f"{env.get('PATH', '')}{os.pathsep}{libs}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)]),
        "PYGPI_PYTHON_BIN": sys.executable,
        "GPI_USERS": f"{find_libpython.find_libpython()};{cocotb_tools.config.pygpi_entry_point()}",
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_TOPLEVEL": top,
        "COCOTB_TEST_MODULES": bench,
        "COCOTB_RESULTS_FILE": str(results),
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_TRUST_INERTIAL_WRITES": "1" if simulator.name == "verilator" else "0",
        "COCOTB_ANSI_OUTPUT": "0",
        "COCOTB_MAX_FAILURES": str(max_failures),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "error::DeprecationWarning",
        "SADDLE_SETTINGS": json.dumps(settings),
        "SADDLE_RECORDS": str(records),
    }
    if only:
        env["COCOTB_TEST_FILTER"] = only
    if simulator.name == "verilator":
        command = [str(folder / top), *(["--trace"] if waves else [])]
    else:
        plugin = cocotb_tools.config.lib_entry("vpi", "icarus")
        command = ["vvp", "-m", str(plugin), str(folder / "sim.vvp"), "-fst" if waves else "-none"]
    with log.open("w") as output:
        try:
            status = subprocess.run(
                command, cwd=place, env=env, stdout=output, stderr=output, check=False, timeout=timeout
            ).returncode
        except subprocess.TimeoutExpired:
            raise UserError(f"{top} on {simulator.name}: no end after {timeout:.0f} s; see {log}") from None
    tests, failures = _read_results(results)
    if not tests:
        raise UserError(f"{top} on {simulator.name}: no test ran (exit {status}); see {log}")
    lines = records.read_text().splitlines() if records.is_file() else []
    return Outcome(tests, failures, tuple(json.loads(line) for line in lines), seed, log, place)


def _read_results(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read cocotb's JUnit file: names of the executed tests, one line per failure."""
    if not path.is_file():
        return (), ()
    tests, failures = [], []
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "?")
        if case.find("skipped") is not None:
            continue
        tests.append(name)
        for kind in ("failure", "error"):
            problem = case.find(kind)
            if problem is not None:
                text = problem.get("error_msg") or problem.get("message") or problem.text or kind
                failures.append(f"{name}: {text.strip()}")
    return tuple(tests), tuple(failures)

"""The shape of the project: folders, one stem per block, import arrows, file lengths, no traces of a workplace."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from cosim.blocks import BLOCKS
from cosim.sources import ROOT

FOLDERS = {"hdl", "cosim", "golden_model", "tests", "synth", "docs"}
PACKAGES = ("golden_model", "hdl", "synth", "cosim")
ARROWS = {
    "golden_model": {"golden_model"},
    "hdl": {"hdl", "golden_model"},
    "synth": {"synth", "hdl", "golden_model"},
    "cosim": {"cosim", "synth", "hdl", "golden_model"},
}
SOURCES = sorted(path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py"))
LONGEST = 320


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            assert all(alias.name != "*" for alias in node.names), f"{path}: star import"
            found.add(node.module or "")
    return found


def test_first_level_folders_are_the_fixed_ones() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("not a git checkout")
    folders = {line.split("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    assert {name for name in folders if not name.startswith(".")} == FOLDERS


@pytest.mark.parametrize("package", PACKAGES)
def test_import_arrows(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        ours = {name.split(".")[0] for name in _imports(path)} & set(PACKAGES)
        assert ours <= ARROWS[package], f"{path.relative_to(ROOT)} imports {ours - ARROWS[package]}"


def test_golden_models_import_no_hardware_tools() -> None:
    for path in (ROOT / "golden_model").rglob("*.py"):
        assert not {name.split(".")[0] for name in _imports(path)} & {"amaranth", "cocotb"}, path


def test_only_harness_and_benches_import_cocotb() -> None:
    for path in (ROOT / "cosim").rglob("*.py"):
        uses = {name.split(".")[0] for name in _imports(path)} & {"cocotb", "cocotb_tools"}
        inside = path.is_relative_to(ROOT / "cosim" / "harness") or path.is_relative_to(ROOT / "cosim" / "bench")
        assert not uses or inside, path


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.stem)
def test_a_block_has_all_its_forms(block) -> None:  # type: ignore[no-untyped-def]
    for form in (
        f"golden_model/{block.area}/{block.stem}.py",
        f"hdl/{block.area}/{block.stem}.py",
        f"cosim/bench/{block.area}/tb_{block.stem}.py",
        f"docs/spec/{block.stem}.md",
    ):
        assert (ROOT / form).is_file(), f"{block.stem}: {form} is missing"


def test_every_rtl_component_is_registered() -> None:
    stems = {block.stem for block in BLOCKS}
    for path in (ROOT / "hdl").glob("*/*.py"):
        if any(
            isinstance(node, ast.ClassDef) and any("Component" in ast.unparse(base) for base in node.bases)
            for node in ast.walk(ast.parse(path.read_text()))
        ):
            assert path.stem in stems, f"{path.relative_to(ROOT)} is in no row of cosim/blocks.py"


def test_files_are_short_and_explained() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert len(text.splitlines()) <= LONGEST, f"{path.relative_to(ROOT)} has {len(text.splitlines())} lines"
        assert ast.get_docstring(ast.parse(text)), f"{path.relative_to(ROOT)} has no module docstring"


def test_text_files_name_no_private_place() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    words = ["/" + "work/", "/opt/" + "wheels", "../" + "shared", "/" + "root/"]
    for line in listed.stdout.splitlines():
        path = ROOT / line
        if path.suffix in {".py", ".md", ".toml", ".lock", ".csv", ""} and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not [word for word in words if word in text], f"{line} names a place of one machine"


def test_readme_states_the_cycles_that_regressions_measure() -> None:
    """A regression fails unless it measures ``predicted_timing``; the README's table must say the same."""
    rows = {line.split("`")[1]: line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| [`")}
    for block in BLOCKS:
        timing = block.component(block.configurations[0]).predicted_timing
        for cycles in timing.values():
            assert f"{cycles['latency_cycles']} / {cycles['interval_cycles']}" in rows[block.stem], block.stem
    assert set(rows) == {block.stem for block in BLOCKS}

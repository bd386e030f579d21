"""The command line as a user meets it: help, one clear line and exit code 2 on bad input, nothing half-written."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from cosim.sources import ROOT
from tests.conftest import Saddle
from tests.harness.test_certificates import edit, refused

TRACE = ROOT / "cosim/system/data/traces/recorded_trace.csv"


def run_ok(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("verb", ["", "verilog", "regress", "evaluate", "attention", "synth", "numerics"])
def test_help(verb: str, saddle: Saddle) -> None:
    text = run_ok(saddle(*verb.split(), "--help"))
    assert "Usage: saddle" in text
    assert verb or "draft length" in text


BAD = [
    (("regress", "stop_tst"), ("unknown block 'stop_tst'", "did you mean 'stop_test'")),
    (("regress", "--jobs", "0"), ("--jobs", "0", "[1, 256]")),
    (("regress", "--jobs", "many"), ("--jobs", "'many'", "[1, 256]")),
    (("regress", "--seed", "-1"), ("--seed", "-1", "4294967295")),
    (("regress", "--effort", "0"), ("--effort", "0", "[0.001, 1000]")),
    (("regress", "--simulator", "vcs"), ("'vcs'", "verilator", "icarus")),
    (("regress", "stop_test", "--test", "timings"), ("no test 'timings' in stop_test", "did you mean 'timing'")),
    (("regress", "stop_test", "--test", "random_token/sink=shy"), ("no test 'random_token/sink=shy'", "'random_tokens'")),
    (("regress", "stop_test", "dot_product", "--test", "q+"), ("no test 'q+' in dot_product, stop_test", "known: ", "timing")),
    (("regress", "--test", "("), ("--test '('", "regular expression")),
    (("numerics", "--vectors", "0"), ("--vectors", "0", "[1, 4096]")),
    (("numerics", "--out", ""), ("--out", "must not be empty")),
    (("verilog", "--out="), ("--out", "must not be empty")),
    (("attention", "--tokens", "1", "--head-dim", "257"), ("--head-dim", "257", "[1, 256]")),
    (("attention", "--head-dim", "64"), ("--head-dim", "need --tokens")),
    (("attention", "--tokens", "131072", "--queries", "64"), ("134,217,728", "1,073,741,824")),
    (("evaluate", "--batch", "-3"), ("--batch", "-3", "[1, 128]")),
    (("evaluate", "--batch", "1000"), ("--batch", "1000", "[1, 128]")),
    (("evaluate", "--system", "SADLE"), ("SADLE", "SADDLE")),
    (("evaluate", "--trace", "nowhere.csv"), ("nowhere.csv",)),
    (("evaluate", "--config", "nowhere.toml"), ("nowhere.toml",)),
    (("evaluate", "--config", "nowhere.json"), ("nowhere.json",)),
    (("frobnicate",), ("frobnicate",)),
    (("evaluate", "--frobnicate"), ("--frobnicate",)),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(row[0]) for row in BAD])
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: tuple[str, ...], build: Path, saddle: Saddle) -> None:
    refused(saddle(*arguments), *words)
    assert not (build / "evaluation").exists()
    assert not (build / "certificates").exists()


@pytest.mark.rtl
def test_a_trace_with_nan_is_refused_with_its_line(certified: Path, saddle: Saddle, tmp_path: Path) -> None:
    lines = TRACE.read_text().splitlines()
    fields = lines[11].split(",")
    fields[3] = "nan"
    lines[11] = ",".join(fields)
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join(lines) + "\n")
    refused(saddle("evaluate", "--trace", broken), "broken.csv", "12", "nan")
    assert not (certified / "evaluation").exists()


@pytest.mark.rtl
def test_a_deleted_packaged_trace(certified: Path, source_copy: Path, saddle: Saddle) -> None:
    (source_copy / TRACE.relative_to(ROOT)).unlink()
    refused(saddle("evaluate", cwd=source_copy), "recorded_trace.csv")


@pytest.mark.parametrize("verb", ["verilog", "numerics", "synth", "evaluate", "attention", "regress"])
def test_an_unwritable_place_is_refused_before_the_work(verb: str, build: Path, saddle: Saddle) -> None:
    """The work would take from seconds to minutes; a broken Liberty file or a missing certificate would stop others first."""
    (build / "file").write_text("")
    if verb in ("attention", "regress"):
        refused(saddle(verb, BUILD=str(build / "file" / "deep")), f"BUILD: cannot write to {build}/file/deep/certificates")
        return
    for place in (build / "file", build / "file" / "deep"):
        result = saddle(verb, "--out", place, SADDLE_LIBERTY="nowhere.lib")
        refused(result, f"--out: cannot write to {place}: {build}/file is not a folder")


def test_verilog_is_stable_and_its_manifest_fits(build: Path, saddle: Saddle) -> None:
    from cosim.sources import text_hash

    run_ok(saddle("verilog", "operator_mapping", "--out", build / "one"))
    (build / "cache").unlink()  # the link to the shared cache: the second text is made anew
    run_ok(saddle("verilog", "operator_mapping", "--out", build / "two"))
    one, two = ((build / name / "operator_mapping_default.v").read_text() for name in ("one", "two"))
    assert one == two
    manifest = json.loads((build / "one" / "manifest.json").read_text())["operator_mapping_default"]
    assert manifest["rtl_sha256"] == text_hash(one.split("\n", 3)[3])
    ports = {port["name"]: (port["direction"], port["width"]) for port in manifest["ports"]}
    assert ports["i__payload"] == ("input", 19)
    assert ports["o__payload"] == ("output", 2)
    assert ports["o__ready"] == ("input", 1)


@pytest.mark.rtl
def test_a_failing_regression_fails_the_command(source_copy: Path, saddle: Saddle, build: Path) -> None:
    """CT-03: exit code 1, the first wrong transaction, and the line that replays it; 0 with the break removed."""
    path = source_copy / "golden_model/manager/stop_test.py"
    edit(path, "length < max_length", "length <= max_length")
    broken = saddle("regress", "stop_test", "--simulator", "icarus", cwd=source_copy)
    assert broken.returncode == 1
    assert "FAILED" in broken.stdout
    assert "transaction" in broken.stdout
    assert "replay: saddle regress stop_test_default --simulator icarus --seed 1" in broken.stdout
    assert not (build / "certificates").exists()
    edit(path, "length <= max_length", "length < max_length")
    run_ok(saddle("regress", "stop_test", "--simulator", "icarus", cwd=source_copy))


@pytest.mark.rtl
def test_evaluate_twice_and_from_its_own_result(certified: Path, saddle: Saddle, tmp_path: Path) -> None:
    quick = ("evaluate", "--batch", "16", "--system", "GPU-AD", "--system", "SADDLE", "--seed", "5")
    (tmp_path / "one" / "my own folder").mkdir(parents=True)
    first = run_ok(saddle(*quick, "--out", tmp_path / "one"))
    assert "up to date" not in first
    assert "up to date" in run_ok(saddle(*quick, "--out", tmp_path / "one"))
    with (tmp_path / "one" / "results.csv").open("a") as file:
        file.write("edited\n")
    assert "up to date" not in run_ok(saddle(*quick, "--out", tmp_path / "one"))
    run_ok(saddle("evaluate", "--config", tmp_path / "one" / "results.json", "--out", tmp_path / "two", "--jobs", "1"))
    for name in ("results.csv", "results.json", "claims.md", "fig12.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    rows = list(csv.DictReader((tmp_path / "one" / "results.csv").read_text().splitlines()))
    assert {row["seed"] for row in rows} == {"5", "6", "7", "8"}
    assert (tmp_path / "one" / "fig12.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.rtl
@pytest.mark.parametrize("env", [{"DISPLAY": None}, {"DISPLAY": "localhost:64.0", "MPLBACKEND": "TkAgg"}])
def test_no_display(env: dict[str, str | None], certified: Path, saddle: Saddle, tmp_path: Path) -> None:
    """UX-03: figures are written whatever the environment says about windows."""
    run_ok(saddle("evaluate", "--batch", "16", "--system", "GPU-AD", "--out", tmp_path / "one", **env))
    assert (tmp_path / "one" / "fig12.png").stat().st_size > 1000

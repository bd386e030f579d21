"""Every configuration on its simulators, with another seed than the certificates have, and replays of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim import blocks
from cosim.blocks import Block, Configuration
from cosim.harness.toolchain import find_simulator
from cosim.regress import bench_tests, regress

SEED = 2
CASES = [
    pytest.param(block, configuration, simulator, id=f"{block.top(configuration)}-{simulator}")
    for block, configuration in blocks.jobs()
    for simulator in configuration.simulators
]


def block_of(top: str) -> tuple[Block, Configuration]:
    return blocks.find(top)[0]


def need(simulator: str) -> None:
    if find_simulator(simulator) is None:
        pytest.skip(f"{simulator} is not installed")


@pytest.mark.rtl
@pytest.mark.parametrize(("block", "configuration", "simulator"), CASES)
def test_rtl_equals_golden_model(block: Block, configuration: Configuration, simulator: str, build: Path) -> None:
    need(simulator)
    result = regress(block, configuration, simulators=[simulator], seed=SEED)
    assert result.problems == []
    run = result.runs[0]
    assert run.outcome is not None
    assert len(run.outcome.tests) == len(bench_tests(block.bench_module)) >= 15
    large = configuration.effort * configuration.icarus_effort
    assert run.transactions >= 10_000 * (large if simulator == "icarus" else 1)
    assert result.timing == block.component(configuration).predicted_timing


@pytest.mark.rtl
def test_a_single_test_sees_the_same_numbers_as_in_the_whole_run(build: Path) -> None:
    """CT-07: the printed seed replays one test alone, stimulus and all."""
    need("icarus")
    block, configuration = block_of("stop_test_default")
    name = "random_tokens/source=random/sink=periodic"
    hashes = []
    for only in (None, f"{name}$"):
        result = regress(block, configuration, simulators=["icarus"], seed=77, effort=0.1, only=only)
        assert result.problems in ([], [p for p in result.problems if "coverage bins" in p])
        outcome = result.runs[0].outcome
        assert outcome is not None
        hashes.append({r["sha256"] for r in outcome.records if r["kind"] == "stimulus" and r["test"] == "random/periodic"})
        if only:
            assert len(outcome.tests) == 1
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 1


@pytest.mark.rtl
def test_changed_parameters_and_waves_are_built_anew(build: Path) -> None:
    """CT-05: 8 lanes, 16 lanes and 16 lanes with waves in one build folder, without cleaning in between."""
    need("icarus")
    block, _ = block_of("dot_product_16")
    for lanes, waves in ((8, False), (16, False), (16, True)):
        configuration = Configuration(f"lanes{lanes}", {"lanes": lanes})
        result = regress(block, configuration, simulators=["icarus"], only="timing$", waves=waves)
        assert result.problems == []  # a bench for 8 lanes drives and checks 8 lanes
        outcome = result.runs[0].outcome
        assert outcome is not None
        assert bool(list(outcome.folder.glob("dump*")) or list(outcome.folder.glob("*.fst"))) == waves


@pytest.mark.rtl
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_transfers_are_the_same_on_both_simulators(seed: int, build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """VL-06: cycle and payload of every transfer, line by line."""
    need("icarus")
    need("verilator")
    logs = []
    for simulator in ("verilator", "icarus"):
        log = build / f"{simulator}.log"
        monkeypatch.setenv("SADDLE_TRANSFERS", str(log))
        monkeypatch.setattr("cosim.regress.EFFORT", {"verilator": 100, "icarus": 100})
        block, configuration = block_of("draft_pool_32")
        regress(block, configuration, simulators=[simulator], seed=seed, only="random_commands|level|timing")
        logs.append(log.read_text())
    assert logs[0] == logs[1]
    assert len(logs[0].splitlines()) > 3000


@pytest.mark.rtl
def test_a_lost_connection_is_seen_as_x(build: Path) -> None:
    """CT-01: four-state simulation names the signal that nothing drives."""
    need("icarus")
    from cosim.rtl import rtl_text

    block, configuration = block_of("operator_mapping_default")
    text = rtl_text(block, configuration)
    line = next(line for line in text.splitlines() if line.strip().startswith("assign i__ready ="))
    result = regress(block, configuration, simulators=["icarus"], verilog=text.replace(line, ""), effort=0.1)
    assert any("i__ready is Z" in problem or "i__ready is X" in problem for problem in result.problems)

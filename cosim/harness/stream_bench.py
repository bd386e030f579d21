"""Drives the streams of a block with stalls, compares every answer and checks the handshake; runs in the simulator."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

from cosim.harness import record
from golden_model.layouts import Fields, pack, unpack

__all__ = ["SINK_STALLS", "SOURCE_STALLS", "Exchange", "StreamBench"]

SOURCE_STALLS = ("none", "random", "periodic")
"""How the bench offers input: always, with probability 1/2, or 3 cycles on and 2 off."""

SINK_STALLS = ("none", "random", "periodic", "shy")
"""How the bench takes output; ``shy`` raises ready only in the cycle after it has seen valid."""

CLOCK_NS = 2


@dataclass
class Exchange:
    """When the transfers of one exchange happened, in cycles from its start."""

    accepted: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    cycles: int = 0

    @property
    def latency(self) -> int:
        """Cycles from the first acceptance to the first answer."""
        return self.answered[0] - self.accepted[0]

    def interval(self, times: Sequence[int]) -> int:
        """Return the distance of consecutive transfers, which must be the same for all of them."""
        gaps = {later - earlier for earlier, later in zip(times, times[1:], strict=False)}
        assert len(gaps) == 1, f"transfers are not evenly spaced: gaps {sorted(gaps)}"
        return gaps.pop()


def _go(pattern: str, rng: np.random.Generator, probability: float) -> Iterator[bool]:
    """Yield, cycle by cycle, whether the bench is willing."""
    if pattern == "periodic":
        while True:
            yield from (True, True, True, False, False)
    while pattern == "random":
        yield from (rng.random(1024) < probability).tolist()
    while True:
        yield True


class _Side:
    """A further input stream and what is still to be offered on it."""

    def __init__(self, dut: Any, name: str) -> None:
        self.valid, self.payload, self.ready = (getattr(dut, f"{name}__{part}") for part in ("valid", "payload", "ready"))
        self.waiting: list[int] = []
        self.offered = False

    def load(self, offers: Sequence[int], willing: Iterator[bool]) -> None:
        self.waiting, self._willing = list(reversed(offers)), willing

    def drive(self) -> None:
        """Offer the next payload, if there is one and the pattern says so; an offer stays until it is taken."""
        if self.waiting and not self.offered and next(self._willing):
            self.offered = True
            self.payload.value = self.waiting[-1]
            self.valid.value = 1

    def next(self) -> None:
        """The offer was taken."""
        self.waiting.pop()
        self.offered = False
        self.valid.value = 0


class StreamBench:
    """One block with an input stream ``i``, an output stream ``o`` and ports that are held while a payload is offered.

    Parameters
    ----------
    dut
        The simulated top.
    inputs, outputs
        Field tables of the two payloads.
    registers
        Names of further input ports.
    sides
        Names of further input streams, which are taken when the block needs them.
    """

    def __init__(
        self, dut: Any, inputs: Fields, outputs: Fields, registers: Sequence[str] = (), sides: Sequence[str] = ()
    ) -> None:
        self.dut = dut
        self.inputs = inputs
        self.outputs = outputs
        self.registers = {name: getattr(dut, name) for name in registers}
        self.sides = {name: _Side(dut, name) for name in sides}
        self.rng = record.random_generator()
        self._log = os.environ.get("SADDLE_TRANSFERS")

    async def start(self) -> None:
        """Start the clock, drive every input, reset for two cycles."""
        dut = self.dut
        sides = [handle for side in self.sides.values() for handle in (side.valid, side.payload)]
        for handle in (dut.i__valid, dut.i__payload, dut.o__ready, *self.registers.values(), *sides):
            handle.value = 0
        dut.rst.value = 1
        Clock(dut.clk, CLOCK_NS, unit="ns").start()
        for _ in range(2):
            await RisingEdge(dut.clk)
        dut.rst.value = 0

    async def reset_in_traffic(self, items: Sequence[Mapping[str, int]]) -> None:
        """Offer ``items`` without taking answers, then reset while some are inside; nothing may come out afterwards."""
        edge, settle = RisingEdge(self.dut.clk), ReadOnly()
        for item in items:
            self.dut.i__payload.value = pack(self.inputs, item)
            self.dut.i__valid.value = 1
            await edge
        self.dut.i__valid.value = 0
        self.dut.rst.value = 1
        await edge
        self.dut.rst.value = 0
        self.dut.o__ready.value = 1
        await self._quiet(edge, settle)
        self.dut.o__ready.value = 0

    def read(self, handle: Any) -> int:
        """Return a port's value; an X or Z is an error that names the port."""
        value = handle.value
        if not value.is_resolvable:
            raise AssertionError(f"{handle._name} is {value} in {cocotb.simtime.get_sim_time('ns'):.0f} ns")
        return int(value)

    async def exchange(
        self,
        items: Sequence[Mapping[str, int]],
        expected: Sequence[Mapping[str, int]],
        *,
        source: str = "none",
        sink: str = "none",
        ready_probability: float = 0.5,
        registers: Callable[[int], Mapping[str, int]] | None = None,
        owner: Sequence[int] | None = None,
        sides: Mapping[str, Sequence[int]] | None = None,
        hold_output: int = 0,
        hold_last_input: int = 0,
        patience: int = 2000,
        name: str = "",
    ) -> Exchange:
        """Send ``items``, compare what comes back with ``expected`` one by one, and return when.

        Parameters
        ----------
        items, expected
            Payloads as named fields, in order.
        source, sink
            Stall patterns of :data:`SOURCE_STALLS` and :data:`SINK_STALLS`.
        ready_probability
            For ``sink="random"``.
        registers
            Values of the register ports while item k is offered.
        owner
            Item that each answer belongs to (default: one answer per item).
        sides
            Payloads of the further input streams, offered in the same pattern; all of them must be taken.
        hold_output, hold_last_input
            First cycle in which the bench takes output, and in which it offers the last item.
        patience
            Cycles without any transfer after which the block counts as hung.
        """
        dut, edge, settle = self.dut, RisingEdge(self.dut.clk), ReadOnly()
        payloads = [pack(self.inputs, item) for item in items]
        answers = [pack(self.outputs, answer) for answer in expected]
        for stream, offers in (sides or {}).items():
            self.sides[stream].load(offers, _go(source, self.rng, 0.5))
        digest = hashlib.sha256(repr((payloads, source, sink, *([sides] if sides else []))).encode()).hexdigest()
        record.stimulus(name or f"{source}/{sink}", digest)
        willing, taking = _go(source, self.rng, 0.5), _go(sink, self.rng, ready_probability)
        done, log = Exchange(), open(self._log, "a") if self._log else None
        offered, ready, seen_valid, held = False, False, False, None
        cycle = last_transfer = 0
        busy = list(self.sides.values())
        while (
            len(done.accepted) < len(payloads) or len(done.answered) < len(answers) or any(side.waiting for side in busy)
        ):
            # Drive: an offer stays until it is accepted.
            number = len(done.accepted)
            last_waits = number == len(payloads) - 1 and cycle < hold_last_input
            if not offered and number < len(payloads) and next(willing) and not last_waits:
                offered = True
                dut.i__payload.value = payloads[number]
                dut.i__valid.value = 1
                if registers is not None:
                    for port, value in registers(number).items():
                        self.registers[port].value = value
            for side in busy:
                side.drive()
            take = (seen_valid if sink == "shy" else next(taking)) and cycle >= hold_output
            if take != ready:
                ready = take
                dut.o__ready.value = int(ready)
            await settle
            # Sample, as the coming edge will.
            accepted = offered and self.read(dut.i__ready)
            valid = self.read(dut.o__valid)
            got = self.read(dut.o__payload) if valid else None
            if held is not None and got != held:
                raise AssertionError(f"cycle {cycle}: o changed from {self._show(held)} to {self._show(got)} unaccepted")
            held = got if valid and not ready else None
            seen_valid = bool(valid) and not (valid and ready)
            if valid and ready:
                self._check(got, answers, len(done.answered), items, owner, cycle)
                done.answered.append(cycle)
            if accepted:
                done.accepted.append(cycle)
            taken = [side for side in busy if side.offered and self.read(side.ready)]
            if log is not None:
                if accepted:
                    log.write(f"{cycle} i {payloads[number]:x}\n")
                if valid and ready:
                    log.write(f"{cycle} o {got:x}\n")
            if accepted or taken or (valid and ready):
                last_transfer = cycle
            elif cycle - last_transfer > patience:
                raise AssertionError(
                    f"cycle {cycle}: hung after {len(done.accepted)} of {len(payloads)} inputs and "
                    f"{len(done.answered)} of {len(answers)} answers"
                )
            await edge
            cycle += 1
            if accepted:
                offered = False
                dut.i__valid.value = 0
            for side in taken:
                side.next()
        if log is not None:
            log.close()
        done.cycles = cycle
        dut.o__ready.value = 0
        record.transactions(len(payloads))
        await self._quiet(edge, settle)
        return done

    async def _quiet(self, edge: Any, settle: Any, cycles: int = 8) -> None:
        """Check that no answer follows the last expected one."""
        for _ in range(cycles):
            await settle
            assert not self.read(self.dut.o__valid), f"unexpected answer {self._show(self.read(self.dut.o__payload))}"
            await edge

    def _show(self, payload: int | None) -> str:
        return "nothing" if payload is None else _format(unpack(self.outputs, payload))

    def _check(
        self,
        got: int | None,
        answers: list[int],
        number: int,
        items: Sequence[Mapping[str, int]],
        owner: Sequence[int] | None,
        cycle: int,
    ) -> None:
        if number >= len(answers):
            raise AssertionError(f"cycle {cycle}: answer {number} was not expected: {self._show(got)}")
        if got != answers[number]:
            item = owner[number] if owner is not None else number
            raise AssertionError(
                f"transaction {item} (answer {number}, cycle {cycle}): got {self._show(got)}, "
                f"expected {self._show(answers[number])}, input {_format(items[item])}"
            )


def _format(values: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value:#x}" for name, value in values.items())

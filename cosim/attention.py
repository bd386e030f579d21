"""Runs attention heads on the compiled RTL of pseudo-channels and special function unit, and measures their cycles.

Scores, probabilities and outputs are compared with the golden composition bit for bit; a head that agrees gets a
certificate with its cycles.  They are those of the logic at full rate, with the columns there when they are wanted; the
time in which DRAM can give columns is the system model's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim import blocks
from cosim.errors import CheckFailed
from cosim.files import build_root, write_atomically
from cosim.harness.compiled import CompiledBlock, Traffic
from cosim.harness.payloads import words_of
from cosim.sources import text_hash
from golden_model.layouts import Fields, pack, unpack, width
from golden_model.pim.attention_head import Attention, AttentionHead, Step
from golden_model.pim.pseudo_channel import Op, PseudoChannel
from golden_model.pim.special_function_unit import Operation, SpecialFunctionUnit

__all__ = ["LARGEST", "SHAPES", "Measured", "Shape", "golden_attention", "run_shape"]

Codes = npt.NDArray[np.uint16]
LARGEST = 1 << 27
"""Tokens x dimensions x queries; the golden model takes about 14 us per unit of 1."""


@dataclass(frozen=True)
class Shape:
    """A head: cached tokens, dimensions, query heads that share it, pseudo-channels that hold it."""

    tokens: int
    head_dim: int
    queries: int = 1
    pseudo_channels: int = 1

    @property
    def contexts(self) -> int:
        """Contexts of the pseudo-channel that serves it."""
        return 1 if self.queries == 1 else 8

    @property
    def name(self) -> str:
        return f"attention_{self.tokens}x{self.head_dim}_{self.queries}q_{self.pseudo_channels}pch"

    def head(self, words: int) -> AttentionHead:
        return AttentionHead(
            head_dim=self.head_dim, tokens=self.tokens, queries=self.queries, pseudo_channels=self.pseudo_channels,
            contexts=self.contexts, words=words,
        )  # fmt: skip


SHAPES = tuple(
    Shape(tokens, head_dim, queries, 2 if tokens > 100 else 1)
    for tokens in (1, 33, 512, 1000)
    for head_dim in (64, 128)
    for queries in (1, 8)
)
"""Head sizes 64 and 128, 1 to 1,000 cached tokens, without and with grouped queries."""


@dataclass(frozen=True)
class Measured:
    """Cycles of one head at full rate: of the slowest pseudo-channel, and of the special function unit."""

    shape: Shape
    score_cycles: int
    softmax_cycles: int
    context_cycles: int
    sum_cycles: int
    seconds: float

    @property
    def cycles(self) -> int:
        """All phases one after the other."""
        return self.score_cycles + self.softmax_cycles + self.context_cycles + self.sum_cycles


    @property
    def line(self) -> str:
        return (
            f"{self.shape.name}: equal to the golden models; {self.cycles:,} cycles = "
            f"{self.score_cycles:,} score + {self.softmax_cycles:,} softmax + {self.context_cycles:,} context + "
            f"{self.sum_cycles:,} sum ({self.seconds:.1f} s)"
        )


def draw(shape: Shape, seed: int) -> tuple[Codes, Codes, Codes]:
    """Draw q (scaled by 1/sqrt(head_dim)), K and V from normal distributions, as FP16 codes."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(shape.queries, shape.head_dim)) / np.sqrt(shape.head_dim)
    k, v = (rng.normal(size=(shape.tokens, shape.head_dim)) for _ in range(2))
    return tuple(x.astype(np.float16).view(np.uint16) for x in (q, k, v))  # type: ignore[return-value]


def golden_attention(shape: Shape, q: Codes, k: Codes, v: Codes) -> Attention:
    """Run the head on golden models, every pseudo-channel with a state of its own."""
    channels = [PseudoChannel(contexts=shape.contexts) for _ in range(shape.pseudo_channels)]
    unit = SpecialFunctionUnit()

    def run_channel(number: int, program: Sequence[Step]) -> list[list[int]]:
        return [codes for command, columns in program for codes in channels[number].execute(command, columns)]

    def run_unit(items: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
        return [answer for item in items if (answer := unit.accept(item, 0)) is not None]

    return shape.head(channels[0].words).compute(q, k, v, channel=run_channel, unit=run_unit)


class _Rtl:
    """The compiled blocks as the machines of an :class:`AttentionHead`; each call's cycles are kept."""

    def __init__(self, contexts: int, root: Path | None) -> None:
        wanted = "pseudo_channel_default" if contexts == 1 else f"pseudo_channel_contexts_{contexts}"
        (channel, configuration), (unit, unit_configuration) = (
            blocks.find(name)[0] for name in (wanted, "special_function_unit_16")
        )
        self.channel = CompiledBlock.of(channel, configuration, root=root)
        self.unit = CompiledBlock.of(unit, unit_configuration, root=root)
        self.channel_fields = channel.golden(configuration)
        self.unit_fields = unit.golden(unit_configuration)
        self.channel_cycles: list[int] = []
        self.unit_cycles: list[int] = []

    def run_channel(self, number: int, program: Sequence[Step]) -> list[list[int]]:
        """Run a program.  One instance serves all pseudo-channels in turn; programs leave nothing for later ones."""
        model = self.channel_fields
        items = _payloads(model.command_fields, [command._asdict() for command, _ in program])
        named = [{f"column_{k}": word for k, word in enumerate(columns)} for _, columns in program if columns]
        columns = _payloads(model.column_fields, named)
        moves = [command for command, _ in program if command.op == Op.MOVE_RESULT]
        results = sum((move.queries + 1) * (model.lanes if move.axpy else 1) for move in moves)
        done = self.channel.exchange(items, results, side_items=columns)
        self.channel_cycles.append(done.cycles)
        return [list(answer.values()) for answer in _answers(model.result_fields, done)]

    def run_unit(self, items: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
        model = self.unit_fields
        registers = np.zeros((len(items), self.unit.item_words - words_of(width(model.input_fields))), np.uint32)
        sent = np.hstack([_payloads(model.input_fields, items), registers])
        expected = sum(item["operation"] == Operation.SOFTMAX_NORMALIZE or item["last"] for item in items)
        done = self.unit.exchange(sent, expected)
        self.unit_cycles.append(done.cycles)
        return list(_answers(model.output_fields, done))


def _payloads(fields: Fields, items: Sequence[Mapping[str, int]]) -> npt.NDArray[np.uint32]:
    words = words_of(width(fields))
    packed = b"".join(pack(fields, item).to_bytes(4 * words, "little") for item in items)
    return np.frombuffer(packed, "<u4").reshape(-1, words)


def _answers(fields: Fields, done: Traffic) -> Sequence[dict[str, int]]:
    return [unpack(fields, int.from_bytes(row.astype("<u4").tobytes(), "little")) for row in done.answers]


def run_shape(shape: Shape, *, seed: int = 1, root: Path | None = None) -> Measured:
    """Run one head on the RTL, compare it with the golden composition, and write its certificate.

    Raises
    ------
    CheckFailed
        When a code differs, or the RTL hangs or breaks its handshake; the message says where.
    """
    q, k, v = draw(shape, seed)
    rtl = _Rtl(shape.contexts, root)
    golden = golden_attention(shape, q, k, v)
    started = time.monotonic()
    try:
        got = shape.head(rtl.channel_fields.words).compute(q, k, v, channel=rtl.run_channel, unit=rtl.run_unit)
    except AssertionError as error:  # of the compiled driver
        raise CheckFailed(f"{shape.name}: {error}") from None
    seconds = time.monotonic() - started
    for name, ours, theirs in zip(Attention._fields, got, golden, strict=True):
        if wrong := np.argwhere(ours != theirs).tolist():
            place = tuple(wrong[0])
            raise CheckFailed(
                f"{shape.name}: {len(wrong)} {name} differ, first {place}: got {ours[place]:#06x}, "
                f"expected {theirs[place]:#06x}"
            )
    count = shape.pseudo_channels
    measured = Measured(
        shape, max(rtl.channel_cycles[:count]), sum(rtl.unit_cycles[:2]), max(rtl.channel_cycles[count:]),
        rtl.unit_cycles[2], seconds,
    )  # fmt: skip
    content: dict[str, Any] = {
        "shape": asdict(shape), "seed": seed, "simulator": f"{rtl.channel.simulator.name} {rtl.channel.simulator.version}",
        "rtl": {block.top: block.verilog_hash for block in (rtl.channel, rtl.unit)},
        "inputs": text_hash(repr([x.tolist() for x in (q, k, v)])), "outputs": text_hash(repr([x.tolist() for x in got])),
        "cycles": {name: value for name, value in asdict(measured).items() if name.endswith("_cycles")},
    }  # fmt: skip
    write_atomically((root or build_root()) / "certificates" / f"{shape.name}.json", json.dumps(content, indent=2) + "\n")
    return measured

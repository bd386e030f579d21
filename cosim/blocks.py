"""The registry of blocks: everything that loops over blocks reads this table.

A new block is one row and three files: ``golden_model/<area>/<stem>.py``, ``hdl/<area>/<stem>.py`` and
``cosim/bench/<area>/tb_<stem>.py``, plus its page ``docs/spec/<stem>.md``.
"""

from __future__ import annotations

import difflib
import importlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cosim.errors import UserError

__all__ = ["BLOCKS", "Block", "Configuration", "find", "jobs"]


@dataclass(frozen=True)
class Configuration:
    """One set of parameters under which a block is verified.

    Parameters
    ----------
    name
        Short name; ``<stem>_<name>`` names the Verilog file, the top module and the certificate.
    parameters
        Keyword arguments of component and golden model alike.
    simulators
        Simulators of the regression, the one whose cycles count first.
    system
        Whether the system model takes its cycles from this configuration.
    effort, icarus_effort
        Factors on the number of random transactions, of all simulators and beyond that of Icarus, for large blocks.
    """

    name: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    simulators: tuple[str, ...] = ("verilator", "icarus")
    system: bool = False
    effort: float = 1.0
    icarus_effort: float = 1.0


@dataclass(frozen=True)
class Block:
    """A piece of hardware that exists as golden model, RTL and bench under one stem."""

    stem: str
    area: str
    summary: str
    configurations: tuple[Configuration, ...]
    parts: tuple[tuple[str, int], ...] = ()
    """For a block made of others: their configurations and numbers, for sums of sizes; it is too large to map flat."""

    @property
    def class_name(self) -> str:
        """Name of the component and of the golden class: the stem in CamelCase."""
        return "".join(part.capitalize() for part in self.stem.split("_"))

    @property
    def golden_module(self) -> str:
        return f"golden_model.{self.area}.{self.stem}"

    @property
    def hdl_module(self) -> str:
        return f"hdl.{self.area}.{self.stem}"

    @property
    def bench_module(self) -> str:
        return f"cosim.bench.{self.area}.tb_{self.stem}"

    def component(self, configuration: Configuration) -> Any:
        """Make the Amaranth component (imports Amaranth); it may be looked at without being elaborated."""
        from amaranth.hdl import UnusedElaboratable

        warnings.filterwarnings("ignore", category=UnusedElaboratable)
        return getattr(importlib.import_module(self.hdl_module), self.class_name)(**configuration.parameters)

    def golden(self, configuration: Configuration) -> Any:
        """Make the golden model."""
        return getattr(importlib.import_module(self.golden_module), self.class_name)(**configuration.parameters)

    def top(self, configuration: Configuration) -> str:
        """Return the name of the top module, the Verilog file and the certificate."""
        return f"{self.stem}_{configuration.name}"


BLOCKS: tuple[Block, ...] = (
    Block(
        stem="special_function_unit",
        area="pim",
        summary="the SFU of the buffer die: all its units behind one stream",
        configurations=(
            Configuration("16", {"lanes": 16, "slots": 16}, simulators=("verilator",), effort=0.3),
            Configuration("4", {"lanes": 4, "slots": 4}, simulators=("icarus",), effort=0.3),
        ),
        parts=(
            ("partial_sum_16", 1),
            ("residual_add_16", 1),
            ("softmax_statistics_16", 1),
            ("softmax_normalizer_16", 1),
            ("activation_16", 1),
            ("normalization_16", 1),
        ),
    ),
    Block(
        stem="normalization",
        area="pim",
        summary="SFU: LayerNorm and RMSNorm in two passes, exact sums, one rounding",
        configurations=(
            Configuration("16", {"lanes": 16}, simulators=("verilator",), effort=0.3),
            Configuration("4", {"lanes": 4}, effort=0.3),
        ),
    ),
    Block(
        stem="residual_add",
        area="pim",
        summary="SFU: FP16 addition of two rows, one rounding",
        configurations=(
            Configuration("16", {"lanes": 16}, simulators=("verilator",)),
            Configuration("4", {"lanes": 4}),
        ),
    ),
    Block(
        stem="partial_sum",
        area="pim",
        summary="SFU: sums the pseudo-channels' partial results in FP32, emits FP16",
        configurations=(
            Configuration("16", {"lanes": 16, "slots": 16}, simulators=("verilator",)),
            Configuration("4", {"lanes": 4, "slots": 4}),
        ),
    ),
    Block(
        stem="draft_pool",
        area="manager",
        summary="content-addressable store of draft tokens, greedy choice of the verification batch",
        configurations=(
            Configuration("512", {"entries": 512}, simulators=("verilator",), system=True),
            Configuration("32", {"entries": 32}),
        ),
    ),
    Block(
        stem="pseudo_channel",
        area="pim",
        summary="decoder of PIM commands, global buffer, 16 processing elements, accumulators",
        configurations=(
            Configuration("contexts_8", {"contexts": 8}, simulators=("verilator",), effort=0.25),
            Configuration("default", simulators=("verilator",), effort=0.25),
            Configuration("lanes_4", {"lanes": 4, "contexts": 2, "words": 16}, effort=0.25, icarus_effort=0.4),
        ),
        parts=(("processing_element_default", 16), ("accumulator_default", 4), ("global_buffer_64", 1)),
    ),
    Block(
        stem="processing_element",
        area="pim",
        summary="PE of a bank: 16 FP16 products per cycle in dot or axpy mode, exact accumulators",
        configurations=(
            Configuration("contexts_8", {"contexts": 8}, simulators=("verilator",)),
            Configuration("contexts_4", {"contexts": 4}, simulators=("verilator",)),
            Configuration("exact", {"align_frac_bits": 78}, simulators=("verilator",)),
            Configuration("default", system=True),
        ),
    ),
    Block(
        stem="bank_group",
        area="pim",
        summary="processing elements of four banks in lockstep",
        configurations=(Configuration("lanes_4", {"lanes": 4, "contexts": 2}, icarus_effort=0.3, effort=0.3),),
        parts=(("processing_element_default", 4),),
    ),
    Block(
        stem="dot_product",
        area="arithmetic",
        summary="16-lane fused FP16 dot product with one rounding to FP32",
        configurations=(Configuration("16", {"lanes": 16}),),
    ),
    Block(
        stem="fp32_adder",
        area="arithmetic",
        summary="FP32 addition, the accumulator step behind the dot product",
        configurations=(Configuration("default"),),
    ),
    Block(
        stem="fp16_rounder",
        area="arithmetic",
        summary="FP32 to FP16 with one rounding",
        configurations=(Configuration("default"),),
    ),
    Block(
        stem="global_buffer",
        area="pim",
        summary="two halves of vector words that a pseudo-channel's processing elements share",
        configurations=(
            Configuration("64", {"words": 64}),
            Configuration("4x2", {"words": 4, "lanes": 2}),
        ),
    ),
    Block(
        stem="accumulator",
        area="pim",
        summary="sum of four FP32 partial results, as FP32 or FP16",
        configurations=(Configuration("default"),),
    ),
    Block(
        stem="elementary",
        area="arithmetic",
        summary="2^a, 1/m and 1/sqrt(m) by piecewise quadratic polynomials",
        configurations=(Configuration("default"),),
    ),
    Block(
        stem="softmax_statistics",
        area="pim",
        summary="softmax, pass 1: rows to (maximum, sum) pairs, and pairs merged",
        configurations=(
            Configuration("16", {"lanes": 16}, simulators=("verilator",), effort=0.3),
            Configuration("4", {"lanes": 4}, effort=0.3),
        ),
    ),
    Block(
        stem="softmax_normalizer",
        area="pim",
        summary="softmax, pass 2: rows and their pairs to probabilities",
        configurations=(
            Configuration("16", {"lanes": 16}, simulators=("verilator",), effort=0.3),
            Configuration("4", {"lanes": 4}),
        ),
    ),
    Block(
        stem="activation",
        area="pim",
        summary="exp, 1/x, 1/sqrt(x), ReLU and SiLU of FP16 numbers",
        configurations=(
            Configuration("16", {"lanes": 16}, simulators=("verilator",), effort=0.3),
            Configuration("4", {"lanes": 4}, effort=0.3),
        ),
    ),
    Block(
        stem="stop_test",
        area="manager",
        summary="Controller: H times p in FP16, compared with tau",
        configurations=(Configuration("default", system=True),),
    ),
    Block(
        stem="operator_mapping",
        area="manager",
        summary="Scheduler: intensity against threshold, PIM or GPU",
        configurations=(Configuration("default", system=True),),
    ),
)


def find(name: str) -> list[tuple[Block, Configuration]]:
    """Return the configurations that a user's name means: a stem, ``stem_configuration``, ``all``, or ``system``.

    ``system`` means those from which the system model takes its cycles.

    Raises
    ------
    UserError
        For an unknown name, with the nearest known one.
    """
    known = {block.top(configuration): [(block, configuration)] for block, configuration in jobs()}
    for block in BLOCKS:
        known[block.stem] = [(block, configuration) for configuration in block.configurations]
    known["all"] = list(jobs())
    known["system"] = [job for job in jobs() if job[1].system]
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(f"unknown block {name!r}{hint} (known: {', '.join(sorted(known))})")


def jobs() -> Iterator[tuple[Block, Configuration]]:
    """Iterate over all configurations of all blocks, the longest regressions first."""
    for block in BLOCKS:
        for configuration in block.configurations:
            yield block, configuration

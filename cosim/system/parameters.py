"""Parameters of machine, models, systems and workload, read from TOML with their sources.

Whatever is wrong with a file or a name becomes one :class:`~cosim.errors.UserError` line: file, key, value, range.
Source of the values: the ``source`` string beside each of them in ``cosim/system/data``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cosim.errors import UserError
from cosim.system.llm import ModelShape

__all__ = [
    "DATA", "Machine", "Parameters", "SystemRow", "Workload", "explain", "load_parameters", "nearest", "read_toml",
]

DATA = Path(__file__).parent / "data"
"""Packaged data files."""

Row = TypeVar("Row", bound=BaseModel)


class Machine(BaseModel):
    """The machine; units stand in the names, meanings and sources in ``machine.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: int = Field(ge=1, le=1024)
    device_memory_gb: float = Field(gt=0)
    gpu_peak_tflop_s: float = Field(gt=0)
    gpu_bandwidth_tb_s: float = Field(gt=0)
    gpu_compute_efficiency: float = Field(gt=0, le=1)
    gpu_bandwidth_efficiency: float = Field(gt=0, le=1)
    gpu_attention_efficiency: float = Field(gt=0, le=1)
    gpu_processors: int = Field(ge=1)
    gpu_min_occupancy: float = Field(gt=0, le=1)
    gpu_tile_rows: int = Field(ge=1)
    gpu_layer_overhead_us: float = Field(ge=0)
    all_reduce_hop_us: float = Field(ge=0)
    all_reduce_hop_ns_per_byte: float = Field(ge=0)
    device_link_gb_s: float = Field(gt=0)
    internal_link_gb_s: float = Field(gt=0)
    pim_stacks_per_device: int = Field(ge=1)
    pim_bandwidth_tb_s_per_stack: float = Field(gt=0)
    pim_banks_per_stack: int = Field(ge=1)
    pim_column_bytes: int = Field(ge=1)
    pim_clock_ghz: float = Field(gt=0)
    pim_column_reuse: int = Field(ge=1, le=64)
    pim_operator_overhead_us: float = Field(ge=0)
    manager_clock_ghz: float = Field(gt=0)
    gpu_memory_pj_per_byte: float = Field(ge=0)
    pim_memory_pj_per_byte: float = Field(ge=0)
    link_pj_per_byte: float = Field(ge=0)
    mac_pj: float = Field(ge=0)
    gpu_on_chip_pj_per_mac: float = Field(ge=0)

    @property
    def column_period_ns(self) -> float:
        """Time between two columns of a bank at the stack's internal bandwidth, in ns."""
        return self.pim_banks_per_stack * self.pim_column_bytes / (self.pim_bandwidth_tb_s_per_stack * 1e3)


class Workload(BaseModel):
    """The requests; meanings and sources in ``workload.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens_per_word: float = Field(gt=0)
    max_sequence_length: int = Field(ge=1)
    near_max_low: float = Field(ge=0, lt=1)


class SystemRow(BaseModel):
    """One system under comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hardware: Literal["gpu", "pim"]
    draft: Literal["none", "fixed", "adaptive"]
    pools: list[Literal["shared", "eager"]]
    mapping: Literal["gpu", "attention_pim", "searched", "dynamic"]
    dispatch: Literal["none", "idle", "all_stopped", "half_stopped", "rate"]
    source: str

    @model_validator(mode="after")
    def _consistent(self) -> SystemRow:
        if self.hardware == "gpu" and self.mapping != "gpu":
            raise ValueError("hardware 'gpu' needs mapping 'gpu'")
        adaptive = self.draft == "adaptive"
        if adaptive != (self.dispatch != "none") or adaptive != ("shared" in self.pools):
            raise ValueError("draft 'adaptive' needs a Shared Pool and a dispatch rule, other drafts have neither")
        if "eager" in self.pools and "shared" not in self.pools:
            raise ValueError("an Eager Pool needs a Shared Pool")
        if self.mapping == "dynamic" and not adaptive:
            raise ValueError("mapping 'dynamic' needs draft 'adaptive'")
        return self

    @property
    def overlap(self) -> bool:
        """Whether the DLM goes on drafting while the TLM verifies."""
        return "eager" in self.pools


class Pair(BaseModel):
    """A target model and its draft model, by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    draft: str
    source: str


@dataclass(frozen=True)
class Parameters:
    """Everything read from the data files, and where it comes from."""

    machine: Machine
    workload: Workload
    models: dict[str, ModelShape]
    pairs: dict[str, Pair]
    systems: dict[str, SystemRow]
    sources: dict[str, str] = field(default_factory=dict)

    def pair(self, name: str) -> tuple[ModelShape, ModelShape]:
        """Return target and draft model of a pair."""
        row = self.pairs[nearest("pair", name, self.pairs)]
        return (
            self.models[nearest("model", row.target, self.models)],
            self.models[nearest("model", row.draft, self.models)],
        )

    def system(self, name: str) -> SystemRow:
        """Return the row of a system."""
        return self.systems[nearest("system", name, self.systems)]


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """Return ``name`` if it is known, else raise a line with the nearest match."""
    names = sorted(known)
    if name in names:
        return name
    folded = {candidate.lower(): candidate for candidate in names}
    match = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.4)
    hint = f"did you mean {folded[match[0]]!r}?" if match else f"known: {', '.join(names)}"
    raise UserError(f"unknown {kind} {name!r}; {hint}")


def explain(origin: str, error: ValidationError, keys: Iterable[str]) -> UserError:
    """Turn the first fault that pydantic found into one line."""
    fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        match = difflib.get_close_matches(key, list(keys), n=1)
        hint = f"; did you mean {match[0]!r}?" if match else ""
        return UserError(f"{origin}: unknown key {key!r}{hint}")
    if fault["type"] == "missing":
        return UserError(f"{origin}: key {key!r} is missing")
    message = fault["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    where = f"{key} = {fault['input']!r}: " if key else ""
    return UserError(f"{origin}: {where}{message}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a missing, unreadable or malformed one gives one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None


def _validate(row: type[Row], origin: str, values: Mapping[str, Any]) -> Row:
    try:
        return row(**values)
    except ValidationError as error:
        raise explain(origin, error, row.model_fields) from None


def _sourced(path: Path, sources: dict[str, str]) -> dict[str, Any]:
    values = {}
    for name, entry in read_toml(path).get("parameters", {}).items():
        if not isinstance(entry, dict) or set(entry) != {"value", "source"}:
            raise UserError(f"{path}: {name} must be {{ value = ..., source = \"...\" }}, not {entry!r}")
        values[name] = entry["value"]
        sources[f"{path.stem}.{name}"] = str(entry["source"])
    return values


def _rows(row: type[Row], path: Path, tables: Mapping[str, Any], kind: str, sources: dict[str, str]) -> dict[str, Row]:
    rows = {}
    for name, values in tables.items():
        if not isinstance(values, dict):
            raise UserError(f"{path}: {kind}.{name} must be a table, not {values!r}")
        rows[name] = _validate(row, f"{path}: {kind}.{name}", values)
        sources[f"{kind}.{name}"] = str(values["source"])
    return rows


def load_parameters(
    *, machine_overrides: Mapping[str, float] | None = None, systems_file: Path | None = None
) -> Parameters:
    """Read the packaged files.

    Parameters
    ----------
    machine_overrides
        Values that replace those of ``machine.toml``, by name.
    systems_file
        A further TOML file with ``[systems.NAME]`` rows; a row of the same name replaces ours.

    Raises
    ------
    UserError
        One line for whatever is wrong.
    """
    sources: dict[str, str] = {}
    machine_path, models_path, systems_path = DATA / "machine.toml", DATA / "models.toml", DATA / "systems.toml"
    values = _sourced(machine_path, sources)
    for name, value in (machine_overrides or {}).items():
        values[nearest("machine parameter", name, Machine.model_fields)] = value
        sources[f"machine.{name}"] = "override given by the user"
    machine = _validate(Machine, "machine overrides" if machine_overrides else str(machine_path), values)
    workload_path = DATA / "workload.toml"
    workload = _validate(Workload, str(workload_path), _sourced(workload_path, sources))
    tables = read_toml(models_path)
    models = _rows(ModelShape, models_path, tables.get("models", {}), "models", sources)
    pairs = _rows(Pair, models_path, tables.get("pairs", {}), "pairs", sources)
    systems = _rows(SystemRow, systems_path, read_toml(systems_path).get("systems", {}), "systems", sources)
    if systems_file is not None:
        systems |= _rows(SystemRow, systems_file, read_toml(systems_file).get("systems", {}), "systems", sources)
    return Parameters(machine, workload, models, pairs, systems, sources)

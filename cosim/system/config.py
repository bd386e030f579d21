"""Configuration of an evaluation; every fault is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cosim.errors import UserError
from cosim.system.parameters import Parameters, explain, load_parameters, read_toml
from cosim.system.trace import PACKAGED_TRACE
from cosim.system.workload import Context

__all__ = ["FIG12_SYSTEMS", "EvaluationConfig"]

FIG12_SYSTEMS = ("GPU-AD", "GPU-SD", "PIM-AD", "PIM-SD", "SADDLE")


class EvaluationConfig(BaseModel):
    """What to evaluate.

    Parameters
    ----------
    systems
        Rows of ``systems.toml`` or of ``systems_file``.  The sixth default, SADDLE-literal, is SADDLE with the paper's
        own dispatch rule.
    batches, seeds
        Batch sizes (1 to 128: request ids of the Manager have 7 bits) and seeds.
    pair
        Target and draft model, a pair of ``models.toml``.
    tau, max_draft, capacity
        Stop threshold, longest adaptive draft in tokens, entries of the Shared Pool.
    fixed_draft
        Draft length of the systems with fixed drafts (8: the paper's Fig. 3 default; it names no other).
    context
        Context length at which requests start: ``spread`` over 0..maximum, ``recorded`` prompts, or ``near_max``.
    max_sequence_length
        In tokens; None takes that of ``workload.toml``.
    window_tokens
        Measured window in committed tokens per slot.
    placement
        Replicas of the DLM, or ``auto`` for the fastest of each system.
    trace
        Acceptance trace; None takes the packaged recording.
    systems_file
        Further system rows (TOML).
    machine
        Values that replace those of ``machine.toml``, by name.
    decision_log
        Write ``decisions.csv``.

    Raises
    ------
    UserError
        One line that names key, value and range.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    systems: tuple[str, ...] = Field(default=(*FIG12_SYSTEMS, "SADDLE-literal"), min_length=1)
    batches: tuple[int, ...] = Field(default=(16, 32, 64, 128), min_length=1)
    seeds: tuple[int, ...] = Field(default=(0, 1, 2, 3), min_length=1)
    pair: str = "opt-66b"
    tau: float = Field(default=0.3, ge=0, le=1)
    max_draft: int = Field(default=16, ge=0, le=31)
    fixed_draft: int = Field(default=8, ge=0, le=64)
    capacity: int = Field(default=512, ge=1, le=1024)
    context: Context = "spread"
    max_sequence_length: int | None = Field(default=None, ge=1, le=131072)
    window_tokens: int = Field(default=160, ge=1, le=100000)
    placement: int | Literal["auto"] = "auto"
    trace: str | None = None
    systems_file: str | None = None
    machine: dict[str, float] = Field(default_factory=dict)
    decision_log: bool = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain("configuration", error, type(self).model_fields) from None

    @field_validator("batches", "seeds", "systems")
    @classmethod
    def _ranges(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError("every entry may stand only once")
        return values

    @field_validator("batches")
    @classmethod
    def _batch_range(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [value for value in values if not 1 <= value <= 128]:
            raise ValueError(f"batch must be in [1, 128], not {wrong[0]}")
        return values

    @field_validator("seeds")
    @classmethod
    def _seed_range(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [value for value in values if value < 0]:
            raise ValueError(f"seed must be 0 or more, not {wrong[0]}")
        return values

    @field_validator("placement")
    @classmethod
    def _placement_range(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError("placement must be 'auto' or a number of replicas from 1 up")
        return value

    @classmethod
    def read(cls, path: Path) -> EvaluationConfig:
        """Read a TOML file, or the configuration kept in a ``results.json``."""
        if path.suffix != ".json":
            values = read_toml(path)
        else:
            try:
                values = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                raise UserError(f"{path}: no such file") from None
            except (OSError, ValueError) as error:
                raise UserError(f"{path}: not readable as JSON ({error})") from None
            if isinstance(values, dict) and "config" in values:
                values = values["config"]
            if not isinstance(values, dict):
                raise UserError(f"{path}: holds no configuration")
        return cls(**values)

    @property
    def trace_path(self) -> Path:
        return Path(self.trace) if self.trace is not None else PACKAGED_TRACE

    def parameters(self) -> Parameters:
        """Read the parameters and check every name in the configuration against them."""
        parameters = load_parameters(
            machine_overrides=self.machine, systems_file=Path(self.systems_file) if self.systems_file else None
        )
        parameters.pair(self.pair)
        for name in self.systems:
            parameters.system(name)
        return parameters

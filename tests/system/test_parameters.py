"""Parameter files, model shapes and configuration: sources, closed forms, one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosim.errors import UserError
from cosim.system.config import EvaluationConfig
from cosim.system.llm import ModelShape
from cosim.system.parameters import Parameters, load_parameters


def shape(layers: int, hidden: int, heads: int, kv_heads: int) -> ModelShape:
    return ModelShape(
        layers=layers, hidden_size=hidden, heads=heads, kv_heads=kv_heads, ffn_size=4 * hidden, ffn_matrices=2,
        vocabulary=1000, max_positions=2048, tied_embeddings=True, source="test",
    )


@pytest.mark.parametrize(
    ("model", "kv_bytes"),
    [
        (shape(32, 4096, 32, 8), 131072),  # Llama-3-8B
        (shape(80, 8192, 64, 8), 327680),  # Llama-3-70B
        (shape(32, 4096, 32, 32), 524288),  # Llama-2-7B
        (shape(40, 5120, 40, 40), 819200),  # OPT-13B
        (shape(96, 12288, 96, 96), 4718592),  # OPT-175B
    ],
)
def test_kv_bytes_per_token(model: ModelShape, kv_bytes: int) -> None:  # DR-09
    assert model.kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize(
    ("name", "weights_gb", "kv_bytes"),
    [("opt-66b", 131.4, 2359296), ("opt-1-3b", 2.6, 196608), ("opt-175b", 349.1, 4718592),
     ("opt-6-7b", 13.3, 524288), ("llama-3-1-70b", 141.1, 327680), ("llama-3-2-1b", 2.5, 32768)],
)
def test_packaged_models(parameters: Parameters, name: str, weights_gb: float, kv_bytes: int) -> None:
    model = parameters.models[name]
    assert model.weight_bytes / 1e9 == pytest.approx(weights_gb, abs=0.05)
    assert model.kv_bytes_per_token == kv_bytes


def test_flop_per_token_counts_weights_twice_and_attention() -> None:
    model = shape(2, 64, 4, 4)
    weights = 2 * (12 * 64 * 64) + 1000 * 64
    assert model.fc_weights == weights
    assert model.flop_per_token(10) == 2 * weights + 2 * (2 * 2 * 64 * 10)  # layers x (QK and SV) x 2 per MAC


def test_every_parameter_has_a_source(parameters: Parameters) -> None:
    for name in type(parameters.machine).model_fields:
        assert len(parameters.sources[f"machine.{name}"]) > 10
    for name in type(parameters.workload).model_fields:
        assert parameters.sources[f"workload.{name}"]
    for kind, rows in (("models", parameters.models), ("systems", parameters.systems), ("pairs", parameters.pairs)):
        assert all(parameters.sources[f"{kind}.{name}"] for name in rows)


def test_paper_constants(parameters: Parameters) -> None:
    machine = parameters.machine
    assert machine.devices * machine.pim_stacks_per_device * machine.pim_bandwidth_tb_s_per_stack == pytest.approx(144)
    assert machine.devices * machine.gpu_bandwidth_tb_s == 16
    assert machine.column_period_ns == pytest.approx(9.1022, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batches": (-1,)}, "batch must be in [1, 128], not -1"),
        ({"batches": (16, 256)}, "batch must be in [1, 128], not 256"),
        ({"batches": (16, 16)}, "only once"),
        ({"batches": ()}, "batches"),
        ({"seeds": (-3,)}, "seed must be 0 or more, not -3"),
        ({"tau": 1.5}, "tau = 1.5: input should be less than or equal to 1"),
        ({"tau": float("nan")}, "tau"),
        ({"max_draft": 32}, "less than or equal to 31"),
        ({"fixed_draft": -1}, "greater than or equal to 0"),
        ({"capacity": 0}, "greater than or equal to 1"),
        ({"context": "long"}, "'spread', 'recorded' or 'near_max'"),
        ({"placement": 0}, "placement"),
        ({"sytems": ("SADDLE",)}, "unknown key 'sytems'; did you mean 'systems'?"),
    ],
)
def test_configuration_faults(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        EvaluationConfig(**change)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"systems": ("SADLE",)}, "unknown system 'SADLE'; did you mean 'SADDLE'?"),
        ({"pair": "opt66b"}, "did you mean 'opt-66b'?"),
        ({"machine": {"gpu_bandwith_tb_s": 3.0}}, "did you mean 'gpu_bandwidth_tb_s'?"),
        ({"machine": {"devices": 0}}, "devices = 0"),
        ({"machine": {"gpu_bandwidth_tb_s": -2.0}}, "greater than 0"),
        ({"systems_file": "/nonexistent/rows.toml"}, "/nonexistent/rows.toml: no such file"),
    ],
)
def test_unknown_names(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        EvaluationConfig(**change).parameters()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


ROW = """hardware = "pim"
draft = "adaptive"
pools = ["shared"]
mapping = "dynamic"
dispatch = "rate"
source = "me"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[systems.X]\n" + ROW.replace('"rate"', '"often"'), "dispatch = 'often'"),
        ("[systems.X]\n" + ROW.replace('["shared"]', "[]"), "needs a Shared Pool"),
        ("[systems.X]\n" + ROW.replace('"pim"', '"gpu"'), "needs mapping 'gpu'"),
        ("[systems.X]\n" + ROW + "colour = 1\n", "unknown key 'colour'"),
        ("[systems.X]\n" + ROW.replace('source = "me"\n', ""), "key 'source' is missing"),
        ("[systems.X\n", "rows.toml"),
    ],
)
def test_system_rows_of_users(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load_parameters(systems_file=path)
    assert str(path) in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_user_adds_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text("[systems.MINE]\n" + ROW)
    parameters = load_parameters(systems_file=path)
    assert parameters.system("MINE").dispatch == "rate"
    assert parameters.sources["systems.MINE"] == "me"

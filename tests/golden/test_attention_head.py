"""Attention on golden pseudo-channels and special function unit against float64, within a bound derived per row."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.attention import Shape, draw, golden_attention
from golden_model.params import ParameterError
from golden_model.pim.attention_head import AttentionHead
from golden_model.pim.pseudo_channel import Op

HALF_ULP = 2.0**-11
HALF_SUBNORMAL = 2.0**-25
SINGLE = 2.0**-24


def values(codes: np.ndarray) -> np.ndarray:
    return codes.view(np.float16).astype(np.float64)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 64), Shape(33, 64), Shape(33, 128, 8), Shape(64, 80, 3), Shape(70, 1), Shape(100, 96, 2, 2),
        Shape(300, 128, 1, 3),
        Shape(513, 64, 8, 2), Shape(40, 128, 11),
    ],
    ids=lambda shape: shape.name,
)  # fmt: skip
def test_equals_float64_within_the_derived_bound(shape: Shape) -> None:
    q, k, v = draw(shape, 3)
    got = golden_attention(shape, q, k, v)
    q_values, k_values, v_values = map(values, (q, k, v))
    scores = q_values @ k_values.T
    # Scores: alignment and FP32 roundings of up to 4 banks and 2 additions, then one rounding to FP16.
    single = 8 * SINGLE * (abs(q_values) @ abs(k_values).T)
    score_bound = single + HALF_ULP * (abs(scores) + single) + HALF_SUBNORMAL
    assert (abs(values(got.scores) - scores) <= score_bound).all()
    # Probabilities: numerator and denominator move by at most the largest error of a score.
    exact = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    factor = np.exp(2 * score_bound.max(axis=1, keepdims=True)) * (1 + 2.0**-19)  # the unit's own error before rounding
    probability_bound = exact * (factor * (1 + HALF_ULP) - 1) + HALF_SUBNORMAL
    assert (abs(values(got.probabilities) - exact) <= probability_bound).all()
    # Outputs: FP32 roundings of read-outs and sums over groups and pseudo-channels, then one rounding to FP16.
    output = exact @ v_values
    spread = probability_bound @ abs(v_values)
    spread += (4 + shape.pseudo_channels) * SINGLE * ((exact + probability_bound) @ abs(v_values))
    bound = spread + HALF_ULP * (abs(output) + spread) + HALF_SUBNORMAL
    assert (abs(values(got.context) - output) <= bound).all()
    if shape.tokens > 1:
        assert (abs(values(got.context) - output) > 0).any()  # the bound is not met by an accidental copy


def test_one_token_gives_its_value() -> None:
    shape = Shape(1, 64, 8)
    q, k, v = draw(shape, 4)
    got = golden_attention(shape, q, k, v)
    assert (got.probabilities == 0x3C00).all()
    assert (got.context == v).all()


def test_a_column_is_read_once_for_all_queries_of_a_batch() -> None:
    shape = Shape(256, 128, 8)
    q, k, _ = draw(shape, 5)
    program = list(shape.head(64).score_program(0, q, k))
    macs = [command for command, columns in program if columns]
    assert len(macs) == 256 // 4 * 2
    assert {command.queries for command in macs} == {7}
    assert sum(command.op == Op.WRITE_BUFFER for command, _ in program) == 64


def test_shapes_are_checked() -> None:
    head = AttentionHead(head_dim=64, tokens=4)
    codes = np.zeros((4, 64), np.uint16)
    with pytest.raises(ParameterError, match=r"q must have shape \(1, 64\)"):
        head.compute(codes, codes, codes, channel=lambda *_: [], unit=lambda _: [])
    with pytest.raises(ParameterError, match="words must be at least 8, one query, not 4"):
        AttentionHead(head_dim=128, tokens=4, words=4)
    with pytest.raises(ParameterError, match=r"queries must be an integer in \[1, 64\], not 0"):
        AttentionHead(head_dim=64, tokens=4, queries=0)
    for name, value, text in (
        ("head_dim", 257, r"head_dim must be an integer in \[1, 256\], not 257"),
        ("tokens", 0, r"tokens must be an integer in \[1, 131072\], not 0"),
        ("contexts", 0, r"contexts must be an integer in \[1, 16\], not 0"),
        ("words", 96, r"words must be a power of two in \[4, 4096\], not 96"),
    ):
        with pytest.raises(ParameterError, match=text):
            AttentionHead(**({"head_dim": 64, "tokens": 4} | {name: value}))
    with pytest.raises(ParameterError, match="q must be an array of uint16 codes, not list"):
        head.compute([], codes, codes, channel=lambda *_: [], unit=lambda _: [])  # type: ignore[arg-type]

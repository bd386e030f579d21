"""The golden comparators against the mean intensity in fractions."""

from __future__ import annotations

import random
from fractions import Fraction

from golden_model.manager.operator_mapping import Operator, OperatorMapping


def test_equals_the_mean_in_fractions() -> None:
    rng, model, sides = random.Random(3), OperatorMapping(), set()
    for _ in range(20000):
        tokens, requests, group = rng.randrange(1024), rng.randrange(1, 256), rng.randrange(16)
        near = tokens * group * 16 // requests + rng.randrange(-1, 2)
        attention = min(max(near, 0), 4095) if rng.random() < 0.7 else rng.randrange(4096)
        fc = min(max(tokens * 16 + rng.randrange(-1, 2), 0), 4095)
        registers = {"dlm_fc_threshold": fc, "tlm_attention_threshold": attention, "kv_group": group}
        got = model.on_pim(Operator.TLM_ATTENTION, tokens, requests, **registers)
        assert got == (Fraction(tokens * group, requests) < Fraction(attention, 16))
        assert model.on_pim(Operator.DLM_FC, tokens, requests, **registers) == (tokens < Fraction(fc, 16))
        sides.add(got)
    assert sides == {0, 1}


def test_equality_and_no_requests_stay_on_the_gpu() -> None:
    model = OperatorMapping()
    registers = {"dlm_fc_threshold": 144, "tlm_attention_threshold": 144, "kv_group": 1}
    assert model.on_pim(Operator.DLM_FC, 9, 1, **registers) == 0
    assert model.on_pim(Operator.DLM_FC, 8, 1, **registers) == 1
    assert model.on_pim(Operator.TLM_ATTENTION, 18, 2, **registers) == 0
    assert model.on_pim(Operator.TLM_ATTENTION, 17, 2, **registers) == 1
    assert model.on_pim(Operator.TLM_ATTENTION, 0, 0, **registers) == 0
    assert model.on_pim(Operator.TLM_ATTENTION, 2, 2, **{**registers, "kv_group": 8}) == 1
    assert model.on_pim(Operator.TLM_ATTENTION, 3, 2, **{**registers, "kv_group": 8}) == 0

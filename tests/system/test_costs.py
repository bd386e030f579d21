"""Costs against independent closed forms."""

from __future__ import annotations

from math import ceil

import pytest

from cosim.certificates import OperationTiming, Timing
from cosim.errors import UserError
from cosim.system.costs import Cost, CostModel, combine
from cosim.system.llm import ModelShape
from cosim.system.manager import Thresholds
from cosim.system.parameters import Machine, Parameters
from cosim.system.placement import check_memory, make_plan
from golden_model.manager.operator_mapping import Operator, OperatorMapping

PE = OperationTiming(6, 1)


def models(parameters: Parameters) -> tuple[ModelShape, ModelShape, Machine]:
    return (*parameters.pair("opt-66b"), parameters.machine)


@pytest.mark.parametrize("tokens", [1, 16, 33, 200, 1152])
def test_gpu_fc(parameters: Parameters, tokens: int) -> None:
    target, _, machine = models(parameters)
    rows = ceil(tokens / 32) * 32
    seconds = 0.0
    for inputs, outputs in ((9216, 27648), (9216, 9216), (9216, 36864), (36864, 9216)):
        compute = 2 * rows * inputs * outputs / 8 / (312e12 * 0.8)
        memory = 2 * (inputs * outputs / 8 + tokens * (inputs + outputs / 8)) / (2e12 * 0.85)
        seconds += 64 * max(compute, memory)
    head = max(2 * rows * 9216 * 50272 / 8 / (312e12 * 0.8),
               2 * (9216 * 50272 / 8 + tokens * (9216 + 50272 / 8)) / (2e12 * 0.85))
    size = 2 * tokens * 9216 / 8
    hops = 128 * 7 * max(6.06e-6 + 0.009e-9 * size, size / 300e9)
    cost = CostModel(target, machine, 8, PE).fc(tokens, on_pim=False)
    assert cost.seconds == pytest.approx(seconds + head + 64 * 22.03e-6 + hops, rel=1e-12)
    assert cost.gpu + cost.link == pytest.approx(cost.seconds, rel=1e-12)
    assert cost.pim == 0


def test_pim_attention_needs_one_pass_per_query(parameters: Parameters) -> None:
    target, _, machine = models(parameters)
    model = CostModel(target, machine, 8, PE)
    starts = 2 * 64 * (1e-6 + 6e-9)
    for queries in (1, 2, 9):
        cost = model.attention(16, 16 * queries, 16 * 500.0, 16 * queries * 500.0, on_pim=True, fc_on_pim=True)
        stream = 2359296 * 16 * queries * 500 / 144e12
        assert cost.seconds == pytest.approx(stream + starts, rel=1e-9)
        assert cost.pim_bytes == 2359296 * 16 * queries * 500


def test_a_part_of_the_head_that_fills_its_columns_badly_costs_whole_columns(parameters: Parameters) -> None:  # DR-15
    target, _, machine = models(parameters)
    narrow = ModelShape(**{**target.model_dump(), "hidden_size": 72 * 80, "head_size": 80})
    arguments = (16, 16, 8000.0, 8000.0)
    wide, padded = (
        CostModel(model, machine, 8, PE).attention(*arguments, on_pim=True, fc_on_pim=True) for model in (target, narrow)
    )
    assert padded.pim_bytes == wide.pim_bytes  # 80 dimensions take the columns of 128: 20 per bank, two columns of 16
    assert padded.pim_macs == wide.pim_macs * 80 / 128


def test_pe_interval_of_the_certificate_sets_the_pass(parameters: Parameters) -> None:
    target, _, machine = models(parameters)
    arguments = (16, 16, 8000.0, 8000.0)
    fast, edge, slow = (
        CostModel(target, machine, 8, OperationTiming(6, interval)).attention(*arguments, on_pim=True, fc_on_pim=True)
        for interval in (1, 9, 91)
    )
    assert fast.seconds == edge.seconds  # hidden behind the column period of 9.1 ns
    starts = 2 * 64 * (1e-6 + 6e-9)
    assert (slow.seconds - starts) / (fast.seconds - starts) == pytest.approx(91 / 9.1022, rel=1e-4)


def test_pe_latency_of_the_certificate_counts(parameters: Parameters) -> None:
    target, _, machine = models(parameters)
    short, long = (
        CostModel(target, machine, 8, OperationTiming(latency, 1)).fc(4, on_pim=True).seconds for latency in (0, 1000)
    )
    assert long - short == pytest.approx(6 * 64 * 1e-6, rel=1e-6)


def test_column_reuse_saves_passes_until_the_pe_limits(parameters: Parameters) -> None:
    target, _, machine = models(parameters)
    seconds = {
        reuse: CostModel(target, machine.model_copy(update={"pim_column_reuse": reuse}), 8, OperationTiming(0, 1))
        ._passes_seconds(16)
        for reuse in (1, 8, 16)
    }
    assert seconds[1] == pytest.approx(16 * 9.1022e-9, rel=1e-4)
    assert seconds[8] == pytest.approx(2 * 9.1022e-9, rel=1e-4)
    assert seconds[16] == pytest.approx(16e-9)


def test_gpu_attention_is_amortised_over_queries(parameters: Parameters) -> None:
    target, _, machine = models(parameters)
    model = CostModel(target, machine, 8, PE)
    one = model.attention(128, 128, 64000.0, 64000.0, on_pim=False)
    nine = model.attention(128, 1152, 64000.0, 9 * 64000.0, on_pim=False)
    assert one.seconds == nine.seconds
    blocks = 9 * 128
    occupancy = blocks / (108 * ceil(blocks / 108))
    assert one.seconds == pytest.approx(2359296 * 64000 / (8 * 2e12 * 0.85 * occupancy), rel=1e-12)


@pytest.mark.parametrize("name", ["opt-66b", "opt-1-3b", "opt-175b", "llama-3-1-70b", "llama-3-2-1b"])
@pytest.mark.parametrize("on_pim", [True, False])
def test_time_grows_with_context_and_batch(parameters: Parameters, name: str, on_pim: bool) -> None:  # DR-07
    model = CostModel(parameters.models[name], parameters.machine, 8, PE)
    before = 0.0
    for context in (1, 128, 2048, 131072):
        seconds = model.attention(8, 8, 8.0 * context, 8.0 * context, on_pim=on_pim).seconds
        assert seconds >= before
        assert seconds > 0
        before = seconds
    fc = [model.fc(tokens, on_pim=on_pim).seconds for tokens in range(1, 200)]
    assert fc == sorted(fc)


def test_grouped_queries_cost_passes(parameters: Parameters) -> None:
    model = CostModel(parameters.models["llama-3-1-70b"], parameters.machine, 8, PE)
    cost = model.attention(4, 4, 4000.0, 4000.0, on_pim=True)
    assert cost.pim_bytes == 327680 * 4000 * 8


def test_combine_takes_the_slowest_and_the_mean() -> None:
    cost = combine([Cost(2.0, gpu=2.0, gpu_bytes=10.0), Cost(1.0, gpu=1.0, gpu_bytes=5.0)])
    assert (cost.seconds, cost.gpu, cost.gpu_bytes) == (2.0, 1.5, 15.0)


def test_memory_is_checked(parameters: Parameters) -> None:  # DR-18
    machine = parameters.machine
    single = machine.model_copy(update={"devices": 1})
    for name in ("opt-175b", "opt-66b"):
        with pytest.raises(UserError, match=r"does not fit: \d+\.\d GB needed per device, 80\.0 GB available"):
            check_memory(parameters.models[name], None, single, 1, 1, 128)
    check_memory(parameters.models["opt-6-7b"], None, single, 1, 1, 128)
    target, draft = parameters.pair("opt-66b")
    check_memory(target, draft, machine, 8, 128, 1024)
    big, small = parameters.pair("opt-175b")
    with pytest.raises(UserError, match="does not fit"):  # 706 GB, paper.md's own sum
        check_memory(big, small, machine, 1, 128, 512)


def test_searched_mapping_is_the_fastest_of_all(parameters: Parameters, timing: Timing) -> None:
    target, draft, machine = models(parameters)
    plan, costs = make_plan(
        parameters.system("PIM-SD"), target, draft, machine, PE, batch=16, length=1024, draft_length=8, placement=8
    )

    def seconds(draft_fc: bool, draft_attention: bool, target_fc: bool, target_attention: bool) -> float:
        step = costs.draft_step([2] * 8, [2048.0] * 8, fc_on_pim=[draft_fc] * 8, attention_on_pim=draft_attention)
        verify = costs.verify(144, 16, 16384.0, 9 * 16384.0, fc_on_pim=target_fc, attention_on_pim=target_attention)
        return 8 * step.seconds + verify.seconds

    chosen = seconds(
        plan.draft_fc_on_pim, plan.draft_attention_on_pim, plan.target_fc_on_pim, plan.target_attention_on_pim
    )
    every = [seconds(*[bool(bits >> bit & 1) for bit in range(4)]) for bits in range(16)]
    assert chosen == min(every) < max(every)


def test_thresholds_stand_where_the_costs_cross(parameters: Parameters) -> None:
    target, draft, machine = models(parameters)
    plan, costs = make_plan(
        parameters.system("SADDLE"), target, draft, machine, PE, batch=64, length=1024, draft_length=8, placement=8
    )
    thresholds = plan.thresholds
    assert isinstance(thresholds, Thresholds)
    mapping = OperatorMapping()
    for count in range(1, 40):
        times = [
            costs.draft_step([count], [count * 512.0], fc_on_pim=[side], attention_on_pim=True).seconds
            for side in (False, True)
        ]
        side = mapping.on_pim(
            Operator.DLM_FC, count, 1, dlm_fc_threshold=thresholds.dlm_fc,
            tlm_attention_threshold=thresholds.tlm_attention, kv_group=1,
        )
        assert side == (times[1] < times[0])
    assert 9 <= thresholds.tlm_attention / 16 <= 14  # 9.0 = 18 TB/s over 2 TB/s, plus GPU efficiency and overheads

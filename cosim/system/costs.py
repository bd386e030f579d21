"""Time, occupation and energy counts of the operators on GPU and PIM.

Time is in seconds, work in bytes and MACs of the whole machine.  ``gpu``, ``pim`` and ``link`` of a :class:`Cost` are
the seconds for which an average device keeps that resource occupied.

* FC on the GPU: roofline per weight matrix with rows padded to tiles, plus an overhead per layer.
* Attention on the GPU: roofline with the occupancy of the streaming multiprocessors.
* FC and attention on PIM: columns x passes x time of a pass.  A pass serves up to ``pim_column_reuse`` query vectors
  and lasts max(column period, vectors x interval of the PE / clock); with a reuse of 1, q query vectors need q passes.
  Interval and latency of the PE come from its certificate.
* All-reduce twice per layer over the devices that share a layer.

Left out: DRAM refresh and row activation inside the column period, imbalance of heads over stacks, GPU and PIM that
disturb each other in one stack.  Source: scale-snu/attacc_simulator (GPU efficiencies, all-reduce), paper sections
IV-A, IV-B, V-A; composition is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from cosim.certificates import OperationTiming
from cosim.system.llm import BYTES, ModelShape
from cosim.system.parameters import Machine
from golden_model.pim.kv_mapping import KvMapping

__all__ = ["NO_COST", "Cost", "CostModel", "combine"]


class Cost(NamedTuple):
    """Time, mean occupation per device, and counts of one step."""

    seconds: float = 0.0
    gpu: float = 0.0
    pim: float = 0.0
    link: float = 0.0
    gpu_bytes: float = 0.0
    pim_bytes: float = 0.0
    link_bytes: float = 0.0
    gpu_macs: float = 0.0
    pim_macs: float = 0.0

    def then(self, other: Cost) -> Cost:
        """Return the cost of both, one after the other."""
        return Cost._make([a + b for a, b in zip(self, other, strict=True)])


NO_COST = Cost()


def combine(parts: Sequence[Cost]) -> Cost:
    """Return the cost of groups of devices that work side by side.

    Time is that of the slowest group, occupation the mean over groups, counts add up.
    """
    if len(parts) == 1:
        return parts[0]
    columns = list(zip(*parts, strict=True))
    groups = len(parts)
    mean = [sum(column) / groups for column in columns[1:4]]
    return Cost(max(columns[0]), *mean, *[sum(column) for column in columns[4:]])


class CostModel:
    """Costs of one model whose layers are shared by ``tensor_parallel`` devices.

    Parameters
    ----------
    model
        The language model.
    machine
        The machine.
    tensor_parallel
        Devices that share each layer.
    processing_element
        Measured timing of one dot-product step of the PE.
    """

    def __init__(
        self, model: ModelShape, machine: Machine, tensor_parallel: int, processing_element: OperationTiming
    ) -> None:
        self.model = model
        self.machine = machine
        self.devices = tensor_parallel
        self._fc_gpu = lru_cache(maxsize=None)(self._compute_fc_gpu)
        self._fc_pim = lru_cache(maxsize=None)(self._compute_fc_pim)
        self._pim_link = lru_cache(maxsize=None)(self._compute_pim_link)
        clock = machine.pim_clock_ghz * 1e9
        self._pe_interval = processing_element.interval_cycles / clock
        self._pe_latency = processing_element.latency_cycles / clock
        self._peak = machine.gpu_peak_tflop_s * 1e12 * machine.gpu_compute_efficiency
        self._bandwidth = machine.gpu_bandwidth_tb_s * 1e12 * machine.gpu_bandwidth_efficiency
        self._column_period = machine.column_period_ns * 1e-9
        banks = machine.pim_banks_per_stack * machine.pim_stacks_per_device * tensor_parallel
        self._bytes_per_column = machine.pim_column_bytes * banks
        # Banks read whole columns, and a part of the head dimension that fills its last one badly costs as much.
        stored = KvMapping(head_dim=model.head_size, capacity=1).stored_per_token
        self._stored_kv_bytes = model.kv_bytes_per_token * stored / model.head_size

    # FC operators

    def fc(self, tokens: int, *, on_pim: bool) -> Cost:
        """All FC operators of one forward pass over ``tokens`` positions, all-reduce included."""
        if tokens == 0:
            return NO_COST
        return self._fc_pim(tokens) if on_pim else self._fc_gpu(tokens)

    def _compute_fc_gpu(self, tokens: int) -> Cost:
        model, machine, devices = self.model, self.machine, self.devices
        rows = ceil(tokens / machine.gpu_tile_rows) * machine.gpu_tile_rows
        matrices = [(model.layers, *matrix) for matrix in model.layer_matrices]
        matrices.append((1, model.hidden_size, model.vocabulary))
        seconds = model.layers * machine.gpu_layer_overhead_us * 1e-6
        moved = 0.0
        for count, inputs, outputs in matrices:
            share = BYTES * (inputs * outputs / devices + tokens * (inputs + outputs / devices))
            compute = 2 * rows * inputs * outputs / (devices * self._peak)
            seconds += count * max(compute, share / self._bandwidth)
            moved += count * share * devices
        cost = Cost(seconds, gpu=seconds, gpu_bytes=moved, gpu_macs=float(tokens * model.fc_weights))
        return cost.then(self._all_reduce(tokens))

    def _compute_fc_pim(self, tokens: int) -> Cost:
        model, machine = self.model, self.machine
        operators = (len(model.layer_matrices) + 2) * model.layers  # two norms per layer on the SFU
        columns = BYTES * model.fc_weights / self._bytes_per_column
        seconds = columns * self._passes_seconds(tokens) + operators * self._pim_start
        vectors = BYTES * tokens * model.layers * sum(inputs + outputs for inputs, outputs in model.layer_matrices)
        seconds_vectors = vectors / self.devices / (machine.internal_link_gb_s * 1e9)
        reads = ceil(tokens / machine.pim_column_reuse) * BYTES * model.fc_weights
        cost = Cost(
            seconds + seconds_vectors, pim=seconds + seconds_vectors, pim_bytes=float(reads), link_bytes=float(vectors),
            pim_macs=float(tokens * model.fc_weights),
        )
        return cost.then(self._all_reduce(tokens))

    def _all_reduce(self, tokens: int) -> Cost:
        devices, machine = self.devices, self.machine
        if devices == 1:
            return NO_COST
        size = BYTES * tokens * self.model.hidden_size
        hop = machine.all_reduce_hop_us * 1e-6 + machine.all_reduce_hop_ns_per_byte * 1e-9 * size / devices
        hop = max(hop, size / devices / (machine.device_link_gb_s * 1e9))
        count = 2 * self.model.layers
        seconds = count * (devices - 1) * hop
        return Cost(seconds, link=seconds, link_bytes=float(count * 2 * (devices - 1) * size))

    # Attention operators

    def attention(
        self, requests: int, query_tokens: int, context_sum: float, query_context_sum: float, *, on_pim: bool,
        fc_on_pim: bool = False,
    ) -> Cost:
        """Attention of one forward pass.

        Parameters
        ----------
        requests
            Requests with at least one query.
        query_tokens
            Queries of all requests.
        context_sum
            Sum over requests of the tokens in their KV cache.
        query_context_sum
            Sum over requests of queries x tokens.
        on_pim
            Side.
        fc_on_pim
            Whether the neighbouring FC operators run on PIM too, so that no vectors travel.
        """
        if requests == 0:
            return NO_COST
        model = self.model
        macs = 2.0 * model.layers * model.attention_width * query_context_sum
        kv_bytes = model.kv_bytes_per_token
        if not on_pim:
            machine = self.machine
            blocks = max(1.0, model.kv_heads / self.devices * requests)
            waves = ceil(blocks / machine.gpu_processors)
            occupancy = max(machine.gpu_min_occupancy, blocks / (machine.gpu_processors * waves))
            bandwidth = self._bandwidth * machine.gpu_attention_efficiency * occupancy
            moved = kv_bytes * context_sum
            seconds = max(moved / (self.devices * bandwidth), 2 * macs / (self.devices * self._peak))
            return Cost(seconds, gpu=seconds, gpu_bytes=moved, gpu_macs=macs)
        # Queries of one KV head: group x queries of the request.
        vectors = model.kv_group * query_context_sum
        reuse = self.machine.pim_column_reuse
        if reuse == 1:
            passes, seconds = vectors, vectors * self._passes_seconds(1)
        else:  # all requests with the mean number of queries
            mean = max(1, round(vectors / context_sum))
            passes, seconds = context_sum * ceil(mean / reuse), context_sum * self._passes_seconds(mean)
        stored = self._stored_kv_bytes
        seconds = seconds * stored / self._bytes_per_column + 2 * model.layers * self._pim_start
        cost = Cost(seconds, pim=seconds, pim_bytes=stored * passes, pim_macs=macs)
        return cost if fc_on_pim else cost.then(self._pim_link(query_tokens))

    def _compute_pim_link(self, tokens: int) -> Cost:
        """Q, K, V to PIM and the result back, once per layer."""
        model, machine = self.model, self.machine
        width = 2 * model.attention_width + 2 * model.kv_heads * model.head_size
        moved = float(BYTES * model.layers * tokens * width)
        seconds = moved / self.devices / (machine.internal_link_gb_s * 1e9)
        seconds += 2 * model.layers * machine.pim_operator_overhead_us * 1e-6
        return Cost(seconds, link=seconds, link_bytes=moved)

    # PIM passes

    @property
    def _pim_start(self) -> float:
        return self.machine.pim_operator_overhead_us * 1e-6 + self._pe_latency

    def _passes_seconds(self, vectors: int) -> float:
        """Time of one column of every bank that serves ``vectors`` query vectors, all its passes together."""
        reuse = self.machine.pim_column_reuse
        full, rest = divmod(vectors, reuse)
        seconds = full * max(self._column_period, reuse * self._pe_interval)
        return seconds + (max(self._column_period, rest * self._pe_interval) if rest else 0.0)

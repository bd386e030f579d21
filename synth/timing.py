"""Static timing of a mapped netlist: the longest paths, their end points by name, their cells.

Method: arrival times of both edges through the Liberty's delay tables in topological order, the worst slew of all inputs
of a cell, no wires, an ideal clock.  Inputs come from the library's flip-flop, outputs go to one, so that every path is
one from register to register: clock-to-Q, logic, setup.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from synth.liberty import Arc, Liberty, LibertyError, Pin
from synth.netlist import Netlist

__all__ = ["Path", "Step", "longest_paths"]

_EDGES = ("rise", "fall")
_FLIPPED = {"rise": "fall", "fall": "rise"}
_CLOCKED = ("rising_edge", "falling_edge")
_SETUP = ("setup_rising", "setup_falling")
Ports = Mapping[str, Sequence[int | str]]


@dataclass(frozen=True)
class Step:
    """One cell on a path; ``arrival`` in ns after the clock edge, ``net`` a name if the net has one."""

    cell: str
    edge: str
    arrival: float
    fanout: int
    net: str


@dataclass(frozen=True)
class Path:
    """The longest path to one end: ``delay`` in ns includes clock-to-Q and setup."""

    start: str
    end: str
    kind: str
    delay: float
    setup: float
    steps: tuple[Step, ...]

    @property
    def levels(self) -> int:
        """Cells between the registers, buffers and inverters included."""
        return len(self.steps) - 1


@dataclass
class _Arrival:
    time: float
    slew: float
    before: tuple[int, str] | None  # net and edge that it came from
    cell: str


@dataclass
class _Graph:
    """Nets (bit numbers) with drivers, sinks and load."""

    load: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    fanout: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    ends: list[tuple[int, str, str, Arc | None]] = field(default_factory=list)  # net, name, kind, setup arc
    starts: list[tuple[int, str, Arc]] = field(default_factory=list)  # net, kind, clock arc


def longest_paths(netlist: Netlist, library: Liberty) -> list[Path]:
    """Return the longest path to each register (all its bits as one) and output port, the longest of all first.

    Raises
    ------
    LibertyError
        For a combinational loop, or a cell that the library does not have.
    """
    flip_flop = library.flip_flop
    clock_arc = next(arc for pin in flip_flop.outputs for arc in pin.arcs if arc.kind in _CLOCKED)
    data_pin, setup_arc = next((pin, arc) for pin in flip_flop.inputs for arc in pin.arcs if arc.kind in _SETUP)
    graph = _Graph()
    forward: dict[int, list[tuple[str, int, list[Arc]]]] = defaultdict(list)
    waiting: dict[int, int] = {}
    gates: dict[int, tuple[str, list[tuple[int, Arc]]]] = {}
    for name, kind, ports in netlist.cells:
        if kind in netlist.memory_types:
            _memory(graph, netlist, name, ports, clock_arc, setup_arc, data_pin)
            continue
        if kind not in library.cells:
            raise LibertyError(f"cell {kind} is not in Liberty {library.name}")
        cell = library.cells[kind]
        for pin in cell.inputs:
            for bit in ports.get(pin.name, ()):
                if isinstance(bit, int):
                    graph.load[bit] += pin.capacitance
                    graph.fanout[bit] += 1
                    _ends_of(graph, netlist, pin, bit, cell.outputs, ports)
        for pin in cell.outputs:
            net = _bit(ports, pin.name)
            if net is None:
                continue
            clocked = [arc for arc in pin.arcs if arc.kind in _CLOCKED]
            if cell.sequential:
                graph.starts += [(net, "register", arc) for arc in clocked[:1]]
                continue
            sources = ((_bit(ports, arc.related), arc) for arc in pin.arcs if arc.kind.startswith("combinational"))
            gates[net] = (kind, [(source, arc) for source, arc in sources if source is not None])
    for _name, bits in netlist.inputs:
        graph.starts += [(bit, "input", clock_arc) for bit in bits if isinstance(bit, int)]
    for name, bits in netlist.outputs:
        for bit in bits:
            if isinstance(bit, int):
                graph.load[bit] += data_pin.capacitance
                graph.fanout[bit] += 1
                graph.ends.append((bit, name, "output", setup_arc))
    driven = {net for net, _, _ in graph.starts} | set(gates)
    for net, (kind, arcs) in gates.items():
        needed = {source for source, _ in arcs} & driven
        waiting[net] = len(needed)
        for source in needed:
            forward[source].append((kind, net, [arc for s, arc in arcs if s == source]))
    arrivals = _propagate(graph, forward, waiting, library, start_cell=flip_flop.name)
    stuck = [netlist.name_of(net) for net, count in waiting.items() if count]
    if stuck:
        raise LibertyError(f"combinational loop near {min(stuck)}")
    return _collect(graph, netlist, arrivals, library)


def _bit(ports: Ports, pin: str) -> int | None:
    """Return the net at a pin of one bit; None for a constant or an open pin."""
    bits = ports.get(pin)
    return bits[0] if bits and isinstance(bits[0], int) else None


def _memory(
    graph: _Graph, netlist: Netlist, name: str, ports: Ports, clock_arc: Arc, setup_arc: Arc, pin: Pin
) -> None:
    for port, bits in ports.items():
        for bit in bits:
            if not isinstance(bit, int):
                continue
            if port.endswith("DATA") and port.startswith("RD"):
                graph.starts.append((bit, "memory", clock_arc))
            elif "CLK" not in port:
                graph.load[bit] += pin.capacitance
                graph.fanout[bit] += 1
                graph.ends.append((bit, netlist.plain(name), "memory", setup_arc))


def _ends_of(graph: _Graph, netlist: Netlist, pin: Pin, bit: int, outputs: list[Pin], ports: Ports) -> None:
    for arc in pin.arcs:
        if arc.kind in _SETUP:
            target = next((_bit(ports, output.name) for output in outputs), None)
            graph.ends.append((bit, netlist.register_of(target), "register", arc))
            return


def _propagate(
    graph: _Graph,
    forward: dict[int, list[tuple[str, int, list[Arc]]]],
    waiting: dict[int, int],
    library: Liberty,
    *,
    start_cell: str,
) -> dict[tuple[int, str], _Arrival]:
    arrivals: dict[tuple[int, str], _Arrival] = {}
    ready: deque[int] = deque()
    for net, _kind, arc in graph.starts:
        for edge in _EDGES:
            delay, slew = _delay(arc, edge, library.fo4_slew, graph.load[net])
            arrivals[net, edge] = _Arrival(delay, slew, None, start_cell)
        ready.append(net)
    ready.extend(net for net, count in waiting.items() if not count)  # constant cells: no arrival
    while ready:
        source = ready.popleft()
        for kind, net, arcs in forward.get(source, ()):
            load = graph.load[net]
            for arc in arcs:
                for edge in _EDGES:
                    for start in _causes(arc.sense, edge):
                        came = arrivals.get((source, start))
                        if came is None:
                            continue
                        delay, slew = _delay(arc, edge, came.slew, load)
                        old = arrivals.get((net, edge))
                        if old is None:
                            arrivals[net, edge] = _Arrival(came.time + delay, slew, (source, start), kind)
                            continue
                        old.slew = max(old.slew, slew)
                        if came.time + delay > old.time:
                            old.time, old.before, old.cell = came.time + delay, (source, start), kind
            waiting[net] -= 1
            if not waiting[net]:
                ready.append(net)
    return arrivals


def _causes(sense: str, edge: str) -> tuple[str, ...]:
    if sense == "positive_unate":
        return (edge,)
    return (_FLIPPED[edge],) if sense == "negative_unate" else _EDGES


def _delay(arc: Arc, edge: str, slew: float, load: float) -> tuple[float, float]:
    delay, transition = arc.tables.get(f"cell_{edge}"), arc.tables.get(f"{edge}_transition")
    if delay is None or transition is None:
        raise LibertyError(f"Liberty: an arc from {arc.related} has no {edge} tables")
    return delay.at(slew, load), max(transition.at(slew, load), 0.0)


def _collect(graph: _Graph, netlist: Netlist, arrivals: dict[tuple[int, str], _Arrival], library: Liberty) -> list[Path]:
    kinds = {net: kind for net, kind, _ in graph.starts}
    worst: dict[tuple[str, str], tuple[float, float, int, str]] = {}
    for net, name, kind, arc in graph.ends:
        for edge in _EDGES:
            came = arrivals.get((net, edge))
            if came is None:
                continue
            table = arc.tables.get(f"{edge}_constraint") if arc else None
            setup = table.at(library.fo4_slew, came.slew) if table else 0.0
            if came.time + setup > worst.get((name, kind), (0.0,))[0]:
                worst[name, kind] = (came.time + setup, setup, net, edge)
    paths = []
    for (name, kind), (delay, setup, net, edge) in worst.items():
        steps: list[Step] = []
        at: tuple[int, str] | None = (net, edge)
        while at is not None:
            came = arrivals[at]
            steps.append(Step(came.cell, at[1], came.time, graph.fanout[at[0]], netlist.name_of(at[0], hidden="")))
            first, at = at[0], came.before
        steps.reverse()
        start = netlist.register_of(first)
        paths.append(Path(start, name, f"{kinds[first]} to {kind}", delay, setup, tuple(steps)))
    return sorted(paths, key=lambda path: (-path.delay, path.end))

"""A library small enough to compute by hand: every delay is a constant plus load or slew times a constant.

Slews at outputs are 20 ps, from a pin B 60 ps.
"""

from __future__ import annotations

__all__ = ["LIBERTY"]


def _table(kind: str, low: float, high: float) -> str:
    """Two loads (0 and 10 fF), two slews (0 and 100 ps): it grows by ``high - low`` with the load, by 10 with the slew."""
    return f'{kind}(t) {{ values ("{low}, {low + 10}", "{high}, {high + 10}"); }}'


def _delays(rise: float, fall: float, slew: float = 20) -> str:
    return " ".join(
        [_table("cell_rise", rise, rise + 100), _table("cell_fall", fall, fall + 100),
         f'rise_transition(flat) {{ values ("{slew}"); }}', f'fall_transition(flat) {{ values ("{slew}"); }}']
    )  # fmt: skip


def _gate(name: str, area: float, function: str, inputs: str, sense: str, rise: float, fall: float) -> str:
    pins = "".join(f"pin({pin}) {{ direction : input; capacitance : 0.2; }}" for pin in inputs)
    arcs = "".join(
        f'timing() {{ related_pin : "{pin}"; timing_sense : {sense}; {_delays(rise, fall, 60 if pin == "B" else 20)} }}'
        for pin in inputs
    )
    return f'cell ({name}) {{ area : {area}; {pins} pin(Y) {{ direction : output; function : "{function}"; {arcs} }} }}\n'


LIBERTY = (
    """/* times in ps, loads in 10 fF */
library (tiny) {
  time_unit : "1ps";
  capacitive_load_unit (10, ff);
  lu_table_template (t) { variable_1 : total_output_net_capacitance; variable_2 : input_net_transition;
    index_1 ("0, 1"); index_2 ("0, 100"); }
  lu_table_template (flat) { variable_1 : total_output_net_capacitance; index_1 ("0"); }
  lu_table_template (s) { variable_1 : related_pin_transition; variable_2 : constrained_pin_transition;
    index_1 ("0, 100"); index_2 ("0, 100"); }
"""
    + _gate("INV", 2, "!A", "A", "negative_unate", 30, 10)
    + _gate("NAND2", 3, "!(A B)", "AB", "negative_unate", 40, 20)
    + _gate("XOR2", 9, "A^B", "AB", "non_unate", 50, 50)
    + 'cell (DFF) { area : 12; ff (IQ, IQN) { next_state : "D"; clocked_on : "C"; }\n'
    "  pin(C) { direction : input; clock : true; capacitance : 0.1; }\n"
    "  pin(D) { direction : input; capacitance : 0.4; timing() { related_pin : \"C\"; timing_type : setup_rising;\n"
    '    rise_constraint(s) { values ("40, 60", "140, 160"); } fall_constraint(s) { values ("50, 70", "150, 170"); } } }\n'
    '  pin(Q) { direction : output; function : "IQ"; timing() { related_pin : "C"; timing_type : rising_edge; '
    + _delays(70, 60)
    + " } } }\n}\n"
)

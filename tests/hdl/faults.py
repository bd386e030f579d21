"""Faults planted in the RTL's source: the regression must fail on each and name the first wrong transaction.

Each row: block, what is broken, text in ``hdl/<area>/<stem>.py``, text instead.  The old text must occur exactly once,
so that a row cannot rot silently.
"""

from __future__ import annotations

FAULTS: tuple[tuple[str, str, str, str], ...] = (
    ("stop_test", "swapped comparison at tau", "above.eq(rounded >= tau_r)", "above.eq(rounded > tau_r)"),
    ("stop_test", "ties rounded up instead of to even", "up = half & (rest | kept[0])", "up = half"),
    ("stop_test", "one rounding bit dropped", "fixed[: shift - 1].any()", "fixed[: shift - 2].any()"),
    ("stop_test", "tau not held with its token", "rounded >= tau_r", "rounded >= self.tau"),
    ("stop_test", "missing hold under back-pressure", "with m.If(load_decision):", "with m.If(valids[0]):"),
    ("operator_mapping", "swapped comparison", "intensity_r < limit_r", "intensity_r <= limit_r"),
    ("operator_mapping", "product cut by one bit", "intensity_r = Signal(self.token_bits + self.group_bits +",
     "intensity_r = Signal(self.token_bits + self.group_bits - 1 +"),
    ("operator_mapping", "wrong shift", "query.tokens * group << golden.FRACTION_BITS", "query.tokens * group << 3"),
    ("operator_mapping", "missing hold under back-pressure", "with m.If(load_answer):", "with m.If(valids[0]):"),
)  # fmt: skip

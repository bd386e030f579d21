"""From components to Verilog, and later to area, timing and proofs."""

"""Bit-exact behaviour of every block, on Python integers; imports nothing of hdl, cosim or synth."""

"""Synthesizable RTL of every block, as Amaranth components; imports golden_model for layouts and checks only."""

"""Benches of the PIM blocks."""

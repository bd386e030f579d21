"""Benches of the manager blocks."""

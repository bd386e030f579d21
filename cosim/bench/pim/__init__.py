"""Benches of the processing-in-memory blocks."""

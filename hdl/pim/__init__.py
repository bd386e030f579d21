"""RTL of the processing-in-memory blocks."""

"""Golden models of the processing-in-memory blocks."""

"""RTL of the arithmetic blocks; one component per file."""

"""RTL of the manager blocks; one component per file."""

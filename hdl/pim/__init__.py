"""RTL of the PIM blocks; one component per file."""

"""Golden models of the PIM blocks; one file per block, same stem as its RTL and bench."""

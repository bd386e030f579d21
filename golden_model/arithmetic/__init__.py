"""Golden models of the arithmetic blocks; one file per block, same stem as its RTL and bench."""

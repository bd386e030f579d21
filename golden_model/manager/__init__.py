"""Golden models of the manager blocks; one file per block, same stem as its RTL and bench."""

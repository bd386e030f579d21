"""Everything that runs: regressions against the golden models, certificates, the system model, the command line."""

"""System-level model: serving with a GPU + PIM machine, decided by the golden Manager, timed by certificates."""

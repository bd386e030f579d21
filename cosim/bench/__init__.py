"""cocotb benches, one per block; they run inside a simulator and are not collected by pytest."""

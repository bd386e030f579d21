"""The only user of cocotb's interfaces outside the benches: builds, runs, stream drivers, measurements."""

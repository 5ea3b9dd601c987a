"""One run: stages, round loop, event loop, simulated time, validation, checkpoint protocol, `simulate`."""

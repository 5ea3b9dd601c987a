"""One run: stages, round loop, event loop, virtual time, validation, checkpoint protocol, `simulate`."""

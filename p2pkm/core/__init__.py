"""Types shared by all packages: device batch, messages, method protocol, specs, errors."""

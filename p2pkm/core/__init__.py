"""Types that everybody shares: device batch, messages, method protocol, specs, errors, random streams."""

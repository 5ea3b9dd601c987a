"""The version, in one place: the package, `--version` and every manifest take it from here."""

__version__ = "0.1.0"

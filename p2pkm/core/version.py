"""The version, in one place: the package, `--version` and every manifest take it from here."""

__version__ = "0.2.0.dev0"

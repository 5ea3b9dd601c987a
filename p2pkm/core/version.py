"""Version of the package, also of `--version` and of manifests."""

__version__ = "0.2.0.dev0"

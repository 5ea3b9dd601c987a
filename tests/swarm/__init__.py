"""Random experiments over everything that can be combined, and what must hold of each; see README.md of this folder."""

"""How tables travel further than one hop."""

"""Run folders: save and load, checkpoint files, checksums, status."""

"""Run folders on disk: results, checkpoints, checksums, locks and status."""

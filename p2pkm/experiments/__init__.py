"""From a configuration to runs: seeds, comparisons, studies, plan, resume, verify."""

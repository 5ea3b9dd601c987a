"""Many runs and what they say together: seeds, studies, comparisons, sweeps of the coupling."""

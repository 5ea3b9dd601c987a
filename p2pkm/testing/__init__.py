"""Laws of methods, transforms and metrics, for their authors and for the tests of p2pkm.

`check_method`, `check_transform` and `check_metric` apply all laws to one object. `p2pkm.testing.laws` has the laws,
`p2pkm.testing.recording` the record of all messages of a run.
"""

"""What others wrote, or plain enumeration, as a judge of whole methods; oracles of one function stand beside its tests.

Here scikit-learn judges all scores of runs and networkx all measures of graphs that it has. scikit-learn also judges
the formulas of scores (tests/metrics), the indices of k (tests/methods/building_blocks/test_number_of_clusters.py),
Lloyd on augmented points (tests/methods/peer/test_gtvmin_properties.py) and the estimator; networkx drawn and large
graphs (tests/topologies); dp-accounting the accountant (tests/privacy).
"""

"""What others wrote, or plain enumeration, as a judge of whole methods; oracles of one function stand beside its tests.

scikit-learn judges the scores (tests/metrics), Lloyd on augmented points (tests/methods/peer/test_gtvmin_properties.py)
and the estimator, networkx the measures of graphs (tests/topologies), dp-accounting the accountant (tests/privacy).
"""

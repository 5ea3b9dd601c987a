"""Deep clustering: networks that devices train on the labels of their own clustering; JAX is imported when one runs."""

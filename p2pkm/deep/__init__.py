"""Deep clustering: devices train networks on cluster labels of their images. JAX is imported when a method runs."""

"""Tree Lloyd, a family: k-means steps along a spanning tree, on changing points and on trees regrown under faults."""

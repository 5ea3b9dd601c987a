import networkx as nx


def double_ring(n: int, *, stride: int = 2) -> nx.Graph:
    """Link every device with the next one and with that `stride` further."""
    return nx.circulant_graph(n, [1, stride])

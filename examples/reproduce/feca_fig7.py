"""Xu et al., figure 7: the centroids of all methods among the points of S2 and S3, Dirichlet(0.3).

The paper shows one run of each method. We do what feca_fig4.py does.
"""

import feca_fig4

if __name__ == "__main__":
    feca_fig4.tell((2, 3), "Figure 7")

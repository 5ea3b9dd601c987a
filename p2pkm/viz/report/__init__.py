"""Reports of runs, comparisons and studies, each as one self-contained HTML file."""

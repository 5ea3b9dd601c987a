"""Your own points from a CSV file with a column that says which device has which row.

Covers
    Reading a file, devices from a column, scaling by messages, saving a run and loading it, predicting new points.

Scenario
    Six sensors measured temperature and humidity. The file stands for yours.

The command line does the same: ``python -m p2pkm --data readings.csv -k 3 --scale standard --graph path``. The script
writes your_own_csv.png.
"""

# %% A file such as yours: two columns of measurements, one that names the sensor
from pathlib import Path

import numpy as np

import p2pkm
import topologies
from p2pkm.cli.main import main

rng = np.random.default_rng(0)
sensor = rng.integers(0, 6, 300)
weather = rng.choice(3, 300, p=[0.5, 0.3, 0.2])
temperature = np.array([5.0, 18.0, 27.0])[weather] + rng.normal(0, 1.5, 300)
humidity = np.array([80.0, 55.0, 40.0])[weather] + rng.normal(0, 6.0, 300)
table = np.column_stack((temperature, humidity, sensor))
np.savetxt("readings.csv", table, delimiter=",", header="temperature,humidity,device", comments="", fmt="%.3f,%.3f,%d")

# %% On the command line: a column called `device` is found by its name
code = main(["--data", "readings.csv", "-k", "3", "--scale", "standard", "--graph", "path", "--out", "readings", "-q"])
print("exit code", code, "and the folder holds", ", ".join(sorted(path.name for path in Path("readings").iterdir())))

# %% Load the run folder, predict, and draw points and centroids
result = p2pkm.load("readings")
print("a warm dry day belongs to cluster", result.predict([[26.0, 38.0]])[0])
p2pkm.viz.plot_points(result).savefig("your_own_csv.png")

# %% In a script: the same points, without scaling
shards = p2pkm.Shards.deal(table[:, :2], sensor)
print(p2pkm.partition_report(shards))
unscaled = p2pkm.simulate(p2pkm.GTVMin(3), topologies.path(6), shards)

# %% What to see: scaling changes what counts as near; both agree with central k-means on their own scale
for name, one in (("scaled", result), ("unscaled", unscaled)):
    print(f"{name:8}: cost / central {one.summary['ratio_mean']:.4f}, {one.summary['centroid_sets']} centroid sets")

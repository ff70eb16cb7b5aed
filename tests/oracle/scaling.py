"""DeepVM's logistic curve: our fit and its standard errors against scipy.optimize.curve_fit.

Both minimise the same squares; ours has a very wide prior besides, so the tolerance is 1% of a value and 5% of an error.
"""
import csv
import json
import subprocess
import sys

import numpy as np
from scipy.optimize import curve_fit

tidemill, root = sys.argv[1:3]
bad = 0
for name in ("g3s", "g4dn", "g5"):
    path = f"{root}/data/deepvm-scaling-{name}.csv"
    with open(path) as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    nodes = np.array([float(row["nodes"]) for row in rows])
    seconds = np.array([float(row["seconds"]) for row in rows])
    speedup = seconds[0] / seconds
    values, covariance = curve_fit(
        lambda n, a, b, c: c / (1 + np.exp(-a * (n - b))), nodes, speedup, p0=(0.1, 15, speedup.max()), maxfev=20000
    )
    errors = np.sqrt(np.diag(covariance))
    ours = json.loads(subprocess.run([tidemill, "predict", "--fit-scaling", path, "--json"], capture_output=True).stdout)
    for key, value, error in zip("abc", values, errors):
        if abs(ours[key]["value"] / value - 1) > 0.01 or abs(ours[key]["error"] / error - 1) > 0.05:
            print(f"{name}: {key} = {ours[key]}, scipy {value} +- {error}")
            bad += 1
sys.exit(bad > 0)

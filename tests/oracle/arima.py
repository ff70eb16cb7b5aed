"""ARIMA(1,1,0) with drift by statsmodels: the figures that the unit test test_arima compares ours with must be its own."""
import sys
import warnings

import numpy as np

try:
    from statsmodels.tsa.arima.model import ARIMA
except ImportError:
    print("statsmodels is missing: run make venv again")
    sys.exit(1)

warnings.simplefilter("ignore")
bad = 0
for line in open(sys.argv[2] + "/tests/oracle/arima_rows.txt"):
    if line.startswith("#"):
        continue
    counts, mu, phi = line.split(";")
    d = np.diff([float(c) for c in counts.split()])
    fit = ARIMA(d, order=(1, 0, 0), trend="c").fit(method_kwargs={"maxiter": 500, "pgtol": 1e-10, "factr": 10})
    if not np.allclose(fit.params[:2], [float(mu), float(phi)], atol=2e-3):
        print(f"{counts}: statsmodels says {fit.params[:2]}, the file {mu} {phi}")
        bad += 1
sys.exit(bad > 0)

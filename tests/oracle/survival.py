"""Kaplan-Meier by statsmodels on made-up lifetimes with ties and censoring: shares lost must be equal, and so must the
confidence limits, which are recomputed here from Greenwood's variance on the scale of log(-log S)."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from statsmodels.duration.survfunc import SurvfuncRight

tidemill = sys.argv[1]
rng = np.random.RandomState(5)
bad = 0
for trial in range(8):
    n = 40 + 30 * trial
    ages = np.ceil(rng.exponential(8 * 3600, n) / 600) * 600
    lost = rng.rand(n) < 0.7
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "lives.csv")
        with open(path, "w") as out:
            out.write("lifetime_s,end,gpu,zone\n")
            for age, gone in zip(ages, lost):
                out.write(f"{age},{'preempted' if gone else 'stopped'},X,z\n")
        run = subprocess.run([tidemill, "study", path, "--cap", "none", "--json"], capture_output=True)
    group = json.loads(run.stdout)["groups"][0]
    theirs = SurvfuncRight(ages, lost.astype(int))
    for row in group["revoked"]:
        at = theirs.surv_times <= row["within_h"] * 3600
        s = theirs.surv_prob[at][-1]
        width = 1.959963984540054 * theirs.surv_prob_se[at][-1] / s / abs(np.log(s))
        want = {"share": 1 - s, "low": 1 - s ** np.exp(-width), "high": 1 - s ** np.exp(width)}
        for key, value in want.items():
            if not np.isclose(row[key], value, atol=1e-9):
                print(f"trial {trial}, {row['within_h']} h: {key} is {row[key]}, statsmodels says {value}")
                bad += 1
sys.exit(bad > 0)

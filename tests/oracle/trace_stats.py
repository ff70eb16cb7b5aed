"""Statistics of a trace by NumPy, from its JSON events: mean, losses and arrivals must be what `trace stats` says."""
import json
import subprocess
import sys

import numpy as np

tidemill = sys.argv[1]
bad = 0
for name in ("hadp", "hasp", "ladp", "lasp"):
    show = json.loads(subprocess.run([tidemill, "trace", "show", name, "--json"], capture_output=True).stdout)
    stats = json.loads(subprocess.run([tidemill, "trace", "stats", name, "--json"], capture_output=True).stdout)["traces"][0]
    times = np.array([event["time_s"] for event in show["events"]] + [show["duration_s"]])
    change = np.array([event["in"] - event["out"] for event in show["events"]])
    count = np.cumsum(change)
    mean = np.sum(count * np.diff(times)) / show["duration_s"]
    after = change[1:]
    want = {
        "mean_available": mean,
        "min": count.min(),
        "max": count.max(),
        "loss_events": int((after < 0).sum()),
        "nodes_lost": int(-after[after < 0].sum()),
        "arrival_events": int((after > 0).sum()),
        "nodes_arrived": int(after[after > 0].sum()),
    }
    for key, value in want.items():
        if not np.isclose(stats[key], value, rtol=1e-12):
            print(f"{name}: {key} is {stats[key]}, NumPy says {value}")
            bad += 1
sys.exit(bad > 0)

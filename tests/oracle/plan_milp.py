"""The planner's integer programs: SciPy's milp (HiGHS) must find the same least price as CBC, to a millionth."""
import json
import subprocess
import sys

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

tidemill = sys.argv[1]
jobs = [
    ["--deadline", "24h"],
    ["--deadline", "12h", "--quota", "A10G=4,T4=8", "--cloud", "aws"],
    ["--budget", "60", "--objective", "fastest", "--quota", "V100=3,T4=5,L4=2", "--cloud", "gcp"],
    ["--max-hourly", "6", "--objective", "fastest", "--quota", "aws:spot=6", "--cloud", "aws"],
    ["--max-hourly", "9", "--objective", "fastest", "--market", "on-demand"],
    ["--deadline", "30h", "--quota", "g4dn.xlarge=3,g4dn.2xlarge=2,g5.xlarge=1", "--cloud", "aws", "--gpu", "T4,A10G"],
]


def numbers(values, missing):
    return np.array([missing if value is None else value for value in values], float)


bad = 0
for job in jobs:
    command = [tidemill, "plan", "--model", "gpt2-124m", "--samples", "5000000", "--emit", "milp", *job]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(job)}: {done.stderr.strip()}")
        bad += 1
        continue
    answer = json.loads(done.stdout)
    program = answer["program"]
    matrix = np.zeros((len(program["row_lower"]), len(program["cost"])))
    for row, column, value in program["entries"]:
        matrix[row, column] += value
    other = milp(
        numbers(program["cost"], 0),
        constraints=LinearConstraint(matrix, numbers(program["row_lower"], -np.inf), numbers(program["row_upper"], np.inf)),
        bounds=Bounds(numbers(program["lower"], -np.inf), numbers(program["upper"], np.inf)),
        integrality=numbers(program["integer"], 0),
        options={"mip_rel_gap": 1e-9},
    )
    if other.success != answer["feasible"] or (other.success and abs(other.fun - answer["objective"]) > 1e-6):
        print(f"{' '.join(job)}: CBC {answer['objective']}, HiGHS {other.fun} ({other.message})")
        bad += 1
sys.exit(bad > 0)

"""The examples, as a user starts them: `python train.py` alone and `tidemill run job.yaml`; both end with the same bits."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from cluster import ROOT, Trouble

HANG_S = 900


def copy_of(name: str, folder: Path) -> Path:
    """Examples write beside themselves, and read the project's data."""
    folder.mkdir(parents=True)
    (folder / "data").symlink_to(ROOT / "data")
    shutil.copytree(ROOT / "examples" / name, folder / "examples" / name)
    return folder / "examples" / name


def start(words, where: Path) -> str:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_") or k == "TIDEMILL_LIBRARY"}
    variables.update(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}", PYTHONPATH=str(ROOT / "python"),
                     OMP_NUM_THREADS="1", HOME=str(where), XDG_STATE_HOME=str(where / "state"))
    done = subprocess.run([str(w) for w in words], cwd=where, env=variables, capture_output=True, text=True, timeout=HANG_S)
    if done.returncode:
        raise Trouble(f"{words[0]} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def tensors(folder: Path):
    """What the example has saved."""
    files = sorted(folder.glob("*.pt"))
    if files:
        return torch.load(files[0])
    from tidemill.torch.checkpoint import read_tensors

    return read_tensors(folder / "checkpoint", "model")


def both_ways(build: Path, folder: Path, name: str) -> None:
    alone = copy_of(name, folder / "alone")
    start([sys.executable, "train.py"], alone)
    run = copy_of(name, folder / "run")
    start([build / "tidemill", "run", "-y", "--no-preemptions", "--limit", "2", "--state", folder / "state", "job.yaml"], run)
    expected, got = tensors(alone), tensors(run)
    assert sorted(expected) == sorted(got)
    for key, tensor in expected.items():
        if not torch.equal(tensor, got[key]):
            raise Trouble(f"{name}: {key} is another after tidemill run than alone")


def test_example_mlp(build, folder):
    both_ways(build, folder, "torch-mlp")


def test_example_gpt(build, folder):
    both_ways(build, folder, "torch-gpt")


def test_example_pipeline(build, folder):
    both_ways(build, folder, "torch-pipeline")


def again(build: Path, engine: str, times: int, ways: str) -> None:
    """Stopped, killed and resumed at random moments (tests/run/lifecycle.py)."""
    words = [sys.executable, ROOT / "tests/run/lifecycle.py", build / "tidemill", engine, str(times), ways]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=2 * HANG_S, check=False)
    print(done.stdout, end="")
    if done.returncode:
        raise Trouble(f"{done.stdout}\n{done.stderr}")


def test_resumed_once(build, folder):
    again(build, "torch", 1, "stop")


def test_resumed_ten_times(build, folder):
    again(build, "torch", 10, "stop,kill,stop")


def test_counts_after_kills(build, folder):
    again(build, "lines", 4, "kill,stop")


for _test in (test_example_gpt, test_example_pipeline, test_resumed_ten_times, test_counts_after_kills):
    _test.slow = True

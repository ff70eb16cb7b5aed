"""`pip install ./python` in a fresh environment: the library comes with it, or the package says what is missing."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster import ROOT, Skipped, Trouble

LOAD = "import tidemill.library as l; print(l.load()._name)"


SCRIPT = """
import torch, tidemill.torch
job = tidemill.torch.init(steps=6, batch=8, micro_batch=2, seed=1)
model = torch.nn.Linear(4, 2)
job.attach(model, torch.optim.SGD(model.parameters(), 0.1))
print("hello from the script")
job.after_step(lambda step, loss: print(f"step {step} loss {loss}"))
data = [(torch.randn(4, generator=torch.Generator().manual_seed(i)), i % 2) for i in range(32)]
for x, y in job.batches(data):
    job.backward(torch.nn.functional.cross_entropy(model(x), y))
job.done()
"""


def install(folder: Path, **variables: str) -> Path:
    """The environment's python. A copy of the source: nothing of a build lies around it."""
    shutil.copytree(ROOT / "python", folder / "source" / "python",
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TIDEMILL_LIBRARY")}
    done = subprocess.run([str(python), "-m", "pip", "install", "--disable-pip-version-check", str(folder / "source" / "python")],
                          capture_output=True, text=True, env={**env, **variables})
    if done.returncode and ("No matching distribution found for setuptools" in done.stderr):
        raise Skipped("there is no package index to get setuptools from")
    if done.returncode:
        raise Trouble(done.stdout + done.stderr)
    return python


def load(python: Path, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(python), "-c", LOAD], capture_output=True, text=True, cwd=folder,
                          env={"PATH": os.environ.get("PATH", "")})


def test_wheel(build, folder):
    """The library that was there when it was installed is inside, and fits."""
    python = install(folder, TIDEMILL_LIBRARY=str(build / "libtidemill.so"))
    done = load(python, folder)
    if done.returncode or "site-packages/tidemill/libtidemill.so" not in done.stdout:
        raise Trouble(done.stdout + done.stderr)
    for words in ([str(python), "-m", "tidemill"], [str(python.parent / "tidemill")]):
        told = subprocess.run([*words, "--version"], capture_output=True, text=True, cwd=folder, env={"PATH": "/usr/bin:/bin"})
        if told.returncode or not told.stdout.startswith("tidemill "):
            raise Trouble(f"{words}: {told.stdout}{told.stderr}")
    told = subprocess.run([str(python), "-c", "import tidemill.torch"], capture_output=True, text=True, cwd=folder)
    assert told.returncode and "pip install 'tidemill[torch]'" in told.stderr, told.stderr


def test_wheel_manylinux(build, folder):
    """By auditwheel: tagged manylinux, with all that library and program are linked with, of which the machine needs nothing."""
    tools = ROOT / "build" / "venv-wheel" / "bin" / "python"
    if not tools.exists():
        raise Skipped("auditwheel is not there (scripts/make-venv wheel)")
    done = subprocess.run([str(ROOT / "scripts" / "make-wheel")], capture_output=True, text=True, env={**os.environ, "PYTHON": str(tools)})
    wheel = next((ROOT / "build" / "wheel").glob("*.whl"), None)
    if done.returncode or wheel is None or "-py3-none-manylinux_" not in wheel.name:
        raise Trouble(f"{wheel}\n{done.stdout}{done.stderr}")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-index", str(wheel)], check=True)
    done = load(python, folder)
    told = subprocess.run([str(python), "-m", "tidemill", "--version"], capture_output=True, text=True, cwd=folder, env={"PATH": "/usr/bin:/bin"})
    if done.returncode or told.returncode or not told.stdout.startswith("tidemill "):
        raise Trouble(done.stdout + done.stderr + told.stdout + told.stderr)
    place = next((folder / "venv").glob("lib/python*/site-packages/tidemill/tidemill-program"))
    linked = subprocess.run(["ldd", str(place)], capture_output=True, text=True, check=True).stdout
    own = [line for line in linked.splitlines() if "libprotobuf-c" in line or "libcrypto" in line]
    assert own and all("site-packages/tidemill" in line for line in own), linked


def test_wheel_without_library(build, folder):
    """Nothing to take and nothing to build it from: installed all the same, and clear about it when it is used."""
    python = install(folder)
    done = load(python, folder)
    if "site-packages" not in done.stdout and done.returncode == 0:
        raise Skipped("a libtidemill.so is installed on this machine")
    if "libtidemill.so was not found" not in done.stderr or "make" not in done.stderr:
        raise Trouble(done.stdout + done.stderr)


def test_wheel_run(build, folder):
    """A script of a user's own under `tidemill run`, both of the wheel: what it prints is shown, and `tidemill logs` has it."""
    python = install(folder, TIDEMILL_LIBRARY=str(build / "libtidemill.so"))
    here = next((folder / "venv").glob("lib/python*/site-packages"))
    (here / "over.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))  # torch is not installed again
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    (job / "job.yaml").write_text("name: prints\nrun: python train.py\nsteps: 6\nbatch: 8\nmicro_batch: 2\nseed: 1\n")
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    words = ["tidemill", "run", "-y", "--no-preemptions", "--limit", "1", "--state", str(folder / "state"), "job.yaml"]
    ran = subprocess.run(words, cwd=job, env=env, capture_output=True, text=True, timeout=600)
    if ran.returncode or "hello from the script" not in ran.stdout + ran.stderr:
        raise Trouble(ran.stdout + ran.stderr)
    told = subprocess.run(["tidemill", "logs", "--state", str(folder / "state")], cwd=job, env=env, capture_output=True, text=True)
    if told.returncode or "hello from the script" not in told.stdout or "step 6" not in told.stdout:
        raise Trouble(told.stdout + told.stderr)


for _test in (test_wheel_manylinux, test_wheel_without_library, test_wheel_run):
    _test.slow = True

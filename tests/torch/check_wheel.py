"""`pip install ./python` in a fresh environment: the library comes with it, or the package says what is missing."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster import ROOT, Skipped, Trouble

LOAD = "import tidemill.library as l; print(l.load()._name)"


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


def test_wheel_without_library(build, folder):
    """Nothing to take and nothing to build it from: installed all the same, and clear about it when it is used."""
    python = install(folder)
    done = load(python, folder)
    if "site-packages" not in done.stdout and done.returncode == 0:
        raise Skipped("a libtidemill.so is installed on this machine")
    if "libtidemill.so was not found" not in done.stderr or "make" not in done.stderr:
        raise Trouble(done.stdout + done.stderr)


test_wheel_without_library.slow = True

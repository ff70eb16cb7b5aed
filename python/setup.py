"""Puts libtidemill.so into the wheel, and the program where it lies beside it. Where they come from, in this order:

1. TIDEMILL_LIBRARY, a path
2. build/release of the source tree around this folder (make)
3. built now, with cmake and a C compiler, from that source tree
4. nowhere: the wheel is without it, and says so; the package then looks for an installed one (ldconfig, pkg-config)
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
NAME = "libtidemill.so"


def build_library(source: Path, folder: Path) -> Path:
    """Only the library: neither tests nor programs."""
    if not (source / "CMakeLists.txt").exists():
        raise RuntimeError("this folder is not part of Tidemill's source")
    for program in ("cmake", "cc"):
        if shutil.which(program) is None:
            raise RuntimeError(f"{program} is not installed (packages.txt lists what a build needs)")
    for words in (["cmake", "-S", str(source), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"],
                  ["cmake", "--build", str(folder), "--target", "tidemill_shared", "--parallel"]):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            last = [line for line in done.stdout.splitlines() if line.strip()][-15:]
            raise RuntimeError("\n".join([" ".join(words), *last]))
    return folder / NAME


def find_library(scratch: Path) -> Path:
    named = os.environ.get("TIDEMILL_LIBRARY")
    if named:
        if not Path(named).exists():
            raise RuntimeError(f"TIDEMILL_LIBRARY is {named}, which is not there")
        return Path(named)
    made = HERE.parent / "build" / "release" / NAME
    return made if made.exists() else build_library(HERE.parent, scratch)


class BuildWithLibrary(build_py):
    """Python files, and the library beside them."""

    def run(self) -> None:
        super().run()
        place = Path(self.build_lib) / "tidemill" / NAME
        try:
            found = find_library(Path(self.build_lib).resolve().parent / "libtidemill").resolve()
        except (OSError, RuntimeError) as error:
            print(f"tidemill: this wheel has no {NAME}: {error}", file=sys.stderr)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, place)
        program = found.parent / "tidemill"
        if program.is_file():
            shutil.copy(program, place.parent / "tidemill-program")


class WithLibrary(Distribution):
    """A wheel of this kind of machine, not of any."""

    def has_ext_modules(self) -> bool:
        return True


class AnyPython(bdist_wheel):
    """The library is loaded by ctypes: any Python 3 will do."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython})

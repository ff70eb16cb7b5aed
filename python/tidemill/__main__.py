"""`python -m tidemill`, and the command `tidemill` that pip installs: the program, found beside the package or on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import List, Optional


def find_program() -> Optional[str]:
    """The one in the wheel, the one of the source tree around this package, or an installed one."""
    here = Path(__file__).resolve().parent
    for path in (here / "tidemill-program", here.parents[1] / "build" / "release" / "tidemill"):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("tidemill", path=folder)
        if found is not None and not _is_script(found):
            return found
    return None


def _is_script(path: str) -> bool:
    """Is it pip's own, which would call this again?"""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def main(words: Optional[List[str]] = None) -> int:
    """Becomes the program; returns only if there is none."""
    program = find_program()
    if program is None:
        print("tidemill: error: the program is not installed with this package: run make in Tidemill's source and pip install "
              "./python again, or make install", file=sys.stderr)
        return 1
    os.execv(program, ["tidemill", *(sys.argv[1:] if words is None else words)])


if __name__ == "__main__":
    sys.exit(main())

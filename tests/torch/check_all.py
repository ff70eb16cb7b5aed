"""Runs every check_*.py beside it and prints the tally. Use: check_all.py BUILD [quick|slow]

Tests whose function bears `slow = True` belong to the full tier (tests/torch_full/run)."""
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    sys.path.insert(0, str(HERE))
    from cluster import Skipped

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what tests have started ends with them
    build = Path(sys.argv[1])
    tier = sys.argv[2] if len(sys.argv) > 2 else "quick"
    wanted = [w for w in os.environ.get("TORCH_TESTS", "").split(",") if w]
    passed = failed = skipped = 0
    for path in sorted(HERE.glob("check_*.py")):
        if path.stem == "check_all":
            continue
        module = importlib.import_module(path.stem)
        for name, function in sorted(vars(module).items()):
            if not name.startswith("test_") or (wanted and name[5:] not in wanted):
                continue
            if not wanted and getattr(function, "slow", False) != (tier == "slow"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                began = time.monotonic()
                try:
                    function(build, Path(folder))
                    passed += 1
                    print(f"ok {name[5:]} {time.monotonic() - began:.0f} s")
                except Skipped as why:
                    skipped += 1
                    print(f"skipped {name[5:]}: {why}")
                except Exception:  # noqa: BLE001
                    failed += 1
                    print(f"FAILED {path.stem}.{name}")
                    traceback.print_exc(file=sys.stdout)
                sys.stdout.flush()
    print(f"tally {passed} {failed} {skipped}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

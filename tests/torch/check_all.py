"""Runs every check_*.py beside it and prints the tally. Use: check_all.py BUILD"""
import importlib
import os
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    sys.path.insert(0, str(HERE))
    build = Path(sys.argv[1])
    wanted = [w for w in os.environ.get("TORCH_TESTS", "").split(",") if w]
    passed = failed = 0
    for path in sorted(HERE.glob("check_*.py")):
        if path.stem == "check_all":
            continue
        module = importlib.import_module(path.stem)
        for name, function in sorted(vars(module).items()):
            if not name.startswith("test_") or (wanted and name[5:] not in wanted):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    function(build, Path(folder))
                    passed += 1
                except Exception:  # noqa: BLE001
                    failed += 1
                    print(f"FAILED {path.stem}.{name}")
                    traceback.print_exc(file=sys.stdout)
                sys.stdout.flush()
    print(f"tally {passed} {failed} 0")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

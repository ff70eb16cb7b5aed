"""The sitecustomize of `tidemill profile`: starts the profiler as soon as the program imports torch.

Processes that never import torch, and ranks other than 0, are not profiled.
"""

import os
import sys


def _go_on():
    """Imports the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    return here


def _leave_nothing():
    """Removes the compiled copy of this file, because its folder is temporary."""
    try:
        os.remove(__cached__)
        os.rmdir(os.path.dirname(__cached__))
    except (NameError, TypeError, OSError):
        pass


def _start(here):
    import importlib.util

    path = os.path.join(here, "tidemill_profiler.py")
    spec = importlib.util.spec_from_file_location("tidemill_profiler", path)
    profiler = importlib.util.module_from_spec(spec)
    sys.modules["tidemill_profiler"] = profiler
    keep = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(profiler)
    finally:
        sys.dont_write_bytecode = keep
    profiler.watch_process()


class _Finder:
    """Finds torch as the other finders do, and starts the profiler after its import."""

    def __init__(self, here):
        self.here = here

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_start(module):
            run(module)
            _start(self.here)

        spec.loader.exec_module = run_and_start
        return spec


if os.environ.get("TIDEMILL_PROFILE_OUT") and os.environ.get("RANK", "0") == "0":
    sys.meta_path.insert(0, _Finder(os.path.dirname(os.path.abspath(__file__))))
_leave_nothing()
_go_on()

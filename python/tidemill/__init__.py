"""Tidemill: train deep networks on spot instances that come and go.

`tidemill.session` binds libtidemill, for engines of any kind; `tidemill.torch` is the engine for PyTorch.
"""

from __future__ import annotations

from typing import Any

from tidemill.errors import JobFailed, LibraryMissing, Refused, TidemillError, UsageError

__version__ = "0.1.0"
__all__ = ["JobFailed", "LibraryMissing", "Refused", "TidemillError", "UsageError", "__version__"]

# Name -> the module that has it. Found when they are first asked for: `import tidemill` does not import torch.
_LAZY = {"profile": "tidemill.profiler"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)

"""Elastic PyTorch: an ordinary training script that continues when instances come and go.

See doc/pytorch.md ("Train your PyTorch job on spot"), and `init` for the five lines that change.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("tidemill.torch needs PyTorch 2.4 or newer, and there is none in this environment: pip install "
                      "'tidemill[torch]', or torch as https://pytorch.org says for your GPU") from error

from tidemill.errors import JobFailed, Refused, TidemillError, UsageError
from tidemill.torch.job import Job, Step, check_torch, init
from tidemill.torch.pipeline import Pipeline

__all__ = ["Job", "JobFailed", "Pipeline", "Refused", "Step", "TidemillError", "UsageError", "check_torch", "init"]

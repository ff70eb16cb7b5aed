"""Elastic PyTorch: an ordinary training script that continues when instances come and go.

See doc/pytorch.md ("Train your PyTorch job on spot"), and `init` for the five lines that change.
"""

from tidemill.errors import JobFailed, Refused, TidemillError, UsageError
from tidemill.torch.job import Job, Step, check_torch, init
from tidemill.torch.pipeline import Pipeline

__all__ = ["Job", "JobFailed", "Pipeline", "Refused", "Step", "TidemillError", "UsageError", "check_torch", "init"]

"""Dynamic loss scaling for float16: torch's GradScaler, in step with the job.

The loss is multiplied before backward, the summed gradient is divided again; where the sum of all workers is not finite, the
step changes no weights, on any of them, and the scale is halved. Scale and tracker are part of the job's state."""

from __future__ import annotations

from typing import Any, Dict

from tidemill.errors import JobFailed, UsageError

_SMALLEST = 2.0**-24


class LossScale:
    """Takes a GradScaler over. All of its methods may stay in the loop."""

    def __init__(self, scaler: Any) -> None:
        for name in ("state_dict", "load_state_dict", "is_enabled", "scale", "update"):
            if not callable(getattr(scaler, name, None)):
                raise UsageError(f"attach(scaler=...): a {type(scaler).__name__} is no torch.amp.GradScaler")
        self._scaler = scaler
        told = scaler.state_dict()
        self.scale = float(told["scale"])
        self._growth, self._backoff = float(told["growth_factor"]), float(told["backoff_factor"])
        self._interval, self._good = int(told["growth_interval"]), int(told["_growth_tracker"])
        self.skipped = 0
        scaler.scale = lambda outputs: outputs
        scaler.unscale_ = lambda optimizer: None
        scaler.step = lambda optimizer, *words, **named: optimizer.step()
        scaler.update = lambda new_scale=None: self._no_scale(new_scale)
        scaler.get_scale = lambda: self.scale

    @staticmethod
    def _no_scale(new_scale: Any) -> None:
        if new_scale is not None:
            raise UsageError("scaler.update(new_scale) in the job's loop: the scale is part of the job's state; give GradScaler "
                             "its init_scale, and leave the rest to it")

    def following(self, state: Dict[str, Any], overflow: bool) -> Dict[str, Any]:
        """What state_dict gives after a step, from what it gave before."""
        scale, good, skipped = float(state["scale"]), int(state["good"]), int(state["skipped"])
        if overflow:
            return {"scale": scale * self._backoff, "good": 0, "skipped": skipped + 1}
        good += 1
        if good >= self._interval:
            scale, good = scale * self._growth, 0
        return {"scale": scale, "good": good, "skipped": skipped}

    def update(self, overflow: bool, step: int) -> None:
        """After a step, as GradScaler.update."""
        self.load_state_dict(self.following(self.state_dict(), overflow))
        if self.scale < _SMALLEST:
            raise JobFailed(f"the gradient of step {step} is not finite however small the loss is scaled: lower the "
                            "learning rate, clip, or look at the data of this step")

    def state_dict(self) -> Dict[str, Any]:
        """As GradScaler's, and how many steps were skipped."""
        return {"scale": self.scale, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """What state_dict gave."""
        self.scale, self._good, self.skipped = float(state["scale"]), int(state["good"]), int(state["skipped"])


__all__ = ["LossScale"]

"""What a script's loop sets for a step: learning rates on param_groups, a norm to clip at, averages to update.

The loop runs once per micro-batch, and again for a step that is given up, so a counter of its own is not the job's step. What
it sets must be the same for every micro-batch of a step, on every worker, and again when the step is done again; then it is
part of the step, and committed with it. Each micro-batch begins with the settings of the last committed step.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from tidemill.errors import UsageError
from tidemill.torch.plain import to_plain

_COUNTER = ("a counter of the loop is not the job's step, for the loop runs once per micro-batch, and again for a step that was "
            "given up. Compute it from the job's step (job.committed_step, from 0; step.number, from 1), or attach a schedule, such as "
            "LambdaLR(optimizer, lambda step: get_lr(step) / base_lr)")


def _read(optimizer: Any) -> List[Dict[str, Any]]:
    """What the groups say, without tensors: those must stand still (guards.Watch)."""
    return [{k: v for k, v in group.items() if k != "params" and not isinstance(v, torch.Tensor)}
            for group in optimizer.param_groups]


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a is b or bool(a == b))


def _difference(now: List[Dict[str, Any]], before: List[Dict[str, Any]]) -> Optional[Tuple[int, str, Any, Any]]:
    for number, (new, old) in enumerate(zip(now, before)):
        for key in [*old, *(k for k in new if k not in old)]:
            if key not in new or key not in old or not _same(new[key], old[key]):
                return number, key, old.get(key), new.get(key)
    return None


class LoopSettings:
    """Follows what the loop sets, micro-batch by micro-batch."""

    def __init__(self, optimizer: Any, scheduler: Any) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler
        self._at_update: Optional[List[Dict[str, Any]]] = None
        self._attempt: Tuple[int, int] = (0, 0)
        self._dirty = False
        self.clip: Optional[float] = None
        self.updates: Dict[str, Callable[[], None]] = {}  # by name: what the loop asked for, once a step
        self.remember()

    def remember(self) -> None:
        """A step was committed, or state came from elsewhere: what there is now is right."""
        self._base = _read(self._optimizer)
        self._dirty = False

    def begin_step(self) -> None:
        """Nobody may have changed anything between steps: it would not be part of either."""
        if not self._dirty:
            odd = _difference(_read(self._optimizer), self._base)
            if odd is not None:
                raise UsageError(self._text(odd) + "between two steps, where no worker that joins could follow: change it in "
                                 "the loop, as a function of step.number, or in a function given to job.on_commit")

    def begin(self) -> None:
        """A micro-batch begins, with the committed settings."""
        self._at_update, self.clip = None, None
        self.updates = {}
        if self._dirty:
            for group, saved in zip(self._optimizer.param_groups, self._base):
                for key in [k for k, v in group.items() if k != "params" and not isinstance(v, torch.Tensor) and k not in saved]:
                    del group[key]
                group.update(saved)
        self._dirty = True

    def at_update(self) -> None:
        """The loop called optimizer.step(): what it sets later is meant for the next one."""
        self._at_update = _read(self._optimizer)

    @property
    def updated(self) -> bool:
        """Has the loop called optimizer.step() in this micro-batch?"""
        return self._at_update is not None

    def end(self) -> int:
        """What the micro-batch has set, as a number; 0: nothing."""
        now = _read(self._optimizer)
        if self._at_update is not None:
            odd = _difference(now, self._at_update)
            if odd is not None:
                raise UsageError(self._text(odd) + "after optimizer.step(), for the step that follows: set it before, as a "
                                 "function of the step that it is for (step.number); a schedule is attached (attach(model, "
                                 "optimizer, scheduler)), and its steps may stay in the loop")
        odd = _difference(now, self._base)
        if odd is None and self.clip is None and not self.updates:
            return 0
        if odd is not None and self._scheduler is not None:
            raise UsageError(self._text(odd) + "in the loop, though a schedule is attached: leave all settings to the schedule, or to "
                             "the loop")
        return self._mark([to_plain(group, "the optimizer's settings") for group in now] if odd is not None else [])

    def _mark(self, told: List[Any]) -> int:
        text = json.dumps([told, self.clip, sorted(self.updates)])
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little") | 1  # exact as a float

    def follow(self, step: int, mark: int, clip: float) -> None:
        """On a worker that had no micro-batch of the step: what the loops of the others have set."""
        self.clip, self.updates = clip or None, {}
        if mark not in (0, self._mark([])):
            raise UsageError(f"in step {step} the loop sets the optimizer's parameter groups, and a worker that holds a shard and has no "
                             "micro-batch has no loop to set them: attach a schedule (attach(model, optimizer, scheduler)), or give a "
                             "step as many micro-batches as there are shards")

    @staticmethod
    def _text(odd: Tuple[int, str, Any, Any]) -> str:
        number, key, old, new = odd
        return (f"{key!r} of the optimizer's parameter group {number} was changed from "
                f"{'nothing' if old is None else repr(old)} to {'nothing' if new is None else repr(new)} ")

    def probed(self, first: int, second: int) -> None:
        """One micro-batch was given to the loop twice."""
        if first != second:
            raise UsageError(f"{self._what()} in the loop, and set to something else when the same micro-batch came again: "
                             f"{_COUNTER}")

    def _what(self) -> str:
        odd = _difference(_read(self._optimizer), self._base)
        if odd is None:
            return "a setting (a norm to clip at, an average) was changed"
        number, key, _, new = odd
        return f"{key!r} of the optimizer's parameter group {number} was set to {new!r}"

    def agree(self, step: int, marks: List[int]) -> None:
        """All micro-batches of the step have set the same, here and elsewhere, now and when the step was tried before."""
        if any(mark != marks[0] for mark in marks):
            raise UsageError(f"{self._what()} in the loop, and to something else for another micro-batch of step {step}, here or "
                             f"on another worker: {_COUNTER}")
        if self._attempt[0] == step and self._attempt[1] != marks[0]:
            raise UsageError(f"{self._what()} in the loop, and to something else when step {step} was computed before it was "
                             f"given up: {_COUNTER}")
        self._attempt = (step, marks[0])


__all__ = ["LoopSettings"]

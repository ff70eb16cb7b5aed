"""Hugging Face Accelerate: the same loop, with two changed lines.

    from tidemill.torch.accelerate import Accelerator                 # instead of accelerate's

    accelerator = Accelerator(steps=1000, batch=64, gradient_accumulation_steps=4)      # before the model is made
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(epochs):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss_function(model(inputs), targets))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step(); scheduler.step(); optimizer.zero_grad()

`prepare` attaches model, optimizer and schedule, and the first DataLoader that it is given becomes the job's; its batch_size is
a micro-batch: batch / gradient_accumulation_steps. Workers come and go underneath, and every worker counts as a process of its
own for Accelerate: `gather` has nothing to gather.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional

import torch
from torch.utils.data import DataLoader

from tidemill.errors import UsageError
from tidemill.session import under_agent
from tidemill.torch.data import stream_in
from tidemill.torch.job import Job, init, own_device

try:
    import accelerate
    from accelerate.utils import send_to_device
except ImportError as error:
    raise UsageError("tidemill.torch.accelerate needs the package accelerate: pip install accelerate") from error


def _hide_ranks() -> None:
    """Accelerate would make a process group of these, and wait for others that do not come."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)


class Accelerator(accelerate.Accelerator):
    """accelerate.Accelerator whose workers may come and go."""

    def __init__(self, *words: Any, steps: Optional[int] = None, batch: Optional[int] = None, seed: Optional[int] = None,
                 determinism: Optional[str] = None, state: Optional[Mapping[str, Any]] = None, schedule: str = "step",
                 try_twice: bool = True, **named: Any) -> None:
        """steps, batch, seed, determinism, try_twice: as for tidemill.torch.init. state, schedule: as for Job.attach. The rest is
        accelerate's."""
        if under_agent(os.environ):
            _hide_ranks()
        self._attached = False
        self._takes: List[Any] = []  # what prepare was given, and has given
        super().__init__(*words, **named)
        if self.mixed_precision == "fp16":
            raise UsageError("Accelerator(mixed_precision=\"fp16\") steps the optimizer by a scaler of its own: use \"bf16\", or "
                             "autocast and a GradScaler with job.attach(..., scaler=scaler)")
        if self.num_processes != 1:
            raise UsageError("Accelerator counts several processes: start the script with python or tidemill run, not with "
                             "accelerate launch")
        share = None if batch is None else batch // self.gradient_accumulation_steps
        self.job: Job = init(steps=steps, batch=batch, micro_batch=share, seed=seed, determinism=determinism,
                             try_twice=try_twice)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self._extras, self._schedule = state, schedule
        self._inside, self._counted = False, 0
        self._said: Any = None  # what the loop has logged for the step that is computed
        self._saved: Any = None  # the same, of save_state
        self.job.after_step(self._tell_log)
        self.job.after_step(self._save_now)

    @property
    def device(self) -> torch.device:
        """The GPU of this worker's place on its instance, where accelerate would use the first."""
        plain: torch.device = super().device
        return own_device() if plain.type == "cuda" else plain

    def prepare(self, *things: Any, **named: Any) -> Any:
        """As Accelerator.prepare; the call that has the model and the optimizer attaches them."""
        loader = next((t for t in things if isinstance(t, DataLoader)), None) if not self._attached else None
        prepared = [self._loader(t) if t is loader else super(Accelerator, self).prepare(t, **named) for t in things]
        model = next((t for t in things if isinstance(t, torch.nn.Module)), None)
        optimizer = next((t for t in things if isinstance(t, torch.optim.Optimizer)), None)
        if model is not None and optimizer is not None and not self._attached:
            schedules = [t for t in things if isinstance(t, torch.optim.lr_scheduler.LRScheduler)]
            self._attached = True
            attached = prepared[things.index(model)]
            self._takes = [attached, optimizer, *prepared, *things]
            self.job.attach(attached, optimizer, schedules[0] if schedules else None, schedule=self._schedule,
                            state={**self._registered(), **(self._extras or {})})
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def _loader(self, loader: DataLoader) -> "_Loader":
        return _Loader(self, loader)

    def backward(self, loss: torch.Tensor, **named: Any) -> None:
        """job.backward(loss)."""
        if named:
            raise UsageError(f"accelerator.backward takes no {', '.join(sorted(named))} here")
        self.job.backward(loss)

    @contextlib.contextmanager
    def accumulate(self, *models: Any) -> Iterator[None]:
        """Every micro-batch counts, and Tidemill knows when a step is complete."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    @property
    def sync_gradients(self) -> bool:
        """Inside of `accumulate` always: what is done there (clipping) is the same for all micro-batches of a step. After it for this
        worker's last micro-batch of a step, once a step, so that a loop which counts its steps counts each once."""
        step = self.job._step if self._attached else None
        if self._inside or step is None:
            return True
        if not step._final or step.number < self._counted:
            return False
        if step.number > self._counted:
            self._counted, self._counted_step = step.number, step
        return self._counted_step is step  # not when the step is done again

    _counted_step: Any = None

    def init_trackers(self, *words: Any, **named: Any) -> None:
        """As Accelerator.init_trackers, in the worker that is main, before its first step."""
        self.job.on_main(lambda: super(Accelerator, self).init_trackers(*words, **named))

    def log(self, values: Any, step: Optional[int] = None, log_kwargs: Any = None) -> None:
        """As Accelerator.log, by the worker that is main; in the loop what was logged last for a step is written once the step is
        committed."""
        if self.job._step is not None:
            self._said = (values, step, log_kwargs)
        elif self.is_main_process:
            super().log(values, step=step, log_kwargs=log_kwargs or {})

    def _tell_log(self, step: int, loss: Optional[float]) -> None:
        said, self._said = self._said, None
        if said is not None and self.is_main_process:
            super().log(said[0], step=said[1], log_kwargs=said[2] or {})

    def save_state(self, *words: Any, **named: Any) -> Any:
        """As Accelerator.save_state, by the worker that is main; in the loop of the step that is computed, once it is committed. A job
        does not need it: it goes on by itself from its last committed step."""
        if self.job._step is not None:
            self._saved = (words, named)
            return None
        return super().save_state(*words, **named) if self.is_main_process else None

    def _save_now(self, step: int, loss: Optional[float]) -> None:
        saved, self._saved = self._saved, None
        if saved is not None and self.is_main_process:
            super().save_state(*saved[0], **saved[1])

    def load_state(self, *words: Any, **named: Any) -> None:
        """Not in a job: workers that join would not have what one has loaded."""
        raise UsageError("accelerator.load_state: a job goes on by itself from its last committed step, so leave it out. To begin from other "
                         "weights load them into the model before prepare, the same on every worker")

    def register_for_checkpointing(self, *objects: Any) -> None:
        """As Accelerator.register_for_checkpointing; before prepare, so that it becomes part of the job's state, too."""
        if self._attached:
            odd = [one for one in objects if not any(one is known for known in (*self._takes, *(self._extras or {}).values()))]
            if odd:
                raise UsageError(f"accelerator.register_for_checkpointing({type(odd[0]).__name__}) comes after prepare: what the training keeps is part of the job's "
                                 "state from the beginning. Call it before prepare, or say Accelerator(state={NAME: thing}); and change it in a function given to "
                                 "accelerator.job.on_commit")
        super().register_for_checkpointing(*objects)

    def _registered(self) -> Dict[str, Any]:
        """What was registered and is not attached anyway."""
        known = [*self._takes, *(self._extras or {}).values()]
        return {f"registered {number}": thing for number, thing in enumerate(self._custom_objects) if not any(thing is one for one in known)}

    def skip_first_batches(self, *words: Any, **named: Any) -> None:
        """Not in a job: it goes on where it was."""
        raise UsageError("accelerator.skip_first_batches: a job goes on by itself with the samples that follow its last committed step, so leave it out")

    @property
    def is_main_process(self) -> bool:
        """One worker of the job, from `prepare` on; before it an error where there are others: which one is main is not known."""
        if not self._attached:
            if under_agent(os.environ):
                raise UsageError("accelerator.is_main_process is not known before prepare(model, optimizer): a worker learns its place when "
                                 "it joins. Ask after it; what every worker may do (os.makedirs(..., exist_ok=True)) needs no question, and "
                                 "what one does for the whole job belongs in a function given to accelerator.job.on_main")
            return True
        return self.job.is_main

    @property
    def is_local_main_process(self) -> bool:
        """From `prepare` on as is_main_process, so that a line is shown once a job; before it the first worker of each instance."""
        if not self._attached and under_agent(os.environ):
            return not int(os.environ.get("TIDEMILL_LOCAL_RANK") or 0)
        return self.is_main_process

    def print(self, *words: Any, **named: Any) -> None:
        """By one worker."""
        if self.is_main_process:
            print(*words, **named)

    def end_training(self) -> None:
        """As Accelerator.end_training, and the worker leaves the job."""
        super().end_training()
        self.job.done()


class _Loader:
    """The training data, an epoch at a time."""

    def __init__(self, owner: Accelerator, loader: DataLoader) -> None:
        self._owner, self._plain = owner, loader
        self._epochs: Optional[Iterator[int]] = None
        self.dataset, self.batch_size = loader.dataset, loader.batch_size

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Iterator[Any]:
        job = self._owner.job
        if stream_in(self._plain) is not None:  # it has no length, so the job is one epoch
            for batch in () if job._over else job.batches(self._plain):
                yield send_to_device(batch, self._owner.device)
            return
        if self._epochs is None:
            self._epochs = job.epochs(self._plain)
        if next(self._epochs, None) is None:
            return
        for batch in job.batches(self._plain):
            yield send_to_device(batch, self._owner.device)


__all__ = ["Accelerator"]

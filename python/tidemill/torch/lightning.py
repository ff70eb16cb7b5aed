"""Lightning: the Trainer on instances that come and go.

    from tidemill.torch.lightning import TidemillStrategy

    lightning.seed_everything(1)                        # before the model is made
    trainer = lightning.Trainer(strategy=TidemillStrategy(determinism="bitwise"), max_epochs=10, accumulate_grad_batches=4)
    trainer.fit(model, loader, validation_loader)

The DataLoader's batch_size is a micro-batch, and a step has accumulate_grad_batches of them, on however many workers there are.
What Lightning calls a batch is here a whole step: it runs `training_step` once for every micro-batch that this worker has, and
every worker sees every step. So counters, logs, validation, checkpoints and callbacks follow the job's own steps, and a worker that
joins begins with the job's epoch and step. An epoch has ceil(items / batch) steps.

What Lightning does between two of its batches (callbacks, validation, the end of an epoch) is part of the step's commit: every worker does
it with the same weights, and what callbacks keep (EarlyStopping, ModelCheckpoint) is committed, moved and restored with them.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from typing import Any, Dict, Iterator, List, Optional, Set, Union

import torch
from torch.utils.data import DataLoader

from tidemill.errors import UsageError
from tidemill.session import under_agent
from tidemill.torch.data import items_of
from tidemill.torch.job import COMMITS, Job, init, own_device, refuse_shards
from tidemill.torch.plain import from_plain, to_plain

try:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from lightning.fabric.plugins import TorchCheckpointIO
    from lightning.fabric.utilities.rank_zero import rank_zero_only
    from lightning.pytorch.loggers.utilities import _log_hyperparams
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from lightning.pytorch.utilities.model_helpers import is_overridden
except ImportError as error:
    raise UsageError("tidemill.torch.lightning needs the package lightning (tested with 2.6): pip install lightning") from error

# Hooks whose place in Lightning's loop Tidemill's step takes; with what to do instead.
_NOT_CALLED = {
    "optimizer_step": "Tidemill steps the optimizer when a step is committed; use trainer.strategy.job.on_commit",
    "optimizer_zero_grad": "gradients are Tidemill's",
    "on_before_zero_grad": "it would be called for every micro-batch of this worker; use on_train_batch_end, which is once a step",
    "backward": "Tidemill calls it",
    "configure_gradient_clipping": "say Trainer(gradient_clip_val=...)",
    "lr_scheduler_step": "the schedule steps once per committed step or epoch",
    "on_before_optimizer_step": "the gradient of the whole batch is known when the step is committed; job.last_norm has its norm",
}
# Callbacks that decide by the clock, or change weights or batches.
_REFUSED = {
    "Timer": "a deadline belongs in the job's file",
    "StochasticWeightAveraging": "attach an average: TidemillStrategy(state={\"ema\": ema})",
    "WeightAveraging": "attach an average: TidemillStrategy(state={\"ema\": ema})",
    "GradientAccumulationScheduler": "the batch is the job's, and stays",
    "BatchSizeFinder": "the batch is the job's, and stays",
    "LearningRateFinder": "find it before the job begins",
    "BackboneFinetuning": "which parameters are trained is settled when the job begins",
    "BaseFinetuning": "which parameters are trained is settled when the job begins",
    "ModelPruning": "weights change only by the optimizer, or in job.on_commit",
}


def _no(what: str, why: str) -> None:
    raise UsageError(f"{what} cannot be used with TidemillStrategy: {why}")


def _refuse_callback(callback: Any) -> None:
    name = type(callback).__name__
    for kind in type(callback).__mro__:
        if kind.__name__ in _REFUSED and kind.__module__.startswith(("lightning", "pytorch_lightning")):
            _no(name, _REFUSED[kind.__name__])
    if getattr(callback, "_train_time_interval", None) is not None:
        _no(f"{name}(train_time_interval=...)", "workers' clocks would decide differently; say every_n_train_steps")
    for hook in ("on_before_optimizer_step", "on_before_zero_grad"):
        if is_overridden(hook, callback, pl.Callback) and not type(callback).__module__.startswith(("lightning", "pytorch_lightning")):
            _no(f"{name}.{hook}", "it would not be called when the step is applied; use job.on_commit")


def _refuse(trainer: Any, module: Any, loader: Any) -> None:
    """What this strategy cannot honour, by its name."""
    if not isinstance(loader, DataLoader):
        _no(f"a train_dataloader of type {type(loader).__name__}", "give one torch.utils.data.DataLoader")
    refuse_shards("TidemillStrategy", module)
    if not module.automatic_optimization:
        _no(f"{type(module).__name__}.automatic_optimization = False", "Tidemill decides when the optimizer steps; in a loop of "
            "your own use tidemill.torch.init")
    for name in ("limit_train_batches", "overfit_batches", "reload_dataloaders_every_n_epochs", "fast_dev_run"):
        if getattr(trainer, name) not in ((1.0,) if name == "limit_train_batches" else (0, 0.0, False)):
            _no(f"Trainer({name}={getattr(trainer, name)!r})", "a job trains all of its steps; use max_steps")
    if trainer.ckpt_path is not None:
        _no("fit(ckpt_path=...)", "a job resumes by itself from its last committed step. Load weights into the model before fit")
    precision = trainer.precision_plugin
    if getattr(precision, "scaler", None) is not None:
        _no(f"Trainer(precision={precision.precision!r})", "it scales the loss by itself; use \"bf16-mixed\"")
    for name, why in _NOT_CALLED.items():
        if is_overridden(name, module, pl.LightningModule):
            _no(f"{type(module).__name__}.{name}", why)
    for callback in trainer.callbacks:
        _refuse_callback(callback)


def _one_schedule(strategy: Any) -> Dict[str, Any]:
    configs = strategy.lr_scheduler_configs
    if len(strategy.optimizers) != 1 or len(configs) > 1:
        raise UsageError(f"configure_optimizers gave {len(strategy.optimizers)} optimizers and {len(configs)} schedules: a job has "
                         "one optimizer (with parameter groups) and at most one schedule (SequentialLR joins several)")
    if not configs:
        return {}
    config = configs[0]
    if config.reduce_on_plateau:  # Lightning steps it, by what was validated, as part of a commit
        return {"state": {"plateau": config.scheduler}}
    if config.frequency != 1:
        raise UsageError("a schedule of configure_optimizers steps with every step or epoch here: a frequency other than 1 cannot be used "
                         "with TidemillStrategy")
    return {"scheduler": config.scheduler, "schedule": config.interval}


# ---- what callbacks keep, as part of the job's state ----

_MEMORY_BYTES = 1 << 16
_OF_CHECKPOINTS = ("best_model_score", "best_model_path", "current_score", "best_k_models", "kth_best_model_path", "kth_value",
                   "last_model_path", "dirpath", "_last_global_step_saved", "_last_checkpoint_saved", "_defer_save_until_validation")


class _Memory:
    """What callbacks know that decides how the training goes on. It has a fixed size, as all state has, and changes with commits alone."""

    by_worker = True  # with the files that this worker sees

    def __init__(self, trainer: Any, attached: Any) -> None:
        self._trainer = trainer
        mine = [c for c in trainer.callbacks if not any(c is thing for thing in attached)]
        self._kept = {f"{number} {type(c).__name__}": c for number, c in enumerate(mine)
                      if isinstance(c, ModelCheckpoint) or is_overridden("state_dict", c, pl.Callback)}
        self._before: Dict[str, List[str]] = {}  # files that were there when the job began: not to be written over
        for name, callback in self._kept.items():
            if isinstance(callback, ModelCheckpoint):
                self._before[name] = _files(callback)
                callback.file_exists = self._exists(name, callback)  # type: ignore[method-assign]
        self._text: Optional[str] = None  # of the last commit
        self._bytes = torch.zeros(_MEMORY_BYTES, dtype=torch.uint8)

    def _exists(self, name: str, callback: Any) -> Any:
        """Is a name taken? Every worker must find the same, so by what is known and not by the disk, which one of them writes to."""
        def exists(path: Any, trainer: Any = None) -> bool:
            path = str(path)
            known = [c for c in self._kept.values() if isinstance(c, ModelCheckpoint)]  # of one folder, with names alike, each its own files
            return any(path in c.best_k_models or path in (c.best_model_path, c.last_model_path) for c in known) or (
                os.path.basename(path) in self._before[name] and os.path.dirname(path) == str(callback.dirpath))
        return exists

    def _now(self) -> str:
        told = {}
        for name, callback in self._kept.items():
            if isinstance(callback, ModelCheckpoint):
                value = {key: getattr(callback, key) for key in _OF_CHECKPOINTS if hasattr(callback, key)}
                value["dirpath"] = str(callback.dirpath)
            else:
                value = callback.state_dict()
            told[name] = to_plain(value, f"{name.partition(' ')[2]}.state_dict()")
        logged = _logged_in_training(self._trainer)
        metrics = {name: float(value) for name, value in self._trainer.callback_metrics.items() if name not in logged}
        return json.dumps([told, bool(self._trainer.should_stop), self._before, metrics])

    def check(self) -> None:
        """Before a commit: callbacks change what they keep as part of one, and nowhere else."""
        if self._text is None:
            return
        now, before = json.loads(self._now()), json.loads(self._text)
        if json.dumps(now[:2]) == json.dumps(before[:2]):  # as texts, in which NaN is like NaN
            return
        told, known = now[0], before[0]
        name = next((n for n in told if told[n] != known.get(n)), " trainer.should_stop").partition(" ")[2]
        _no(f"what {name} keeps", "it was changed while a micro-batch was computed (on_train_batch_start, on_before_backward), which each worker "
            "does for its own share. Change it in on_train_batch_end or later, which is once a step")

    def keep(self) -> None:
        """With a commit."""
        self._text = self._now()
        data = self._text.encode()
        if len(data) + 8 > _MEMORY_BYTES:
            raise UsageError(f"what the callbacks keep takes {len(data)} bytes, and {_MEMORY_BYTES - 8} fit: give ModelCheckpoint a folder "
                             "without other files, and a smaller save_top_k")
        self._bytes = torch.frombuffer(bytearray((len(data).to_bytes(8, "little") + data).ljust(_MEMORY_BYTES, b"\0")), dtype=torch.uint8)

    def restore(self) -> None:
        """What Lightning has changed outside of a commit (hooks at the beginning, the end of a step that others have taken) is forgotten."""
        if self._text is None:
            return
        told, self._trainer.should_stop, self._before, metrics = json.loads(self._text)
        self._trainer._logger_connector._callback_metrics.update({name: torch.tensor(value) for name, value in metrics.items()})
        for name, callback in self._kept.items():
            value = from_plain(told[name])
            if isinstance(callback, ModelCheckpoint):
                for key, each in value.items():
                    setattr(callback, key, each)
            else:
                callback.load_state_dict(value)

    def state_dict(self) -> Dict[str, Any]:
        """As bytes."""
        return {"memory": self._bytes}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """What state_dict gave."""
        self._bytes = state["memory"].cpu()
        data = self._bytes.numpy().tobytes()
        size = int.from_bytes(data[:8], "little")
        if size:
            self._text = data[8: 8 + size].decode()
            self.restore()


def _files(callback: Any) -> List[str]:
    """What is in its folder."""
    folder = str(callback.dirpath or "")
    if "://" in folder or not os.path.isdir(folder):
        return []
    return sorted(name for name in os.listdir(folder) if name.endswith(callback.FILE_EXTENSION))


def _logged_in_training(trainer: Any) -> Set[str]:
    """Names under which this worker logs its own micro-batches."""
    logged: Set[str] = set()
    for item in trainer.fit_loop.epoch_loop._results.values():
        logged |= {item.meta.name, item.meta.forked_name(True), item.meta.forked_name(False)}
    return logged


def _refuse_monitors(trainer: Any) -> None:
    """What is logged while training is of this worker's micro-batches: decisions that follow from it would be each worker's own."""
    logged = _logged_in_training(trainer)
    who = [(type(c).__name__, getattr(c, "monitor", None)) for c in trainer.callbacks if isinstance(c, (EarlyStopping, ModelCheckpoint))]
    who += [("ReduceLROnPlateau", c.monitor) for c in trainer.strategy.lr_scheduler_configs if c.reduce_on_plateau]
    for name, monitor in who:
        if monitor is not None and monitor in logged:
            _no(f"{name}(monitor={monitor!r})", f"{monitor!r} is logged while training, by each worker of its own micro-batches, so workers "
                "would decide differently. Monitor what is logged in validation_step, which every worker computes from the same weights")
    for callback in trainer.callbacks:
        texts = [callback.filename or "", callback.CHECKPOINT_NAME_LAST] if isinstance(callback, ModelCheckpoint) else []
        for one in (one for text in texts for one in re.findall(r"\{([^:}]+)", text) if one in logged):
            _no(f"{type(callback).__name__}(filename=...) with {one!r}", f"{one!r} is logged while training, by each worker of its own "
                "micro-batches, so each would give the file another name. Take what is logged in validation_step, or the epoch and the step")


class _Steps:
    """The training data as Lightning sees it: one batch for each step of the job."""

    def __init__(self, strategy: "TidemillStrategy", trainer: Any, loader: DataLoader) -> None:
        self._strategy, self._trainer, self.loader = strategy, trainer, loader
        assert loader.batch_size is not None
        self.micro_batch = loader.batch_size
        self.batch = loader.batch_size * trainer.accumulate_grad_batches
        trainer.accumulate_grad_batches = 1  # here, within a step
        count = items_of(loader) if hasattr(loader.dataset, "__len__") else None
        if count is None and trainer.max_steps < 0:
            raise UsageError("a stream has no length: say Trainer(max_steps=...)")
        self.of_epoch = trainer.max_steps if count is None else math.ceil(count / self.batch)
        by_epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs * self.of_epoch
        steps = min(by_epochs, math.inf if trainer.max_steps < 0 else trainer.max_steps)
        if steps == math.inf:
            raise UsageError("a job has an end: say Trainer(max_epochs=...) or Trainer(max_steps=...)")
        self.steps = int(steps)
        self._micro: Optional[Iterator[Any]] = None
        self._now: Any = None
        self._known = 0  # results of the training that were looked at
        self.ended = self.commits = False

    @property
    def dataset(self) -> Any:
        """The loader's."""
        return self.loader.dataset

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.of_epoch

    def __iter__(self) -> "_Steps":
        try:
            self._strategy.begin()
        except BaseException:
            self._trainer.fit_loop._data_fetcher = None  # it is half made, and would fail again while Lightning ends
            raise
        return self

    def __next__(self) -> Any:
        """The first micro-batch of the next step."""
        strategy = self._strategy
        strategy.begin()
        if self._micro is None:
            strategy.count()
            self._micro = iter(strategy.job.batches(self.loader))
            self.advance()
            strategy.memory.restore()
            strategy.job._items = self.of_epoch * self.batch
        elif self.commits:
            self.end_step()
        else:
            strategy.memory.restore()
        if self.commits:
            raise UsageError("this worker has no micro-batch in a step: give the job fewer workers, or a larger accumulate_grad_batches")
        if self.ended:
            self._stop()
            raise StopIteration
        strategy.count()
        fit, epoch = self._trainer.fit_loop, strategy.job.committed_step // self.of_epoch
        if epoch != fit.epoch_progress.current.completed:  # this worker was away
            progress = fit.epoch_progress.current
            progress.ready = progress.started = epoch
            progress.processed = progress.completed = epoch - 1
            raise StopIteration
        return self._now

    def _stop(self) -> None:
        """No step is left."""
        fit = self._trainer.fit_loop
        fit.min_epochs, fit.epoch_loop.min_steps = 0, None
        self._trainer.should_stop = True

    def advance(self) -> None:
        """The next micro-batch, or a step that commits."""
        assert self._micro is not None
        try:
            self._now = next(self._micro)
        except StopIteration:
            self.ended, self._now = True, None
        self.commits = self._now is COMMITS
        if self.commits:
            self._strategy.memory.check()
            self._strategy.saved.clear()

    def end_step(self) -> None:
        """What Lightning has done since the step began to commit belongs to it: it is committed, and the next one begins."""
        strategy, trainer = self._strategy, self._trainer
        job = strategy.job
        _refuse_monitors(trainer)
        if trainer.should_stop:
            if not any(isinstance(callback, EarlyStopping) for callback in trainer.callbacks):
                raise UsageError("trainer.should_stop was set: workers might not stop alike. Use EarlyStopping, or call "
                                 "trainer.strategy.job.stop() in a function given to trainer.strategy.job.on_commit")
            if trainer.fit_loop._can_stop_early and job._next_step < job.steps:
                job.stop()
        strategy.memory.keep()
        was_main, step = job.is_main, job._next_step
        self.advance()
        if job.is_main and not was_main and job.committed_step == step:
            strategy.save_again()

    def close(self) -> None:
        """The loop ends early."""
        if self._micro is not None:
            self._micro.close()  # type: ignore[attr-defined]

    def run(self, closure: Any) -> None:
        """One step: `training_step` and backward for every micro-batch that is ours, until the step is committed."""
        job, trainer = self._strategy.job, self._trainer
        given, before, first = closure._step_fn.args[0], job.committed_step, True
        known = set(trainer.fit_loop.epoch_loop._results)
        while True:
            if not first:
                batch = trainer.precision_plugin.convert_input(self._now)
                batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
                given["batch"] = self._strategy.batch_to_device(batch, dataloader_idx=0)
            first = False
            job._seed_again()
            tried = job.trying
            closure()
            self.advance()
            if tried and not job.trying:
                self._forget(known)
            if self.ended or self.commits or job.committed_step != before:
                return

    def _forget(self, known: Set[str]) -> None:
        """What was logged while the first step was computed for the first of two times: means over an epoch would count it twice."""
        results = self._trainer.fit_loop.epoch_loop._results
        for key in set(results) - known:
            del results[key]
        for part in self._trainer.lightning_module.modules():
            if any(kind.__module__.startswith("torchmetrics") for kind in type(part).__mro__) and callable(getattr(part, "reset", None)):
                part.reset()


def _asked_by_script() -> bool:
    """Is the caller's caller, passing over Trainer's own property, no part of Lightning?"""
    frame = sys._getframe(2)
    if frame.f_code.co_name == "is_global_zero" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] not in ("lightning", "pytorch_lightning", "tidemill")


class TidemillStrategy(SingleDeviceStrategy):
    """One device a worker; workers come and go."""

    strategy_name = "tidemill"

    def __init__(self, device: Union[str, torch.device, None] = None, *, seed: Optional[int] = None,
                 determinism: Optional[str] = None, threads: Optional[int] = None, backend: Optional[str] = None,
                 state: Optional[Dict[str, Any]] = None, try_twice: bool = True, **named: Any) -> None:
        """device: of the model; default the GPU of this worker's place where there is one. seed: default that of seed_everything. The others are
        those of tidemill.torch.init and, for state, Job.attach."""
        if under_agent(os.environ):
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
                os.environ.pop(name, None)
        refuse_shards("TidemillStrategy", None, named)
        super().__init__(device=device or own_device(), **named)  # type: ignore[arg-type]
        if seed is None and os.environ.get("PL_GLOBAL_SEED", "").isdigit():
            seed = int(os.environ["PL_GLOBAL_SEED"])
        self._settings = {"seed": seed, "determinism": determinism, "threads": threads, "backend": backend, "try_twice": try_twice}
        self._extras = state
        self.memory: Any = None
        self.saved: List[str] = []  # checkpoints of the step that commits
        self._job: Optional[Job] = None
        self._steps: Optional[_Steps] = None
        self._trainer: Any = None
        if under_agent(os.environ):
            rank_zero_only.rank = 1  # nobody is main before workers have met

    @property
    def job(self) -> Job:
        """The job, from on_train_start on."""
        if self._job is None:
            raise UsageError("trainer.strategy.job is made by fit: ask for it in on_train_start or later")
        return self._job

    # -- what Lightning calls --

    @property
    def is_global_zero(self) -> bool:
        """Is this worker the one to log and save? From on_train_start on; before, none is where there are others, and a script that asks
        gets an error."""
        if self._job is None:
            if under_agent(os.environ) and _asked_by_script():
                raise UsageError("is_global_zero is not known before on_train_start: a worker learns its place when it joins the job. Ask "
                                 "there or later; what every worker may do (os.makedirs(..., exist_ok=True)) needs no question")
            return not under_agent(os.environ)
        return self._job.is_main

    def setup(self, trainer: Any) -> None:
        """As Strategy.setup."""
        self._trainer = trainer
        super().setup(trainer)
        self.begin()

    def on_exception(self, exception: BaseException) -> None:
        """As Strategy.on_exception: the job's loop is left, too."""
        if self._steps is not None:
            self._steps.close()
        super().on_exception(exception)

    def process_dataloader(self, dataloader: Any) -> Any:
        """The training data become the job's."""
        module = self.lightning_module
        trainer = self._trainer or (module.trainer if module is not None else None)
        if trainer is None or not trainer.training or trainer.state.fn != "fit":
            return dataloader
        _refuse(trainer, module, dataloader)
        self._trainer, self._steps = trainer, _Steps(self, trainer, dataloader)
        return self._steps

    def begin(self) -> None:
        """Joins the job, once model, optimizer and data are known."""
        trainer, steps = self._trainer, self._steps
        if self._job is not None or steps is None or not self.optimizers:
            return
        job = init(steps=steps.steps, batch=steps.batch, micro_batch=steps.micro_batch, **self._settings)
        clip = {"clip_value" if trainer.gradient_clip_algorithm == "value" else "clip": trainer.gradient_clip_val}
        job._steps_elsewhere = job._pauses = True
        self.memory = _Memory(trainer, (self._extras or {}).values())
        schedule = _one_schedule(self)
        extras = {**(self._extras or {}), **schedule.pop("state", {}), "lightning": self.memory}
        job.attach(self.lightning_module, self.optimizers[0], **schedule, state=extras, **(clip if trainer.gradient_clip_val else {}))
        self._job = job
        self.count()
        if under_agent(os.environ) and self.is_global_zero:
            _log_hyperparams(trainer)

    def count(self) -> None:
        """Lightning's counters become the job's: steps that were committed elsewhere count too."""
        job, steps = self.job, self._steps
        assert steps is not None
        rank_zero_only.rank = 0 if self.is_global_zero else 1
        done, fit = job.committed_step, self._trainer.fit_loop
        epoch, at = divmod(done, steps.of_epoch)
        loop = fit.epoch_loop
        first = loop.batch_progress.total.ready == 0
        for name in ("ready", "started", "processed", "completed"):
            setattr(loop.batch_progress.current, name, at)
            setattr(loop.batch_progress.total, name, done)
            if first and done:
                setattr(fit.epoch_progress.current, name, epoch)
                setattr(fit.epoch_progress.total, name, epoch)
        progress = loop.automatic_optimization.optim_progress.optimizer.step
        progress.total.ready = progress.total.completed = loop._batches_that_stepped = done
        if fit._data_fetcher is not None:
            fit._data_fetcher.fetched = at

    def on_train_start(self) -> None:
        """As Strategy.on_train_start."""
        self.begin()

    def backward(self, closure_loss: torch.Tensor, optimizer: Any, *words: Any, **named: Any) -> torch.Tensor:
        """job.backward, between Lightning's hooks."""
        module, precision = self.lightning_module, self.precision_plugin
        assert module is not None
        closure_loss = precision.pre_backward(closure_loss, module)
        self.job.backward(closure_loss)
        return precision.post_backward(closure_loss, module)

    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **named: Any) -> None:
        """A whole step of the job."""
        assert self._steps is not None
        self._steps.run(closure)

    def save_checkpoint(self, checkpoint: Dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """As Strategy.save_checkpoint; a file that was begun and not finished, by a worker that is lost, leaves nothing behind under its name."""
        self.saved.append(str(filepath))
        if not self.is_global_zero or type(self.checkpoint_io) is not TorchCheckpointIO or "://" in str(filepath):
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        part = f"{filepath}.part"
        super().save_checkpoint(checkpoint, part, storage_options)
        os.replace(part, filepath)

    def save_again(self) -> None:
        """The worker that was main is gone, and had not written all of this step: this one does."""
        for path in list(self.saved):
            if "://" not in path and not os.path.exists(path):
                self._trainer.save_checkpoint(path)

    def on_train_end(self) -> None:
        """Leaves the job."""
        if self._job is None or self._steps is None:
            return
        if self._steps.commits:
            self._steps.end_step()
            if not self._steps.ended and not self._job._stop.at:
                self._job._compute_elsewhere()
        while not self._steps.ended and self._job._stop.at:
            self._steps.advance()
        self.memory.restore()
        step = self._trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step
        step.total.ready = step.total.completed = self._job.committed_step  # this worker may have come when all was done
        self._job.done()
        rank_zero_only.rank = 0 if self.is_global_zero else 1


__all__ = ["TidemillStrategy"]

"""Hugging Face: the Trainer on instances that come and go, and its models as lists of layers for pipelines.

    from tidemill.torch.hf import ElasticTrainer            # instead of transformers.Trainer; import it at the top

    trainer = ElasticTrainer(model=model, args=args, train_dataset=data, determinism="bitwise")
    trainer.train()

A TrainerCallback can watch a loop, but it cannot change which worker computes which samples, nor cancel and redo a step. So
ElasticTrainer replaces Trainer's loop with its own (tidemill.torch.Job). It uses Trainer's data collator, `compute_loss`,
optimizer and schedule, bf16 and fp16, gradient checkpointing, label smoothing, clipping, evaluation, early stopping, logs,
saving, and callbacks. Arguments that it cannot honour are refused by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
import os
import warnings
from pathlib import Path
from typing import Any, ContextManager, Dict, Optional, Tuple

import torch
from torch import nn

from tidemill.errors import UsageError
from tidemill.session import under_agent
from tidemill.torch.job import NO_SHARDS, Job, init, own_device, refuse_shards


def _hide_ranks() -> None:
    """Accelerate would make a process group of these, and wait for others that do not come."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)


if under_agent(os.environ):
    _hide_ranks()

try:
    import transformers
    from transformers import Trainer
    from transformers.integrations.neftune import activate_neftune, deactivate_neftune
    from transformers.trainer_callback import ExportableState
    from transformers.trainer_utils import TrainOutput, get_last_checkpoint, rotate_checkpoints
except ImportError as error:
    raise UsageError("tidemill.torch.hf needs the package transformers: pip install 'transformers[torch]'") from error

from tidemill.torch.hf_layers import layers_of, token_loss  # noqa: E402

OLDEST_TRANSFORMERS = 5
_MARK = "tidemill-job"  # in checkpoints of a job: which


# Arguments whose promise is kept, or that mean nothing in any Trainer of one process; with how. All others may only have
# their defaults: tests/torch walks the fields of TrainingArguments, so that a new one is looked at before it is taken.
_KEPT = {
    "the size of steps": ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps"),
    "optimizer and schedule, made by Trainer": (
        "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args",
        "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    "how a micro-batch is computed": (
        "label_smoothing_factor", "bf16", "fp16", "neftune_noise_alpha", "tf32", "gradient_checkpointing",
        "gradient_checkpointing_kwargs", "use_cache",
        "label_names", "use_cpu", "seed", "full_determinism", "local_rank"),
    "data": ("dataloader_num_workers", "remove_unused_columns"),
    "logs, by the worker that is main": (
        "output_dir", "logging_strategy", "logging_steps", "logging_first_step", "log_level", "disable_tqdm", "report_to",
        "run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
    "saving for from_pretrained, by the worker that is main": (
        "save_strategy", "save_steps", "save_total_limit"),
    "evaluation, by every worker, and what follows from it": (
        "metric_for_best_model", "greater_is_better", "load_best_model_at_end",
        "eval_strategy", "eval_steps", "eval_delay", "per_device_eval_batch_size", "prediction_loss_only",
        "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps", "include_for_metrics",
        "batch_eval_metrics"),
    "push_to_hub(), where the script calls it": ("hub_token", "hub_private_repo", "hub_model_id", "hub_revision"),
    "flags for the script alone": ("do_train", "do_eval", "do_predict"),
    "both values are the same here": (
        "average_tokens_across_devices",  # tokens are counted over the whole step, whoever computes it
        "save_only_model",  # the job keeps the optimizer's state
        "log_on_each_node", "logging_nan_inf_filter",  # one worker logs; a loss that is not finite ends the job
        "dataloader_pin_memory", "dataloader_persistent_workers"),
}

# Why, and what to do instead, where there is more to say than that it is not done.
_WHY = {
    "deepspeed": NO_SHARDS.format("ElasticTrainer"),
    "fsdp": NO_SHARDS.format("ElasticTrainer"),
    "eval_on_start": "evaluate before train(), on every worker",
    "auto_find_batch_size": "the batch is the job's, and stays",
    "torch_compile": "the model would not be compiled",
    "push_to_hub": "every worker would push: call trainer.push_to_hub() after train(), where trainer.is_main",
    "data_seed": "the order of samples is drawn from seed",
    "train_sampling_strategy": "every item is used once per epoch, in an order drawn from seed",
    "dataloader_drop_last": "a step's batch is always whole, and goes on into the next epoch",
    "resume_from_checkpoint": "say it to train(resume_from_checkpoint=...); a job itself resumes from its last committed step",
}
_STRATEGIES = {"eval_strategy": ("no", "steps", "epoch"), "logging_strategy": ("no", "steps", "epoch"),
               "save_strategy": ("no", "steps", "epoch", "best")}
_MEASURED = ("reduce_lr_on_plateau", "greedy")
_OVERRIDDEN = ("_run_epoch", "_maybe_log_save_evaluate", "_clip_grad_norm", "_get_num_items_in_batch",
               "training_step", "get_train_dataloader", "_get_train_sampler", "get_batch_samples", "_inner_training_loop",
               "compute_loss_context_manager", "autocast_smart_context_manager", "_save_checkpoint")
_NOT_CALLED = ("on_epoch_begin", "on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step")


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


def _refuse(args: Any) -> None:
    """Refuses arguments that this loop cannot honour or does not know."""
    kept = {name for names in _KEPT.values() for name in names}
    for name, allowed in _STRATEGIES.items():
        if _text(getattr(args, name)) not in allowed:
            raise UsageError(f"TrainingArguments({name}={_text(getattr(args, name))!r}) cannot be used with ElasticTrainer: "
                             f"use {' or '.join(allowed)}")
    if _text(args.lr_scheduler_type) in _MEASURED:
        raise UsageError(f"TrainingArguments(lr_scheduler_type={_text(args.lr_scheduler_type)!r}) cannot be used with "
                         "ElasticTrainer: it depends on what was measured, not on the step")
    default = transformers.TrainingArguments(output_dir=args.output_dir, use_cpu=args.use_cpu)
    names = [field.name for field in dataclasses.fields(transformers.TrainingArguments)]
    odd = [n for n in names if n not in kept and getattr(args, n) != getattr(default, n)]
    for name in sorted(odd, key=lambda n: n not in _WHY):  # a reason is better than none: one sets the other at times
        why = _WHY.get(name, "its loop does nothing with it, so leave it at its default")
        raise UsageError(f"TrainingArguments({name}={getattr(args, name)!r}) cannot be used with ElasticTrainer: {why}")


def _refuse_code(trainer: Any) -> None:
    """Refuses the user's methods and callbacks that this loop would never call."""
    for name in _OVERRIDDEN:
        if getattr(type(trainer), name, None) is not getattr(Trainer, name, None):
            raise UsageError(f"{type(trainer).__name__}.{name} would never be called: ElasticTrainer has a loop of its own. "
                             "Override compute_loss, create_optimizer or create_scheduler, or give it a data_collator")
    for callback in trainer.callback_handler.callbacks:
        _refuse_callback(callback)


def _refuse_callback(callback: Any) -> None:
    """callback: an object or its class, as Trainer takes both."""
    kind = callback if isinstance(callback, type) else type(callback)
    if kind.__module__.partition(".")[0] == "transformers":
        return
    for name in _NOT_CALLED:
        if getattr(kind, name, None) is not getattr(transformers.TrainerCallback, name, None):
            raise UsageError(f"{kind.__name__}.{name} would never be called: ElasticTrainer calls on_train_begin, "
                             "on_step_end, on_epoch_end, on_evaluate, on_log, on_save and on_train_end")


def _take_device(args: Any) -> None:
    """The GPU of this worker's place: Trainer would take the first, and share evaluation out over all that it sees."""
    if args.use_cpu or args.device.type != "cuda":
        return
    device = own_device()
    torch.cuda.set_device(device)
    args.__dict__["_setup_devices"], args._n_gpu = device, 1


def _length(dataset: Any) -> Optional[int]:
    try:
        return len(dataset)
    except TypeError:
        return None


class _Progress:
    """What Trainer counts, as part of the job's state: sums of losses, the best metric, and what callbacks keep."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._sums = {"since": 0.0, "steps since": 0, "total": 0.0, "steps": 0}
        self._loaded: Optional[Dict[str, Any]] = None

    def add(self, loss: float) -> None:
        """A step."""
        if math.isfinite(loss):  # a step that the loss scale has skipped has none
            self._sums["since"] += loss
            self._sums["total"] += loss
        self._sums["steps since"] += 1
        self._sums["steps"] += 1

    def mean_since_log(self) -> float:
        """As Trainer logs it."""
        mean = self._sums["since"] / max(1, self._sums["steps since"])
        self._sums.update({"since": 0.0, "steps since": 0})
        return mean

    def mean(self) -> float:
        """Of the whole job."""
        return self._sums["total"] / self._sums["steps"] if self._sums["steps"] else math.nan

    def _callbacks(self) -> Dict[str, Any]:
        found = enumerate(self._trainer.callback_handler.callbacks)
        return {f"{number} {type(c).__name__}": c for number, c in found if isinstance(c, ExportableState)}

    def state_dict(self) -> Dict[str, Any]:
        """All of it."""
        state = self._trainer.state
        return {"sums": dict(self._sums), "best": [state.best_metric, state.best_global_step],
                "callbacks": {name: dict(c.state()["attributes"]) for name, c in self._callbacks().items()}}

    def load_state_dict(self, told: Dict[str, Any]) -> None:
        """What state_dict gave."""
        self._sums = dict(told["sums"])
        self._loaded = told
        self.restore()

    def restore(self) -> None:
        """The trainer and its callbacks, as they were told."""
        if self._loaded is None:
            return
        told, self._loaded = self._loaded, None if self._trainer._begun else self._loaded
        self._trainer.state.best_metric, self._trainer.state.best_global_step = told["best"]
        for name, callback in self._callbacks().items():
            for key, value in told["callbacks"].get(name, {}).items():
                setattr(callback, key, value)


class ElasticTrainer(Trainer):
    """transformers.Trainer whose workers may come and go.

    The batch of a step is per_device_train_batch_size x gradient_accumulation_steps for any number of workers, as in
    a single process. As in Trainer, a loss over tokens is divided by the tokens of the whole step that are not masked (-100); where
    Trainer does not count them, each micro-batch (per_device_train_batch_size samples) has its own mean loss, and a step's
    gradient is the mean over its micro-batches. Every item is used once per epoch, in an order drawn from args.seed. The model
    must start with the same weights on every worker: use from_pretrained, model_init, or transformers.set_seed before it is
    created.
    """

    def __init__(self, *words: Any, determinism: Optional[str] = None, threads: Optional[int] = None,
                 backend: Optional[str] = None, try_twice: bool = True, **named: Any) -> None:
        """determinism, threads, backend, try_twice: as for tidemill.torch.init; the rest as for transformers.Trainer."""
        if int(transformers.__version__.split(".")[0]) < OLDEST_TRANSFORMERS:
            raise UsageError(f"tidemill.torch.hf needs transformers {OLDEST_TRANSFORMERS} or newer (tested with 5.22); this "
                             f"is {transformers.__version__}")
        refuse_shards("ElasticTrainer", None, named)
        given = named.get("args", words[1] if len(words) > 1 else None)
        if given is None and len(words) < 2:
            given = named["args"] = transformers.TrainingArguments(output_dir="tmp_trainer")  # as Trainer does
        if given is not None:
            _refuse(given)  # before Trainer acts on it
            _take_device(given)
        super().__init__(*words, **named)
        _refuse_code(self)
        refuse_shards("ElasticTrainer", self.model)
        self._settings = {"determinism": determinism, "threads": threads, "backend": backend, "try_twice": try_twice}
        self.job: Optional[Job] = None
        self._begun = False

    job: Optional[Job] = None

    @property
    def is_main(self) -> bool:
        """In callbacks: one worker of the generation. After train(): one of those that have the final weights, the one to
        save and evaluate them."""
        if self.job is None:
            if under_agent(os.environ):
                raise UsageError("which worker is main is not known before train(): ask in a callback, or after it")
            return True
        return self.job.is_main

    def is_world_process_zero(self) -> bool:
        """As Trainer's: is_main."""
        if not hasattr(self, "_settings"):  # Trainer asks while it is made
            return not under_agent(os.environ)
        return self.is_main

    def add_callback(self, callback: Any) -> None:
        """As Trainer.add_callback."""
        _refuse_callback(callback)
        super().add_callback(callback)

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        """As Trainer.save_model, by the worker that is main: several would write the same files at once."""
        if self.is_main:
            super().save_model(output_dir, _internal_call)

    def is_local_process_zero(self) -> bool:
        """The same as is_world_process_zero: each worker is its own node."""
        return self.is_world_process_zero()

    def train(self, resume_from_checkpoint: Any = None, **named: Any) -> TrainOutput:
        """Trains to the end. A job resumes by itself, from the last committed step, so checkpoints of its own are passed over
        here; resume_from_checkpoint is for one of another job, or of transformers.Trainer: weights, optimizer, schedule and the
        number of steps come from it, the order of samples starts over."""
        if named:
            raise UsageError(f"ElasticTrainer.train takes no {', '.join(sorted(named))}")
        if self.job is not None:
            raise UsageError("train() is called twice: a job is trained once")
        args, dataset = self.args, self.train_dataset
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
        count = _length(dataset)
        if dataset is None or (count is None and args.max_steps <= 0):
            raise UsageError("ElasticTrainer needs a train_dataset with a length, or max_steps")
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * (count or 0) / batch)
        if self.model_init is not None:
            transformers.set_seed(args.seed)
            self.model = self.call_model_init()
            self._move_model_to_device(self.model, args.device)
        folder = self._checkpoint_of_others(resume_from_checkpoint)
        before = 0 if folder is None else self._load_weights(folder, steps)
        job = init(steps=steps - before, batch=batch, micro_batch=args.per_device_train_batch_size, seed=args.seed,
                   **self._settings)
        model = self.model
        if args.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs)
        if self.neftune_noise_alpha is not None:
            self.neftune_hook_handle = activate_neftune(model, self.neftune_noise_alpha, self.accelerator)
        self.create_optimizer_and_scheduler(num_training_steps=steps)
        if folder is not None:
            self._load_optimizer(folder)
            job._continues = True
        self._progress = _Progress(self)
        scaler = torch.amp.GradScaler(args.device.type) if args.fp16 else None
        dataset, collate = self._without_columns(dataset)
        job.on_commit(self._on_commit)
        job.after_step(self._after_step)
        job.attach(model, self.optimizer, self.lr_scheduler, clip=args.max_grad_norm or None, scaler=scaler,
                   state={"trainer": self._progress, **({"data": dataset} if hasattr(dataset, "state_dict") else {})})
        self.job = job
        self._begin(steps, before, batch, count)
        self.is_in_train = True
        self._loop(job, model, dataset, collate)
        self.is_in_train = False
        return self._end(job)

    # ---- checkpoints to begin from ----

    def _checkpoint_of_others(self, given: Any) -> Optional[Path]:
        """None: there is none, or it is this job's own."""
        if not given:
            return None
        found = get_last_checkpoint(self.args.output_dir) if given is True else str(given)
        if found is None:
            raise UsageError(f"resume_from_checkpoint: there is no checkpoint in {self.args.output_dir}")
        mark = Path(found) / _MARK
        if under_agent(os.environ) and mark.exists() and mark.read_text() == os.environ.get("TIDEMILL_JOB", ""):
            return None
        return Path(found)

    def _load_weights(self, folder: Path, steps: int) -> int:
        """Returns the step that they are of."""
        self._load_from_checkpoint(str(folder))
        notes = folder / "trainer_state.json"
        before = int(json.loads(notes.read_text())["global_step"]) if notes.exists() else 0
        if before >= steps:
            raise UsageError(f"{folder} is of step {before}, and the training has {steps}: there is nothing left to train")
        return before

    def _load_optimizer(self, folder: Path) -> None:
        for name, thing in (("optimizer.pt", self.optimizer), ("scheduler.pt", self.lr_scheduler)):
            if (folder / name).exists():
                thing.load_state_dict(torch.load(folder / name, map_location="cpu", weights_only=True))

    def _begin(self, steps: int, before: int, batch: int, count: Optional[int]) -> None:
        state, handler = self.state, self.callback_handler
        state.max_steps = steps
        state.num_train_epochs = math.ceil(steps * batch / count) if count else 1
        state.train_batch_size = self.args.per_device_train_batch_size
        state.compute_steps(self.args, steps)
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        self._before, self._samples_a_step, self._samples_an_epoch = before, batch, count
        self._begun = False

    def _say_begin(self, job: Job) -> None:
        """Logs the beginning, once it is known which worker is main."""
        if not self._begun:
            self._begun = True
            self.state.is_world_process_zero = self.state.is_local_process_zero = job.is_main
            self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
            self._progress.restore()  # what callbacks begin with is not what a worker that joins has

    def _without_columns(self, dataset: Any) -> Tuple[Any, Any]:
        """The data set and the collator, without columns that the model does not know."""
        if hasattr(dataset, "remove_columns") and hasattr(dataset, "column_names"):  # of the package datasets
            return self._remove_unused_columns(dataset, "training"), self.data_collator
        return dataset, self._get_collator_with_removed_columns(self.data_collator, "training")

    def _loop(self, job: Job, model: nn.Module, dataset: Any, collate: Any) -> None:
        model.train()
        workers = self.args.dataloader_num_workers
        for inputs in job.batches(dataset, collate=collate, workers=workers, count=self._tokens if self._counts() else None):
            if not job.rehearsing:
                self._say_begin(job)
            with job.step() as step:
                prepared = self._prepare_inputs(inputs)
                items = None if step.count is None else torch.tensor(int(step.count), device=self.args.device)
                with self._casting():
                    loss = self.compute_loss(model, prepared, **({} if items is None else {"num_items_in_batch": items}))
                step.backward(loss, scale=float(job.micro_batches) if self._is_share_of_step(items) else 1.0)

    def _counts(self) -> bool:
        """Does compute_loss take the number of a step's tokens?"""
        names = inspect.signature(self.compute_loss).parameters
        return "num_items_in_batch" in names or any(p.kind is p.VAR_KEYWORD for p in names.values())

    def _tokens(self, inputs: Any) -> Optional[float]:
        """As Trainer counts them; None: it does not."""
        found = self.get_batch_samples(iter([inputs]), 1, torch.device("cpu"))[1]
        return None if found is None else float(found)

    def _is_share_of_step(self, items: Any) -> bool:
        """Is the loss of a micro-batch its part of the step's, and not a mean of its own? As Trainer.training_step decides."""
        told = getattr(self, "loss_is_scaled_for_ga", None)
        return bool((self.model_accepts_loss_kwargs and items is not None) or self.compute_loss_func is not None) if told is None else told

    def _casting(self) -> ContextManager[Any]:
        if not self.args.bf16 and not self.args.fp16:
            return contextlib.nullcontext()
        return torch.autocast(self.args.device.type, dtype=torch.bfloat16 if self.args.bf16 else torch.float16)

    def _on_commit(self, step: int, loss: float) -> None:
        """What Trainer does after a step, on every worker: what follows from it is part of the step."""
        job, args, state = self.job, self.args, self.state
        assert job is not None
        state.global_step = self._before + step
        count, batch = self._samples_an_epoch, self._samples_a_step
        state.epoch = state.global_step * batch / count if count else state.global_step / state.max_steps
        state.is_world_process_zero = state.is_local_process_zero = job.is_main
        self._progress.add(loss)
        self.control = self.callback_handler.on_step_end(args, state, self.control)
        if step == job.steps or (count and state.global_step * batch // count > (state.global_step - 1) * batch // count):
            self.control = self.callback_handler.on_epoch_end(args, state, self.control)
        if self.control.should_log:
            self._log_step(job)
        if self.control.should_evaluate:
            self._evaluate_now()
        if self.control.should_training_stop and step < job.steps:
            job.stop()

    def _log_step(self, job: Job) -> None:
        mean = self._progress.mean_since_log()
        self.control.should_log = False
        if job.is_main:
            row = {"loss": mean, "learning_rate": self._get_learning_rate(), "generation": job.generation,
                   "workers": job.world_size}
            if job.last_norm is not None:
                row["grad_norm"] = job.last_norm
            self.log(row)

    def _evaluate_now(self) -> None:
        """By every worker, of the same weights: all know what came out, and decide alike."""
        self.control.should_evaluate = False
        metrics = self._evaluate(None, None)
        best = self._determine_best_metric(metrics=metrics, trial=None)
        if _text(self.args.save_strategy) == "best":
            self.control.should_save = best
        self.model.train()

    def _after_step(self, step: int, loss: Optional[float]) -> None:
        """What is written is written by one."""
        if not self.control.should_save:
            return
        self.control.should_save = False
        assert self.job is not None
        if self.job.is_main:
            folder = os.path.join(self.args.output_dir, f"checkpoint-{self.state.global_step}")
            self.save_model(folder)
            if not self.args.save_only_model:
                torch.save(self.optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
                torch.save(self.lr_scheduler.state_dict(), os.path.join(folder, "scheduler.pt"))
            self.state.save_to_json(os.path.join(folder, "trainer_state.json"))
            (Path(folder) / _MARK).write_text(os.environ.get("TIDEMILL_JOB", ""))
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            rotate_checkpoints(self.args.output_dir, self.args.save_total_limit, self._best_folder())

    def _best_folder(self) -> Optional[str]:
        step = self.state.best_global_step
        folder = None if step is None else os.path.join(self.args.output_dir, f"checkpoint-{step}")
        return folder if folder is not None and os.path.isdir(folder) else None

    def _end(self, job: Job) -> TrainOutput:
        has_result = job.done()
        _hide_ranks()
        self._say_begin(job)  # it may have come too late for a step
        if self.neftune_noise_alpha is not None:
            deactivate_neftune(self.model, self.neftune_hook_handle, self.accelerator)
        self.state.is_world_process_zero = self.state.is_local_process_zero = job.is_main
        self.state.global_step = self._before + job.committed_step
        if self.args.load_best_model_at_end and has_result:
            self._take_best()
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        mean = self._progress.mean()
        metrics: Dict[str, float] = {"train_loss": mean, "generation": job.generation, "has_result": float(has_result)}
        return TrainOutput(self.state.global_step, mean, metrics)

    def _take_best(self) -> None:
        folder = self._best_folder()
        if folder is None:
            warnings.warn(f"load_best_model_at_end: the checkpoint of step {self.state.best_global_step} is not in "
                          f"{self.args.output_dir} (another worker has written it): the model is that of the last step. Use a "
                          "folder that all workers see", stacklevel=2)
            return
        self.state.best_model_checkpoint = folder
        self._load_best_model()

    def _get_learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])


__all__ = ["ElasticTrainer", "layers_of", "token_loss"]

"""Hugging Face: the Trainer on machines that come and go, and its models as lists of layers for pipelines.

    from tidemill.torch.hf import ElasticTrainer            # instead of transformers.Trainer; import it at the top

    trainer = ElasticTrainer(model=model, args=args, train_dataset=data, determinism="bitwise")
    trainer.train()

A TrainerCallback can watch a loop, but not change who computes which samples, nor give a step up and do it again. So
ElasticTrainer brings a loop of its own (tidemill.torch.Job) in place of Trainer's. What it takes from Trainer: data
collator, `compute_loss`, optimizer and schedule, bf16, gradient checkpointing, label smoothing, clipping, logs, saving, and
callbacks. What it cannot keep its word on it refuses, with the argument's name.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import os
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple

import torch
from torch import nn

from tidemill.errors import UsageError
from tidemill.session import under_agent
from tidemill.torch.job import Job, init

if under_agent(os.environ):  # accelerate would make a process group of these, and wait for others that do not come
    for _name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(_name, None)

try:
    import transformers
    from transformers import Trainer
    from transformers.trainer_utils import TrainOutput
except ImportError as error:
    raise UsageError("tidemill.torch.hf needs the package transformers: pip install 'transformers[torch]'") from error

OLDEST_TRANSFORMERS = 5


# Arguments whose promise is kept, or that mean nothing in any Trainer of one process; with how. All others may only have
# their defaults: tests/torch walks the fields of TrainingArguments, so that a new one is looked at before it is taken.
_KEPT = {
    "the size of steps": ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps"),
    "optimizer and schedule, made by Trainer": (
        "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args",
        "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    "how a micro-batch is computed": (
        "label_smoothing_factor", "bf16", "tf32", "gradient_checkpointing", "gradient_checkpointing_kwargs", "use_cache",
        "label_names", "use_cpu", "seed", "full_determinism", "local_rank"),
    "data": ("dataloader_num_workers", "remove_unused_columns"),
    "logs, by the worker that is main": (
        "output_dir", "logging_strategy", "logging_steps", "logging_first_step", "log_level", "disable_tqdm", "report_to",
        "run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
    "saving for from_pretrained, by the worker that is main": ("save_strategy", "save_steps"),
    "evaluate and predict after train()": (
        "eval_strategy", "eval_steps", "eval_delay", "per_device_eval_batch_size", "prediction_loss_only",
        "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps", "include_for_metrics",
        "batch_eval_metrics"),
    "push_to_hub(), where the script calls it": ("hub_token", "hub_private_repo", "hub_model_id", "hub_revision"),
    "flags for the script alone": ("do_train", "do_eval", "do_predict"),
    "both values are the same here": (
        "average_tokens_across_devices",  # a micro-batch has its own mean
        "save_only_model",  # the job keeps the optimizer's state
        "log_on_each_node", "logging_nan_inf_filter",  # one worker logs; a loss that is not finite ends the job
        "dataloader_pin_memory", "dataloader_persistent_workers"),
}

# Why, and what to do instead, where there is more to say than that it is not done.
_WHY = {
    "fp16": "its loss scale depends on what was measured: use bf16=True",
    "deepspeed": "it shards by itself",
    "fsdp": "it shards by itself",
    "load_best_model_at_end": "there are no evaluations while it trains",
    "eval_on_start": "there are no evaluations while it trains",
    "auto_find_batch_size": "the batch is the job's, and stays",
    "torch_compile": "the model would not be compiled",
    "neftune_noise_alpha": "no noise would be added to the embeddings: add it in a forward hook of the model's embeddings",
    "push_to_hub": "every worker would push: call trainer.push_to_hub() after train(), where trainer.is_main",
    "save_total_limit": "no checkpoint is deleted",
    "data_seed": "the order of samples is drawn from seed",
    "train_sampling_strategy": "every item is used once per epoch, in an order drawn from seed",
    "dataloader_drop_last": "a step's batch is always whole, and goes on into the next epoch",
    "resume_from_checkpoint": "a job resumes by itself, from its last committed step",
}
_STRATEGIES = {"eval_strategy": ("no",), "logging_strategy": ("no", "steps"), "save_strategy": ("no", "steps")}
_MEASURED = ("reduce_lr_on_plateau", "greedy")
_OVERRIDDEN = ("training_step", "get_train_dataloader", "_get_train_sampler", "get_batch_samples", "_inner_training_loop",
               "compute_loss_context_manager", "autocast_smart_context_manager", "_save_checkpoint")
_NOT_CALLED = ("on_epoch_begin", "on_epoch_end", "on_step_begin", "on_substep_end", "on_pre_optimizer_step",
               "on_optimizer_step")


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


def _refuse(args: Any) -> None:
    """Arguments whose promise this loop would break, or that it does not know."""
    kept = {name for names in _KEPT.values() for name in names}
    for name, allowed in _STRATEGIES.items():
        if _text(getattr(args, name)) not in allowed:
            what = "evaluate after train(), on the worker that is_main" if name == "eval_strategy" else (
                f"steps are all that is counted: use {' or '.join(allowed)}")
            raise UsageError(f"TrainingArguments({name}={_text(getattr(args, name))!r}) cannot be used with ElasticTrainer: "
                             f"{what}")
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
    """Methods and callbacks of the user's that this loop would never call."""
    for name in _OVERRIDDEN:
        if getattr(type(trainer), name, None) is not getattr(Trainer, name, None):
            raise UsageError(f"{type(trainer).__name__}.{name} would never be called: ElasticTrainer has a loop of its own. "
                             "Override compute_loss, create_optimizer or create_scheduler, or give it a data_collator")
    for callback in trainer.callback_handler.callbacks:
        kind = type(callback)
        if kind.__module__.partition(".")[0] == "transformers":
            continue
        for name in _NOT_CALLED:
            if getattr(kind, name, None) is not getattr(transformers.TrainerCallback, name, None):
                raise UsageError(f"{kind.__name__}.{name} would never be called: ElasticTrainer calls on_train_begin, "
                                 "on_step_end, on_log, on_save and on_train_end")


class ElasticTrainer(Trainer):
    """transformers.Trainer whose workers may come and go.

    The batch of a step is per_device_train_batch_size x gradient_accumulation_steps whatever the number of workers: what
    one process alone would do. Each micro-batch (per_device_train_batch_size samples) has its own mean loss; a step's
    gradient is the mean over its micro-batches. Every item is used once per epoch, in an order drawn from args.seed. The model
    must begin alike on every worker: from_pretrained, or transformers.set_seed before it is made, or model_init.
    """

    def __init__(self, *words: Any, determinism: Optional[str] = None, threads: Optional[int] = None,
                 backend: Optional[str] = None, **named: Any) -> None:
        """determinism, threads, backend: as for tidemill.torch.init; the rest as for transformers.Trainer."""
        if int(transformers.__version__.split(".")[0]) < OLDEST_TRANSFORMERS:
            raise UsageError(f"tidemill.torch.hf needs transformers {OLDEST_TRANSFORMERS} or newer (tested with 5.22); this "
                             f"is {transformers.__version__}")
        given = named.get("args", words[1] if len(words) > 1 else None)
        if given is not None:
            _refuse(given)  # before Trainer acts on it
        super().__init__(*words, **named)
        _refuse_code(self)
        self._settings = {"determinism": determinism, "threads": threads, "backend": backend}
        self.job: Optional[Job] = None

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

    def is_local_process_zero(self) -> bool:
        """The same: a worker is alone in its place."""
        return self.is_world_process_zero()

    def train(self, resume_from_checkpoint: Any = None, **named: Any) -> TrainOutput:
        """Trains to the end. A job resumes by itself, from the last committed step: there is nothing to say."""
        if resume_from_checkpoint:
            raise UsageError("resume_from_checkpoint: a job resumes by itself, from its last committed step; to begin with "
                             "other weights load them into the model first")
        if named:
            raise UsageError(f"ElasticTrainer.train takes no {', '.join(sorted(named))}")
        if self.job is not None:
            raise UsageError("train() is called twice: a job is trained once")
        args, dataset = self.args, self.train_dataset
        if dataset is None or not hasattr(dataset, "__len__"):
            raise UsageError("ElasticTrainer needs a train_dataset with a length: Tidemill names the samples of a step")
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * len(dataset) / batch)
        if self.model_init is not None:
            transformers.set_seed(args.seed)
            self.model = self.call_model_init()
            self._move_model_to_device(self.model, args.device)
        job = init(steps=steps, batch=batch, micro_batch=args.per_device_train_batch_size, seed=args.seed,
                              **self._settings)
        model = self.model
        if args.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs)
        self.create_optimizer_and_scheduler(num_training_steps=steps)
        job.attach(model, self.optimizer, self.lr_scheduler, clip=args.max_grad_norm or None)
        self.job = job
        self._begin(steps, batch, len(dataset))
        self._loop(job, model, dataset)
        return self._end(job)

    def _begin(self, steps: int, batch: int, count: int) -> None:
        state, handler = self.state, self.callback_handler
        state.max_steps, state.num_train_epochs = steps, math.ceil(steps * batch / count)
        state.train_batch_size = self.args.per_device_train_batch_size
        state.compute_steps(self.args, steps)
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        self._samples_a_step, self._samples_an_epoch = batch, count
        self._losses: List[float] = []
        self._logged = 0
        self._begun = False
        assert self.job is not None
        self.job.after_step(self._after_step)

    def _say_begin(self, job: Job) -> None:
        """When it is known who is main."""
        if not self._begun:
            self._begun = True
            self.state.is_world_process_zero = self.state.is_local_process_zero = job.is_main
            self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)

    def _loop(self, job: Job, model: nn.Module, dataset: Any) -> None:
        model.train()
        if hasattr(dataset, "remove_columns") and hasattr(dataset, "column_names"):  # of the package datasets
            dataset, collate = self._remove_unused_columns(dataset, "training"), self.data_collator
        else:
            collate = self._get_collator_with_removed_columns(self.data_collator, "training")
        for inputs in job.batches(dataset, collate=collate, workers=self.args.dataloader_num_workers):
            self._say_begin(job)
            with job.step() as step:
                prepared = self._prepare_inputs(inputs)
                with self._casting():
                    loss = self.compute_loss(model, prepared)
                step.backward(loss)

    def _casting(self) -> ContextManager[Any]:
        if not self.args.bf16:
            return contextlib.nullcontext()
        return torch.autocast(self.args.device.type, dtype=torch.bfloat16)

    def _after_step(self, step: int, loss: Optional[float]) -> None:
        """Trainer's callbacks, on every worker; what is written is written by one."""
        job, args, state = self.job, self.args, self.state
        assert job is not None
        state.global_step = step
        state.epoch = step * self._samples_a_step / self._samples_an_epoch
        state.is_world_process_zero = state.is_local_process_zero = job.is_main
        if loss is not None:
            self._losses.append(loss)
        self.control = self.callback_handler.on_step_end(args, state, self.control)
        if self.control.should_training_stop and step < job.steps:
            raise UsageError(f"a callback wants to stop at step {step}: a job's steps are said when it starts, so that no "
                             "worker stops alone. Set max_steps, or stop it with `tidemill stop`")
        if self.control.should_log and job.is_main:
            recent = self._losses[self._logged:]
            self.log({"loss": sum(recent) / max(1, len(recent)), "learning_rate": self._get_learning_rate(),
                      "generation": job.generation, "workers": job.world_size})
        if self.control.should_log:
            self.control.should_log, self._logged = False, len(self._losses)
        if self.control.should_save and job.is_main:
            self.save_model(os.path.join(args.output_dir, f"checkpoint-{step}"))
            self.control = self.callback_handler.on_save(args, state, self.control)
        self.control.should_save = False

    def _end(self, job: Job) -> TrainOutput:
        has_result = job.done()
        self._say_begin(job)  # it may have come too late for a step
        self.state.is_world_process_zero = self.state.is_local_process_zero = job.is_main
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        mean = sum(self._losses) / len(self._losses) if self._losses else math.nan
        metrics: Dict[str, float] = {"train_loss": mean, "generation": job.generation, "has_result": float(has_result)}
        return TrainOutput(job.committed_step, mean, metrics)

    def _get_learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])


# ---- models as lists of layers ----

Ties = List[Tuple[Tuple[int, str], Tuple[int, str]]]


class _Gpt2Embedding(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = model.transformer.wte, model.transformer.wpe, model.transformer.drop

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device)))


class _Gpt2Head(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.ln_f, self.lm_head = model.transformer.ln_f, _apart(model.lm_head)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.ln_f(x))


class _BertHead(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.cls = _apart(model.cls)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cls(x)


class _BertEmbedding(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embeddings = model.bert.embeddings

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.embeddings(input_ids=ids)


class _Block(nn.Module):
    """A block that takes and gives hidden states, without padding."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.block(x)
        return out[0] if isinstance(out, tuple) else out


def _apart(module: nn.Module) -> nn.Module:
    """A copy with weights of its own: in a pipeline a tied weight lives at both ends."""
    return copy.deepcopy(module)


def _is_tied(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or a.data_ptr() == b.data_ptr()


def _gpt2(model: Any) -> Tuple[List[nn.Module], Ties]:
    if model.config._attn_implementation == "eager":
        raise UsageError("a GPT-2 with eager attention needs a mask that only the whole model makes: load it with "
                         "attn_implementation=\"sdpa\"")
    tied = _is_tied(model.lm_head.weight, model.transformer.wte.weight)
    layers = [_Gpt2Embedding(model), *[_Block(b) for b in model.transformer.h], _Gpt2Head(model)]
    last = len(layers) - 1
    return layers, [((0, "wte.weight"), (last, "lm_head.weight"))] if tied else []


def _bert(model: Any) -> Tuple[List[nn.Module], Ties]:
    tied = _is_tied(model.cls.predictions.decoder.weight, model.bert.embeddings.word_embeddings.weight)
    layers = [_BertEmbedding(model), *[_Block(b) for b in model.bert.encoder.layer], _BertHead(model)]
    last = len(layers) - 1
    ends = ((0, "embeddings.word_embeddings.weight"), (last, "cls.predictions.decoder.weight"))
    return layers, [ends] if tied else []


_KINDS: Dict[str, Callable[[Any], Tuple[List[nn.Module], Ties]]] = {"GPT2LMHeadModel": _gpt2, "BertForMaskedLM": _bert}


def layers_of(model: nn.Module) -> Tuple[List[nn.Module], Ties]:
    """A GPT2LMHeadModel or BertForMaskedLM as (layers, ties) for tidemill.torch.Pipeline:

        layers, tied = layers_of(model)
        pipeline = Pipeline(job, layers, loss=token_loss, optimizer=..., tied=tied)

    The first layer takes token numbers (batch, length), the last gives logits. Sequences are of full length: there is no
    padding mask. The layers are the model's own, but for the head, which gets a copy of a tied weight. `layers:` of the job's
    file is their number, blocks + 2.
    """
    kind = type(model).__name__
    if kind not in _KINDS:
        raise UsageError(f"layers_of knows {', '.join(sorted(_KINDS))}, not {kind}: give Pipeline a list of its layers, each "
                         "of which takes what the one before it gives")
    return _KINDS[kind](model)


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy a token; targets as wide as the logits (already shifted), -100 where there is nothing to learn."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


__all__ = ["ElasticTrainer", "layers_of", "token_loss"]

"""A tiny GPT-2 under ElasticTrainer. train_hf.py OUT [--gate FILE]"""
import argparse
import hashlib
import sys

from tidemill.torch.hf import ElasticTrainer  # before TrainingArguments: it keeps accelerate from looking for others

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

from train_small import Gate

STEPS = 80


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        ids = torch.randint(0, 64, (12,), generator=torch.Generator().manual_seed(i))
        labels = ids.clone()
        labels[: i * 5 % 11] = -100  # micro-batches have different numbers of tokens
        return {"input_ids": ids, "labels": labels}


class Watch(TrainerCallback):
    """Says what was applied; steps beyond the gate's go slowly, so that the test can get a word in."""

    def __init__(self, gate):
        self.gate, self.steps, self.trainer, self.logged = Gate(gate), [], None, []

    def on_step_end(self, args, state, control, **_):
        self.steps.append(state.global_step)
        print(f"applied {state.global_step} of {self.trainer.job.world_size}", flush=True)
        self.gate.wait(state.global_step, lambda: False)

    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs:
            self.logged.append((state.global_step, logs["loss"]))
            print(f"logged {state.global_step} {logs['loss']:.9f}", flush=True)


def make(dropout=0.1):
    transformers.set_seed(5)
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=16, bos_token_id=0,
                                      eos_token_id=0, embd_pdrop=dropout, attn_pdrop=dropout, resid_pdrop=dropout))


def arguments(out, **more):
    return TrainingArguments(**{**dict(
        output_dir=out, max_steps=STEPS, per_device_train_batch_size=4, gradient_accumulation_steps=4, seed=3,
        learning_rate=1e-3, lr_scheduler_type="cosine", warmup_steps=4, logging_steps=10, save_strategy="no", use_cpu=True,
        report_to=[], disable_tqdm=True), **more})


def train(out, gate=None, dropout=0.1, resume=None, more=(), **words):
    """(trainer, watch) after the training."""
    watch = Watch(gate)
    trainer = ElasticTrainer(model=make(dropout), args=arguments(out, **words), train_dataset=Tokens(), eval_dataset=Tokens(),
                             callbacks=[watch, *more], determinism="bitwise")
    watch.trainer = trainer
    trainer.train_loss = trainer.train(resume_from_checkpoint=resume).training_loss
    return trainer, watch


def hash_of(model):
    h = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        h.update(name.encode() + tensor.numpy().tobytes())
    return h.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--gate")
    parser.add_argument("--plain", action="store_true", help="six steps by transformers.Trainer, for a checkpoint")
    parser.add_argument("--from", dest="folder", help="evaluate, stop early, and begin from this checkpoint of plain Trainer")
    words = parser.parse_args()
    if words.plain:
        transformers.Trainer(model=make(), args=arguments(words.out, max_steps=6, save_strategy="steps", save_steps=6),
                             train_dataset=Tokens()).train()
        sys.exit(0)
    more = {}
    if words.folder:  # it falls, so that the first is the best, and the training stops early
        more = dict(resume=words.folder, max_steps=6 + STEPS, eval_strategy="steps", eval_steps=10, greater_is_better=True,
                    save_strategy="steps", save_steps=10, save_total_limit=2, metric_for_best_model="eval_loss",
                    more=[transformers.EarlyStoppingCallback(4)])
    done, _ = train(words.out, words.gate, **more)
    print(f"ended {done.state.global_step} best {done.state.best_metric} at {done.state.best_global_step}", flush=True)
    if done.is_main:
        print(f"weights {hash_of(done.model)}", flush=True)
    sys.stdout.flush()

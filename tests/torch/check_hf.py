"""Hugging Face: ElasticTrainer alone and through a loss, what it refuses, and models as lists of layers."""
import os
import subprocess
from pathlib import Path

import torch

from cluster import ROOT, Cluster, Skipped, Trouble, made_up_gpus, python

SCRIPT = str(ROOT / "tests" / "torch" / "train_hf.py")


def need_transformers():
    """And no variables of a job that another test of this process has begun: accelerate would look for its workers."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise Skipped("the package transformers is not there (make venv)")


def alone(folder: Path, *more: str) -> str:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_") or k == "TIDEMILL_LIBRARY"}
    done = subprocess.run([python(), SCRIPT, str(folder / "alone"), *more], capture_output=True, text=True, env=variables)
    if done.returncode:
        raise Trouble(done.stderr)
    return done.stdout


def weights(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("weights "))


def test_hf_trainer_kill(build, folder):
    """Two workers, one is lost with its agent, another joins: the same weights as plain `python train.py`."""
    need_transformers()
    words = [python(), SCRIPT, str(folder / "out"), "--gate", str(folder / "cluster" / "gate")]
    variables = {"LOCAL_RANK": "0", "TIDEMILL_DETERMINISM": "bitwise"}  # as an agent sets it
    with Cluster(build, folder / "cluster", words, 80, layers=4, micro_batches=4, variables=variables) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(4, 2)
        c.kill_instance(1)
        c.await_step(c.newest()[0] + 2, 1)
        c.start_agent(3)
        c.await_end()
        c.await_(lambda: any("weights " in c.log(n) for n in (2, 3)), 60, "the final weights")
        ended = next(c.log(n) for n in (2, 3) if "weights " in c.log(n))
        undisturbed = alone(folder)
        if weights(ended) != weights(undisturbed):
            raise Trouble(f"other weights than the undisturbed run\n{c.tail()}")
        logged = {line for n in (1, 2, 3) for line in c.log(n).splitlines() if line.startswith("logged ")}
        expected = {line for line in undisturbed.splitlines() if line.startswith("logged ")}
        if not logged or not logged <= expected:
            raise Trouble(f"other losses were logged: {sorted(logged - expected)}")


def test_hf_trainer_chaos(build, folder):
    """From a checkpoint of plain Trainer, with evaluation, checkpoints, a callback and early stopping: a worker is killed, an instance
    is lost, another joins, and it stops at the same step with the same weights."""
    need_transformers()
    alone(folder / "plain", "--plain")
    begin = ["--from", str(folder / "plain" / "alone" / "checkpoint-6")]
    undisturbed = alone(folder, *begin)
    words = [python(), SCRIPT, str(folder / "out"), "--gate", str(folder / "cluster" / "gate"), *begin]
    variables = {"LOCAL_RANK": "0", "TIDEMILL_DETERMINISM": "bitwise"}
    with Cluster(build, folder / "cluster", words, 80, layers=4, micro_batches=4, variables=variables) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(8, 2)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 3)
        c.kill_instance(2)
        c.start_agent(3)
        c.await_step(c.newest()[0] + 2)
        c.await_end()
        c.await_(lambda: any("weights " in c.log(n) for n in (1, 3)), 60, "the final weights")
        ended = next(c.log(n) for n in (1, 3) if "weights " in c.log(n))
        for start in ("weights ", "ended "):
            told = [[line for line in text.splitlines() if line.startswith(start)][-1] for text in (ended, undisturbed)]
            if told[0] != told[1]:
                raise Trouble(f"{told[0]}, and undisturbed {told[1]}\n{c.tail()}")
        assert int(told[1].split()[1]) < 86, told


def test_hf_trainer_alone(build, folder):
    """Callbacks see every step, logs and checkpoints come when they should, and the loss falls."""
    need_transformers()
    from train_hf import train
    from transformers import GPT2LMHeadModel

    trainer, watch = train(str(folder), save_strategy="steps", save_steps=20, max_steps=40)
    assert watch.steps == list(range(1, 41))
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 4 and losses[-1] < losses[0], losses
    saved = GPT2LMHeadModel.from_pretrained(folder / "checkpoint-40")
    for name, tensor in trainer.model.state_dict().items():
        assert torch.equal(saved.state_dict()[name], tensor), name
    assert (folder / "checkpoint-20").is_dir() and trainer.is_main


def test_hf_like_plain_loop(build, folder):
    """The same samples in a loop of plain PyTorch give the same weights, but for rounding."""
    need_transformers()
    from tidemill import samples
    from train_hf import Tokens, make, train
    from transformers import get_cosine_schedule_with_warmup

    trainer, _ = train(str(folder), dropout=0.0, max_steps=6, max_grad_norm=0.5)
    model, data = make(0.0).train(), Tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, 4, 6)
    for step in range(1, 7):
        optimizer.zero_grad()
        rows = [[data[i] for i in samples.micro_batch_items(3, len(data), 16, 4, step, number)] for number in range(4)]
        total = sum(int((row["labels"][1:] != -100).sum()) for part in rows for row in part)
        for part in rows:
            ids, labels = (torch.stack([row[key] for row in part]) for key in ("input_ids", "labels"))
            (model(input_ids=ids, labels=labels).loss * (labels[:, 1:] != -100).sum() / total).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-4)


def after(function, plan=None):
    """What it returns, through kills where there is a plan."""
    from check_patterns import train as through

    return through(lambda _: need_transformers() or function(), plan)


def plan(steps=14):
    return {"kills": {3, 8, 12}, "given_up": {5: 2, 9: 1}}


def test_hf_evaluation(build, folder):
    """Evaluation while it trains, early stopping, the best model at the end, checkpoints that are few: through kills, too."""
    need_transformers()
    from train_hf import hash_of, train
    from transformers import EarlyStoppingCallback

    def once(name, **more):
        out = folder / name
        trainer, _ = train(str(out), max_steps=14, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
                           save_total_limit=2, metric_for_best_model="eval_loss", logging_steps=3,
                           greater_is_better=True,  # it falls: so the first is the best, and it stops early
                           more=[EarlyStoppingCallback(2)], **more)
        return trainer

    for name, more in (("last", {}), ("best", {"load_best_model_at_end": True})):
        first = once(f"{name}-alone", **more)
        assert first.state.global_step < 14 and first.state.best_global_step < first.state.global_step, first.state
        assert len(list((folder / f"{name}-alone").glob("checkpoint-*"))) == 2
        second = after(lambda: once(f"{name}-killed", **more), plan())
        assert hash_of(first.model) == hash_of(second.model)
        assert (first.state.best_metric, first.state.global_step) == (second.state.best_metric, second.state.global_step)


def test_hf_logged_losses(build, folder):
    """As Trainer logs them: means of what came since the last log, the same with and without kills."""
    need_transformers()
    from train_hf import train

    def once():
        trainer, watch = train(str(folder), max_steps=14, logging_steps=4, neftune_noise_alpha=5.0)
        return dict(watch.logged), trainer.train_loss

    expected, total = once()
    logged, again = after(once, plan())
    assert sorted(expected) == [4, 8, 12] and logged and all(expected[s] == logged[s] for s in logged), (expected, logged)
    assert total == again


def test_hf_masked_tokens(build, folder):
    """Labels of -100: one step over the whole data set, so that the order does not matter, is Trainer's own, with its loss. With a
    loss function of the script's, which is given the tokens of the step, and with one that knows nothing of them, too."""
    need_transformers()
    from tidemill.torch.hf import ElasticTrainer
    from train_hf import Tokens, arguments, make
    from transformers import Trainer

    def summed(outputs, labels, num_items_in_batch=None):
        logits = outputs["logits"][:, :-1].flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum") / num_items_in_batch

    def one_step(kind, plain_mean=False, **words):
        class Mean(kind):
            loss_is_scaled_for_ga = False

            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                return model(**inputs).loss

        args = arguments(str(folder), max_steps=1, per_device_train_batch_size=16, gradient_accumulation_steps=6, learning_rate=1.0,
                         lr_scheduler_type="constant", warmup_steps=0, optim="sgd", max_grad_norm=0.0, logging_steps=1)
        trainer = (Mean if plain_mean else kind)(model=make(0.0), args=args, train_dataset=Tokens(), **words)
        trainer.train()
        return trainer.model.state_dict(), next(row["loss"] for row in trainer.state.log_history if "loss" in row)

    for words in ({}, {"compute_loss_func": summed}):
        (theirs, loss), (ours, told) = one_step(Trainer, **words), one_step(ElasticTrainer, **words)
        assert abs(loss - told) < 1e-5, (words, loss, told)
        for name, value in theirs.items():
            torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-6)
    _, mean = one_step(ElasticTrainer, plain_mean=True)
    assert abs(loss - mean) > 1e-3, "the micro-batches have too much alike to tell"


def test_hf_loop_state(build, folder):
    """A count in compute_loss that the loss depends on: no worker that joins would have it."""
    need_transformers()
    from tidemill.errors import UsageError
    from tidemill.torch.hf import ElasticTrainer
    from train_hf import Tokens, arguments, make

    class Counts(ElasticTrainer):
        count = 0

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            self.count += 1
            return super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch) * (1 + 0.01 * self.count)

    def train(**words):
        args = arguments(str(folder), max_steps=2)
        return Counts(model=make(), args=args, train_dataset=Tokens(), determinism="bitwise", **words).train()

    try:
        train()
    except UsageError as error:
        assert "was computed twice" in str(error) and "try_twice=False" in str(error), error
    else:
        raise Trouble("a count of the loop was taken")
    need_transformers()
    train(try_twice=False)


def test_hf_who_saves(build, folder):
    """After train() every worker's script calls save_model, save_state and save_metrics: one writes."""
    need_transformers()
    from train_hf import train

    trainer, _ = train(str(folder), max_steps=2)
    trainer.job._rank = 1
    trainer.save_model(folder / "model")
    trainer.save_state()
    trainer.save_metrics("train", {"loss": 1.0})
    assert not list(folder.iterdir()), list(folder.iterdir())
    trainer.job._rank = 0
    trainer.save_model(folder / "model")
    trainer.save_state()
    trainer.save_metrics("train", {"loss": 1.0})
    found = {path.name for path in folder.iterdir()}
    assert {"model", "trainer_state.json", "train_results.json"} <= found, found


def test_hf_own_gpu(build, folder):
    """Where an instance has several workers each takes the GPU of its place, and no other: with a made-up number of GPUs."""
    need_transformers()
    from tidemill.torch import hf
    from train_hf import Tokens, arguments, make

    taken = []
    for local, gpus, expected in (("2", 4, 2), ("6", 4, 2), ("1", 1, 0), (None, 4, 0)):
        with made_up_gpus(gpus, local, taken):
            args = arguments(str(folder))
            args.use_cpu = False
            args.__dict__["_setup_devices"], args._n_gpu = torch.device("cuda:0"), gpus  # as TrainingArguments finds them
            hf._take_device(args)
            assert (args.device, args.n_gpu, taken[-1]) == (torch.device("cuda", expected), 1, args.device), (local, gpus)
    kept, seen = hf._take_device, []
    hf._take_device = seen.append
    try:
        for named in ({"args": arguments(str(folder))}, {}):  # without arguments Trainer makes some
            assert hf.ElasticTrainer(model=make(), train_dataset=Tokens(), **named).args is seen[-1]
    finally:
        hf._take_device = kept


def test_hf_resume(build, folder):
    """From a checkpoint of plain Trainer: weights, optimizer, schedule and the steps that are left."""
    need_transformers()
    from train_hf import arguments, make, Tokens, train
    from transformers import Trainer

    args = arguments(str(folder / "plain"), max_steps=12, save_strategy="steps", save_steps=6)
    Trainer(model=make(), args=args, train_dataset=Tokens()).train()
    trainer, watch = train(str(folder / "plain"), resume=str(folder / "plain" / "checkpoint-6"), max_steps=12)
    assert watch.steps == list(range(7, 13))
    assert {int(s["step"]) for s in trainer.optimizer.state.values()} == {12}
    trainer, watch = train(str(folder / "plain"), resume=True, max_steps=14)  # the last one
    assert watch.steps == [13, 14]


def test_hf_float16(build, folder):
    """A loss scale that begins too large, and is part of the state."""
    need_transformers()
    from train_hf import hash_of, train

    first, _ = train(str(folder / "a"), max_steps=14, fp16=True)
    second = after(lambda: train(str(folder / "b"), max_steps=14, fp16=True)[0], plan())
    assert hash_of(first.model) == hash_of(second.model)
    assert first.job._scale.state_dict() == second.job._scale.state_dict()


def test_hf_refused(build, folder):
    """What would break a promise is refused by its name."""
    need_transformers()
    from tidemill.errors import UsageError
    from tidemill.torch.hf import layers_of
    from train_hf import train

    for arguments in ({"eval_on_start": True}, {"auto_find_batch_size": True}, {"torch_compile": True}, {"data_seed": 4},
                      {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"}, {"ddp_timeout": 60}):
        name = next(iter(arguments))
        try:
            train(str(folder), **arguments)
        except UsageError as error:
            assert name in str(error), error
        else:
            raise Trouble(f"{arguments} was taken")
    try:
        layers_of(torch.nn.Linear(2, 2))
    except UsageError as error:
        assert "GPT2LMHeadModel" in str(error)
    else:
        raise Trouble("a Linear was taken for a model of blocks")


def test_hf_every_argument(build, folder):
    """Every field of TrainingArguments is kept, or refused by its name when it is not what it is by default."""
    need_transformers()
    import dataclasses

    from tidemill.errors import UsageError
    from tidemill.torch import hf
    from transformers import TrainingArguments

    names = [field.name for field in dataclasses.fields(TrainingArguments)]
    kept = [name for group in hf._KEPT.values() for name in group]
    assert len(kept) == len(set(kept)) and set(kept) <= set(names), set(kept) - set(names)
    assert set(hf._WHY) <= set(names) - set(kept)
    args = TrainingArguments(output_dir=str(folder), use_cpu=True)
    hf._refuse(args)
    for name in names:
        before = getattr(args, name)
        setattr(args, name, "something else")
        try:
            hf._refuse(args)
            taken = True
        except UsageError as error:
            assert f"TrainingArguments({name}=" in str(error), error
            taken = False
        setattr(args, name, before)
        assert taken == (name in kept and name not in hf._STRATEGIES), name


def test_hf_code_that_is_not_called(build, folder):
    """Methods and callbacks that Tidemill's loop would never call."""
    need_transformers()
    from tidemill.errors import UsageError
    from tidemill.torch.hf import ElasticTrainer
    from train_hf import Tokens, make
    from transformers import TrainerCallback, TrainingArguments

    class Own(ElasticTrainer):
        def training_step(self, *words):
            return super().training_step(*words)

    class Epochs(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            pass

    args = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[])
    class Clips(ElasticTrainer):
        def _clip_grad_norm(self, model):
            return super()._clip_grad_norm(model)

    class Noise(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **_):
            pass

    class More(Noise):
        pass

    for kind, callbacks, name in ((Own, [], "Own.training_step"), (ElasticTrainer, [Epochs()], "Epochs.on_step_begin"),
                                  (Clips, [], "Clips._clip_grad_norm"), (ElasticTrainer, [More], "More.on_pre_optimizer_step")):
        try:
            kind(model=make(), args=args, train_dataset=Tokens(), callbacks=callbacks)
        except UsageError as error:
            assert name in str(error), error
        else:
            raise Trouble(f"{name} was taken")
    trainer = ElasticTrainer(model=make(), args=args, train_dataset=Tokens())
    for callback in (Epochs(), Epochs):
        try:
            trainer.add_callback(callback)
        except UsageError as error:
            assert "Epochs.on_step_begin" in str(error), error
        else:
            raise Trouble("add_callback has taken it")


def test_hf_cannot_shard(build, folder):
    """It says so, whichever way it is asked."""
    need_transformers()
    from tidemill.errors import UsageError
    from tidemill.torch import plan
    from tidemill.torch.hf import ElasticTrainer
    from torch.distributed.fsdp import fully_shard
    from train_hf import Tokens, make
    from transformers import TrainingArguments

    def sharded():
        model = make()
        fully_shard(model, mesh=plan.mesh_of(torch.device("cpu")))
        return model

    args = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[])
    told = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[])
    told.fsdp = "full_shard"
    for words in ({"model": make(), "args": args, "shard": "full"}, {"model": sharded(), "args": args}, {"model": make(), "args": told}):
        try:
            ElasticTrainer(train_dataset=Tokens(), **words)
        except UsageError as error:
            assert "ElasticTrainer cannot shard" in str(error), error
        else:
            raise Trouble(f"{words} was taken")


def test_hf_unused_columns(build, folder):
    """Columns that the model does not know are left out, as Trainer does."""
    need_transformers()
    from tidemill.torch.hf import ElasticTrainer
    from train_hf import Tokens, make
    from transformers import TrainingArguments, default_data_collator

    class More(Tokens):
        def __getitem__(self, i):
            return {**super().__getitem__(i), "name": torch.tensor(i)}

    args = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[], max_steps=2, save_strategy="no",
                             disable_tqdm=True)
    seen = set()

    def collate(rows):
        seen.update(rows[0])
        return default_data_collator(rows)

    ElasticTrainer(model=make(), args=args, train_dataset=More(), data_collator=collate).train()
    assert seen == {"input_ids", "labels"}, seen


def test_hf_layers(build, folder):
    """The list of layers computes what the model does; a pipeline of it trains the tied weight as the model would."""
    need_transformers()
    import transformers
    from tidemill import samples
    from tidemill import torch as elastic
    from tidemill.torch.hf import layers_of, token_loss
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    def gpt2():
        transformers.set_seed(5)
        return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=16, bos_token_id=0,
                                          eos_token_id=0, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0))

    def bert():
        transformers.set_seed(5)
        return BertForMaskedLM(BertConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64,
                                          vocab_size=64, max_position_embeddings=16, hidden_dropout_prob=0.0,
                                          attention_probs_dropout_prob=0.0))

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, i):
            ids = torch.randint(0, 64, (12,), generator=torch.Generator().manual_seed(i))
            return ids, ids.roll(-1)

    for make in (gpt2, bert):
        whole, data = make(), Pairs()
        layers, tied = layers_of(make())
        assert len(layers) == 4 and len(tied) == 1
        out = ids = torch.stack([data[i][0] for i in range(3)])
        for layer in layers:
            out = layer(out)
        torch.testing.assert_close(out, whole(input_ids=ids).logits)
        mask = torch.ones_like(ids)
        mask[0, 5:], mask[2, 9:] = 0, 0
        out = (ids, mask)
        for layer in layers:
            out = layer(*out)
        torch.testing.assert_close(out[mask.bool()], whole(input_ids=ids, attention_mask=mask).logits[mask.bool()])
        assert not torch.allclose(out[mask.bool()], whole(input_ids=ids).logits[mask.bool()]) or make is gpt2  # it looks back
        job = elastic.init(steps=4, batch=8, micro_batch=4, seed=1)
        pipeline = elastic.Pipeline(job, layers, loss=token_loss, tied=tied,
                                    optimizer=lambda layer: torch.optim.SGD(layer.parameters(), lr=0.1))
        pipeline.train(data)
        optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
        for step in range(1, 5):
            optimizer.zero_grad()
            for number in range(2):
                pairs = [data[i] for i in samples.micro_batch_items(1, len(data), 8, 4, step, number)]
                ids, targets = (torch.stack(column) for column in zip(*pairs))
                (token_loss(whole(input_ids=ids).logits, targets) / 2).backward()
            optimizer.step()
        first, last = (dict(pipeline.layer(n).named_parameters())[name] for n, name in tied[0])
        assert torch.equal(first, last)
        torch.testing.assert_close(first, whole.get_input_embeddings().weight, rtol=1e-3, atol=1e-5)


def test_hf_layers_of_vit(build, folder):
    """A ViT's layers compute what it does, and a pipeline of them, compiled by dynamo or not, trains as it would."""
    need_transformers()
    import copy

    import transformers
    from tidemill import samples
    from tidemill import torch as elastic
    from tidemill.torch.hf import layers_of
    from torch.nn.functional import cross_entropy

    transformers.set_seed(5)
    whole = transformers.ViTForImageClassification(transformers.ViTConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=48, image_size=16, patch_size=8, num_labels=5,
        num_channels=1))

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, i):
            return torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(i)), i % 5

    data, made = Images(), []
    out = images = torch.stack([data[i][0] for i in range(3)])
    for layer in layers_of(copy.deepcopy(whole))[0]:
        out = layer(out)
    torch.testing.assert_close(out, whole(pixel_values=images).logits)
    for compiled in (False, {"backend": "eager"}):
        layers, tied = layers_of(copy.deepcopy(whole))
        assert len(layers) == 4 and not tied
        job = elastic.init(steps=3, batch=8, micro_batch=4, seed=1)
        pipeline = elastic.Pipeline(job, layers, loss=cross_entropy, compile=compiled,
                                    optimizer=lambda layer: torch.optim.SGD(layer.parameters(), lr=0.1))
        pipeline.train(data)
        made.append(pipeline.layer(3).classifier.weight)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(1, 4):
        optimizer.zero_grad()
        for number in range(2):
            rows = [data[i] for i in samples.micro_batch_items(1, len(data), 8, 4, step, number)]
            (cross_entropy(whole(pixel_values=torch.stack([r[0] for r in rows])).logits, torch.tensor([r[1] for r in rows])) / 2).backward()
        optimizer.step()
    for weight in made:
        torch.testing.assert_close(weight, whole.classifier.weight, rtol=1e-3, atol=1e-5)


def families():
    """(name, model) of decoders, tiny and random; windows are shorter than the sequences."""
    import transformers

    small = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                 vocab_size=64, max_position_embeddings=32, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    window = {"sliding_window": 4}
    slides = {"use_sliding_window": True, "max_window_layers": 1, **window}
    both = {"layer_types": ["sliding_attention", "full_attention"], **window}
    for name, more in (("Llama", {}), ("Mistral", window), ("Qwen2", slides),
                       ("Qwen3", {"head_dim": 8, "tie_word_embeddings": True}), ("Gemma", {"head_dim": 8}),
                       ("Gemma2", {"head_dim": 8, "query_pre_attn_scalar": 8, **window}),
                       ("Gemma3", {"head_dim": 8, "query_pre_attn_scalar": 8, **both})):
        config = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")(**small, **more)
        transformers.set_seed(5)
        yield name, getattr(transformers, f"{name}ForCausalLM")(config)


def test_hf_layers_of_decoders(build, folder):
    """Llama, Mistral, Qwen, Gemma: the list of layers computes what the model does, with and without padding, forth and back."""
    need_transformers()
    import copy

    from tidemill import samples
    from tidemill import torch as elastic
    from tidemill.torch.hf import layers_of, token_loss

    ids = torch.randint(1, 64, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :4], mask[2, 9:] = 0, 0
    for name, whole in families():
        layers, tied = layers_of(copy.deepcopy(whole))
        assert len(layers) == 4 and bool(tied) == (name in ("Qwen3", "Gemma", "Gemma2", "Gemma3")), (name, tied)
        for given in ((ids,), (ids, mask)):
            out = given
            for layer in layers:
                out = layer(*out) if isinstance(out, tuple) else layer(out)
            expected = whole(input_ids=ids, attention_mask=mask if len(given) > 1 else None, use_cache=False).logits
            real = mask.bool() if len(given) > 1 else torch.ones_like(ids).bool()
            torch.testing.assert_close(out[real], expected[real], msg=lambda text: f"{name}: {text}")

    class Padded(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, i):
            own = torch.randint(1, 64, (12,), generator=torch.Generator().manual_seed(i))
            seen = torch.ones_like(own)
            seen[8 + i % 4:] = 0
            return (own, seen), torch.where(seen.bool(), own.roll(-1), -100)

    for name, whole in families():
        if name not in ("Llama", "Gemma2"):
            continue
        layers, tied = layers_of(copy.deepcopy(whole))
        job = elastic.init(steps=3, batch=8, micro_batch=4, seed=1)
        pipeline = elastic.Pipeline(job, layers, loss=token_loss, tied=tied,
                                    optimizer=lambda layer: torch.optim.SGD(layer.parameters(), lr=0.1))
        pipeline.train(Padded())
        optimizer, data = torch.optim.SGD(whole.parameters(), lr=0.1), Padded()
        for step in range(1, 4):
            optimizer.zero_grad()
            for number in range(2):
                rows = [data[i] for i in samples.micro_batch_items(1, len(data), 8, 4, step, number)]
                own, seen = (torch.stack([r[0][k] for r in rows]) for k in (0, 1))
                targets = torch.stack([r[1] for r in rows])
                (token_loss(whole(input_ids=own, attention_mask=seen, use_cache=False).logits, targets) / 2).backward()
            optimizer.step()
        torch.testing.assert_close(pipeline.layer(0).embed_tokens.weight, whole.get_input_embeddings().weight, rtol=1e-3, atol=1e-5)


for _test in (test_hf_evaluation, test_hf_resume, test_hf_float16, test_hf_trainer_chaos):
    _test.slow = True

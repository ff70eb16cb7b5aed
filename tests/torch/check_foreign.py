"""Scripts of others, unchanged beside the checkout (../shared/foreign), ported here by named edits: trained alone and through
kills, to the same weights. doc/pytorch-port.md shows these edits."""
import json
import os
import random
import subprocess
import sys

import torch

from cluster import LEFT, ROOT, Cluster, Skipped, Trouble, need, python

FOREIGN = ROOT.parent / "shared" / "foreign"
HERE = ROOT / "tests" / "torch"

NANOGPT = {
    "the package": ("import torch\n", "import torch\nimport tidemill.torch\n"),
    "the job, before the model": (
        "torch.manual_seed(1337 + seed_offset)\n",
        "job = tidemill.torch.init(steps=max_iters, batch=batch_size * gradient_accumulation_steps, micro_batch=batch_size,\n"
        "                          seed=1337, determinism='bitwise')\n"),
    "attach": ("# training loop\nX, Y = get_batch('train') # fetch the very first batch\n",
               "# training loop\njob.attach(model, optimizer)\n"),
    "the loop": ("while True:\n", "for _ in job.batches(range(1 << 30)):\n    iter_num, X_Y = job.committed_step, get_batch('train')\n"),
    "one of them evaluates": ("    if iter_num % eval_interval == 0 and master_process:\n        losses = estimate_loss()\n",
                              "    if iter_num % eval_interval == 0 and job.step().micro_batch == 0:\n"
                              "        with job.evaluation():\n            losses = estimate_loss()\n"),
    "a micro-batch at a time": ("    for micro_step in range(gradient_accumulation_steps):\n",
                                "    for X, Y in [X_Y]:\n"),
    "no batch ahead": ("        X, Y = get_batch('train')\n        # backward", "        # backward"),
    "backward": ("        scaler.scale(loss).backward()\n",
                 "        job.backward(scaler.scale(loss), scale=gradient_accumulation_steps)\n"),
}
NANOGPT_TEST = {  # for the test alone
    "what the test reads": ("job.attach(model, optimizer)\n",
                            "job.attach(model, optimizer)\nimport watch; watch.follow(job)\n"),
    "small steps": ("    lr = get_lr(iter_num)", "    watch.wait(job)\n    lr = get_lr(iter_num)"),
    "the result": ("if ddp:\n    destroy_process_group()\n", "if job.done():\n    watch.save(model)\n"),
}
MNIST = {
    "the package": ("import torch\n", "import torch\nimport tidemill.torch\n"),
    "the loop": ("enumerate(train_loader):\n        data, target = data.to(device), target.to(device)\n        optimizer.zero_grad()",
                 "enumerate(job.batches(train_loader)):\n        data, target = data.to(device), target.to(device)\n"
                 "        optimizer.zero_grad()"),
    "backward": ("        loss.backward()\n", "        job.backward(loss)\n"),
    "the job is everybody's": ("def main():\n", "def main():\n    global job\n"),
    "batches are micro-batches": ("train_kwargs = {'batch_size': args.batch_size}", "train_kwargs = {'batch_size': args.batch_size // 4}"),
    "the job, before the model": (
        "    model = Net().to(device)\n",
        "    job = tidemill.torch.init(steps=args.epochs * len(dataset1) // args.batch_size, batch=args.batch_size,\n"
        "                              micro_batch=args.batch_size // 4, seed=args.seed, determinism='bitwise')\n"
        "    model = Net().to(device)\n"),
    "attach": ("    for epoch in range(1, args.epochs + 1):\n",
               "    job.attach(model, optimizer, scheduler, schedule='epoch')\n    for epoch in job.epochs(train_loader):\n"),
}
MNIST_TEST = {
    "what the test reads": ("schedule='epoch')\n", "schedule='epoch')\n    import watch; watch.follow(job)\n"),
    "small steps": ("        optimizer.zero_grad()\n", "        optimizer.zero_grad()\n        import watch; watch.wait(job)\n"),
    "the result": ("    if args.save_model:\n", "    if job.done():\n        watch.save(model)\n    if args.save_model:\n"),
}
TORCHRUN = {
    "the package": ("import torch\n", "import torch\nimport tidemill.torch\n"),
    "no process group": ("from torch.distributed import destroy_process_group, init_process_group\n"
                         "from torch.nn.parallel import DistributedDataParallel as DDP\n", ""),
    "no sampler by ranks": ("from torch.utils.data.distributed import DistributedSampler\n", ""),
    "nothing to set up": ("def ddp_setup():\n    init_process_group(backend=\"gloo\")\n\n\n", ""),
    "attach": ("        if os.path.exists(snapshot_path):\n            self._load_snapshot(snapshot_path)\n        self.model = DDP(self.model)\n",
               "        job.attach(self.model, self.optimizer)\n"),
    "backward": ("        loss.backward()\n", "        job.backward(loss)\n"),
    "the loop": ("in self.train_data:\n", "in job.batches(self.train_data):\n"),
    "epochs": ("        for epoch in range(self.epochs_run, max_epochs):\n            self._run_epoch(epoch)\n"
               "            if self.rank == 0 and epoch % self.save_every == 0:\n                self._save_snapshot(epoch)\n",
               "        for epoch in job.epochs(self.train_data):\n            self._run_epoch(epoch)\n"),
    "the order": ("sampler=DistributedSampler(dataset))\n", "shuffle=True)\n"),
    "the job, before the model": (
        "    ddp_setup()\n    dataset = Numbers(64)\n",
        "    global job\n    dataset = Numbers(64)\n    job = tidemill.torch.init(steps=total_epochs * len(dataset) // 16, batch=16, "
        "micro_batch=batch_size, seed=1, determinism=\"bitwise\")\n"),
    "the end": ("    destroy_process_group()\n", ""),
}
TORCHRUN_TEST = {
    "what the test reads": ("self.optimizer)\n", "self.optimizer)\n        import watch; watch.follow(job)\n"),
    "small steps": ("        self.optimizer.zero_grad()\n", "        self.optimizer.zero_grad()\n        import watch; watch.wait(job)\n"),
    "the result": ("    trainer.train(total_epochs)\n",
                   "    trainer.train(total_epochs)\n    import watch\n    if job.done():\n        watch.save(model)\n"),
}
TORCHFT = {
    "the package": ("from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo\n",
                    "import tidemill.torch\n"),
    "the job, before the model": (
        "    sampler = DistributedSampler(trainset, replica_rank=group, num_replica_groups=groups, group_rank=0, num_replicas=1)\n"
        "    trainloader = DataLoader(trainset, batch_size=4, sampler=sampler)\n",
        "    job = tidemill.torch.init(steps=STEPS, batch=16, micro_batch=4, seed=1, determinism=\"bitwise\")\n"
        "    trainloader = DataLoader(trainset, batch_size=4, shuffle=True)\n"),
    "no state by hand": (
        "    def load_state_dict(state):\n        m.load_state_dict(state[\"model\"])\n        optimizer.load_state_dict(state[\"optim\"])\n\n"
        "    def state_dict():\n        return {\"model\": m.state_dict(), \"optim\": optimizer.state_dict()}\n\n"
        "    manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, load_state_dict=load_state_dict,\n"
        "                      state_dict=state_dict, replica_id=f\"train_{group}\", timeout=timedelta(seconds=10))\n", ""),
    "no wrapper": ("    m = DistributedDataParallel(manager, m)\n", ""),
    "attach": ("    optimizer = Optimizer(manager, optim.AdamW(m.parameters(), lr=1e-2))\n",
               "    optimizer = optim.AdamW(m.parameters(), lr=1e-2)\n    job.attach(m, optimizer)\n"),
    "the loop": ("in endless(trainloader):\n", "in job.batches(trainloader):\n"),
    "backward": ("        loss.backward()\n", "        job.backward(loss)\n"),
    "the end": ("        if manager.current_step() >= STEPS:\n            break\n", ""),
}
TORCHFT_TEST = {
    "what the test reads": ("job.attach(m, optimizer)\n", "job.attach(m, optimizer)\n    import watch; watch.follow(job)\n"),
    "small steps": ("        loss = criterion", "        watch.wait(job)\n        loss = criterion"),
    "the result": ("\n\nif __name__", "    if job.done():\n        watch.save(m)\n\n\nif __name__"),
}
FSDP2 = {
    "the package": ("import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
                    "from torch.distributed.device_mesh import init_device_mesh\n", "import torch\nfrom torch import nn\nimport tidemill.torch\n"),
    "no sampler by ranks": ("from torch.utils.data.distributed import DistributedSampler\n", ""),
    "the job, before the model": (
        "    dist.init_process_group(\"gloo\")\n    torch.manual_seed(0)\n",
        "    job = tidemill.torch.init(steps=EPOCHS * 4, batch=16, micro_batch=4, seed=0, determinism=\"bitwise\")\n"),
    "the mesh": ("    mesh = init_device_mesh(\"cpu\", (dist.get_world_size(),))\n", "    mesh = job.mesh\n"),
    "attach": ("    sampler = DistributedSampler(dataset)\n", "    job.attach(model, optim)\n"),
    "the order": ("sampler=sampler)\n", "shuffle=True)\n"),
    "epochs": ("in range(EPOCHS):\n        sampler.set_epoch(epoch)\n", "in job.epochs(loader):\n"),
    "the loop": ("in loader:\n", "in job.batches(loader):\n"),
    "backward": ("            loss.backward()\n", "            job.backward(loss)\n"),
    "the end": ("    dist.destroy_process_group()\n", ""),
}
FSDP2_TEST = {
    "what the test reads": ("job.attach(model, optim)\n", "job.attach(model, optim)\n    import watch; watch.follow(job)\n"),
    "small steps": ("            loss = nn", "            watch.wait(job)\n            loss = nn"),
    "the result": ("\n\nif __name__", "    if job.done():\n        watch.save(model)\n\n\nif __name__"),
}
RUN_CLM = {
    "the package": ("import transformers\n", "import transformers\nfrom tidemill.torch.hf import ElasticTrainer\n"),
    "no other trainer": ("    Trainer,\n", ""),
    "the trainer": ("    trainer = Trainer(\n", "    trainer = ElasticTrainer(\n"),
}
RUN_CLM_TEST = {
    "all bits": ("        model=model,\n", "        model=model, determinism=\"bitwise\",\n"),
    "what the test reads": ("    if training_args.do_train:\n        checkpoint = None\n",
                            "    import watch; trainer.add_callback(watch.Steps(trainer))\n"
                            "    if training_args.do_train:\n        checkpoint = None\n"),
}
WATCH_TRAINER = '''
from transformers import TrainerCallback
class Steps(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer
    def on_step_end(self, args, state, control, **_):
        print(f"applied {state.global_step} of {self.trainer.job.world_size}", flush=True)
        gate.wait(state.global_step, lambda: False)
'''
WATCH = '''
import os, sys, torch
sys.path.insert(0, {tests!r})
from train_small import Gate
gate = Gate(os.environ.get("TEST_GATE"))
def follow(job):
    job.after_step(lambda step, loss: print(f"applied {{step}} of {{job.world_size}} loss {{loss}}", flush=True))
def wait(job):
    gate.wait(job.committed_step + 1, lambda: job.step().cancelled)
def save(model):
    torch.save(model.state_dict(), os.environ["TEST_OUT"] + "-" + os.environ.get("TIDEMILL_INSTANCE_ID", "0"))
'''
TORCHVISION = '''
import torch
class transforms:
    Compose = staticmethod(lambda parts: None)
    ToTensor = staticmethod(lambda: None)
    Normalize = staticmethod(lambda *_: None)
class datasets:
    class MNIST(torch.utils.data.Dataset):
        def __init__(self, root, train=True, download=False, transform=None):
            self.count = 96 if train else 16
        def __len__(self):
            return self.count
        def __getitem__(self, i):
            g = torch.Generator().manual_seed(i)
            return torch.randn(1, 28, 28, generator=g), i % 10
'''


def port(source, *edits):
    """The text with every edit made once."""
    text = source.read_text()
    for table in edits:
        for name, (before, after) in table.items():
            if text.count(before) != 1:
                raise Trouble(f"{source.name}: the edit {name!r} fits {text.count(before)} places")
            text = text.replace(before, after)
    return text


def changed(edits):
    """Lines that a port adds or changes."""
    return sum(len([line for line in after.splitlines() if line not in before.splitlines()]) for before, after in edits.values())


def by_itself(folder, command, **more):
    variables = {k: v for k, v in os.environ.items() if (not k.startswith("TIDEMILL_") and k not in LEFT) or k == "TIDEMILL_LIBRARY"}
    done = subprocess.run(command, cwd=folder, env={**variables, **more}, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(done.stdout[-2000:] + done.stderr[-3000:])


def disturb(c):
    """Two workers, of which one is killed and comes back, and one is gone with its agent; another comes."""
    c.start_agent(1)
    c.start_agent(2)
    c.await_step(2, 2)
    c.kill_worker(1)
    c.await_step(c.newest()[0] + 1, 1)
    c.kill_instance(2)
    c.start_agent(3)
    c.await_end()


def both_ways(build, folder, script, words, steps, stages=1):
    """Alone, and on two workers of which one is killed and comes back, and one is gone with its agent."""
    (folder / "watch.py").write_text(WATCH.format(tests=str(ROOT / "tests" / "torch")))
    by_itself(folder, [sys.executable, script, *words], TEST_OUT=str(folder / "alone"))
    command = ["/bin/sh", "-c", f"cd {folder} && exec {python()} {script} {' '.join(words)}"]
    with Cluster(build, folder / "cluster", command, steps, micro_batches=4, stages=stages,
                 variables={"TEST_OUT": str(folder / "out"), "TEST_GATE": str(folder / "cluster" / "gate"),
                            "TIDEMILL_DETERMINISM": "bitwise"}) as c:
        disturb(c)
        c.await_(lambda: len(list(folder.glob("out-*"))) > 0, 30, "the final weights")
        alone, other = torch.load(folder / "alone-0"), torch.load(next(folder.glob("out-*")))
        for key, value in alone.items():
            if not torch.equal(value, other[key]):
                raise Trouble(f"{script}: {key} is another after kills\n{c.tail()}")


def need_foreign():
    if not (FOREIGN / "nanoGPT" / "train.py").exists():
        raise Skipped("../shared/foreign is not there")


def test_nanogpt(build, folder):
    need_foreign()
    import numpy

    source = FOREIGN / "nanoGPT"
    (folder / "train.py").write_text(port(source / "train.py", NANOGPT, NANOGPT_TEST))
    for name in ("model.py", "configurator.py"):
        (folder / name).write_text((source / name).read_text())
    (folder / "data" / "tiny").mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        (numpy.arange(4000, dtype=numpy.uint16) * 7 % 61).tofile(folder / "data" / "tiny" / name)
    words = ["--dataset=tiny", "--device=cpu", "--compile=False", "--eval_interval=5", "--eval_iters=2", "--log_interval=1",
             "--block_size=16", "--batch_size=2", "--n_layer=2", "--n_head=2", "--n_embd=16", "--max_iters=16",
             "--lr_decay_iters=16", "--warmup_iters=4", "--dropout=0.1", "--gradient_accumulation_steps=4", "--dtype=float32"]
    both_ways(build, folder, "train.py", words, 16)
    assert changed(NANOGPT) == 11, changed(NANOGPT)  # as doc/pytorch-port.md says


def test_mnist(build, folder):
    need_foreign()
    (folder / "train.py").write_text(port(FOREIGN / "mnist" / "main.py", MNIST, MNIST_TEST))
    (folder / "torchvision.py").write_text(TORCHVISION)
    both_ways(build, folder, "train.py", ["--epochs=2", "--batch-size=8", "--no-accel"], 24)
    assert changed(MNIST) == 9, changed(MNIST)


def test_torchrun_script(build, folder):
    """In the style of PyTorch's tutorial for torchrun."""
    (folder / "train.py").write_text(port(HERE / "script_torchrun.py", TORCHRUN, TORCHRUN_TEST))
    both_ways(build, folder, "train.py", ["4", "1"], 16)
    assert changed(TORCHRUN) == 8, changed(TORCHRUN)  # as doc/pytorch-port.md says


def test_torchft_script(build, folder):
    """In the style of torchft's example."""
    (folder / "train.py").write_text(port(HERE / "script_torchft.py", TORCHFT, TORCHFT_TEST))
    both_ways(build, folder, "train.py", [], 16)
    assert changed(TORCHFT) == 7, changed(TORCHFT)


def test_fsdp2_script(build, folder):
    """In the style of PyTorch's tutorial for fully_shard."""
    (folder / "train.py").write_text(port(HERE / "script_fsdp2.py", FSDP2, FSDP2_TEST))
    both_ways(build, folder, "train.py", [], 24, stages=2)
    assert changed(FSDP2) == 8, changed(FSDP2)


def write_texts(folder):
    draw = random.Random(1)
    words = ["the", "cat?", "sat", "on", "a", "mat.", "dog", "ran!"]  # signs that the script masks
    for name, lines in (("train.txt", 220), ("valid.txt", 30)):
        (folder / name).write_text("".join(" ".join(draw.choices(words, k=8)) + "\n" for _ in range(lines)))


def test_run_clm(build, folder):
    """In the style of Hugging Face's run_clm.py: HfArgumentParser, datasets, evaluation, and what it saves, without an `if`."""
    interpreter = need("datasets")
    (folder / "watch.py").write_text(WATCH.format(tests=str(ROOT / "tests" / "torch")) + WATCH_TRAINER)
    (folder / "train.py").write_text(port(HERE / "script_run_clm.py", RUN_CLM, RUN_CLM_TEST))
    write_texts(folder)
    words = ("--train_file train.txt --validation_file valid.txt --do_train --do_eval --max_steps 80 --per_device_train_batch_size 2 "
             "--gradient_accumulation_steps 4 --learning_rate 1e-3 --seed 3 --use_cpu True --report_to none --logging_steps 10 "
             "--save_strategy no --disable_tqdm True --config_overrides n_embd=32,n_layer=2,n_head=2,n_positions=16")
    hub = {"HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1"}
    by_itself(folder, [interpreter, "train.py", *words.split(), "--output_dir", "alone"], **hub)
    command = ["/bin/sh", "-c", f"cd {folder} && exec {interpreter} train.py {words} --output_dir out"]
    with Cluster(build, folder / "cluster", command, 80, micro_batches=4,
                 variables={**hub, "TEST_GATE": str(folder / "cluster" / "gate"), "TIDEMILL_DETERMINISM": "bitwise"}) as c:
        disturb(c)
        c.await_(lambda: (folder / "out" / "README.md").exists(), 60, "all that the script saves")
        alone, other = folder / "alone", folder / "out"
        if (alone / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes():
            raise Trouble(f"other weights than alone\n{c.tail()}")
        names = {path.name for path in alone.iterdir()}
        assert names == {path.name for path in other.iterdir()} >= {"tokenizer.json", "trainer_state.json", "train_results.json"}, names
        told = [json.loads((path / "all_results.json").read_text()) for path in (alone, other)]
        keys = ("train_loss", "train_samples", "eval_loss", "eval_accuracy", "perplexity")
        assert [told[0][key] for key in keys] == [told[1][key] for key in keys], told
    assert changed(RUN_CLM) == 2, changed(RUN_CLM)  # as doc/pytorch-port.md says


for _test in (test_run_clm, test_fsdp2_script, test_nanogpt, test_mnist, test_torchrun_script, test_torchft_script):
    _test.slow = True

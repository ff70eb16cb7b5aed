"""Small jobs on a real cluster of processes, disturbed in every way; the weights must be those of an undisturbed run."""
import os
import re
import subprocess
from pathlib import Path

import torch

from cluster import ROOT, Cluster, Trouble, python

SCRIPT = str(ROOT / "tests" / "torch" / "train_small.py")


def undisturbed(build: Path, folder: Path, model: str, steps: int, determinism: str, *extra: str):
    """One process alone, plain `python train.py`."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_") or k == "TIDEMILL_LIBRARY"}
    subprocess.run([python(), SCRIPT, model, str(folder / "alone"), "--steps", str(steps), "--determinism", determinism,
                    *extra], check=True, stdout=subprocess.DEVNULL, env=variables)
    return torch.load(folder / "alone-0", weights_only=True)


def begin(build: Path, folder: Path, model: str, steps: int, determinism: str = "bitwise", *extra: str) -> Cluster:
    words = [python(), SCRIPT, model, str(folder / "out"), "--steps", str(steps), "--determinism", determinism,
             "--gate", str(folder / "cluster" / "gate"), *extra]
    return Cluster(build, folder / "cluster", words, steps)


def shares(cluster: Cluster, number: int):
    """Micro-batches of each step of a worker."""
    return [int(n) for n in re.findall(r"^share \d+ (\d+)$", cluster.log(number), re.M)]


def results(folder: Path):
    found = [torch.load(path, weights_only=True) for path in folder.glob("out-*")]
    if not found:
        raise Trouble("no worker has the final weights")
    return found


def finish(cluster: Cluster, build: Path, folder: Path, model: str, steps: int, exact: bool = True, *extra: str) -> None:
    cluster.await_end()
    cluster.await_(lambda: len(list(folder.glob("out-*"))) > 0, 30, "the final weights")
    alone = undisturbed(build, folder, model, steps, "bitwise" if exact else "fast", *extra)
    for result in results(folder):
        if exact and result["hash"] != alone["hash"]:
            raise Trouble(f"other weights than the undisturbed run\n{cluster.tail()}")
        for name, tensor in alone["model"].items():
            torch.testing.assert_close(result["model"][name], tensor, rtol=1e-2, atol=2e-3)
        assert result["lr"] == alone["lr"]
        if result["loss"] is not None:  # it took part in the last step
            assert abs(result["loss"] - alone["loss"]) < 1e-4


def one_is_main(cluster: Cluster) -> None:
    """In after_step, of every step that all of its workers tell of: one, and the one with rank 0."""
    steps = {}
    for path in cluster.folder.glob("worker-*.log"):
        for row in re.findall(r"^applied (\d+) of (\d+) .* rank (\d+) main ([01])$", path.read_text(), re.M):
            steps.setdefault((int(row[0]), int(row[1])), []).append((int(row[2]), int(row[3])))
    whole = [rows for (_, workers), rows in steps.items() if len(rows) == workers]
    assert whole and all(sorted(rows) == [(n, int(n == 0)) for n in range(len(rows))] for rows in whole), steps


def test_kill_notice_join_mlp(build, folder):
    """A worker is killed and comes back, another is noticed, a third joins."""
    steps = 110
    with begin(build, folder, "mlp", steps) as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_step(5, 2)
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 4)
        c.await_step(c.newest()[0] + 2, 2)
        c.start_agent(3)
        c.await_step(c.newest()[0] + 2, 3)
        c.notice(1)
        c.await_step(c.newest()[0] + 4, 2)
        finish(c, build, folder, "mlp", steps)
        one_is_main(c)
        assert "forming: notice" in c.events(), c.events()


def test_six_workers(build, folder):
    """Five workers, then six; one is killed, one is lost with its instance, one gets a notice, at once."""
    steps = 200
    with begin(build, folder, "mlp", steps) as c:
        for number in (1, 2, 3, 4, 5):
            c.start_agent(number)
        c.await_step(3, 5)
        c.start_agent(6)
        c.await_step(c.newest()[0] + 1, 6)
        c.kill_worker(1)
        c.kill_instance(2)
        c.notice(3)
        c.await_step(c.newest()[0] + 5)
        finish(c, build, folder, "mlp", steps)


def test_head_and_coordinator_gpt(build, folder):
    """The instance that hosts the meeting point is lost at once; then the coordinator, which is started again."""
    steps = 70
    with begin(build, folder, "gpt", steps) as c:
        for number in (1, 2, 3):
            c.start_agent(number)
        c.await_step(5, 3)
        head = next(n for n in (1, 2, 3) if "rank 0" in c.log(n))
        c.kill_instance(head)
        c.await_step(c.newest()[0] + 4, 2)
        c.kill_coordinator()
        c.await_step(c.newest()[0] + 4)
        c.start_coordinator()
        finish(c, build, folder, "gpt", steps)


def test_kill_cnn(build, folder):
    """BatchNorm's statistics survive a kill, too."""
    steps = 40
    with begin(build, folder, "cnn", steps) as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_step(5, 2)
        c.kill_instance(1)
        finish(c, build, folder, "cnn", steps)


def test_fast(build, folder):
    """Sums of floats: the same but for rounding."""
    steps = 40
    with begin(build, folder, "gpt", steps, "fast") as c:
        for number in (1, 2, 3):
            c.start_agent(number)
        c.await_step(5, 3)
        c.kill_instance(2)
        finish(c, build, folder, "gpt", steps, exact=False)


def test_fast_in_one_order(build, folder):
    """Two workers, two micro-batches: one that joins, and has or has not computed, exchanges in the order of those that add up while they
    compute."""
    steps = 60
    words = [python(), SCRIPT, "gpt", str(folder / "out"), "--steps", str(steps), "--determinism", "fast", "--gate",
             str(folder / "cluster" / "gate"), "--micro-batch", "8"]
    with Cluster(build, folder / "cluster", words, steps, micro_batches=2) as c:
        c.start_agent(1)
        c.await_step(2)
        c.start_agent(2)
        c.await_step(c.newest()[0] + 3, 2)
        finish(c, build, folder, "gpt", steps, False, "--micro-batch", "8")
        assert not any("EnforceNotMet" in c.log(number) for number in (1, 2))


def test_stopped_worker(build, folder):
    """A worker that stands still hangs everybody's sums: they are given up, and training goes on without it."""
    import signal

    steps = 60
    with begin(build, folder, "mlp", steps) as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_step(5, 2)
        pid = c.worker_pid(1)
        os.kill(pid, signal.SIGSTOP)
        try:
            c.await_step(c.newest()[0] + 5, 1)
        finally:
            os.kill(pid, signal.SIGCONT)
        finish(c, build, folder, "mlp", steps)


def test_warm_up(build, folder):
    """The loop runs once before a worker joins, and nothing of that stays: dropout, BatchNorm, a counter."""
    steps = 40
    with begin(build, folder, "cnn", steps, "bitwise", "--warm-up") as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_step(5, 2)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 3)
        c.await_step(c.newest()[0] + 2, 2)
        finish(c, build, folder, "cnn", steps)
        told = [re.findall(r"^rehearsed as -1 of 1 main 0$", c.log(n), re.M) for n in (1, 2)]
        if [len(lines) for lines in told] != [2, 1]:
            raise Trouble(f"workers 1 (twice) and 2 did not try the loop first: {told}\n{c.tail()}")


def test_warm_up_that_fails(build, folder):
    """What goes wrong in the trial ends the job, with its reason."""
    with begin(build, folder, "mlp", 30, "bitwise", "--warm-up", "--fail-at", "1") as c:
        c.start_agent(1)
        c.await_end(60)
        if "the data is odd" not in c.events():
            raise Trouble(f"the record does not say why\n{c.tail()}")


def test_exception(build, folder):
    """A user's exception ends the job, with its traceback, on every worker; nothing is tried again."""
    with begin(build, folder, "mlp", 30, "bitwise", "--fail-at", "7") as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_end(60)
        events = c.events()
        if "the data is odd" not in events:
            raise Trouble(f"the record does not say why\n{c.tail()}")
        assert c.newest()[0] == 6
        assert any("the data is odd" in c.log(n) for n in (1, 2))


def test_other_weights(build, folder):
    """Workers that begin with other weights are told so."""
    with begin(build, folder, "mlp", 1000000, "bitwise", "--unlike") as c:  # or the first is done before the second comes
        for number in (1, 2):
            c.start_agent(number)
        c.await_end(120)
        if not any("other first weights" in c.log(n) for n in (1, 2)):
            raise Trouble(c.tail())


def test_slow_worker_gets_less(build, folder):
    """Workers tell what their micro-batches take; of one whose take ten times as long the others take over, to the same bits."""
    steps = 100
    words = [python(), SCRIPT, "mlp", str(folder / "out"), "--steps", str(steps), "--slow", "2"]
    with Cluster(build, folder / "cluster", words, steps, variables={"TORCH_NODE_SPEEDS": "1"}) as c:
        c.start_agent(2)
        c.await_step(1)  # the other one would be done before it comes
        c.start_agent(1)
        c.await_(lambda: 7 in shares(c, 1), 240, "a share of seven micro-batches of eight")
        finish(c, build, folder, "mlp", steps)
        assert shares(c, 2)[-1] == 1 and 4 in shares(c, 2), shares(c, 2)


for _test in (test_fast, test_warm_up, test_slow_worker_gets_less, test_stopped_worker, test_other_weights, test_head_and_coordinator_gpt):
    _test.slow = True

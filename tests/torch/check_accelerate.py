"""A loop of Accelerate's, with two changed lines: the weights of the plain loop, and the same through kills."""
import torch

from check_hf import after, need_transformers
from cluster import ROOT, Cluster, Skipped, Trouble, python

SCRIPT = str(ROOT / "tests" / "torch" / "train_accelerate.py")


def need_accelerate():
    need_transformers()
    try:
        import accelerate  # noqa: F401
    except ImportError:
        raise Skipped("the package accelerate is not there (make venv)")


def weights():
    from train_accelerate import train

    return {k: v.clone() for k, v in train()[1].state_dict().items()}


def test_accelerate_loop(build, folder):
    """Items in order, so that the plain loop has the same; then through three kills and two steps given up."""
    need_accelerate()
    from train_accelerate import train

    _, model = train(plain=True)
    alone = after(weights)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(alone[key], value, rtol=1e-4, atol=1e-5)
    killed = after(weights, {"kills": {3, 8, 12}, "given_up": {5: 2, 9: 1}})
    assert all(torch.equal(alone[k], killed[k]) for k in alone)


def test_accelerate_cluster(build, folder):
    need_accelerate()
    words = [python(), SCRIPT, str(folder / "out"), "--gate", str(folder / "cluster" / "gate")]
    with Cluster(build, folder / "cluster", words, 15, micro_batches=4, variables={"TIDEMILL_DETERMINISM": "bitwise"}) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(3, 2)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 1, 1)
        c.kill_instance(2)
        c.start_agent(3)
        c.await_end()
        c.await_(lambda: len(list(folder.glob("out-*"))) > 0, 30, "the final weights")
        alone, other = after(weights), torch.load(next(folder.glob("out-*")))
        if not all(torch.equal(alone[k], other[k]) for k in alone):
            raise Trouble(f"other weights than alone\n{c.tail()}")


test_accelerate_cluster.slow = True

"""Brings the steps of a run to MLflow or to Weights & Biases: once each, in order.

    python loggers.py mlflow URI  --metrics STATE/metrics.jsonl --job ID --name NAME [--experiment NAME]
    python loggers.py wandb PROJECT --metrics STATE/metrics.jsonl --job ID --name NAME

`tidemill run` starts it (key `log` of tidemill-job(5)); it follows the file, which has every committed step once. What the
logger has already is asked of the logger itself, so it may be ended at any moment and started again, also by hand after a
run. It ends when the file ends after SIGTERM, or at once when whoever started it is gone; with --once at the end of the
file. One at a time brings steps to a place: the next one waits until the one before has ended.
"""
import argparse
import fcntl
import json
import os
import signal
import struct
import sys
import time
import zlib
from typing import IO, Any, Dict, Iterator, List

_WAIT_S = 0.2
_BATCH = 200


def flat(row: Dict[str, Any]) -> Dict[str, float]:
    """The numbers of a step under the names that all loggers use."""
    own = {"train/loss": row["loss"], "tidemill/step_s": row["step_s"], "tidemill/generation": row["generation"],
           "tidemill/instances": row["instances"], "tidemill/cost_usd": row["cost_usd"]}
    own.update({"train/" + name: value for name, value in row["metrics"].items()})
    return {name: float(value) for name, value in own.items() if value is not None}


class Mlflow:
    """A run of MLflow that is found again by its tag."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from mlflow.tracking import MlflowClient
        self._client = MlflowClient(tracking_uri=arguments.target)
        name = arguments.experiment or arguments.name
        experiment = self._client.get_experiment_by_name(name)
        where = experiment.experiment_id if experiment is not None else self._client.create_experiment(name)
        tag = f"tags.`tidemill.job` = '{arguments.job}'"
        runs = self._client.search_runs([where], filter_string=tag, max_results=1)
        self._run = (runs[0] if runs else self._client.create_run(
            where, tags={"tidemill.job": arguments.job}, run_name=arguments.name)).info.run_id
        if runs:
            self._client.update_run(self._run, status="RUNNING")
        # A batch that was cut off has reached some metrics and not others: each has its own last step.
        names = self._client.get_run(self._run).data.metrics
        self._last = {n: max(m.step for m in self._client.get_metric_history(self._run, n)) for n in names}

    def log(self, rows: List[Dict[str, Any]]) -> None:
        from mlflow.entities import Metric
        metrics = [Metric(name, value, row["utc_ms"], row["step"]) for row in rows for name, value in flat(row).items()
                   if row["step"] > self._last.get(name, 0)]
        for at in range(0, len(metrics), 1000):
            self._client.log_batch(self._run, metrics=metrics[at:at + 1000])
        for metric in metrics:
            self._last[metric.key] = metric.step

    def close(self) -> None:
        self._client.set_terminated(self._run)


def wandb_records(path: str) -> Iterator[bytes]:
    """Records of a file of wandb's, which is a log as LevelDB has them: after a head of 7 bytes, blocks of 32 KiB with pieces of
    checksum (4 bytes), length (2) and type (1: whole; 2, 3, 4: first, middle, last). A torn end is left out."""
    with open(path, "rb") as file:
        data = file.read()
    at, held = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        check, length, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + 7:at + 7 + length]
        if len(piece) < length or check != zlib.crc32(bytes([kind]) + piece):
            return
        held = piece if kind in (1, 2) else held + piece
        if kind in (1, 4):
            yield held
        at += 7 + length


def wandb_steps(folder: str, run: str) -> List[int]:
    """Steps in files of earlier processes of this run."""
    from wandb.proto import wandb_internal_pb2
    steps = []
    for where, _, names in os.walk(folder):
        for name in names:
            if name == f"run-{run}.wandb":
                for data in wandb_records(os.path.join(where, name)):
                    record = wandb_internal_pb2.Record.FromString(data)
                    if record.WhichOneof("record_type") == "history":
                        steps.append(record.history.step.num)
    return sorted(steps)


class Wandb:
    """A run of Weights & Biases with the job's number as its name, online or (WANDB_MODE) offline."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import wandb
        folder = os.environ.get("WANDB_DIR") or os.path.dirname(os.path.abspath(arguments.metrics))
        self._last = max(wandb_steps(folder, arguments.job), default=0)
        self._run = wandb.init(project=arguments.target, id=arguments.job, name=arguments.name, resume="allow", dir=folder,
                               settings=wandb.Settings(console="off", x_disable_stats=True))
        if self._run.resumed:
            self._last = max(self._last, self._run.step - 1)

    def log(self, rows: List[Dict[str, Any]]) -> None:
        for row in rows:
            if row["step"] > self._last:
                self._run.log(flat(row), step=row["step"])
                self._last = row["step"]

    def close(self) -> None:
        self._run.finish()


class Follower:
    """Whole lines of a file that grows."""

    def __init__(self, path: str, once: bool) -> None:
        self._path, self._over, self._offset = path, once, 0
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, *_: Any) -> None:
        self._over = True

    def _read(self) -> List[Dict[str, Any]]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                lines = [file.readline() for _ in range(_BATCH)]
        except FileNotFoundError:
            return []
        whole = [line for line in lines if line.endswith(b"\n")]
        self._offset += sum(len(line) for line in whole)
        return [json.loads(line) for line in whole]

    def batches(self) -> Iterator[List[Dict[str, Any]]]:
        while True:
            if os.getppid() != self._parent:  # whoever takes over goes on where this one ends
                return
            over = self._over  # before the read: what was written by then is read
            rows = self._read()
            if rows:
                yield rows
            elif over:
                return
            else:
                time.sleep(_WAIT_S)


def alone(arguments: argparse.Namespace) -> IO[bytes]:
    """Waits until nobody else brings these metrics there, and keeps others from it as long as the result is open."""
    place = f".logger-{arguments.kind}-{zlib.crc32(arguments.target.encode()):08x}.lock"
    file = open(os.path.join(os.path.dirname(os.path.abspath(arguments.metrics)), place), "ab")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["mlflow", "wandb"])
    parser.add_argument("target")
    for name in ("metrics", "job", "name"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--experiment")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the run; it ends us
    follower = Follower(arguments.metrics, arguments.once)
    held = alone(arguments)
    logger = Mlflow(arguments) if arguments.kind == "mlflow" else Wandb(arguments)
    for rows in follower.batches():
        logger.log(rows)
    logger.close()
    held.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether a logger has the steps of metrics.jsonl, by the logger's own reader: check.py KIND WHERE METRICS."""
import json
import os
import sys

kind, where, path = sys.argv[1:4]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python/tidemill"))
import loggers  # noqa: E402

rows = [json.loads(line) for line in open(path)]
wanted = {}
for row in rows:
    for name, value in loggers.flat(row).items():
        wanted.setdefault(name, []).append((row["step"], value))


def compare(name, got, digits):
    """Steps are the same, values but for rounding."""
    assert [s for s, _ in got] == [s for s, _ in wanted[name]], f"{kind}: {name}: steps differ: {len(got)} of {len(wanted[name])}"
    assert all(abs(a - b) <= digits * max(1, abs(b)) for (_, a), (_, b) in zip(got, wanted[name])), f"{kind}: {name}: values"


if kind == "tensorboard":
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    reader = EventAccumulator(where, size_guidance={"scalars": 0})
    reader.Reload()
    assert sorted(reader.Tags()["scalars"]) == sorted(wanted), reader.Tags()
    for name in wanted:
        compare(name, [(s.step, s.value) for s in reader.Scalars(name)], 1e-6)
elif kind == "mlflow":
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=where)
    runs = client.search_runs([client.get_experiment_by_name("tried").experiment_id])
    assert len(runs) == 1 and runs[0].info.status == "FINISHED", runs
    for name in wanted:
        history = client.get_metric_history(runs[0].info.run_id, name)
        compare(name, [(m.step, m.value) for m in history], 0)
else:
    from wandb.proto import wandb_internal_pb2
    got = {}
    for folder, _, names in sorted(os.walk(where)):
        for name in names:
            if not name.endswith(".wandb"):
                continue
            for data in loggers.wandb_records(os.path.join(folder, name)):
                record = wandb_internal_pb2.Record.FromString(data)
                if record.WhichOneof("record_type") != "history":
                    continue
                for item in record.history.item:
                    key = item.key or "/".join(item.nested_key)
                    got.setdefault(key, []).append((record.history.step.num, json.loads(item.value_json)))
    for name in wanted:
        compare(name, got.get(name, []), 0)

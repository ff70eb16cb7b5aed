"""Checkpoints that other tools read: safetensors with an index like Hugging Face's, and torch.distributed.checkpoint.

    model-00001-of-00003.safetensors ...   parameters and buffers, by their names in the model
    model.safetensors.index.json           which tensor is in which file
    optimizer-00001-of-00003.safetensors   the optimizer's tensors, "PARAMETER:KEY"
    state.safetensors                      tensors of attached state, "NAME.KEY"
    tidemill.json                          step, learning rates, schedule, and everything that is not a tensor

Every file is written to a new name, synced and renamed; tidemill.json comes last, so a folder that has it is complete.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple, Union

import torch
from torch import nn

from tidemill.errors import UsageError
from tidemill.torch import guards
from tidemill.torch.plain import from_plain, to_plain
from tidemill.torch.state import Layer, ModelState

PathLike = Union[str, "os.PathLike[str]"]
_FORMAT = 1


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.new")  # replicas may write the same one
    with open(new, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(new, path)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise UsageError("checkpoints need the package safetensors: pip install safetensors") from error
    return safetensors.torch


def shard_name(kind: str, number: int, count: int) -> str:
    """The file name of one layer of `count`."""
    return f"{kind}-{number + 1:05d}-of-{count:05d}.safetensors"


def layer_tensors(layer: Layer, prefix: str = "") -> Tuple[Dict[str, torch.Tensor], Dict[str, torch.Tensor]]:
    """A layer's tensors: the model's, and the optimizer's."""
    model = {prefix + p.name: p.tensor.detach().cpu().contiguous() for p in (*layer.params, *layer.frozen)}
    model.update({prefix + b.name: b.tensor().detach().cpu().contiguous() for b in layer.buffers})
    states = {}
    for p in layer.params:
        state = layer.owner.optimizer.state.get(p.tensor) or {}
        states.update({f"{prefix}{p.name}:{key}": state[key].detach().cpu().contiguous()
                       for key in p.state if state.get(key) is not None})
    return model, states


def write_layer(folder: Path, layer: Layer, count: int, prefix: str = "") -> None:
    """The two files of one layer."""
    store = _safetensors()
    model, states = layer_tensors(layer, prefix)
    _write(folder / shard_name("model", layer.number, count), store.save(model, metadata={"format": "pt"}))
    _write(folder / shard_name("optimizer", layer.number, count), store.save(states, metadata={"format": "pt"}))


def write_index(folder: Path, names: Iterable[Tuple[str, int, int]], count: int, notes: Mapping[str, Any]) -> None:
    """names: (tensor, bytes, layer) of the whole model. The last thing written."""
    table = list(names)
    index = {"metadata": {"total_size": sum(size for _, size, _ in table)},
             "weight_map": {name: shard_name("model", layer, count) for name, _, layer in table}}
    _write(folder / "model.safetensors.index.json", json.dumps(index, indent=1, sort_keys=True).encode())
    _write(folder / "tidemill.json", json.dumps({"format": _FORMAT, **notes}, indent=1, sort_keys=True).encode())


def layer_names(layer: Layer, prefix: str = "") -> List[Tuple[str, int, int]]:
    """(tensor, bytes, layer) of what a layer holds of the model."""
    slots = [p.slot for p in (*layer.params, *layer.frozen)] + [b.slot for b in layer.buffers]
    return [(prefix + s.name, s.bytes, layer.number) for s in slots]


def save(state: ModelState, step: int, folder: PathLike) -> None:
    """A whole model, its optimizer and its schedule."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "tidemill.json").unlink(missing_ok=True)
    count = len(state.layers)
    for layer in state.layers:
        write_layer(path, layer, count)
    numbers = {p.name: {k: to_plain(s[k], p.name) for k in p.numbers if k in s}
               for p in state.params for s in [state.optimizer.state.get(p.tensor) or {}] if s}
    if state.extras.tensors:
        extras = {path: t.cpu().contiguous().clone() for path, t in state.extras.tensors.items()}
        _write(path / "state.safetensors", _safetensors().save(extras, metadata={"format": "pt"}))
    names = [row for layer in state.layers for row in layer_names(layer)]
    write_index(path, names, count, {"step": step, "shared": state.whole_notes(), "numbers": numbers})


def save_held(state: ModelState, step: int, folder: PathLike, held: Sequence[int], writes: bool) -> None:
    """Of a model whose optimizer's state is in shards: the layers of this worker, and with the first the index. writes: False for a
    replica, whose layers another one writes."""
    path = Path(folder)
    if any(p.numbers for p in state.params):
        raise UsageError(f"{type(state.optimizer).__name__} keeps numbers beside tensors, which a checkpoint in parts has no "
                         "place for: save model.state_dict(), or attach without shard")
    if not writes:
        return
    path.mkdir(parents=True, exist_ok=True)
    count = len(state.layers)
    for number in held:
        write_layer(path, state.layers[number], count)
    if 0 in held:
        names = [row for layer in state.layers for row in layer_names(layer)]
        write_index(path, names, count, {"step": step, "shared": state.whole_notes(), "numbers": {}})


def read_tensors(folder: PathLike, kind: str) -> Dict[str, torch.Tensor]:
    """All tensors of a kind ("model", "optimizer"); for the model also from checkpoints of other tools."""
    path = Path(folder)
    store = _safetensors()
    files = sorted(path.glob(f"{kind}*.safetensors"))
    if not files:
        raise UsageError(f"{path}: there is no {kind}*.safetensors")
    index = path / f"{kind}.safetensors.index.json"
    if index.exists():
        named = {path / name for name in json.loads(index.read_text())["weight_map"].values()}
        missing = sorted(str(f.name) for f in named if not f.exists())
        if missing:
            raise UsageError(f"{path}: {missing[0]} is missing, which {index.name} names")
        files = sorted(named)
    out: Dict[str, torch.Tensor] = {}
    for file in files:
        out.update(store.load_file(file))
    return out


def load(state: ModelState, folder: PathLike) -> int:
    """Fills model, optimizer and schedule; returns their step."""
    path = Path(folder)
    notes_file = path / "tidemill.json"
    if not notes_file.exists():
        raise UsageError(f"{path}: no tidemill.json; the checkpoint is not whole, or not one of Tidemill's")
    notes = json.loads(notes_file.read_text())
    if notes.get("format") != _FORMAT:
        raise UsageError(f"{notes_file}: format {notes.get('format')} is not known; this is a checkpoint of a newer version")
    tensors, states = read_tensors(path, "model"), read_tensors(path, "optimizer")
    wanted = {row[0] for layer in state.layers for row in layer_names(layer)}
    if wanted != set(tensors):
        odd = sorted(wanted.symmetric_difference(tensors))
        raise UsageError(f"{path} is of another model: {odd[0]} is in one and not in the other")
    with torch.no_grad():
        for layer in state.layers:
            for p in layer.params:
                p.tensor.copy_(tensors[p.name])
                kept: Dict[str, Any] = {}
                for key, slot in p.state.items():
                    if f"{p.name}:{key}" in states:
                        kept[key] = states[f"{p.name}:{key}"].to(p.devices[key])
                kept.update({k: from_plain(v) for k, v in notes["numbers"].get(p.name, {}).items()})
                state.optimizer.state.pop(p.tensor, None)
                if kept:
                    state.optimizer.state[p.tensor] = kept
            for p in layer.frozen:
                p.tensor.copy_(tensors[p.name])
            for b in layer.buffers:
                b.tensor().copy_(tensors[b.name])
    if state.extras.tensors:
        state.extras.arrived = read_tensors(path, "state")
    state.load_shared_notes(notes["shared"])
    return int(notes["step"])


# ---- torch.distributed.checkpoint ----


def export_dcp(folder: PathLike, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Writes the format of torch.distributed.checkpoint, for trainers that resume from it."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, states = get_state_dict(model, optimizer)
    checkpoint.save({"model": weights, "optimizer": states, "step": torch.tensor(step)}, checkpoint_id=str(folder),
                    no_dist=True)


def import_dcp(folder: PathLike, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Fills model and optimizer from a folder of torch.distributed.checkpoint; returns its step."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, states = get_state_dict(model, optimizer)
    content = {"model": weights, "optimizer": states, "step": torch.tensor(0)}
    checkpoint.load(content, checkpoint_id=str(folder), no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=content["model"], optim_state_dict=content["optimizer"])
    guards.loaded.add(optimizer)
    return int(content["step"])

"""Sharded data parallel (ZeRO-1): every worker has all weights, and the optimizer's state of some layers only.

A layout of D pipelines of P stages is read as D replicas of P shards: stage s of each pipeline holds the state of the layers of that
stage, and steps them. All workers compute: the micro-batches of a pipeline are dealt out to its workers. Gradients are summed over all
workers; each gives the optimizer those of its own layers, and before the next step the weights go from their holder to the others of
its pipeline. So a shard moves, is copied and is restored as the layers of a pipeline are: a lost worker's layers come from the
same stage of another pipeline, or from the newest copy set.

An optimizer computes each parameter from its own gradient and state, so that the bits are those of a worker that holds all of them.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from tidemill.errors import UsageError
from tidemill.session import Work
from tidemill.torch.group import Group, StepCancelled
from tidemill.torch.state import Layer, ModelState

KINDS = ("optimizer", "full")
_BUCKET_BYTES = 25 << 20
_IN_FLIGHT = 4  # buckets
_LAST_WORDS_S = 60.0


def check(shard: Optional[str], extras: Any) -> None:
    """Refuses what a worker cannot do that has no whole state."""
    if shard is None:
        return
    if shard not in KINDS:
        raise UsageError(f"attach(shard={shard!r}): it is \"optimizer\" (every worker has all weights, and a part of the "
                         "optimizer's state) or \"full\" (a part of the weights, gradients and optimizer's state)")
    if not extras.only_own():
        raise UsageError(f"attach(shard={shard!r}, state=...): state of the script's own would be held by one worker for all: attach "
                         "the state without shard, or the model without such state")


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[List[torch.Tensor]]:
    """Of one kind and device each, in an order that is the same everywhere."""
    room, kind, bucket = 0, None, []  # type: int, Any, List[torch.Tensor]
    for tensor in sorted(tensors, key=lambda t: (str(t.dtype), str(t.device))):
        size = tensor.numel() * tensor.element_size()
        if bucket and (room < size or kind != (tensor.dtype, tensor.device)):
            yield bucket
            bucket = []
        if not bucket:
            room, kind = _BUCKET_BYTES, (tensor.dtype, tensor.device)
        bucket.append(tensor)
        room -= size
    if bucket:
        yield bucket


class Shards:
    """Which layers this worker holds, and the weights of those that it does not."""

    def __init__(self, state: ModelState) -> None:
        self._state = state
        self.held: Sequence[int] = range(len(state.layers))
        self._first: Tuple[int, ...] = (0, len(state.layers))
        self._stage, self.group = 0, None  # type: int, Optional[Group]
        self.pipeline = 0

    def forget_state(self) -> None:
        """What the optimizer has before the worker joins: layers come with theirs."""
        for layer in self._state.layers:
            self.drop(layer)

    def hold(self, layer: Layer) -> None:
        """The layer is about to come: here there is always room for its weights."""

    def drop(self, layer: Layer) -> None:
        """The layer is held elsewhere."""
        for p in layer.params:
            self._state.optimizer.state.pop(p.tensor, None)

    @staticmethod
    def share(work: Work) -> range:
        """This worker's micro-batches of its pipeline's."""
        count = work.last_micro_batch - work.first_micro_batch
        return range(work.first_micro_batch + count * work.stage // work.stages,
                     work.first_micro_batch + count * (work.stage + 1) // work.stages)

    def take(self, work: Work) -> None:
        """The layers that this work gives."""
        self.held = range(work.first_layer, work.last_layer)
        self._first, self._stage, self.pipeline = work.stage_first, work.stage, work.pipeline

    def own_gradients_only(self) -> None:
        """The optimizer passes over parameters without a gradient."""
        for layer in self._state.layers:
            if layer.number not in self.held:
                for p in layer.params:
                    p.tensor.grad = None

    def own(self, norms: Dict[int, float]) -> Dict[int, float]:
        """Of the layers that are held here."""
        return {number: norms[number] for number in self.held}

    def _shared(self, layer: Layer) -> List[torch.Tensor]:
        """What all workers need of a layer."""
        out: List[torch.Tensor] = [p.tensor for p in layer.params]
        out += [b.tensor() for b in layer.buffers]
        return out if layer.scales is None else [*out, layer.scales]

    def gather(self) -> None:
        """All layers get the weights that their holder has. StepCancelled, where a worker is gone."""
        group = self.group
        if group is None or group.size == 1:
            return
        waiting: List[Tuple[Any, torch.Tensor, List[torch.Tensor], bool]] = []
        with torch.no_grad():
            for stage in range(len(self._first) - 1):
                layers = self._state.layers[self._first[stage]: self._first[stage + 1]]
                for bucket in _buckets([t for layer in layers for t in self._shared(layer)]):
                    flat = torch.cat([t.detach().reshape(-1) for t in bucket])
                    if len(waiting) == _IN_FLIGHT:
                        self._finish(group, *waiting.pop(0))
                    waiting.append((group.broadcast(flat, stage), flat, bucket, stage == self._stage))
            for entry in waiting:
                self._finish(group, *entry)
        self._state.watch.remember()

    @staticmethod
    def _finish(group: Group, work: Any, flat: torch.Tensor, bucket: List[torch.Tensor], mine: bool) -> None:
        group.wait(work)
        at = 0
        for tensor in bucket if not mine else ():
            tensor.copy_(flat[at: at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()

    def gather_result(self, step: int) -> bool:
        """After the last step: all weights, unless a worker is gone before it has sent its own."""
        if self.group is not None and all(self._state.layers[number].step == step for number in self.held):
            self.group.wait_at_most(_LAST_WORDS_S)
            try:
                self.gather()
            except StepCancelled:
                pass
            else:
                for layer in self._state.layers:
                    layer.step = step
                return True
        self.held = [layer.number for layer in self._state.layers if layer.step == step]
        self.pipeline = 0  # nobody knows who else has them
        return False


__all__ = ["KINDS", "Shards", "check"]

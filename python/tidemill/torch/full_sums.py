"""Gradients of weights that are in shards (full.py): each worker adds up those of the layers that it holds.

The same integers as FixedSums, or floats: a micro-batch's gradients go to their holders unit by unit, and once a step over the replicas.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import torch
import torch.distributed as dist

from tidemill.torch import fixed_point
from tidemill.torch.full import Bucket, FullShards
from tidemill.torch.group import Group
from tidemill.torch.state import Layer, Param
from tidemill.torch.sums import Redo, check_finite, check_float32, squares_by_layer


class ShardedSums:
    """As FixedSums (bitwise) or FloatSums, for a worker that holds some layers."""

    def __init__(self, shards: FullShards, layers: Sequence[Layer], micro_batches: int, bitwise: bool, with_norms: bool) -> None:
        self._shards, self._layers, self._micro_batches, self._bitwise = shards, layers, micro_batches, bitwise
        self.with_norms = with_norms
        self.used: Set[int] = set()  # as FloatSums.used
        self.unused: Set[int] = set()
        self.may_overflow = self.overflow = False
        self._places = [(layer, index) for layer in layers for index, _ in enumerate(layer.trained)]
        self._params = [layer.trained[index] for layer, index in self._places]
        if bitwise:
            check_float32(self._params)
        self._number = {id(p): number for number, p in enumerate(self._params)}
        device = self._params[0].tensor.device if self._params else torch.device("cpu")
        self._largest = torch.zeros(max(1, len(self._params)), device=device)
        self._found: List[float] = []
        self._scales: List[int] = []
        self._sums: Dict[Bucket, torch.Tensor] = {}
        self._grads: Dict[int, torch.Tensor] = {}  # of parameters that are held, after `finish`
        self._group_now: Optional[Group] = None

    def close(self) -> None:
        self._shards.rounds.abandon()

    # -- a step --

    def begin(self, group: Group) -> None:
        self._group_now = group
        if self._bitwise:
            scales = {layer.number: _scales_of(layer) for layer in self._layers}
            self._scales = [scales[layer.number][index] for layer, index in self._places]
        self.begin_again()

    def begin_again(self) -> None:
        self._shards.rounds.abandon()
        self.used.clear()
        self._followed = False
        self._sums, self._grads = {}, {}
        self._largest = torch.zeros_like(self._largest)
        for p in self._params:
            p.tensor.grad = None
        self._shards.strange = False

    def begin_micro_batch(self, last: bool) -> None:
        for p in self._params:
            p.tensor.grad = None
        self._shards.strange = False
        rounds = self._shards.rounds
        rounds.begin(True)
        self._shards.need(self._shards.units[0])
        if rounds.void:
            rounds.end()  # StepCancelled

    def settle(self) -> None:
        """The backward pass is over."""
        self._shards.flush()

    def altered(self) -> bool:
        """As FloatSums.altered."""
        return self._shards.strange or any(p.tensor.grad is not None for p in self._params)

    def end_micro_batch(self) -> None:
        self._shards.rounds.end()

    @property
    def given_up(self) -> bool:
        """The micro-batch in progress will not count."""
        return self._shards.rounds.void

    # -- what is exchanged --

    def packed(self, bucket: Bucket) -> torch.Tensor:
        """The gradients of this micro-batch, as they are sent."""
        flat = torch.zeros(bucket.count, dtype=bucket.dtype, device=bucket.device)
        views = []
        with torch.no_grad():
            for p, view in bucket.views(flat):
                if p.tensor.grad is not None:
                    self.used.add(id(p))
                    view.copy_(p.tensor.grad)
                views.append(view)
            if not self._bitwise:
                return flat
            numbers = [self._number[id(p)] for p in bucket.params]
            norms = torch.stack(torch._foreach_norm(views, math.inf))
            self._largest[numbers] = torch.maximum(self._largest[numbers], norms)
            torch._foreach_mul_(views, [math.ldexp(1.0, self._scales[n]) for n in numbers])
            return flat.round_().to(torch.int32)

    def zeros(self, bucket: Bucket) -> torch.Tensor:
        """What a worker without a micro-batch sends."""
        return torch.zeros(bucket.count, dtype=torch.int32 if self._bitwise else bucket.dtype, device=bucket.device)

    def add(self, bucket: Bucket, flat: torch.Tensor) -> None:
        """Of a micro-batch of every worker of the pipeline, at the holder."""
        if bucket in self._sums:
            self._sums[bucket].add_(flat)
        else:
            self._sums[bucket] = flat

    # -- the end of a step --

    def follow(self) -> None:
        """Takes part in what others still compute, until all have done their micro-batches: before anything else is exchanged."""
        while not self._followed and self._shards.rounds.follow():
            pass
        self._followed = True

    _followed = False

    def finish(self, agree: Callable[[bool], bool] = bool) -> Dict[int, float]:
        """As FixedSums.finish, for the layers that are held."""
        self.follow()
        group, replicas = self._group_now, self._shards.replicas
        assert group is not None
        if self._bitwise and self._overflows_or_redo(group):
            return self._no_norms()
        works = [] if replicas is None else [replicas.all_reduce(flat) for flat in self._held_sums()]
        for work in works:
            assert replicas is not None
            replicas.wait(work)
        for bucket in self._held():
            self._take(bucket)
        if not self._bitwise and self.may_overflow:
            self.overflow = self._anywhere(group, not all(bool(torch.isfinite(g).all()) for g in self._grads.values()))
        if not self.with_norms or self.overflow:
            return self._no_norms()
        held = [layer for layer in self._layers if layer.number in self._shards.held]
        squares = squares_by_layer(held, self._grads)
        if self.may_overflow and self._anywhere(group, not all(math.isfinite(s) for s in squares.values())):
            self.overflow = True
            return self._no_norms()
        return squares

    def _held(self) -> List[Bucket]:
        return [b for unit in self._shards.units for b in unit.buckets if self._shards.holds(b)]

    def _held_sums(self) -> List[torch.Tensor]:
        """In one order on all replicas, also where no gradient has come."""
        for bucket in self._held():
            if bucket not in self._sums:
                self._sums[bucket] = self.zeros(bucket)
        return [self._sums[bucket] for bucket in self._held()]

    def _take(self, bucket: Bucket) -> None:
        flat = self._held_sum(bucket)
        if self._bitwise:
            flat = flat.to(torch.float32)
            views = [view for _, view in bucket.views(flat)]
            torch._foreach_mul_(views, [math.ldexp(1.0, -self._scales[self._number[id(p)]]) / self._micro_batches
                                        for p in bucket.params])
        else:
            flat.mul_(1.0 / self._micro_batches)
        self._grads.update({id(p): view for p, view in bucket.views(flat)})

    def _held_sum(self, bucket: Bucket) -> torch.Tensor:
        return self._sums[bucket] if bucket in self._sums else self.zeros(bucket)

    def _overflows_or_redo(self, group: Group) -> bool:
        torch.nan_to_num_(self._largest, nan=math.inf, posinf=math.inf)
        group.wait(group.all_reduce(self._largest, dist.ReduceOp.MAX))
        self._found = largest = self._largest.tolist()
        self.overflow = self.may_overflow and not all(math.isfinite(g) for g in largest)
        if self.overflow:
            return True
        for p, g in zip(self._params, largest):
            check_finite(p, g)
        fits = [fixed_point.fits(g, s, self._micro_batches) for g, s in zip(largest, self._scales)]
        if not all(fits):  # every worker has the same numbers
            self._scales = [s if fit else fixed_point.best(g, self._micro_batches)
                            for g, s, fit in zip(largest, self._scales, fits)]
            raise Redo
        return False

    @staticmethod
    def _anywhere(group: Group, here: bool) -> bool:
        flag = torch.tensor([float(here)])
        group.wait(group.all_reduce(flag, dist.ReduceOp.MAX))
        return bool(flag[0] > 0)

    def _no_norms(self) -> Dict[int, float]:
        return {layer.number: 0.0 for layer in self._layers}

    # -- after it --

    def hand_over(self, factor: float) -> None:
        """As FloatSums.hand_over, of what is held."""
        for p in self._params:
            grad = self._grads.get(id(p))
            if grad is not None and factor != 1.0:
                grad.mul_(factor)
            p.tensor.grad = None if id(p) in self.unused else grad

    def view_of(self, p: Param) -> torch.Tensor:
        """As FloatSums.view_of."""
        return self._grads[id(p)]

    def scale_of(self, p: Param) -> Any:
        """As FixedSums.scale_of."""
        number = self._number[id(p)]
        return [float(self._largest[number]), self._scales[number]] if self._bitwise else None

    def storages(self) -> List[int]:
        """As FloatSums.storages."""
        return [view.untyped_storage().data_ptr() for view in self._grads.values()]

    def commit(self) -> None:
        """As FixedSums.commit: of all layers, for every worker has the largest elements of all."""
        if not self._bitwise:
            return
        following = {layer.number: _scales_of(layer) for layer in self._layers}
        for (layer, index), g, s in zip(self._places, self._found, self._scales):
            following[layer.number][index] = fixed_point.following(g, s, self._micro_batches)
        for layer in self._layers:
            assert layer.scales is not None
            layer.scales.copy_(torch.tensor(following[layer.number], dtype=torch.int32))


def _scales_of(layer: Layer) -> List[int]:
    assert layer.scales is not None
    out: List[int] = layer.scales.tolist()
    return out


__all__ = ["ShardedSums"]

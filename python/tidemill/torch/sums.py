"""Gradients of a step: summed over this worker's micro-batches, then over the workers, then given to the optimizer.

FloatSums ("fast") adds floats in buckets while the last micro-batch still goes backward, as DistributedDataParallel does.
FixedSums ("bitwise") converts each micro-batch's gradient to integers, whose sum does not depend on the order.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, Callable, Collection, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from tidemill.errors import JobFailed, UsageError
from tidemill.torch import fixed_point, fused
from tidemill.torch.arrivals import Arrival
from tidemill.torch.group import Group
from tidemill.torch.state import Layer, Param

_BUCKET_BYTES = 25 << 20
_FIRST_BUCKET_BYTES = 1 << 20


def check_float32(params: Sequence[Param]) -> None:
    """Integer sums need float32 gradients."""
    for p in params:
        if p.tensor.dtype != torch.float32:
            raise UsageError(f"determinism: bitwise needs parameters in float32; {p.name} is {p.tensor.dtype}: use "
                             "autocast for the computation, or determinism: fast")


def check_finite(p: Param, largest: float) -> None:
    """A gradient that is not finite ends the job; the error names the parameter."""
    if not math.isfinite(largest):
        raise JobFailed(f"the gradient of {p.name} is not finite: lower the learning rate, clip, or look at the data of "
                        "this step")


class Redo(Exception):
    """A gradient did not fit its scale: all workers compute the step again with a smaller one."""


class _Squares:
    """Sums of squares per layer; the order is fixed, so the bits are the same on every replica. A GPU is waited for by `read`, once."""

    def __init__(self, layers: Sequence[Layer], grads: Dict[int, torch.Tensor]) -> None:
        self._zeros = {layer.number: 0.0 for layer in layers}
        self._numbers: List[int] = []
        squares: List[torch.Tensor] = []
        for layer in layers:
            tensors = [grads[id(p)] for p in layer.trained if id(p) in grads]
            if tensors:
                norms = torch.stack(torch._foreach_norm(tensors, 2)).double()
                self._numbers.append(layer.number)
                squares.append((norms * norms).sum())
        self._squares = torch.stack(squares) if squares else None

    def read(self) -> Dict[int, float]:
        """By the number of the layer."""
        return {**self._zeros, **dict(zip(self._numbers, [] if self._squares is None else self._squares.tolist()))}


def squares_by_layer(layers: Sequence[Layer], grads: Dict[int, torch.Tensor]) -> Dict[int, float]:
    """Sums of squares per layer."""
    return _Squares(layers, grads).read()


def _read_or_overflow(sums: Any, found: _Squares) -> Dict[int, float]:
    """Squares too large for a float are an overflow like any other, where there is a loss scale."""
    squares = found.read()
    if sums.may_overflow and not all(math.isfinite(s) for s in squares.values()):
        sums.overflow = True
        return dict.fromkeys(squares, 0.0)
    return squares


def _scales(layer: Layer) -> torch.Tensor:
    assert layer.scales is not None
    return layer.scales


def _replaced(params: Sequence[Param], views: Sequence[torch.Tensor]) -> bool:
    """Has a parameter another gradient than ours? None is no gradient: zero_grad of the model, which the sums do not mind."""
    return any(p.tensor.grad is not view and p.tensor.grad is not None for p, view in zip(params, views))


class _Places:
    """Gradients as parts of one memory. What moves a model (model.cpu(), model.to(device), model.double()), there and back, gives its
    gradients memory of their own: such a part is made anew."""

    def __init__(self, flat: torch.Tensor, params: Sequence[Param], starts: Sequence[int]) -> None:
        self._flat, self._params, self._starts = flat, params, starts
        self.views = [self._part(i) for i in range(len(params))]
        self._pointers = [view.data_ptr() for view in self.views]

    def _part(self, i: int) -> torch.Tensor:
        p, at = self._params[i], self._starts[i]
        return torch.as_strided(self._flat[at: at + p.tensor.numel()], p.tensor.shape, p.slot.stride)

    def mend(self, keep: bool, only: Optional[int] = None) -> None:
        """keep: what is in a part that has moved is the gradient."""
        for i in range(len(self._params)) if only is None else (only,):
            moved = self.views[i]
            if moved.data_ptr() == self._pointers[i]:
                continue
            self.views[i] = self._part(i)
            if keep:
                self.views[i].copy_(moved)
            if self._params[i].tensor.grad is moved:
                self._params[i].tensor.grad = self.views[i]


_LOOKED = 24  # micro-batches of a generation
_COMPARED = 1 << 20  # elements


class _First:
    """Gradients of the first micro-batches as they were: what is written through `.data` changes no counter."""

    def __init__(self) -> None:
        self._left = _LOOKED
        self._kept: List[Tuple[torch.Tensor, torch.Tensor]] = []

    def keep(self, flats: Sequence[torch.Tensor]) -> None:
        self._kept, room = [], _COMPARED if self._left > 0 else 0
        self._left -= 1
        for flat in flats:
            some = flat[:room]
            if some.numel():
                self._kept.append((some, some.clone()))
                room -= some.numel()

    def drop(self) -> None:
        """They change by ours."""
        self._kept = []

    def altered(self) -> bool:
        return any(not torch.equal(now.view(torch.uint8), before.view(torch.uint8)) for now, before in self._kept)


class _Bucket:
    def __init__(self, params: List[Param]) -> None:
        first = params[0].tensor
        self.params = params
        self.flat = torch.zeros(sum(p.tensor.numel() for p in params), dtype=first.dtype, device=first.device)
        counts = [p.tensor.numel() for p in params]
        self.places = _Places(self.flat, params, list(accumulate(counts, initial=0)))
        self.views = self.places.views
        self.waiting = 0
        self.sent = False
        self.work: Any = None

    @property
    def arrives(self) -> bool:
        """gloo writes the sum of a GPU's tensor back from a thread of its own, at any time: that counts as one write."""
        return self.work is not None and self.flat.is_cuda


class FloatSums:
    """Gradients as floats in buckets; each bucket is added up over the workers as soon as it is ready."""

    def __init__(self, layers: Sequence[Layer], micro_batches: int, with_norms: bool,
                 without: Collection[int] = ()) -> None:
        """without: ids of parameters that are added up elsewhere."""
        self.used: Set[int] = set()  # ids of parameters that have a gradient of this step, here
        self.unused: Set[int] = set()  # of those that have none on any worker: for the optimizer None, as in a single process
        self._layers, self._micro_batches, self.with_norms = layers, micro_batches, with_norms
        self.may_overflow = self.overflow = False  # a loss scale takes care of it
        params = [p for layer in layers for p in layer.trained if id(p) not in without]
        self._buckets = [_Bucket(group) for group in self._group(list(reversed(params)))]
        self._place: Dict[int, Tuple[_Bucket, int]] = {}
        self._hooks = []
        for bucket in self._buckets:
            for index, p in enumerate(bucket.params):
                self._place[id(p.tensor)] = (bucket, index)
                self._hooks.append(p.tensor.register_post_accumulate_grad_hook(self._ready))
        self._last = False
        self._in_parts = False  # some gradients come in several parts of one backward pass: none is known to be whole before its end
        self._ready_now: Set[int] = set()  # ids of parameters that have had a gradient in this micro-batch
        self._next = 0
        self._seen: List[int] = []
        self._first = _First()
        self._group_now: Optional[Group] = None

    @staticmethod
    def _group(params: List[Param]) -> List[List[Param]]:
        groups: List[List[Param]] = []
        room, kind = 0, None
        for p in params:
            size = p.tensor.numel() * p.tensor.element_size()
            if not groups or room < size or kind != p.tensor.dtype:
                groups.append([])
                room = _FIRST_BUCKET_BYTES if len(groups) == 1 else _BUCKET_BYTES
                kind = p.tensor.dtype
            groups[-1].append(p)
            room -= size
        return groups

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def begin(self, group: Group) -> None:
        """Begins a step: gradients start from zero, in the buckets."""
        self._group_now, self._last, self._next = group, False, 0
        self.used.clear()
        self._first.drop()
        for bucket in self._buckets:
            bucket.places.mend(keep=False)
            bucket.flat.zero_()
            bucket.work, bucket.sent = None, False
            bucket.waiting = len(bucket.params)
            for p, view in zip(bucket.params, bucket.views):
                p.tensor.grad = view
        self.settle()

    def begin_micro_batch(self, last: bool) -> None:
        self._last = last and not self._in_parts
        self._ready_now.clear()

    def settle(self) -> None:
        """Accepts the current sums."""
        self._seen = [bucket.flat._version for bucket in self._buckets]
        self._first.keep([bucket.flat for bucket in self._buckets if bucket.work is None])

    def altered(self) -> bool:
        """Has anything written to the gradients since `settle`, or put others in their place? (Views share the buffer's counter.)"""
        return any(bucket.flat._version - seen not in ((0, 1) if bucket.arrives else (0,)) or _replaced(bucket.params, bucket.views)
                   for bucket, seen in zip(self._buckets, self._seen)) or self._first.altered()

    def sizes(self) -> Dict[str, float]:
        """Of the sums as they are, before they are exchanged, by parameter."""
        out: Dict[str, float] = {}
        for bucket in self._buckets:
            out.update(zip((p.name for p in bucket.params), torch.stack(torch._foreach_norm(bucket.views, 2)).tolist()))
        return out

    def _ready(self, tensor: torch.Tensor) -> None:
        bucket, index = self._place[id(tensor)]
        bucket.places.mend(keep=True, only=index)
        view = bucket.views[index]
        self.used.add(id(bucket.params[index]))
        if tensor.grad is not view:
            view.add_(tensor.grad)  # type: ignore[arg-type]
            tensor.grad = view
        if id(tensor) in self._ready_now:
            self._comes_again(bucket, index)
        self._ready_now.add(id(tensor))
        if not self._last:
            return
        bucket.waiting -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].waiting <= 0:
            self._launch()

    def _comes_again(self, bucket: _Bucket, index: int) -> None:
        """A backward pass inside of the backward pass (torch.utils.checkpoint with use_reentrant=True) gives a weight that is used several times, as
        layers that are shared (ALBERT), its gradient part by part. The first micro-batch of a process shows it, and starts no sum."""
        if bucket.sent:
            raise UsageError(f"{bucket.params[index].name} got another part of its gradient when its sum over the workers had begun: its layer is used a "
                             "number of times that differs between micro-batches, with torch.utils.checkpoint(use_reentrant=True). Say use_reentrant=False")
        self._in_parts, self._last = True, False

    def _launch(self) -> None:
        """Starts the next sum, in the same order on every worker."""
        self._first.drop()
        bucket = self._buckets[self._next]
        self._next += 1
        bucket.sent = True
        bucket.flat.mul_(1.0 / self._micro_batches)
        assert self._group_now is not None
        bucket.work = self._group_now.all_reduce(bucket.flat)

    def end_micro_batch(self) -> None:
        pass

    def launch_rest(self) -> None:
        """Starts the sums that backward passes have not started: of a worker that computes nothing, all of them. Before anything else is
        exchanged, since the others have started theirs: all workers exchange in one order."""
        while self._next < len(self._buckets):
            self._launch()

    def finish(self, _: Callable[[bool], bool] = bool) -> Dict[int, float]:
        """Waits for all sums; returns the layers' shares of the squared norm. Floats always fit."""
        self.launch_rest()
        for bucket in self._buckets:
            bucket.places.mend(keep=False)
            if bucket.work is not None:
                assert self._group_now is not None
                self._group_now.wait(bucket.work)
                bucket.work = None
        self.overflow = self.may_overflow and not all(bool(torch.isfinite(b.flat).all()) for b in self._buckets)
        if not self.with_norms or self.overflow:
            return {layer.number: 0.0 for layer in self._layers}
        grads = {id(p): view for b in self._buckets for p, view in zip(b.params, b.views)}
        return _read_or_overflow(self, _Squares(self._layers, grads))

    def hand_over(self, factor: float) -> None:
        """Gradients for the optimizer, times the clip factor."""
        for bucket in self._buckets:
            if factor != 1.0:
                bucket.flat.mul_(factor)
            for p, view in zip(bucket.params, bucket.views):
                p.tensor.grad = None if id(p) in self.unused else view

    def view_of(self, p: Param) -> torch.Tensor:
        """The summed gradient, after `finish`."""
        bucket, index = self._place[id(p.tensor)]
        return bucket.views[index]

    def scale_of(self, p: Param) -> Any:
        """Floats have none."""
        return None

    def storages(self) -> List[int]:
        """Where the sums are."""
        for bucket in self._buckets:
            bucket.places.mend(keep=False)
        return [bucket.flat.untyped_storage().data_ptr() for bucket in self._buckets]

    def commit(self) -> None:
        pass


class FixedSums:
    """Gradients as integers. Scales are part of the layers' committed state."""

    def __init__(self, layers: Sequence[Layer], micro_batches: int, with_norms: bool, without: Collection[int] = ()) -> None:
        """without: ids of parameters that are added up elsewhere."""
        self.used: Set[int] = set()
        self.unused: Set[int] = set()
        self._layers, self._addends, self.with_norms = layers, micro_batches, with_norms
        self._places = [(layer, index) for layer in layers for index, p in enumerate(layer.trained)
                        if id(p) not in without]
        self._params = [layer.trained[index] for layer, index in self._places]
        check_float32(self._params)
        self._hooks = [p.tensor.register_post_accumulate_grad_hook(lambda _, key=id(p): self.used.add(key))  # type: ignore[misc]
                       for p in self._params]
        counts = [p.tensor.numel() for p in self._params]
        device = self._params[0].tensor.device if self._params else torch.device("cpu")
        self._adder = fused.adder(counts, device)
        count = sum(fused.padded(n) for n in counts)
        self._floats = torch.zeros(count, device=device)
        self._sums = torch.zeros(count, dtype=torch.int32, device=device)
        self._rounded = torch.zeros(count if self._adder is None else 0, dtype=torch.int32, device=device)
        self._parts = _Places(self._floats, self._params, list(accumulate(map(fused.padded, counts), initial=0)))
        self._views = self._parts.views
        self._largest = torch.zeros(max(1, len(self._params)), device=device)
        self._scales: List[int] = []
        self._found: List[float] = []  # the largest |g| of each, over all workers
        self._clean = False  # the floats are all 0
        self._added = False  # there is something in the sums
        self._seen = -1
        self._first = _First()
        self._group_now: Optional[Group] = None
        self.may_overflow = self.overflow = False

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def settle(self) -> None:
        """As FloatSums.settle. Where the model's zero_grad came first, the backward pass has made gradients of its own."""
        self._parts.mend(keep=True)
        for p, view in zip(self._params, self._views):
            if p.tensor.grad is not view and p.tensor.grad is not None:
                view.copy_(p.tensor.grad)
                p.tensor.grad = view
        self._note()
        self._first.keep([self._floats])

    def _note(self) -> None:
        self._seen = self._floats._version
        self._first.drop()

    def altered(self) -> bool:
        """As FloatSums.altered."""
        return self._seen != self._floats._version or _replaced(self._params, self._views) or self._first.altered()

    def sizes(self) -> Dict[str, float]:
        """As FloatSums.sizes: the largest elements, exactly."""
        return dict(zip((p.name for p in self._params), self._largest.tolist()))

    def begin(self, group: Group) -> None:
        self._group_now = group
        scales = {layer.number: _scales(layer).tolist() for layer in self._layers}
        self._scales = [scales[layer.number][index] for layer, index in self._places]
        self.begin_again()

    def begin_again(self) -> None:
        self.used.clear()
        self._added = False
        self._largest.zero_()
        self._floats.zero_()
        self._clean = True
        if self._adder is not None:
            self._adder.set_units([math.ldexp(1.0, s) for s in self._scales], self._back())
        self._note()

    def _back(self) -> List[float]:
        """What makes a mean of each sum."""
        return [math.ldexp(1.0, -s) / self._addends for s in self._scales]

    def begin_micro_batch(self, last: bool) -> None:
        self._parts.mend(keep=False)
        if not self._clean:  # a micro-batch was given up, or the optimizer had its gradients there
            self._floats.zero_()
        self._clean = False
        for p, view in zip(self._params, self._views):
            p.tensor.grad = view
        self._note()

    def end_micro_batch(self) -> None:
        if not self._params:
            return
        self._parts.mend(keep=True)
        for p, view in zip(self._params, self._views):
            if p.tensor.grad is not view and p.tensor.grad is not None:
                view.copy_(p.tensor.grad)
            p.tensor.grad = None
        if self._adder is not None:
            self._adder.add(self._floats, self._sums, self._largest, first=not self._added)
            self._clean = True
        else:
            self._add_rounded()
        self._added = True
        self._note()

    def _add_rounded(self) -> None:
        """As fused.Adder.add, to the same bits."""
        norms = torch.stack(torch._foreach_norm(self._views, math.inf))
        torch.maximum(self._largest, norms, out=self._largest)
        torch._foreach_mul_(self._views, [math.ldexp(1.0, s) for s in self._scales])
        if self._added:
            self._rounded.copy_(self._floats.round_())
            self._sums.add_(self._rounded)
        else:
            self._sums.copy_(self._floats.round_())

    def finish(self, agree: Callable[[bool], bool] = bool) -> Dict[int, float]:
        """The layers' shares of the squared norm. Redo, if a gradient did not fit here or, as `agree` says, anywhere.

        Everything is begun as if all fitted, which they nearly always do: a GPU goes on with that while the host looks at what was found."""
        group = self._group_now
        assert group is not None
        if not self._added:  # a worker without a micro-batch, or without parameters
            self._sums.zero_()
        torch.nan_to_num_(self._largest, nan=math.inf, posinf=math.inf)  # a maximum may drop NaN
        works = [group.all_reduce(self._largest, dist.ReduceOp.MAX), group.all_reduce(self._sums)]
        for work in works:
            group.wait(work)
        arrival = Arrival(self._largest)
        if self._adder is not None:
            self._adder.give_means(self._sums, self._floats)
        else:
            self._floats.copy_(self._sums)
            if self._params:
                torch._foreach_mul_(self._views, self._back())
        squares = _Squares(self._layers, dict(zip(map(id, self._params), self._views))) if self.with_norms else None
        self._found = largest = arrival.read().tolist()
        self.overflow = self.may_overflow and not all(map(math.isfinite, largest))
        if self.overflow:
            return {layer.number: 0.0 for layer in self._layers}
        for p, g in zip(self._params, largest):
            check_finite(p, g)
        fits = [fixed_point.fits(g, s, self._addends) for g, s in zip(largest, self._scales)]
        if agree(not all(fits)):
            self._scales = [s if fit else fixed_point.best(g, self._addends)
                            for g, s, fit in zip(largest, self._scales, fits)]
            raise Redo
        return {layer.number: 0.0 for layer in self._layers} if squares is None else _read_or_overflow(self, squares)

    def hand_over(self, factor: float) -> None:
        if factor != 1.0:
            self._floats.mul_(factor)
        for p, view in zip(self._params, self._views):
            p.tensor.grad = None if id(p) in self.unused else view

    def view_of(self, p: Param) -> torch.Tensor:
        """As FloatSums.view_of."""
        return self._views[self._params.index(p)]

    def scale_of(self, p: Param) -> Any:
        """The largest element of the step's gradients, and their scale."""
        index = self._params.index(p)
        return [float(self._largest[index]), self._scales[index]]

    def storages(self) -> List[int]:
        """As FloatSums.storages."""
        self._parts.mend(keep=False)
        return [self._floats.untyped_storage().data_ptr()]

    def commit(self) -> None:
        """Stores the scales of the next step in the layers."""
        following = {layer.number: _scales(layer).tolist() for layer in self._layers}
        for (layer, index), g, s in zip(self._places, self._found, self._scales):
            following[layer.number][index] = fixed_point.following(g, s, self._addends)
        for layer in self._layers:
            _scales(layer).copy_(torch.tensor(following[layer.number], dtype=torch.int32))


class TiedSums:
    """One weight that two layers share, each with its own copy: sums the gradient of both ends over all pipelines.

    Both copies start equal and get the same gradient and the same update, so they stay equal."""

    def __init__(self, ends: Sequence[Tuple[Layer, Param]], first_end: int, micro_batches: int, bitwise: bool) -> None:
        """ends: those that this worker holds. first_end: the layer whose share of the norm has it."""
        self._ends, self._first_end = ends, first_end
        self._bitwise, self._micro_batches, self._addends = bitwise, micro_batches, 2 * micro_batches
        weight = ends[0][1].tensor
        if bitwise:
            check_float32([p for _, p in ends])
        self._sum = torch.zeros(weight.shape, dtype=torch.int32 if bitwise else weight.dtype, device=weight.device)
        self._largest = torch.zeros(1, device=weight.device)
        self._gradient: Optional[torch.Tensor] = None
        self._group_now: Optional[Group] = None

    def begin(self, group: Group) -> None:
        self._group_now = group
        if self._bitwise:
            layer, p = self._ends[0]
            self._scale = int(_scales(layer)[layer.trained.index(p)])
        self.begin_again()

    def begin_again(self) -> None:
        self._sum.zero_()
        self._largest.zero_()

    def begin_micro_batch(self) -> None:
        for _, p in self._ends:
            p.tensor.grad = None

    def end_micro_batch(self) -> None:
        for _, p in self._ends:
            g = p.tensor.grad
            p.tensor.grad = None
            if g is None:
                continue
            if self._bitwise:
                torch.maximum(self._largest, torch.linalg.vector_norm(g, math.inf), out=self._largest)
                self._sum.add_((g * math.ldexp(1.0, self._scale)).round_().to(torch.int32))
            else:
                self._sum.add_(g)

    def fits(self) -> bool:
        """Every holder of an end asks, before `finish`."""
        if not self._bitwise:
            return True
        assert self._group_now is not None
        self._group_now.wait(self._group_now.all_reduce(self._largest, dist.ReduceOp.MAX))
        largest = float(self._largest)
        check_finite(self._ends[0][1], largest)
        good = fixed_point.fits(largest, self._scale, self._addends)
        if not good:
            self._scale = fixed_point.best(largest, self._addends)
        return good

    def finish(self) -> Dict[int, float]:
        assert self._group_now is not None
        self._group_now.wait(self._group_now.all_reduce(self._sum))
        unit = math.ldexp(1.0, -self._scale) if self._bitwise else 1.0
        self._gradient = self._sum.to(torch.float32) * (unit / self._micro_batches)
        squares = float(torch.linalg.vector_norm(self._gradient).double() ** 2)
        return {self._first_end: squares} if any(layer.number == self._first_end for layer, _ in self._ends) else {}

    def has(self, p: Param) -> bool:
        """Is it one of the ends?"""
        return any(p is end for _, end in self._ends)

    def gradient(self) -> torch.Tensor:
        """Of both ends, after `finish`."""
        assert self._gradient is not None
        return self._gradient.to(self._ends[0][1].tensor.dtype)

    def scale(self) -> Any:
        """As Follow.scale_of."""
        return [float(self._largest), self._scale, self._addends] if self._bitwise else None

    def hand_over(self, factor: float) -> None:
        assert self._gradient is not None
        if factor != 1.0:
            self._gradient.mul_(factor)
        for _, p in self._ends:
            p.tensor.grad = self._gradient.to(p.tensor.dtype)

    def commit(self) -> None:
        for layer, p in self._ends:
            if self._bitwise:
                following = fixed_point.following(float(self._largest), self._scale, self._addends)
                _scales(layer)[layer.trained.index(p)] = following

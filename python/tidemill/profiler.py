"""Profiles of PyTorch training jobs: where a step's time goes, layer by layer.

    with tidemill.profile(model, optimizer, path="job.tmprofile") as profile:
        for inputs, targets in loader:
            ...                      # the loop as it is
            if profile.done:
                break

or, without changing a line, `tidemill profile -- python train.py`. Both write a profile (tidemill-profile(5)) that
`tidemill predict` and `tidemill plan` read.

A few dozen iterations are observed. Most are only timed as a whole. Some run with hooks on layers and gradients: at least
two, and no more than cost a small share of the time. One, before the timing starts, counts operations, values moved and
values kept. The split of a step comes from the iterations with hooks, its length from those without, so hooks do not
lengthen the reported time. Results do not change: the weights have the same bits with and without a profile.

This file depends on no other: the program carries a copy and runs it in the user's environment.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

TORCH_MIN = (2, 1)
WARMUP = 3  # iterations behind the counted one that are not timed
SAMPLE_EVERY = 4  # at most every fourth iteration carries hooks,
BUDGET = 0.015  # and no more than what costs this share of the time,
SAMPLES_MIN = 2  # but two do
LARGE_TENSORS = 32  # the first iteration with hooks watches every gradient, later ones the largest
ITERATIONS_MIN = 8
NO_WORK = ("aten.empty", "aten._unsafe_view", "aten.detach", "aten.arange", "aten.lift")  # no kernel worth the name
DDP_FIRST_BUCKET_BYTES = 1 << 20
DDP_BUCKET_BYTES = 25 << 20


class ProfileError(RuntimeError):
    """The job cannot be profiled; the message says why and what to do."""


def check_torch() -> Any:
    """Returns torch if it is installed and new enough."""
    try:
        import torch
    except ImportError as error:
        raise ProfileError("no torch in this Python: only PyTorch jobs can be profiled") from error
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < TORCH_MIN:
        raise ProfileError(f"torch {torch.__version__} is too old: {TORCH_MIN[0]}.{TORCH_MIN[1]} or later is needed")
    return torch


# ---- the layers of a model ----


class Layer:
    """A part of the model at which a pipeline can be cut: a block, or a single module."""

    def __init__(self, name: str, module: Any, kind: str) -> None:
        self.name = name
        self.module = module
        self.kind = kind
        self.params = 0
        self.tied: Optional["Layer"] = None
        # counted, for one micro-batch
        self.flops = 0.0
        self.conv_flops = 0.0
        self.traffic = 0.0
        self.saved = 0.0
        self.output = 0.0
        self.ops = 0
        self.order = -1  # by first call
        # measured: its share of each pass that was looked at
        self.forward_shares: List[float] = []
        self.backward_shares: List[float] = []


def _is_container(torch: Any, module: Any) -> bool:
    return isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict))


def _holds_blocks(torch: Any, module: Any) -> bool:
    """Is there, at any depth, a list with two adjacent blocks of the same class?"""
    for below in module.modules():
        if not _is_container(torch, below):
            continue
        children = list(below.children())
        for first, second in zip(children, children[1:]):
            if type(first) is type(second) and any(True for _ in first.children()):
                return True
    return False


def _kind_of(torch: Any, module: Any) -> str:
    nn = torch.nn
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return "depthwise" if module.groups > 1 and module.groups == module.in_channels else "conv"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return "embedding"
    if any(True for _ in module.children()):
        return "block"
    return "matmul" if any(p.dim() >= 2 for p in module.parameters(recurse=False)) else "norm"


def _cut(torch: Any, module: Any, prefix: str, is_root: bool) -> Iterator[Layer]:
    """Layers of a module: the root, lists, and modules with lists of blocks are split; blocks are not."""
    children = list(module.named_children())
    opened = is_root or _is_container(torch, module) or _holds_blocks(torch, module)
    if not children or not opened:
        yield Layer(prefix or "model", module, _kind_of(torch, module))
        return
    for name, child in children:
        yield from _cut(torch, child, f"{prefix}.{name}" if prefix else name, False)


def _unwrap(module: Any) -> Any:
    """The model inside DistributedDataParallel, DataParallel or a compiled module."""
    for name in ("_orig_mod", "module"):
        inner = module._modules.get(name) if hasattr(module, "_modules") else None
        if inner is not None and len(module._modules) == 1:
            return _unwrap(inner)
    return module


def find_layers(torch: Any, roots: Sequence[Any]) -> List[Layer]:
    """Layers of the models. Every parameter is counted once; a layer with weights seen before is tied."""
    layers: List[Layer] = []
    for index, root in enumerate(roots):
        prefix = f"model{index}" if len(roots) > 1 else ""
        layers.extend(_cut(torch, _unwrap(root), prefix, True))
    owner: Dict[int, Layer] = {}
    for layer in layers:
        shared: Dict[int, int] = {}
        for parameter in layer.module.parameters():
            if id(parameter) in owner:
                if owner[id(parameter)] is not layer:
                    shared[id(owner[id(parameter)])] = shared.get(id(owner[id(parameter)]), 0) + parameter.numel()
                continue
            owner[id(parameter)] = layer
            layer.params += parameter.numel()
        # The file form knows pairs: one has the weights, the other none.
        if shared and layer.params == 0:
            other = next(l for l in layers if id(l) == max(shared, key=lambda key: shared[key]))
            if other.tied is None and other.params > 0:
                layer.tied, other.tied = other, layer
    outside = Layer("outside", None, "norm")  # what belongs to no layer: a root's own parameters and operations
    outside.params = sum(
        p.numel() for p in {id(p): p for r in roots for p in r.parameters()}.values() if id(p) not in owner
    )
    return [outside] + layers


# ---- counting ----


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(torch, item)
    elif isinstance(value, dict) or (hasattr(value, "values") and callable(value.values) and not hasattr(value, "dim")):
        for item in value.values():
            yield from _tensors(torch, item)


def _storage(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr()


def _attention_flops(args: Sequence[Any]) -> float:
    query, key, value = args[0], args[1], args[2]
    rows = query.numel() / query.shape[-1]
    return 2.0 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _make_counter(torch: Any, profiler: "Profiler") -> Any:
    """A mode that sees every operation and adds its work to the current layer."""
    from torch.utils._python_dispatch import TorchDispatchMode

    flop_counter = __import__("torch.utils.flop_counter", fromlist=["flop_counter"])
    formulas = getattr(flop_counter, "flop_registry", None) or getattr(flop_counter, "flop_mapping", {})

    def flops_of(func: Any, args: Any, kwargs: Any, out: Any) -> float:
        packet = func._overloadpacket
        try:
            if packet in formulas:
                return float(formulas[packet](*args, **kwargs, out_val=out))
            if "scaled_dot_product" in str(packet) and "backward" not in str(packet):
                return _attention_flops(args)
        except (TypeError, ValueError, IndexError, AttributeError):
            pass  # an operation whose formula does not know these arguments counts as none
        return 0.0

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            name = str(func)
            if not profiler.in_forward or getattr(func, "is_view", False) or name.startswith(NO_WORK):
                return out
            weights = profiler.weight_storages
            if "_to_copy" in name and _storage(args[0]) in weights:
                weights.add(_storage(out))  # a weight in another precision: read once a step, whatever the batch
                return out
            if all(tensor.numel() <= 1 for tensor in _tensors(torch, out)):
                return out  # counters
            layer = profiler.running_layer()
            flops = flops_of(func, args, kwargs, out)
            layer.flops += flops
            if "conv" in name:
                layer.conv_flops += flops
            layer.ops += 1
            for tensor in _tensors(torch, (args, kwargs, out)):
                if _storage(tensor) not in weights:
                    layer.traffic += tensor.numel()
            return out

    return Counter()


# ---- time ----


class Clock:
    """Marks on the timeline of the device: host times, or CUDA events that are read at the end."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch = torch
        self.cuda = device.type == "cuda"

    def mark(self) -> Any:
        """A point in time: of the clock, or of the GPU's stream."""
        if not self.cuda:
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self) -> None:
        """Waits until the GPU is done."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def between_ms(self, first: Any, second: Any) -> float:
        """The time between two marks; call settle first."""
        return first.elapsed_time(second) if self.cuda else (second - first) * 1e3


class Sample:
    """The marks of one iteration with hooks."""

    def __init__(self, start: Any) -> None:
        self.start = start
        self.end: Any = None
        self.data_ms = 0.0
        self.optimizer_start: Any = None
        self.passes: List[Tuple[Any, List[Any], List[Tuple[Any, str, Any]]]] = []  # forward marks, then what came behind


class Pass:
    """Forward and backward of one micro-batch, in ms from the start of its forward."""

    def __init__(self) -> None:
        self.forward_ms = 0.0
        self.backward_ms = 0.0
        self.gradients: List[Tuple[int, float]] = []  # parameter, ms after the forward pass


# ---- the profiler ----


class Profiler:
    """Watches a training loop through hooks. Created by `profile` or by the hook of `tidemill profile`."""

    def __init__(
        self,
        model: Any = None,
        optimizer: Any = None,
        *,
        iterations: int = 40,
        path: Optional[str] = None,
        name: Optional[str] = None,
        batch: Optional[int] = None,
        on_done: Optional[Callable[["Profiler"], None]] = None,
    ) -> None:
        if iterations < ITERATIONS_MIN:
            raise ProfileError(f"{iterations} iterations are too few: {ITERATIONS_MIN} or more")
        self.torch = check_torch()
        self.iterations = iterations
        self.path = path
        self.name = name
        self.batch = batch
        self.on_done = on_done
        self.done = False
        self.roots: List[Any] = [model] if model is not None else []
        self.optimizer = optimizer
        self.layers: List[Layer] = []
        self.index = -1  # of the iteration; -1: before the first step's end
        self.in_forward = False
        self._stack: List[Layer] = []
        self._handles: List[Any] = []
        self._lasting: List[Any] = []  # hooks that stay until the end
        self._clock: Optional[Clock] = None
        self._counting: Optional[contextlib.ExitStack] = None
        self._sample: Optional[Sample] = None
        self._samples: List[Sample] = []
        self._event_s = 0.0  # what a mark costs the host, with the hook around it
        self._sample_cost_s = 0.0  # of the last iteration with hooks, and of all
        self._cost_s = 0.0
        self._timing_began = 0.0
        self._plain: List[Tuple[Any, Any, float, float]] = []  # start, end, processor seconds, data ms
        self._order: List[bool] = []  # of the timed iterations: did it carry hooks?
        self._last_end: Any = None
        self._last_cpu = 0.0
        self._data_ms = 0.0
        self._parameters: List[Any] = []
        self._counted = 0
        self._samples_seen: Optional[int] = None
        self._input = ""
        self._precision = "fp32"
        self._optimizers: Dict[int, Any] = {}
        self._depth = 0
        self.weight_storages: set = set()
        self.failure: Optional[str] = None
        self.device: Any = None

    # ---- starting and stopping ----

    def start(self) -> None:
        """Starts watching: sets the hooks."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        if self.optimizer is not None:
            self._lasting.append(self.optimizer.register_step_pre_hook(self._step_begins))
            self._lasting.append(self.optimizer.register_step_post_hook(self._step_ends))
        else:
            self._lasting.append(register_optimizer_step_pre_hook(self._step_begins))
            self._lasting.append(register_optimizer_step_post_hook(self._step_ends))
        self._watch_loaders()
        if not self.roots:
            self._discover()

    def stop(self) -> None:
        """Stops watching: removes all hooks."""
        self._unhook()
        for handle in self._lasting:
            handle.remove()
        self._lasting = []
        if self._counting is not None:
            self._counting.close()
            self._counting = None

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _watch_loaders(self) -> None:
        """Adds up the time that the loop waits in a DataLoader."""
        from torch.utils.data import dataloader

        base = dataloader._BaseDataLoaderIter
        plain = base.__next__
        profiler = self

        def timed(iterator: Any) -> Any:
            begin = time.perf_counter()
            try:
                return plain(iterator)
            finally:
                profiler._data_ms += (time.perf_counter() - begin) * 1e3

        class Restore:
            def remove(self) -> None:
                base.__next__ = plain
                base.next = plain

        base.__next__ = timed
        base.next = timed
        self._lasting.append(Restore())

    def _discover(self) -> None:
        """Until the first step ends: finds the modules that are called outside any other."""
        module = self.torch.nn.modules.module
        found = self.roots

        def before(called: Any, _args: Any) -> None:
            if self._depth == 0 and all(called is not root for root in found):
                found.append(called)
            self._depth += 1

        def after(_called: Any, _args: Any, _out: Any) -> None:
            self._depth -= 1

        self._handles.append(module.register_module_forward_pre_hook(before))
        self._handles.append(module.register_module_forward_hook(after))

    # ---- the iterations ----

    def _step_begins(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._optimizers[id(optimizer)] = optimizer
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is self.optimizer and self._sample is not None:
            self._sample.optimizer_start = self._clock.mark()  # type: ignore[union-attr]

    def _step_ends(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.done or optimizer is not self.optimizer:
            return
        try:
            self._next_iteration()
        except ProfileError as error:
            self._fail(str(error))

    def _fail(self, why: str) -> None:
        self.stop()
        self.done = True
        self.failure = why
        if self.on_done is not None:
            self.on_done(self)

    def _next_iteration(self) -> None:
        self._finish_iteration()
        self.index += 1
        if self.index == 0:
            self._begin_counting()
            return
        timed = self.index - 1 - WARMUP
        if timed >= self.iterations:
            self.stop()
            self.done = True
            if self.on_done is not None:
                self.on_done(self)
            return
        if timed >= 0:
            self._last_end = self._clock.mark()  # type: ignore[union-attr]
            self._last_cpu = time.process_time()
            self._data_ms = 0.0
            if timed == 0:
                self._timing_began = time.perf_counter()
            if self._may_sample(timed):
                self._begin_sample()

    def _may_sample(self, timed: int) -> bool:
        if not self._samples:
            return timed == SAMPLE_EVERY - 1
        if timed == self.iterations - 1 and len(self._samples) < SAMPLES_MIN:
            return True
        spent = time.perf_counter() - self._timing_began
        return timed % SAMPLE_EVERY == SAMPLE_EVERY - 1 and self._cost_s + self._sample_cost_s <= BUDGET * spent

    def _finish_iteration(self) -> None:
        if self._counting is not None:
            self._end_counting()
        if self._last_end is None:
            return
        end = self._clock.mark()  # type: ignore[union-attr]
        if self._sample is not None:
            self._sample.end = end
            self._sample.data_ms = self._data_ms
            events = sum(2 + 2 * len(calls) + len(behind) for _, calls, behind in self._sample.passes)
            self._samples.append(self._sample)
            self._sample = None
            begin = time.perf_counter()
            self._unhook()
            self._sample_cost_s += time.perf_counter() - begin + events * self._event_s
            self._cost_s += self._sample_cost_s
            self._order.append(True)
        else:
            self._plain.append((self._last_end, end, time.process_time() - self._last_cpu, self._data_ms))
            self._order.append(False)

    # ---- the counted iteration ----

    def _check_job(self) -> None:
        torch = self.torch
        own = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        self._unhook()
        self.roots = [r for r in self.roots if any(id(p) in own for p in r.parameters())]
        if not self.roots:
            raise ProfileError(
                "no module that was called holds the optimizer's parameters; pass the model: tidemill.profile(model, ...)"
            )
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            if torch.distributed.get_world_size() > 1:
                raise ProfileError(
                    f"the job runs with {torch.distributed.get_world_size()} workers, whose waiting for each other would "
                    "be profiled: profile one worker"
                )
        parameters = {id(p): p for r in self.roots for p in r.parameters() if p.requires_grad}
        self._parameters = list(parameters.values())
        self.device = self._parameters[0].device
        self._clock = Clock(torch, self.device)
        begin = time.perf_counter()
        for _ in range(32):
            self._clock.mark()
        # Around a mark there is a call from C++; behind a GPU's backward pass one from another thread.
        self._event_s = (time.perf_counter() - begin) / 32 + (3e-5 if self._clock.cuda else 3e-6)

    def _begin_counting(self) -> None:
        self._check_job()
        self.layers = find_layers(self.torch, self.roots)
        if self.device.type == "cuda":
            self.torch.cuda.reset_peak_memory_stats(self.device)
        self._hook(self._root_begins, self._root_ends, self._count_begins, self._count_ends)
        self.weight_storages = {_storage(p) for r in self.roots for p in r.parameters()}
        self._counting = contextlib.ExitStack()
        if not self._is_compiled():  # a compiled module is one operation to a mode, and may not bear one
            self._counting.enter_context(_make_counter(self.torch, self))
            self._counting.enter_context(self.torch.autograd.graph.saved_tensors_hooks(self._keep, lambda x: x))
        self._kept: Dict[Tuple[int, int], bool] = {}

    def _is_compiled(self) -> bool:
        return any(type(m).__name__ == "OptimizedModule" for r in self.roots for m in r.modules())

    def _end_counting(self) -> None:
        if self._counting is not None:
            self._counting.close()
        self._counting = None
        self._unhook()
        self.in_forward = False
        self._stack = []
        if self._counted == 0:
            raise ProfileError("the model was not called between two steps of the optimizer")
        if self._samples_seen is None and self.batch is None:
            raise ProfileError("the model's input has no first dimension: give the samples per batch (batch=N)")
        for layer in self.layers:
            for name in ("flops", "conv_flops", "traffic", "saved", "output"):
                setattr(layer, name, getattr(layer, name) / self._counted)
            layer.ops = round(layer.ops / self._counted)
        if self._is_compiled() or all(layer.order < 0 for layer in self.layers):
            self._merge_layers()

    def _merge_layers(self) -> None:
        """Layers that are not called one by one (compiled) cannot be distinguished: makes them one."""
        whole = Layer("model", self.roots[0], "block")
        whole.params = sum(layer.params for layer in self.layers)
        whole.order = 0
        outputs = [layer.output for layer in self.layers]
        whole.output = outputs[-1] if outputs else 0.0
        for name in ("flops", "conv_flops", "traffic", "saved", "ops"):
            setattr(whole, name, sum(getattr(layer, name) for layer in self.layers))
        if whole.flops == 0:  # nothing could be counted: two operations a weight and position
            whole.flops = 2.0 * whole.params * (self._samples_seen or 1) * self._positions
        self.layers = [Layer("outside", None, "norm"), whole]

    def _keep(self, tensor: Any) -> Any:
        if self.in_forward:
            storage = _storage(tensor)
            key = (storage, tensor.numel())
            if storage not in self.weight_storages and key not in self._kept:
                self._kept[key] = True
                self.running_layer().saved += tensor.numel()
        return tensor

    def running_layer(self) -> Layer:
        """The layer whose forward pass is running."""
        return self._stack[-1] if self._stack else self.layers[0]

    def _hook(self, root_begins: Any, root_ends: Any, begins: Any, ends: Any) -> None:
        """Roots begin before their layers and end after them, even if a root is a layer itself."""
        for root in self.roots:
            self._handles.append(root.register_forward_pre_hook(root_begins, with_kwargs=True))
        for layer in self.layers:
            if layer.module is not None:
                self._handles.append(layer.module.register_forward_pre_hook(lambda m, a, layer=layer: begins(layer)))
                self._handles.append(layer.module.register_forward_hook(lambda m, a, o, layer=layer: ends(layer, o)))
        for root in self.roots:
            self._handles.append(root.register_forward_hook(root_ends))

    def _root_begins(self, _module: Any, args: Any, kwargs: Any) -> None:
        if not self.torch.is_grad_enabled():
            return  # an evaluation
        self._counted += 1
        self.in_forward = True
        self._kept = {}
        self._look_at_input(args, kwargs)

    _positions = 1

    def _look_at_input(self, args: Any, kwargs: Any) -> None:
        torch = self.torch
        for tensor in _tensors(torch, (args, kwargs)):
            if tensor.dim() > 0:
                self._samples_seen = int(tensor.shape[0])
                self._input = "x".join(str(n) for n in tensor.shape[1:])
                if not tensor.is_floating_point() and tensor.dim() > 1:
                    self._positions = int(tensor.shape[1])
                    self._input = f"{self._positions} tokens"
                break
        kind = self.device.type
        dtype = self._parameters[0].dtype
        if kind == "cuda" and torch.is_autocast_enabled():
            dtype = torch.get_autocast_gpu_dtype()
        elif kind == "cpu" and torch.is_autocast_cpu_enabled():
            dtype = torch.get_autocast_cpu_dtype()
        names = {torch.bfloat16: "bf16", torch.float16: "fp16"}
        self._precision = names.get(dtype, "fp32")
        if self._precision == "fp32" and kind == "cuda" and torch.backends.cuda.matmul.allow_tf32:
            self._precision = "tf32"

    def _root_ends(self, _module: Any, _args: Any, _out: Any) -> None:
        self.in_forward = False

    def _count_begins(self, layer: Layer) -> None:
        if not self.in_forward:
            return
        self._stack.append(layer)
        if layer.order < 0:
            layer.order = 1 + max((other.order for other in self.layers), default=-1)

    def _count_ends(self, layer: Layer, out: Any) -> None:
        if not self.in_forward or not self._stack or self._stack[-1] is not layer:
            return
        self._stack.pop()
        layer.output += max((t.numel() for t in _tensors(self.torch, out)), default=0)

    # ---- iterations with hooks ----

    def _begin_sample(self) -> None:
        begin = time.perf_counter()
        self._sample = Sample(self._last_end)
        self._hook(self._sample_root_begins, self._sample_root_ends, self._sample_begins, self._sample_ends)
        watched = range(len(self._parameters))
        if self._samples:
            watched = sorted(watched, key=lambda i: -self._parameters[i].numel())[:LARGE_TENSORS]
            watched.append(self._last_gradient)
        for index in set(watched):
            self._handles.append(
                self._parameters[index].register_post_accumulate_grad_hook(lambda p, i=index: self._gradient_ready(i))
            )
        self._sample_cost_s = time.perf_counter() - begin

    def _sample_root_begins(self, _module: Any, _args: Any, _kwargs: Any) -> None:
        if self.torch.is_grad_enabled():
            self.in_forward = True
            forward = [self._clock.mark(), None]  # type: ignore[union-attr]
            self._sample.passes.append((forward, [], []))  # type: ignore[union-attr]

    def _sample_root_ends(self, _module: Any, _args: Any, _out: Any) -> None:
        if self.in_forward:
            self.in_forward = False
            self._sample.passes[-1][0][1] = self._clock.mark()  # type: ignore[union-attr]

    def _sample_begins(self, layer: Layer) -> None:
        if self.in_forward:  # else it is recomputed in the backward pass
            self._sample.passes[-1][1].append([layer, self._clock.mark(), None])  # type: ignore[union-attr]

    def _sample_ends(self, layer: Layer, out: Any) -> None:
        if not self.in_forward:
            return
        sample = self._sample
        for call in reversed(sample.passes[-1][1]):  # type: ignore[union-attr]
            if call[0] is layer and call[2] is None:
                call[2] = self._clock.mark()  # type: ignore[union-attr]
                break
        tensor = next((t for t in _tensors(self.torch, out) if t.requires_grad), None)
        if tensor is not None:
            later = sample.passes[-1][2]  # type: ignore[union-attr]
            tensor.register_hook(lambda _g, layer=layer: later.append((self._clock.mark(), "layer", layer)))

    _last_gradient = 0  # the one that ends the backward pass

    def _gradient_ready(self, index: int) -> None:
        sample = self._sample
        if sample is not None and sample.passes:
            sample.passes[-1][2].append((self._clock.mark(), "gradient", index))  # type: ignore[union-attr]
            if not self._samples:
                self._last_gradient = index

    # ---- results ----

    def result(self) -> Dict[str, Any]:
        """All measurements, as plain numbers. Raises ProfileError if there are too few."""
        if self.failure is not None:
            raise ProfileError(self.failure)
        if len(self._samples) < 2 or len(self._plain) < 4:
            seen = len(self._order)
            raise ProfileError(
                f"{seen} iterations were timed, {ITERATIONS_MIN} are needed (after {WARMUP + 2} of warm-up): let the "
                "job take more steps"
            )
        self._clock.settle()  # type: ignore[union-attr]
        plain_ms = [self._clock.between_ms(a, b) for a, b, _, _ in self._plain]  # type: ignore[union-attr]
        step_ms = statistics.median(plain_ms)
        parts = [self._resolve(sample) for sample in self._samples]
        if not all(parts):
            raise ProfileError("an iteration had no backward pass with gradients")
        sampled_ms = statistics.median(p["step_ms"] for p in parts)
        scale = step_ms / sampled_ms
        keys = ("forward_ms", "backward_ms", "optimizer_ms", "data_ms", "other_ms")
        split = {key: statistics.median(p[key] for p in parts) * scale for key in keys}
        total = sum(split.values()) + (self._micro_batches(parts) - 1) * (split["forward_ms"] + split["backward_ms"])
        split = {key: value * step_ms / total for key, value in split.items()}
        ordered = sorted(plain_ms)
        walls = [self._clock.between_ms(a, b) for a, b, _, _ in self._plain]  # type: ignore[union-attr]
        busy = [cpu * 1e3 / wall for (_, _, cpu, _), wall in zip(self._plain, walls)]
        carried = len(self._samples) / len(self._order)
        return {
            "network": self._network_name(),
            "gpu": self._device_name(),
            "precision": self._precision,
            "micro_batch": self.batch or self._samples_seen or 1,
            "micro_batches": self._micro_batches(parts),
            "step_ms": step_ms,
            "step_ms_p10": ordered[len(ordered) // 10],
            "step_ms_p90": ordered[(len(ordered) * 9) // 10],
            "iterations": len(self._order),
            "overhead_percent": max(0.0, 100 * (sampled_ms / step_ms - 1) * carried),
            "busy_cores": statistics.median(busy),
            "cores": _cores(),
            "peak_gib": self._peak_gib(),
            "params": sum(layer.params for layer in self.layers),
            "train_gflop_per_sample": 3 * sum(l.flops for l in self.layers) / self._per_sample() / 1e9,
            "optimizer_states": self._optimizer_states(),
            "input": self._input,
            "layers": self._layer_rows(split["forward_ms"], split["backward_ms"]),
            "gradients": self._gradient_rows(parts),
            **split,
        }

    def _per_sample(self) -> float:
        return float(self.batch or self._samples_seen or 1)

    @staticmethod
    def _micro_batches(parts: Sequence[Dict[str, Any]]) -> int:
        return max(1, round(statistics.median(len(p["passes"]) for p in parts)))

    def _resolve(self, sample: Sample) -> Optional[Dict[str, Any]]:
        """Marks to ms. The parts add up to the step."""
        between = self._clock.between_ms  # type: ignore[union-attr]
        passes: List[Pass] = []
        for forward, calls, behind in sample.passes:
            if forward[1] is None or not any(kind == "gradient" for _, kind, _ in behind):
                continue  # no backward pass: an evaluation
            one = Pass()
            one.forward_ms = between(forward[0], forward[1])
            one.backward_ms = max(between(forward[1], mark) for mark, kind, _ in behind if kind == "gradient")
            one.gradients = [(i, between(forward[1], mark)) for mark, kind, i in behind if kind == "gradient"]
            self._share_forward(calls, one.forward_ms)
            self._share_backward(forward[1], behind, one.backward_ms)
            passes.append(one)
        if not passes or sample.optimizer_start is None:
            return None
        step_ms = between(sample.start, sample.end)
        last = sample.passes[-1]
        end_of_backward = max(between(sample.start, m) for m, kind, _ in last[2] if kind == "gradient")
        if between(sample.start, sample.optimizer_start) < end_of_backward:
            raise ProfileError(
                "the optimizer calls the model itself (a closure): forward and backward cannot be told from its own work"
            )
        forward_ms = statistics.mean(p.forward_ms for p in passes)
        backward_ms = statistics.mean(p.backward_ms for p in passes)
        optimizer_ms = step_ms - end_of_backward
        gap = max(0.0, step_ms - optimizer_ms - sum(p.forward_ms + p.backward_ms for p in passes))
        data_ms = min(sample.data_ms, gap)
        return {
            "step_ms": step_ms,
            "passes": passes,
            "forward_ms": forward_ms,
            "backward_ms": backward_ms,
            "optimizer_ms": optimizer_ms,
            "data_ms": data_ms,
            "other_ms": gap - data_ms,
        }

    def _share_forward(self, calls: Sequence[Any], whole_ms: float) -> None:
        sums: Dict[int, float] = {}
        for layer, begin, end in calls:
            if end is not None:
                sums[id(layer)] = sums.get(id(layer), 0.0) + self._clock.between_ms(begin, end)  # type: ignore[union-attr]
        for layer in self.layers:
            if id(layer) in sums:
                layer.forward_shares.append(sums[id(layer)] / whole_ms)

    def _share_backward(self, start: Any, behind: Sequence[Any], whole_ms: float) -> None:
        """A layer's backward pass goes from its output's gradient to the next layer's, in time."""
        between = self._clock.between_ms  # type: ignore[union-attr]
        marks = sorted(((between(start, m), what) for m, kind, what in behind if kind == "layer"), key=lambda x: x[0])
        sums: Dict[int, float] = {}
        for position, (at, layer) in enumerate(marks):
            end = marks[position + 1][0] if position + 1 < len(marks) else max(whole_ms, at)
            sums[id(layer)] = sums.get(id(layer), 0.0) + end - at
        for layer in self.layers:
            if id(layer) in sums:
                layer.backward_shares.append(sums[id(layer)] / whole_ms)

    def _layer_rows(self, forward_ms: float, backward_ms: float) -> List[Dict[str, Any]]:
        per = self._per_sample()
        outside = self.layers[0]
        called = sorted((l for l in self.layers[1:] if l.order >= 0), key=lambda l: l.order)
        for layer in self.layers[1:]:
            if layer.order < 0:  # its weights are used without a call of it
                outside.params += layer.params
                if layer.tied is not None:
                    layer.tied.tied = None
        rows = ([outside] if outside.params > 0 or outside.ops > 0 else []) + called
        names = _unique([_plain_name(layer.name) for layer in rows])
        by_layer = {id(layer): name for layer, name in zip(rows, names)}
        kinds = {True: "conv", False: "block"}
        return [
            {
                "name": by_layer[id(l)],
                "kind": kinds[l.conv_flops > l.flops / 2] if l.kind == "block" else l.kind,
                "params": l.params,
                "forward_flops": l.flops / per,
                "traffic_values": l.traffic / per,
                "saved_values": l.saved / per,
                "output_values": l.output / per,
                "ops": l.ops,
                "tied": by_layer.get(id(l.tied), "") if l.tied is not None else "",
                "forward_ms": statistics.median(l.forward_shares) * forward_ms if l.forward_shares else None,
                "backward_ms": statistics.median(l.backward_shares) * backward_ms if l.backward_shares else None,
            }
            for l in rows
        ]

    def _gradient_rows(self, parts: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Gradients in the order of the iteration that saw them all, by the median of when they were ready, as a share
        of the backward pass."""
        times: Dict[int, List[float]] = {}
        for part in parts:
            last = part["passes"][-1]
            for index, at in last.gradients:
                times.setdefault(index, []).append(min(1.0, at / last.backward_ms))
        rows: List[Dict[str, Any]] = []
        ready = 0.0
        for index, _ in sorted(parts[0]["passes"][-1].gradients, key=lambda gradient: gradient[1]):
            ready = max(ready, statistics.median(times[index]))
            parameter = self._parameters[index]
            rows.append({"bytes": parameter.numel() * parameter.element_size(), "ready": ready})
        if rows:
            rows[-1]["ready"] = 1.0
        return rows

    def _network_name(self) -> str:
        return _plain_name(self.name or type(_unwrap(self.roots[0])).__name__.lower())

    def _device_name(self) -> str:
        if self.device.type != "cuda":
            return self.device.type
        name = self.torch.cuda.get_device_name(self.device)
        name = re.sub(r"^(NVIDIA|AMD|Tesla|GeForce|Quadro|\s)+", "", name)
        known = re.match(r"(H200|H100|B200|GB200|A100|A10G|A10|A40|A6000|V100|P100|T4|L40S|L40|L4|K80|MI\d+X?)", name)
        return known[1] if known is not None else _plain_name(name)

    def _peak_gib(self) -> float:
        if self.device.type == "cuda":
            return self.torch.cuda.max_memory_allocated(self.device) / 2**30
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30

    def _optimizer_states(self) -> int:
        state = self.optimizer.state
        counts = []
        for parameter in self._parameters:
            values = state.get(parameter, {}).values() if parameter in state else []
            counts.append(sum(1 for v in values if self.torch.is_tensor(v) and v.numel() == parameter.numel() > 1))
        return max(counts, default=0)

    # ---- the file ----

    def write(self, path: Optional[str] = None) -> str:
        """Writes the profile and returns its path. Replaces the whole file, or leaves it unchanged on failure."""
        target = path or self.path
        if target is None:
            raise ProfileError("no path to write the profile to")
        text = print_profile(self.result(), f"torch {self.torch.__version__} on {self._device_name()}")
        temporary = f"{target}.{os.getpid()}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        return target


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80] or "model"


def _unique(names: Sequence[str]) -> List[str]:
    seen: Dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out


def ddp_buckets(gradients: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The buckets that DistributedDataParallel makes of gradients in this order: whole tensors up to a size limit."""
    buckets: List[Dict[str, Any]] = []
    limit = DDP_FIRST_BUCKET_BYTES
    size, ready, tensors = 0, 0.0, 0
    for gradient in gradients:
        size += gradient["bytes"]
        ready = max(ready, gradient["ready"])
        tensors += 1
        if size >= limit:
            buckets.append({"bytes": size, "ready": ready, "tensors": tensors})
            size, ready, tensors, limit = 0, 0.0, 0, DDP_BUCKET_BYTES
    if size > 0:
        buckets.append({"bytes": size, "ready": ready, "tensors": tensors})
    return buckets


def _figure(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, str)):
        return str(value)
    return format(value, ".6g") if abs(value) < 1e6 else format(value, ".9g")


STEP_COLUMNS = (
    "network gpu precision micro_batch forward_ms backward_ms optimizer_ms peak_gib step_ms_p10 params "
    "train_gflop_per_sample data_ms other_ms step_ms_p90 iterations micro_batches busy_cores cores overhead_percent"
).split()
LAYER_COLUMNS = (
    "name kind params forward_flops traffic_values saved_values output_values ops tied forward_ms backward_ms"
).split()


def print_profile(result: Dict[str, Any], source: str) -> str:
    """The file format, tidemill-profile(5)."""
    network = result["network"]
    lines = ["tidemill-profile 1", f"source: {source}", ""]
    lines += ["[network]", "network,optimizer_states,input"]
    lines += [f"{network},{result['optimizer_states']},{result['input']}", ""]
    lines += ["[step]", ",".join(STEP_COLUMNS), ",".join(_figure(result[c]) for c in STEP_COLUMNS), ""]
    lines += ["[layer]", "network," + ",".join(LAYER_COLUMNS)]
    lines += [f"{network}," + ",".join(_figure(row[c]) for c in LAYER_COLUMNS) for row in result["layers"]]
    lines += ["", "[gradient]", "network,bytes,ready"]
    lines += [f"{network},{row['bytes']},{_figure(row['ready'])}" for row in result["gradients"]]
    return "\n".join(lines) + "\n"


# ---- the two ways in ----


@contextlib.contextmanager
def profile(
    model: Any,
    optimizer: Any,
    *,
    iterations: int = 40,
    path: Optional[str] = "job.tmprofile",
    name: Optional[str] = None,
    batch: Optional[int] = None,
) -> Iterator[Profiler]:
    """Profiles the training loop inside the `with` block, and writes `path` (None: nothing) when it ends.

    `batch` is the number of samples of a micro-batch, if the first dimension of the model's input is not. The loop may
    continue when `done` is true; the hooks are removed by then.
    """
    profiler = Profiler(model, optimizer, iterations=iterations, path=path, name=name, batch=batch)
    profiler.start()
    try:
        yield profiler
    finally:
        profiler.stop()
    if path is not None:
        profiler.write()


def watch_process() -> None:
    """The hook of `tidemill profile`: watches what this process trains, as set in the environment; torch must be
    imported. Ends the process when enough was measured, unless TIDEMILL_PROFILE_KEEP is set."""
    path = os.environ["TIDEMILL_PROFILE_OUT"]
    keep = os.environ.get("TIDEMILL_PROFILE_KEEP") == "1"
    batch = os.environ.get("TIDEMILL_PROFILE_BATCH")

    def complain(error: Exception) -> None:
        with open(f"{path}.why", "w", encoding="utf-8") as file:
            file.write(str(error))

    def finish(profiler: Profiler) -> None:
        torch = profiler.torch
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if not distributed or torch.distributed.get_rank() == 0:
            try:
                profiler.write()
            except ProfileError as error:
                complain(error)
        if not keep:
            _end_process()

    try:
        profiler = Profiler(
            iterations=int(os.environ.get("TIDEMILL_PROFILE_ITERATIONS", "40")),
            path=path,
            name=os.environ.get("TIDEMILL_PROFILE_NAME"),
            batch=int(batch) if batch else None,
            on_done=finish,
        )
        profiler.start()
    except ProfileError as error:
        complain(error)
        return

    def at_end() -> None:
        if profiler.done or profiler.optimizer is None:
            return
        profiler.stop()
        try:
            profiler.write()
        except ProfileError as error:
            complain(error)

    atexit.register(at_end)


def _end_process() -> None:
    """Ends the process at once: the script must not overwrite its checkpoint with a partial training run."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

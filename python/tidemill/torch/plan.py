"""A model that the script has given to torch.distributed.fsdp.fully_shard: what is sharded together is taken from it, and it becomes a
plain model again, whose weights Tidemill shards over workers that come and go (full.py).

`job.mesh` is for fully_shard before a worker has joined: a mesh of this process alone, so that every shard is whole.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map

from tidemill.errors import UsageError

_KIND = "FSDPModule"
_made: List[bool] = []  # by mesh_of, and not by the script


def mesh_of(device: torch.device) -> Any:
    """A mesh of this process alone."""
    from torch.distributed.device_mesh import DeviceMesh

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        _made.append(True)
    if dist.get_world_size() != 1:
        raise UsageError("job.mesh: the script has called torch.distributed.init_process_group, and Tidemill makes the groups of a job: "
                         "leave the call out")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return DeviceMesh(device.type, [0])


def is_sharded(model: nn.Module) -> bool:
    """By fully_shard, as a whole or in parts."""
    return any(_fsdp(module) for module in model.modules())


def _fsdp(module: nn.Module) -> bool:
    return any(kind.__name__ == _KIND for kind in type(module).__mro__)


def _groups(state: Any) -> List[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)
    return list(groups) if groups is not None else [g for g in [state._fsdp_param_group] if g is not None]


def _check(name: str, state: Any, group: Any) -> None:
    """Refuses what would be trained otherwise than the script says."""
    what = f"fully_shard({name or 'model'})"
    if len(getattr(state, "_modules", ())) > 1:
        raise UsageError(f"{what}: several modules in one call are not supported: call it for each")
    mesh = group.mesh_info.mesh
    if mesh.size() != 1:
        raise UsageError(f"{what}: its mesh has {mesh.size()} processes, which would not be those of the job after a loss: say "
                         "fully_shard(..., mesh=job.mesh); how many shards and replicas there are is the layout's to say")
    if type(group.offload_policy).__name__ != "OffloadPolicy":
        raise UsageError(f"{what}: {type(group.offload_policy).__name__} is not supported: leave offload_policy out")


def take(model: nn.Module, optimizer: torch.optim.Optimizer) -> Dict[nn.Module, bool]:
    """Undoes fully_shard in place; the optimizer gets the plain parameters. Returns the modules that were sharded by themselves, and
    whether their weights stay between forward and backward pass."""
    found: List[Tuple[str, nn.Module, Any]] = [(name, m, m._get_fsdp_state())  # type: ignore[operator]
                                               for name, m in model.named_modules() if _fsdp(m)]
    for name, _, state in found:
        for group in _groups(state):
            _check(name, state, group)
    plain: Dict[int, nn.Parameter] = {}
    plan: Dict[nn.Module, bool] = {}
    for _, module, state in found:
        plan[module] = all(g.post_forward_mesh_info is None for g in _groups(state)) and module is not model
        for group in _groups(state):
            for one in group.fsdp_params:
                _restore(one, plain)
            _compute_in(module, group)
            for handles in (group._module_to_pre_save_state_dict_hook_handle, group._module_to_pre_load_state_dict_hook_handle):
                for handle in handles.values():
                    handle.remove()
        state._pre_forward_hook_handle.remove()
        state._post_forward_hook_handle.remove()
        module.__class__ = type(module).__mro__[getattr(type(module), "_orig_cls_mro_index", 2)]
    for group in optimizer.param_groups:
        group["params"][:] = [plain.get(id(p), p) for p in group["params"]]
    for old in [p for p in optimizer.state if id(p) in plain]:
        raise UsageError("the optimizer has stepped before attach, with parameters that fully_shard has cut: attach first")
    if _made and dist.is_initialized():
        _made.clear()
        dist.destroy_process_group()
    return plan


def _cast(value: Any, dtype: Any) -> Any:
    return tree_map(lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, value)


def _compute_in(module: nn.Module, group: Any) -> None:
    """MixedPrecisionPolicy: while the module runs its weights are casts of those that are trained, and gradients come back through the
    casts. They are summed in float32, or as integers, whatever reduce_dtype says: that is never less exact."""
    policy = group.mp_policy
    dtype, out_dtype = policy.param_dtype, policy.output_dtype
    if dtype is None and out_dtype is None:
        return
    places: List[Tuple[nn.Module, str]] = []
    for one in group.fsdp_params:
        info = one._module_info
        places += [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names)]
    stack: List[List[Tuple[nn.Module, str, Any]]] = []

    def before(_: Any, words: Any, named: Any) -> Any:
        kept: List[Tuple[nn.Module, str, Any]] = []
        casts: Dict[int, torch.Tensor] = {}
        for owner, name in places if dtype is not None else ():
            param = owner._parameters[name]
            if param is not None and param.is_floating_point() and isinstance(param, nn.Parameter):
                kept.append((owner, name, param))
                owner._parameters[name] = casts.setdefault(id(param), param.to(dtype))  # type: ignore[assignment]
        stack.append(kept)
        return _cast((words, named), dtype) if dtype is not None and policy.cast_forward_inputs else None

    def after(_: Any, words: Any, output: Any) -> Any:
        for owner, name, param in stack.pop() if stack else ():
            owner._parameters[name] = param
        return output if out_dtype is None else _cast(output, out_dtype)

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after, always_call=True)


def _restore(one: Any, plain: Dict[int, nn.Parameter]) -> None:
    """A parameter as it was before, wherever it is used."""
    sharded = one.sharded_param
    info = one._module_info
    with torch.no_grad():
        whole = nn.Parameter(sharded.to_local().detach().clone().view(one._orig_size), sharded.requires_grad)
    plain[id(sharded)] = whole
    info.module._parameters[info.param_name] = whole
    for module, name in zip(info.shared_modules, info.shared_param_names):
        module._parameters[name] = whole
    handle = getattr(one, "_post_load_hook_handle", None)
    if handle is not None:
        handle.remove()


__all__ = ["is_sharded", "mesh_of", "take"]

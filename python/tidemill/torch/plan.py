"""A model that the script has given to torch.distributed.fsdp.fully_shard: what is sharded together is taken from it, and it becomes a
plain model again, whose weights Tidemill shards over workers that come and go (full.py).

`job.mesh` is for fully_shard before a worker has joined: a mesh of this process alone, so that every shard is whole.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist
from torch import nn

from tidemill.errors import UsageError

_KIND = "FSDPModule"
_made: List[bool] = []  # by mesh_of, and not by the script
_POLICIES = ("param_dtype", "reduce_dtype", "output_dtype")


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
    given = [k for k in _POLICIES if getattr(group.mp_policy, k, None) is not None]
    if given:
        raise UsageError(f"{what}: MixedPrecisionPolicy({given[0]}=...) is not supported: compute under torch.autocast, which "
                         "keeps the weights in float32")
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

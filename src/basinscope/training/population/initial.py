"""The initial weights of a population's members, and whether they are of one architecture."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ...errors import InputError
from .members import Member


def stacked_weights(
    models: Callable[[], nn.Module] | Sequence[nn.Module],
    members: Sequence[Member],
    device: str | torch.device | None,
) -> tuple[nn.Module, Tensor]:
    """A copy of the first network on `device`, and the free parameters of all of them as rows."""
    if callable(models) and not isinstance(models, nn.Module):
        networks = _networks(models, members)
    elif isinstance(models, Sequence) and len(models) == len(members):
        networks = models
    else:
        kind = f"{len(models)} networks" if isinstance(models, Sequence) else type(models).__name__
        raise InputError(f"models must be a function that builds a network, or {len(members)} networks, got {kind}")
    first: nn.Module | None = None
    rows = []
    for m, network in enumerate(networks):
        if not isinstance(network, nn.Module):
            raise InputError(f"models must give torch.nn.Modules, got {type(network).__name__} for member {m}")
        if first is None:
            first = copy.deepcopy(network)
            _refuse_dropout(first)
        else:
            _refuse_other(first, network, m)
        rows.append(_free(network))
    assert first is not None
    return first.to(device=device), torch.stack(rows)


def _networks(build: Callable[[], nn.Module], members: Sequence[Member]) -> Sequence[nn.Module]:
    """One network for each member, made with torch seeded by its seed."""
    networks = []
    with torch.random.fork_rng(devices=[]):
        for member in members:
            torch.manual_seed(member.seed)
            networks.append(build())
    return networks


def _free(network: nn.Module) -> Tensor:
    """The free parameters of a network as one vector."""
    pieces = [parameter.detach().reshape(-1).cpu() for parameter in network.parameters() if parameter.requires_grad]
    if not pieces:
        raise InputError("the network has no free parameters: expected some with requires_grad=True")
    return torch.cat(pieces)


def _refuse_dropout(network: nn.Module) -> None:
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise InputError(f"dropout layer '{name}' has p={module.p}: members are trained without dropout — set p=0")


def _refuse_other(first: nn.Module, network: nn.Module, member: int) -> None:
    """Members must agree in structure, in which parameters are free, and in everything that is held fixed."""
    if str(first) != str(network):
        raise InputError(
            f"members must be of one architecture: member {member} is\n{network}\nwhile member 0 is\n{first}\n— put "
            f"them into populations of their own"
        )
    theirs, ours = dict(network.named_parameters()), dict(first.named_parameters())
    for name, parameter in ours.items():
        other = theirs.get(name)
        if other is None or other.shape != parameter.shape or other.dtype != parameter.dtype:
            description = "absent" if other is None else f"{other.dtype} of shape {tuple(other.shape)}"
            raise InputError(
                f"members must be of one architecture: parameter '{name}' is {parameter.dtype} of shape "
                f"{tuple(parameter.shape)} in member 0, {description} in member {member}"
            )
        if other.requires_grad != parameter.requires_grad:
            raise InputError(
                f"members must agree in what is trained: parameter '{name}' is fixed in one, free in another"
            )
    fixed = {name: parameter for name, parameter in ours.items() if not parameter.requires_grad}
    fixed.update(first.named_buffers())  # type: ignore[arg-type]
    others = {**theirs, **dict(network.named_buffers())}
    for name, tensor in fixed.items():
        if name not in others or not torch.equal(tensor, others[name].to(tensor.device)):
            raise InputError(
                f"members must share what is not trained: '{name}' of member {member} differs from member 0's"
            )

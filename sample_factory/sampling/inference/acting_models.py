"""The networks that a policy worker acts with: the live policy and its past selves."""

import collections
import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sample_factory.checkpoints.file_format import check_fits, read_state
from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.policy_weights import NOTHING_PUBLISHED, PolicyWeights, Stamp
from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.runtime.gpu_work import host_array
from sample_factory.runtime.shared_arrays import layout

OUR_MODULES = ("sample_factory.", "torch.")


class UnreadableOpponent(RuntimeError):
    """Raised if the file of a past self is missing, damaged, or belongs to another model."""


class LiveModel:
    """In a policy worker: holds the policy's network, and updates its weights by `fetch`. The attribute
    `model` is the network, in evaluation mode. The attribute `stamp` identifies the network's present
    weights; its version is NOTHING_PUBLISHED before the first `fetch`."""

    def __init__(self, policy: BuiltPolicy, weights: PolicyWeights):
        # As everywhere that a policy acts: the rows that share a request must not influence each other, which
        # they do in a batch norm that trains.
        self.model = policy.model.eval()
        self._device = policy.device
        self._weights = weights
        self.stamp = Stamp(NOTHING_PUBLISHED)
        self.model.requires_grad_(False)
        published = self.model.state_dict()
        self._tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in published.items()}
        self._offsets, self._num_bytes = layout(published)
        # A user's module may keep a reference to a tensor that it loads. Shared memory changes later, so such
        # modules load from a private copy.
        self._staging: np.ndarray | None = None
        is_ours = all(type(part).__module__.startswith(OUR_MODULES) for part in self.model.modules())
        if self._device.type != "cpu" or not is_ours:
            self._staging = host_array((self._num_bytes,), np.dtype(np.uint8), self._device)
        if policy.autocast:
            self.model.prepare_to_act(torch.bfloat16)

    @property
    def is_outdated(self) -> bool:
        """Whether other weights have been published since the last `fetch`."""
        return self._weights.newest != self.stamp

    def fetch(self) -> None:
        """Copies the newest published weights from shared memory to the device, into the model's tensors.

        Raises ValueError if the learner's model has another size.
        """
        if self._weights.slot_bytes != self._num_bytes:
            sizes = f"{self._weights.slot_bytes} and {self._num_bytes} bytes"
            raise ValueError(f"the models of learner and policy worker must be equal, but they have {sizes}")
        self.stamp = self._weights.fetch(self._load)

    def _load(self, published: np.ndarray) -> None:
        """Copies published weights, [num_bytes] uint8, into the model's tensors."""
        if self._staging is not None:
            np.copyto(self._staging, published)
            published = self._staging
        flat = torch.from_numpy(published).to(self._device, non_blocking=True)
        views = {}
        for name, (dtype, shape) in self._tensors.items():
            begin = self._offsets[name]
            end = begin + shape.numel() * dtype.itemsize
            views[name] = flat[begin:end].view(dtype).view(shape)
        self.model.load_state_dict(views)


class FrozenModels:
    """In a policy worker: loads past selves, and keeps the `limit` most recently used ones in memory."""

    def __init__(self, live: nn.Module, experiment_dir: Path, limit: int):
        """Creates an empty cache of at most `limit` past selves, with their files in `experiment_dir`. live:
        the policy's current network. A past self has the same architecture with other weights."""
        self._live = live
        self._experiment_dir = experiment_dir
        self._limit = limit
        self._models: collections.OrderedDict[Milestone, tuple[nn.Module, Stamp]] = collections.OrderedDict()

    def get(self, past_self: Milestone) -> tuple[nn.Module, Stamp]:
        """Returns (network, stamp of its weights) of a past self; loads its file if necessary.

        Must not be called in torch's inference mode: a network that is created in it acts more slowly.

        Raises UnreadableOpponent if the file cannot be used.
        """
        if past_self in self._models:
            self._models.move_to_end(past_self)
        else:
            self._models[past_self] = self._load(past_self.path(self._experiment_dir))
        return self._models[past_self]

    def _load(self, path: Path) -> tuple[nn.Module, Stamp]:
        try:
            state = read_state(path)
        except Exception as error:  # a missing or damaged file can raise anything
            raise _unreadable(path, error) from error
        model = self._spare()
        try:
            check_fits(state["model"], model)
            model.load_state_dict(state["model"])
            return model, Stamp(state["train_step"])
        except (KeyError, ValueError) as error:  # the state of another network, or no state
            raise _unreadable(path, error) from error

    def _spare(self) -> nn.Module:
        """Returns a network to load weights into: a copy of the live network, or, if `limit` networks are
        loaded, the least recently used network."""
        if len(self._models) >= self._limit:
            return self._models.popitem(last=False)[1][0]
        model = copy.deepcopy(self._live)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN would do so in every call
        return model


def _unreadable(path: Path, error: Exception) -> UnreadableOpponent:
    reason = " ".join(str(error).split())
    return UnreadableOpponent(f"cannot use {path}: {type(error).__name__}: {reason}")

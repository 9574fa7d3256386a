"""Models of the past selves of a policy."""

import collections
import copy
from pathlib import Path
from typing import NamedTuple

from torch import nn

from sample_factory.checkpoints.file_format import read_state
from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.policy_weights import Stamp


class UnreadableOpponent(RuntimeError):
    """The file of a past self is missing, damaged, or belongs to another model."""


class ActingModel(NamedTuple):
    """A network and the stamp of its weights."""

    model: nn.Module
    stamp: Stamp


class FrozenModels:
    """In a policy worker: holds at most `limit` past selves in memory, the most recently used ones."""

    def __init__(self, live: nn.Module, experiment_dir: Path, limit: int):
        """live: the policy's own model, which is copied for past selves."""
        self._live, self._experiment_dir, self._limit = live, experiment_dir, limit
        self._models: collections.OrderedDict[Milestone, ActingModel] = collections.OrderedDict()

    def get(self, past_self: Milestone) -> ActingModel:
        """Returns the model of a past self, loaded if necessary. Raises UnreadableOpponent.

        Not to be called in inference mode: a model that is made in it acts more slowly.
        """
        if past_self in self._models:
            self._models.move_to_end(past_self)
        else:
            self._models[past_self] = self._load(past_self.path(self._experiment_dir))
        return self._models[past_self]

    def __len__(self) -> int:
        return len(self._models)

    def _load(self, path: Path) -> ActingModel:
        try:
            state = read_state(path)
        except Exception as error:  # a missing or damaged file can raise anything
            raise _unreadable(path, error) from error
        model = self._spare()
        try:
            model.load_state_dict(state["model"])
            return ActingModel(model, Stamp(state["train_step"]))
        except (KeyError, RuntimeError, TypeError) as error:  # the state of another model, or no state
            raise _unreadable(path, error) from error

    def _spare(self) -> nn.Module:
        """Returns the least recently used model if the limit is reached, else a new one."""
        if len(self._models) >= self._limit:
            return self._models.popitem(last=False)[1].model
        model = copy.deepcopy(self._live)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN would do so in every call
        return model


def _unreadable(path: Path, error: Exception) -> UnreadableOpponent:
    reason = " ".join(str(error).split())
    return UnreadableOpponent(f"cannot use {path}: {type(error).__name__}: {reason}")

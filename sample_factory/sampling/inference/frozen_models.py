"""Past selves of a policy, ready to act."""

import collections
import copy
from pathlib import Path
from typing import NamedTuple

from torch import nn

from sample_factory.checkpoints.file_format import read_state
from sample_factory.exchange.policy_weights import Stamp


class UnreadableOpponent(RuntimeError):
    """The file of a past self is missing, damaged, or of another model."""


class ActingModel(NamedTuple):
    """A network and the stamp of its weights."""

    model: nn.Module
    stamp: Stamp


class FrozenModels:
    """In a policy worker: at most `limit` past selves in memory, those that acted last."""

    def __init__(self, live: nn.Module, limit: int):
        """live: the policy's own model; those of its past selves are made alike."""
        self._live, self._limit = live, limit
        self._models: collections.OrderedDict[str, ActingModel] = collections.OrderedDict()

    def get(self, path: str) -> ActingModel:
        """The past self in a milestone file. Raises UnreadableOpponent.

        Not to be called in inference mode: a model that is made in it acts more slowly.
        """
        if path in self._models:
            self._models.move_to_end(path)
        else:
            self._models[path] = self._load(path)
        return self._models[path]

    def __len__(self) -> int:
        return len(self._models)

    def _load(self, path: str) -> ActingModel:
        try:
            state = read_state(Path(path))
        except Exception as error:  # whatever a missing or damaged file leads to
            raise _unreadable(path, error) from error
        model = self._spare()
        try:
            model.load_state_dict(state["model"])
            return ActingModel(model, Stamp(state["train_step"]))
        except (KeyError, RuntimeError, TypeError) as error:  # the state of another model, or of none
            raise _unreadable(path, error) from error

    def _spare(self) -> nn.Module:
        """The model that has not acted for the longest time, or one more."""
        if len(self._models) >= self._limit:
            return self._models.popitem(last=False)[1].model
        model = copy.deepcopy(self._live)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # cuDNN would do so in every call
        return model


def _unreadable(path: str, error: Exception) -> UnreadableOpponent:
    reason = " ".join(str(error).split())
    return UnreadableOpponent(f"cannot use {path}: {type(error).__name__}: {reason}")

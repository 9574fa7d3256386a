"""Sends the ids that the main process has registered with Gymnasium to its child processes."""

import dataclasses
import pickle
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import cloudpickle

from sample_factory.runtime.log import log

MAIN = "__main__"


class GymRegistrations:
    """Carries all ids that are registered with Gymnasium to child processes: unpickling registers them.

    A child process does not run the main script, so `gym.register` and imports there have no effect on it.
    Entry points that can be imported are sent as "module:attribute", so that receiving them imports nothing;
    classes and functions of the main script are sent by value.
    """

    def __reduce__(self) -> Any:
        # Gymnasium is imported by whoever registers something, and takes a while.
        gymnasium = sys.modules.get("gymnasium")
        registry = {} if gymnasium is None else vars(gymnasium)["registry"]
        specs = {env_id: _pickled(spec) for env_id, spec in registry.items()}
        return _register, ({env_id: spec for env_id, spec in specs.items() if spec is not None},)


def _register(specs: Mapping[str, bytes]) -> GymRegistrations:
    """In the child: registers ids with Gymnasium while a GymRegistrations is unpickled, and returns the
    unpickled object. specs: id -> pickled EnvSpec."""
    if specs:
        import gymnasium

        gymnasium.registry.update({env_id: pickle.loads(spec) for env_id, spec in specs.items()})
        # Making an env imports its package, which registers all of its ids a second time.
        warnings.filterwarnings("ignore", ".*Overriding environment .* already in registry")
    return GymRegistrations()


def _pickled(spec: Any) -> bytes | None:
    """Returns a Gymnasium EnvSpec as bytes; None if it holds an object that cannot be pickled."""
    try:
        portable = dataclasses.replace(
            spec,
            entry_point=_portable(spec.entry_point),
            vector_entry_point=_portable(spec.vector_entry_point),
        )
        pickled: bytes = cloudpickle.dumps(portable)
        return pickled
    except Exception as error:  # any object of a user, perhaps of an id that this run does not use
        log.debug("The Gymnasium id %s cannot be sent to child processes: %s", spec.id, error)
        return None


def _portable(entry_point: Any) -> Any:
    """Returns an entry point in a form that a child process can use: a "module:attribute" text if it can be
    imported there, else the class or function itself."""
    if isinstance(entry_point, str):
        module, _, attribute = entry_point.partition(":")
        return vars(sys.modules[MAIN])[attribute] if module == MAIN else entry_point
    if not callable(entry_point):  # None
        return entry_point
    try:
        module, attribute = entry_point.__module__, entry_point.__qualname__
    except AttributeError:  # such as a functools.partial
        return entry_point
    if module == MAIN or module not in sys.modules:
        return entry_point
    is_found = vars(sys.modules[module]).get(attribute) is entry_point
    return f"{module}:{attribute}" if is_found else entry_point

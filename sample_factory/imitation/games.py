"""Recorded games as Minari data sets: a folder for each episode, in Minari's format "arrow".

https://minari.farama.org
"""

import contextlib
import json
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config.experiment_folder import write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.imitation.data_set import METADATA, open_data_set
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import Explained, one_line
from sample_factory.spaces.actions import (
    action_encoder,
    action_layout,
    action_leaves,
    batch_action_decoder,
    inner_spaces,
)
from sample_factory.spaces.agent_kinds import KindSpaces
from sample_factory.spaces.observations import Indices, batch_layout

UNFINISHED = ".unfinished"  # folder of episodes that are not yet part of the data set
COUNT_SECONDS = 1.0  # between two updates of the number of episodes
ONLY_KEY = "obs"  # of an observation space that is no Dict
SCREEN = "screen"  # in the infos of a step
# pyarrow 26 writes batches of at most 32,768 rows, in the order in which its threads finish; Minari 0.5.4
# (ArrowStorage) takes each batch for an episode. An episode of T steps has T + 1 rows.
MAX_STEPS = 32_767


class Episode(NamedTuple):
    """Contains T steps of one agent.

    observations: key -> [T+1, *shape], as they are stored in training. Envs reset in the step that ends an
        episode, so the final observation is not known; the last one is repeated in its place, as in training.
    actions: [T, K] float32, K numbers for each action: the index of a choice, or a number of a Box.
    rewards: [T] float64, raw. terminated, truncated: [T] bool.
    seed: seed with which the env was reset for this episode; None without a reset or a seed.
    screens: [T+1, height, width, 3] uint8, pictures that the env drew; None if not recorded.
    """

    observations: dict[str, np.ndarray]
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    seed: int | None = None
    screens: np.ndarray | None = None


class NotWritten(Explained):
    """Raised if a data set cannot be written; the message names the folder and the reason."""


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Converts an OSError of the wrapped code into NotWritten."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # Arrow has longer texts
        raise NotWritten(f"cannot write to {folder}: {reason}") from None


class EpisodeStore:
    """In a process that plays: writes whole episodes to a temporary folder in a data set, from which a
    GameWriter adds them."""

    def __init__(self, folder: Path, spaces: KindSpaces):
        """Creates the store of this process. folder: folder of the data set, which a GameWriter has
        created."""
        self._folder = folder
        self._decode = batch_action_decoder(spaces.action)
        self._own = folder / UNFINISHED / f"process_{os.getpid()}"
        with writing_to(folder):
            self._storage = _new_storage(self._own, spaces)
            # Minari reads and writes it for every episode. With spaces of images it is large.
            (self._own / METADATA).write_text('{"total_episodes": 0, "total_steps": 0}')

    def put(self, name: str, episode: Episode) -> None:
        """Writes an episode under a name, by which `GameWriter.add` finds it. Raises NotWritten if a file
        cannot be written, or if the episode has more steps than Minari can read."""
        from minari.data_collector.episode_buffer import EpisodeBuffer

        length = len(episode.rewards)
        if length > MAX_STEPS:
            raise NotWritten(
                f"an episode has {length:,} steps, and Minari reads at most {MAX_STEPS:,} of one: record "
                "shorter ones, by a time limit of the env"
            )
        observations, screens = episode.observations, episode.screens
        buffer = EpisodeBuffer(
            id=0,
            seed=episode.seed,
            observations=observations[ONLY_KEY] if list(observations) == [ONLY_KEY] else observations,
            actions=self._decode(episode.actions),
            rewards=episode.rewards,
            terminations=episode.terminated,
            truncations=episode.truncated,
            infos=None if screens is None else {SCREEN: screens},
        )
        target = self._folder / UNFINISHED / name
        with writing_to(self._folder):
            self._storage.update_episodes([buffer])
            shutil.rmtree(target, ignore_errors=True)  # of a process that has died
            os.rename(self._own / "0", target)


class GameWriter:
    """Writes a Minari data set of agents with equal spaces, from the episodes that EpisodeStores have
    written. The data set can be loaded at any time: an episode is added as a whole, and the count of episodes
    in the metadata is updated later. `close` updates the count once more, and deletes an empty data set."""

    def __init__(self, folder: Path, spaces: KindSpaces, about: dict[str, Any]):
        """Creates the folder of the data set. about: further metadata of the data set. Raises NotWritten if
        the folder exists or cannot be written."""
        import minari

        self._folder = folder
        self._data = folder / "data"
        self.num_episodes = 0
        self._num_steps = 0
        self._is_time = Every(COUNT_SECONDS)
        words = re.sub(r"[^\w-]", "_", folder.name)
        name = words if re.search(r"-v\d+$", words) else f"{words}-v0"  # the form that Minari requires
        with writing_to(folder):
            (folder / UNFINISHED).mkdir(parents=True)
            storage = _new_storage(self._data, spaces)
            storage.update_metadata({"dataset_id": name, "minari_version": minari.__version__, **about})
            self._metadata = storage.read_raw_metadata(self._data)

    def add(self, name: str, **metadata: Any) -> None:
        """Adds an episode that an EpisodeStore has written under a name. metadata: further metadata of the
        episode. Raises NotWritten if a file cannot be written."""
        source = self._folder / UNFINISHED / name
        with writing_to(self._folder):
            known = json.loads((source / METADATA).read_text())
            text = json.dumps({**known, "id": self.num_episodes, **metadata})
            (source / METADATA).write_text(text)
            os.rename(source, self._data / str(self.num_episodes))
            self.num_episodes += 1
            self._num_steps += known["total_steps"]
            if self._is_time():
                self._count()

    def close(self) -> None:
        """Counts the last episodes, and deletes the data set if it is empty. Raises NotWritten if the count
        cannot be written."""
        # First what was not added: it makes room on a full disk.
        shutil.rmtree(self._folder / UNFINISHED if self.num_episodes else self._folder, ignore_errors=True)
        if self.num_episodes:
            with writing_to(self._folder):
                self._count()

    def _count(self) -> None:
        counts = {"total_episodes": self.num_episodes, "total_steps": self._num_steps}
        write_atomically(self._data / METADATA, json.dumps({**self._metadata, **counts}))


def save_games(name: str, spaces: KindSpaces, episodes: Iterable[Episode], about: dict[str, Any]) -> None:
    """Writes episodes as a new Minari data set. name: its folder. about: further metadata. Raises NotWritten
    if the folder exists or cannot be written."""
    folder = Path(name).expanduser()
    writer = GameWriter(folder, spaces, about)
    store = EpisodeStore(folder, spaces)
    for number, episode in enumerate(episodes):
        store.put(str(number), episode)
        writer.add(str(number))
    writer.close()


def load_games(name: str, spaces: KindSpaces) -> Iterator[Episode]:
    """Yields the episodes of a Minari data set, without screens.
    name: folder of the data set, or its name in `minari list local`.
    spaces: spaces of the env's agents, which the data set must fit.
    Raises ConfigError for a data set that cannot be read or does not fit."""
    try:
        dataset = open_data_set(name)
    except Exception as error:  # many kinds for a folder that is no data set
        raise ConfigError(f"--games={name} cannot be read as a Minari data set: {one_line(error)}") from None
    action_space = _with_keys_as(spaces.action, dataset.action_space)
    layout = batch_layout(dataset.observation_space)
    expected = spaces.observation.spaces
    known = {key: box for key, box in layout.space.spaces.items() if key in expected}  # there may be more
    sizes = action_layout(spaces.action)
    if (
        action_space is None
        or not _has_same_actions(action_space, spaces.action)
        or known.keys() != expected.keys()
        or not all(_has_same_numbers(box, expected[key]) for key, box in known.items())
    ):
        found = KindSpaces(gym.spaces.Dict(known), dataset.action_space)
        raise ConfigError(f"--games={name} does not fit the env: it has {found}; it should have {spaces}")
    encode = action_encoder(action_space, is_batch=True)
    for index in range(dataset.num_episodes):
        try:
            episode = dataset.read(index)
            seen = layout.flatten(episode.observations)
            actions = encode(episode.actions)
        except Exception as error:  # whatever a damaged file makes the reader raise
            raise ConfigError(f"--games={name}: cannot read episode {index}: {one_line(error)}") from None
        choices = actions[:, sizes.discrete_actions]
        if not np.all((choices >= 0) & (choices < sizes.discrete_sizes)):
            raise ConfigError(
                f"--games={name}: choices should be indices from 0, less than {sizes.discrete_sizes}; there "
                f"are {choices.min():g} to {choices.max():g}"
            )
        yield Episode(
            {key: np.asarray(seen[key], box.dtype) for key, box in expected.items()},
            actions,
            episode.rewards,
            episode.terminations,
            episode.truncations,
        )


def _new_storage(folder: Path, spaces: KindSpaces) -> Any:
    """Creates an empty storage of Minari, which stores images without compression losses."""
    from minari.dataset.minari_storage import MinariStorage

    whole = spaces.observation
    observation = whole[ONLY_KEY] if list(whole.spaces) == [ONLY_KEY] else whole
    return MinariStorage.new(folder, observation, spaces.action, data_format="arrow", jpeg_encoding=False)


def _has_same_numbers(recorded: Any, expected: Any) -> bool:
    """Returns whether recorded observations have the scale of the env's observations, so that bytes 0 to 255
    are not taken for numbers 0 to 1, or the reverse."""
    if isinstance(expected, Indices):  # comes back as a Box of numbers
        return bool(recorded.shape == expected.shape)
    return recorded.dtype == expected.dtype and _has_same_bounds(recorded, expected)


def _has_same_actions(recorded: gym.Space[Any], expected: gym.Space[Any]) -> bool:
    """Returns whether recorded actions can be used in the env's action space without conversion."""
    if action_layout(recorded) != action_layout(expected):
        return False
    boxes = [
        [leaf for _, leaf in action_leaves(space) if isinstance(leaf, gym.spaces.Box)]
        for space in (recorded, expected)
    ]
    return all(map(_has_same_bounds, *boxes))


def _has_same_bounds(recorded: gym.spaces.Box, expected: gym.spaces.Box) -> bool:
    """Returns whether two boxes have the same shape, and equal bounds wherever both are finite."""
    if recorded.shape != expected.shape:
        return False
    for bound, other in ((recorded.low, expected.low), (recorded.high, expected.high)):
        are_finite = np.isfinite(bound) & np.isfinite(other)
        if not np.allclose(bound[are_finite], other[are_finite]):
            return False
    return True


def _with_keys_as(expected: gym.Space[Any], recorded: gym.Space[Any]) -> gym.Space[Any] | None:
    """Returns the recorded space with the keys of its Dicts in the order of the env's space, `expected`; None
    if a Dict has other keys. The order decides which column of an action row belongs to a key; a file has the
    keys in alphabetical order."""
    inner, inner_recorded = inner_spaces(expected), inner_spaces(recorded)
    if inner is None or inner_recorded is None or inner.keys() != inner_recorded.keys():
        return None if isinstance(expected, gym.spaces.Dict) else recorded
    parts = {key: _with_keys_as(part, inner_recorded[key]) for key, part in inner.items()}
    known = {key: part for key, part in parts.items() if part is not None}
    if len(known) < len(parts):
        return None
    return (
        gym.spaces.Dict(OrderedDict(known))
        if isinstance(expected, gym.spaces.Dict)
        else gym.spaces.Tuple(known.values())
    )

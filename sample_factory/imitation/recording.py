"""Records games of an env's scripted players, and keeps them in files."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ScriptedPlayers, find_ability
from sample_factory.envs.protocol import MultiAgentEnv, ObservationRows
from sample_factory.spaces.actions import ActionLayout, action_encoder, action_layout
from sample_factory.spaces.agent_kinds import KindSpaces

OBSERVATION = "observation/"  # beginning of the names of observations in a file


class Recording(NamedTuple):
    """N actions of episodes. The rows of an episode are consecutive.

    observations: by key, [N, *shape], as they are stored in training. actions: [N, K] float32, see
    spaces/actions.py. rewards: [N] float32. episodes: [N] int64, a number for each episode of an agent.
    """

    observations: dict[str, np.ndarray]
    actions: np.ndarray
    rewards: np.ndarray
    episodes: np.ndarray

    def save(self, path: Path) -> None:
        """Writes an .npz file."""
        observations = {f"{OBSERVATION}{key}": rows for key, rows in self.observations.items()}
        others = {"actions": self.actions, "rewards": self.rewards, "episodes": self.episodes}
        np.savez_compressed(path, **observations, **others)  # type: ignore[arg-type]


def load_recording(path: Path, spaces: KindSpaces) -> Recording:
    """Reads an .npz file. Raises ConfigError unless it holds games of an env with these spaces."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"--games={path} cannot be read: {error}") from None
    keys = spaces.observation.spaces
    expected = {f"{OBSERVATION}{key}": (space.shape, space.dtype) for key, space in keys.items()}
    expected["actions"] = ((action_layout(spaces.action).num_action_values,), np.dtype(np.float32))
    expected["rewards"] = ((), np.dtype(np.float32))
    expected["episodes"] = ((), np.dtype(np.int64))
    num_rows = {len(array) for array in arrays.values() if array.ndim}
    found = {name: (array.shape[1:], array.dtype) for name, array in arrays.items()}
    wrong = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    if wrong or len(num_rows) != 1:
        name = (wrong or ["actions"])[0]
        raise ConfigError(
            f"--games={path} does not fit the env: {name} is {_described(found.get(name))}, and should be "
            f"{_described(expected.get(name))}, with equally many rows as all others"
        )
    observations = {key: arrays[f"{OBSERVATION}{key}"] for key in keys}
    recording = Recording(observations, arrays["actions"], arrays["rewards"], arrays["episodes"])
    _check_rows(path, recording, action_layout(spaces.action))
    return recording


def _check_rows(path: Path, recording: Recording, layout: ActionLayout) -> None:
    """Raises ConfigError unless the rows are whole episodes, whose choices are indices."""
    episodes = recording.episodes
    if np.count_nonzero(np.diff(episodes)) >= len(np.unique(episodes)):
        raise ConfigError(
            f"--games={path}: the rows of an episode should follow each other, and each episode should have "
            "a number of its own"
        )
    choices = recording.actions[:, layout.discrete_actions]
    if not np.all((choices >= 0) & (choices < layout.discrete_sizes)):
        raise ConfigError(
            f"--games={path}: choices should be indices from 0, less than {layout.discrete_sizes}; there are "
            f"{choices.min():g} to {choices.max():g}"
        )


def _described(shape_and_dtype: "tuple[tuple[int, ...], np.dtype] | None") -> str:
    if shape_and_dtype is None:
        return "missing"
    shape, dtype = shape_and_dtype
    return f"{dtype} [N{''.join(f', {size}' for size in shape)}]"


class _Episode:
    """The rows of an episode of one agent, which a teacher plays."""

    def __init__(self, teacher: str):
        self.teacher = teacher
        self.observations: list[dict[str, np.ndarray]] = []
        self.actions: list[np.ndarray] = []
        self.rewards: list[float] = []


def record(env: MultiAgentEnv, teachers: Sequence[str], num_samples: int, seed: int | None) -> Recording:
    """Plays until `num_samples` actions of whole episodes are recorded.

    teachers: names of scripted players; all if empty. One is drawn for each agent and episode.
    Raises ConfigError if the env has no such players.
    """
    players = find_ability(env.env, ScriptedPlayers)
    names = _checked(teachers, players.scripted_players())
    if len(env.kinds.spaces) > 1:
        raise ConfigError("the agents have different spaces; imitation needs one policy that plays them all")
    rng = np.random.default_rng(seed)
    rows = ObservationRows.allocate(env.kinds)
    action_space = env.kinds.spaces[0].action
    encode = action_encoder(action_space)
    actions = np.zeros((env.num_agents, action_layout(action_space).num_action_values), np.float32)
    active = _mask(env.reset(seed, rows), env.num_agents)
    current = [_Episode(str(rng.choice(names))) for _ in range(env.num_agents)]
    whole: list[_Episode] = []
    num_recorded = 0  # actions of whole episodes
    while num_recorded < num_samples:
        actions[:] = 0
        for agent in np.flatnonzero(active).tolist():
            actions[agent] = encode(players.scripted_action(current[agent].teacher, agent))
            current[agent].observations.append({key: view.copy() for key, view in rows.view(agent).items()})
            current[agent].actions.append(actions[agent].copy())
        result = env.step(actions, rows)
        for agent in np.flatnonzero(active).tolist():
            current[agent].rewards.append(float(result.rewards[agent]))
        for agent in np.flatnonzero(np.asarray(result.terminated) | np.asarray(result.truncated)).tolist():
            if current[agent].actions:
                whole.append(current[agent])
                num_recorded += len(current[agent].actions)
            current[agent] = _Episode(str(rng.choice(names)))
        active = _mask(result.active, env.num_agents)
    return _joined(whole)


def _checked(teachers: Sequence[str], known: Sequence[str]) -> list[str]:
    if not known:
        raise ConfigError("the env has no scripted players to imitate; use --games=FILE")
    for name in teachers:
        if name not in known:
            raise ConfigError(f"--teachers: the env has no player {name}; it has {', '.join(known)}")
    return list(teachers or known)


def _mask(active: np.ndarray | None, num_agents: int) -> np.ndarray:
    return np.ones(num_agents, bool) if active is None else active


def _joined(episodes: Sequence[_Episode]) -> Recording:
    keys = episodes[0].observations[0]
    lengths = [len(episode.actions) for episode in episodes]
    return Recording(
        {key: np.stack([row[key] for episode in episodes for row in episode.observations]) for key in keys},
        np.stack([row for episode in episodes for row in episode.actions]),
        np.array([reward for episode in episodes for reward in episode.rewards], np.float32),
        np.repeat(np.arange(len(episodes)), lengths),
    )

"""Records games of an env's scripted players, and keeps them in files."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ScriptedPlayers, find_ability
from sample_factory.envs.protocol import MultiAgentEnv, ObservationRows
from sample_factory.spaces.actions import action_encoder, action_layout
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
    episodes = arrays["episodes"]
    if np.count_nonzero(np.diff(episodes)) >= len(np.unique(episodes)):
        raise ConfigError(
            f"--games={path}: the rows of an episode should follow each other, and each episode should have "
            "a number of its own"
        )
    layout = action_layout(spaces.action)
    choices = arrays["actions"][:, layout.discrete_actions]
    if not np.all((choices >= 0) & (choices < layout.discrete_sizes)):
        raise ConfigError(
            f"--games={path}: choices should be indices from 0, less than {layout.discrete_sizes}; there are "
            f"{choices.min():g} to {choices.max():g}"
        )
    return Recording(observations, arrays["actions"], arrays["rewards"], episodes)


def _described(shape_and_dtype: "tuple[tuple[int, ...], np.dtype] | None") -> str:
    if shape_and_dtype is None:
        return "missing"
    shape, dtype = shape_and_dtype
    return f"{dtype} [N{''.join(f', {size}' for size in shape)}]"


class _Step(NamedTuple):
    """One action of an agent: what it saw, the row of its action, and the reward that followed."""

    observation: dict[str, np.ndarray]
    action: np.ndarray
    reward: float


def record(env: MultiAgentEnv, teachers: Sequence[str], num_samples: int, seed: int | None) -> Recording:
    """Plays until `num_samples` actions of whole episodes are recorded.

    teachers: names of scripted players; all if empty. One is drawn for each agent and episode.
    Raises ConfigError if the env has no such players.
    """
    players = find_ability(env.env, ScriptedPlayers)
    known = players.scripted_players()
    if not known:
        raise ConfigError("the env has no scripted players to imitate; use --games=FILE")
    unknown = [name for name in teachers if name not in known]
    if unknown:
        raise ConfigError(f"--teachers: the env has no player {unknown[0]}; it has {', '.join(known)}")
    if len(env.kinds.spaces) > 1:
        raise ConfigError("the agents have different spaces; imitation needs one policy that plays them all")
    rng = np.random.default_rng(seed)
    names = list(teachers or known)
    rows = ObservationRows.allocate(env.kinds)
    encode = action_encoder(env.kinds.spaces[0].action)
    num_values = action_layout(env.kinds.spaces[0].action).num_action_values
    agents = range(env.num_agents)
    active = env.reset(seed, rows)
    teacher_of = [str(rng.choice(names)) for _ in agents]
    current: list[list[_Step]] = [[] for _ in agents]
    whole: list[list[_Step]] = []  # episodes that have ended
    num_recorded = 0  # actions of whole episodes
    while num_recorded < num_samples:
        actions = np.zeros((env.num_agents, num_values), np.float32)
        seen = {}
        for agent in agents if active is None else np.flatnonzero(active).tolist():
            actions[agent] = encode(players.scripted_action(teacher_of[agent], agent))
            seen[agent] = {key: view.copy() for key, view in rows.view(agent).items()}
        result = env.step(actions, rows)
        for agent, observation in seen.items():
            current[agent].append(_Step(observation, actions[agent], float(result.rewards[agent])))
        for agent in np.flatnonzero(np.asarray(result.terminated) | np.asarray(result.truncated)).tolist():
            if current[agent]:
                whole.append(current[agent])
                num_recorded += len(current[agent])
            current[agent] = []
            teacher_of[agent] = str(rng.choice(names))
        active = result.active
    steps = [step for episode in whole for step in episode]
    return Recording(
        {key: np.stack([step.observation[key] for step in steps]) for key in steps[0].observation},
        np.stack([step.action for step in steps]),
        np.array([step.reward for step in steps], np.float32),
        np.repeat(np.arange(len(whole)), list(map(len, whole))),
    )

"""Records games of an env's scripted players, and keeps them in files."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    layout = action_layout(spaces.action)
    expected = {
        **{f"{OBSERVATION}{key}": _described(x.dtype, x.shape) for key, x in spaces.observation.items()},
        "actions": _described("float32", (layout.num_action_values,)),
        "rewards": _described("float32", ()),
        "episodes": _described("int64", ()),
    }
    found = {name: _described(array.dtype, array.shape[1:]) for name, array in arrays.items()}
    wrong = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    if wrong or len({array.shape[:1] for array in arrays.values()}) != 1:
        name = (wrong or ["actions"])[0]
        raise ConfigError(
            f"--games={path} does not fit the env: {name} is {found.get(name, 'missing')}, and should be "
            f"{expected.get(name, 'missing')}, with equally many rows as all others"
        )
    episodes = arrays["episodes"]
    if np.count_nonzero(np.diff(episodes)) >= len(np.unique(episodes)):
        raise ConfigError(
            f"--games={path}: the rows of an episode should follow each other, and each episode should have "
            "a number of its own"
        )
    choices = arrays["actions"][:, layout.discrete_actions]
    if not np.all((choices >= 0) & (choices < layout.discrete_sizes)):
        raise ConfigError(
            f"--games={path}: choices should be indices from 0, less than {layout.discrete_sizes}; there are "
            f"{choices.min():g} to {choices.max():g}"
        )
    return _recording(arrays)


def _described(dtype: Any, shape: tuple[int, ...] | None) -> str:
    return f"{dtype} [N{''.join(f', {size}' for size in shape or ())}]"


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
    current: list[list[dict[str, Any]]] = [[] for _ in agents]  # what agents saw and did, step by step
    whole: list[list[dict[str, Any]]] = []  # episodes that have ended
    num_recorded = 0  # actions of whole episodes
    while num_recorded < num_samples:
        actions = np.zeros((env.num_agents, num_values), np.float32)
        playing = list(agents) if active is None else np.flatnonzero(active).tolist()
        for agent in playing:
            actions[agent] = encode(players.scripted_action(teacher_of[agent], agent))
            seen = {f"{OBSERVATION}{key}": view.copy() for key, view in rows.view(agent).items()}
            current[agent].append({**seen, "actions": actions[agent]})
        result = env.step(actions, rows)
        for agent in playing:
            current[agent][-1]["rewards"] = np.float32(result.rewards[agent])
        for agent in np.flatnonzero(np.asarray(result.terminated) | np.asarray(result.truncated)).tolist():
            if current[agent]:
                whole.append(current[agent])
                num_recorded += len(current[agent])
            current[agent] = []
            teacher_of[agent] = str(rng.choice(names))
        active = result.active
    steps = [step for episode in whole for step in episode]
    arrays = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
    return _recording({**arrays, "episodes": np.repeat(np.arange(len(whole)), list(map(len, whole)))})


def _recording(arrays: Mapping[str, np.ndarray]) -> Recording:
    """Returns the recording that the arrays of a file hold."""
    keys = [name for name in arrays if name.startswith(OBSERVATION)]
    observations = {name.removeprefix(OBSERVATION): arrays[name] for name in keys}
    return Recording(observations, arrays["actions"], arrays["rewards"], arrays["episodes"])

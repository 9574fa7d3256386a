"""Records the episodes of an env while it is played, by any policy or by its scripted players."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ScriptedPlayers, find_ability
from sample_factory.envs.protocol import (
    EMPTY_INFO,
    EPISODE_CONTINUES,
    EnvAround,
    EnvContractError,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)
from sample_factory.imitation.games import Episode, EpisodeNotWritten, writing_to
from sample_factory.spaces.actions import action_encoder, action_layout


class RecordedEnv(EnvAround):
    """A MultiAgentEnv that hands over each episode of each agent when it ends. Promises:

    1. The steps in which an agent acts are recorded as the policy sees them. Rewards that it gets while it
       is inactive are added to its last step, so that their sum is that of the episode.
    2. An env of one agent is reset with a new seed for each episode, which makes each repeatable by itself;
       see EpisodeSeeds. Where there are more agents, only their first episodes have one.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        on_episode: Callable[[int, Episode], None],
        screens_in: Path | None = None,
    ):
        """on_episode: called with the agent and the episode; must not keep `Episode.screens`.

        screens_in: a folder for a temporary file, to record also what the env draws; the env has one agent.
        """
        super().__init__(env)
        self._on_episode = on_episode
        self._current = [_Steps(None) for _ in range(env.num_agents)]
        self._playing: Sequence[int] = ()  # agents that act in the coming step
        self._seen: dict[int, dict[str, np.ndarray]] = {}  # by agent that acts
        self._screens = None if screens_in is None else _ScreenFile(screens_in)

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        self.seeds.start(seed)
        self._current = [_Steps(seed) for _ in self._current]
        active = self._env.reset(seed, into)
        self._see(active, into)
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        for agent in self._playing:
            self._current[agent].act(self._seen[agent], actions[agent])
        if self._screens is not None:
            self._screens.add(self._env.render())
        self.seeds.newest = None  # where nobody asks for the next one
        result = self._env.step(actions, into)
        for agent, steps in enumerate(self._current):
            if not steps.actions:
                continue
            is_over = steps.add(result.rewards[agent], result.terminated[agent], result.truncated[agent])
            if is_over and not result.end_infos.get(agent, EMPTY_INFO).get(EPISODE_CONTINUES):
                self._end(agent)
        self._see(result.active, into)
        return result

    def close(self) -> None:
        super().close()
        if self._screens is not None:
            self._screens.close()

    def _see(self, active: np.ndarray | None, rows: ObservationRows) -> None:
        """Copies the observations of the agents that act in the coming step."""
        self._playing = range(self.num_agents) if active is None else np.flatnonzero(active).tolist()
        self._seen = {
            agent: {key: view.copy() for key, view in rows.view(agent).items()} for agent in self._playing
        }

    def _end(self, agent: int) -> None:
        screens = None if self._screens is None else self._screens.take()
        self._on_episode(agent, self._current[agent].episode(screens))
        self._current[agent] = _Steps(self.seeds.newest if self.num_agents == 1 else None)


class _ScreenFile:
    """The screens of the current episode, in a file: of a long one they take hundreds of megabytes."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._num_bytes = 0

    def add(self, screen: Any) -> None:
        """Raises EnvContractError for what is no picture, and EpisodeNotWritten."""
        if not isinstance(screen, np.ndarray) or screen.ndim != 3 or screen.dtype != np.uint8:
            raise EnvContractError("--screens: render() should return a picture, [height, width, 3] uint8")
        self._last = np.ascontiguousarray(screen)
        with writing_to(self._folder, EpisodeNotWritten):
            self._num_bytes += self._file.write(self._last.data)

    def take(self) -> np.ndarray:
        """Returns the screens, the last one twice, [T+1, height, width, 3], until the next `add`."""
        self.add(self._last)
        with writing_to(self._folder, EpisodeNotWritten):
            self._file.flush()
        screens = np.memmap(self._file, np.uint8, "r", shape=(self._num_bytes,))
        self._file.seek(0)
        self._num_bytes = 0
        return screens.reshape(-1, *self._last.shape)

    def close(self) -> None:
        self._file.close()


class _Steps:
    """The steps so far of one agent's current episode."""

    def __init__(self, seed: int | None):
        self._seed = seed
        self._observations: list[dict[str, np.ndarray]] = []
        self.actions: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._terminated: list[bool] = []
        self._truncated: list[bool] = []

    def act(self, seen: dict[str, np.ndarray], action: np.ndarray) -> None:
        """Begins a step."""
        self._observations.append(seen)
        self.actions.append(action.copy())
        self._rewards.append(0.0)
        self._terminated.append(False)
        self._truncated.append(False)

    def add(self, reward: float, terminated: bool, truncated: bool) -> bool:
        """Adds to the last step; returns whether it was the last one of the episode."""
        self._rewards[-1] += float(reward)
        self._terminated[-1] |= bool(terminated)
        self._truncated[-1] |= bool(truncated)
        return self._terminated[-1] or self._truncated[-1]

    def episode(self, screens: np.ndarray | None) -> Episode:
        seen_steps = [*self._observations, self._observations[-1]]
        return Episode(
            {key: np.stack([seen[key] for seen in seen_steps]) for key in seen_steps[0]},
            np.stack(self.actions),
            np.array(self._rewards),
            np.array(self._terminated),
            np.array(self._truncated),
            self._seed,
            screens,
        )


def record_players(
    env: MultiAgentEnv, teachers: Sequence[str], num_samples: int, seed: int | None
) -> list[Episode]:
    """Lets scripted players play until `num_samples` actions of whole episodes are recorded.

    teachers: names of scripted players; all if empty. One is drawn for each agent and episode.
    Raises ConfigError if the env has no such players.
    """
    players = find_ability(env.env, ScriptedPlayers)
    known = players.scripted_players()
    if not known:
        raise ConfigError("the env has no scripted players to imitate; use --games=FOLDER")
    unknown = [name for name in teachers if name not in known]
    if unknown:
        raise ConfigError(f"--teachers: the env has no player {unknown[0]}; it has {', '.join(known)}")
    if len(env.kinds.spaces) > 1:
        raise ConfigError("the agents have different spaces; imitation needs one policy that plays them all")
    rng = np.random.default_rng(seed)
    names = list(teachers or known)
    teacher_of = [str(rng.choice(names)) for _ in range(env.num_agents)]
    episodes: list[Episode] = []

    def add(agent: int, episode: Episode) -> None:
        episodes.append(episode)
        teacher_of[agent] = str(rng.choice(names))

    recorded = RecordedEnv(env, add)
    rows = ObservationRows.allocate(env.kinds)
    encode = action_encoder(env.kinds.spaces[0].action)
    num_values = action_layout(env.kinds.spaces[0].action).num_action_values
    active: Any = recorded.reset(seed, rows)
    while sum(len(episode.actions) for episode in episodes) < num_samples:
        actions = np.zeros((env.num_agents, num_values), np.float32)
        for agent in range(env.num_agents) if active is None else np.flatnonzero(active).tolist():
            actions[agent] = encode(players.scripted_action(teacher_of[agent], agent))
        active = recorded.step(actions, rows).active
    return episodes

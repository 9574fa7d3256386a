"""Records the episodes of an env while it is played, by any policy or by its scripted players."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_info import env_info
from sample_factory.envs.protocol import (
    EMPTY_INFO,
    EPISODE_CONTINUES,
    SEED_LIMIT,
    EnvAround,
    EnvConfig,
    EnvContractError,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)
from sample_factory.evaluation.session import Events, Session
from sample_factory.evaluation.session_plan import Cast, FirstEnv, plan_single
from sample_factory.evaluation.video import to_rgb
from sample_factory.imitation.games import Episode, writing_to
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.sampling.matchmaking.matchmaking import MatchSetup

SEEN = "seen/"  # beginning of the names of observations in a step


class RecordedEnv(EnvAround):
    """Wraps a MultiAgentEnv and passes each episode of each agent to a callback when it ends.

    1. The steps in which an agent acts are recorded as the policy sees them. Rewards of an agent while it is
       inactive are added to its last step, so that the sum of rewards is the episode's.
    2. An env of one agent is reset with a new seed for each episode, derived from the first seed, so that
       each episode can be repeated by itself. With several agents, only the first episode of each has a seed.
    """

    def __init__(
        self, env: MultiAgentEnv, on_episode: Callable[[int, Episode], None], screens_in: Path | None = None
    ):
        """Wraps `env`.
        on_episode: called with the index of the agent and the episode; must not keep `Episode.screens`.
        screens_in: folder for a temporary file of the pictures that the env draws, to record them too;
            only for an env of one agent."""
        super().__init__(env)
        self._on_episode = on_episode
        self._seeds: list[int | None] = [None] * env.num_agents  # of the current episodes
        self._steps: list[list[dict[str, Any]]] = [[] for _ in range(env.num_agents)]  # of these
        self._playing: Sequence[int] = ()  # agents that act in the coming step
        self._rng = np.random.default_rng()
        # A file, because the screens of a long episode take hundreds of megabytes.
        self._screens = None if screens_in is None else tempfile.TemporaryFile(dir=screens_in)  # noqa: SIM115
        self._folder = screens_in or Path()
        if self._screens is not None:
            self.at_end.append(self._draw)

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        self._rng = np.random.default_rng(seed)
        self._seeds = [seed] * self.num_agents
        active = self._env.reset(seed, into)
        self._see(active, into)
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        for agent in self._playing:
            step = {"action": actions[agent].copy(), "reward": 0.0, "terminated": False, "truncated": False}
            self._steps[agent].append({**self._seen[agent], **step})
        if self._screens is not None:
            self._draw()
            self._write_screen(self._screens)
        seed = int(self._rng.integers(SEED_LIMIT))
        self.next_seeds[:] = [seed]
        result = self._env.step(actions, into)
        for agent, steps in enumerate(self._steps):
            if steps:
                last = steps[-1]
                last["reward"] += float(result.rewards[agent])
                last["terminated"] |= bool(result.terminated[agent])
                last["truncated"] |= bool(result.truncated[agent])
                has_ended = result.terminated[agent] or result.truncated[agent]
                if has_ended and not result.end_infos.get(agent, EMPTY_INFO).get(EPISODE_CONTINUES):
                    self._end(agent)
                    self._seeds[agent] = None if self.next_seeds else seed
        self._see(result.active, into)
        return result

    def _see(self, active: np.ndarray | None, rows: ObservationRows) -> None:
        """Copies the observations of the agents that act in the coming step; later they are recorded with the
        action."""
        self._playing = range(self.num_agents) if active is None else np.flatnonzero(active).tolist()
        self._seen = {
            agent: {f"{SEEN}{key}": view.copy() for key, view in rows.view(agent).items()}
            for agent in self._playing
        }

    def _draw(self) -> None:
        """Keeps a picture of the env's current state. Called at the end of an episode too, before the env is
        reset."""
        try:
            self._last_screen = np.ascontiguousarray(to_rgb(self._env.render()))
        except ValueError as error:
            raise EnvContractError(f"--screens: {error}") from None

    def _write_screen(self, file: IO[bytes]) -> None:
        with writing_to(self._folder):
            file.write(self._last_screen.data)

    def _end(self, agent: int) -> None:
        steps = self._steps[agent]
        screens = None
        if self._screens is not None:
            self._write_screen(self._screens)
            shape = len(steps) + 1, *self._last_screen.shape
            self._screens.flush()
            screens = np.memmap(self._screens, np.uint8, "r", shape=shape)
            self._screens.seek(0)  # the next episode overwrites this one
        columns = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        seen = {name.removeprefix(SEEN): columns[name] for name in columns if name.startswith(SEEN)}
        episode = Episode(
            {key: np.concatenate([rows, rows[-1:]]) for key, rows in seen.items()},
            columns["action"],
            columns["reward"],
            columns["terminated"],
            columns["truncated"],
            self._seeds[agent],
            screens,
        )
        self._on_episode(agent, episode)
        self._steps[agent] = []


def record_players(
    config: Config, env: FirstEnv, teachers: Sequence[str], num_samples: int, seed: int
) -> list[Episode]:
    """Lets scripted players play until `num_samples` actions of whole episodes are recorded; returns the
    episodes.
    teachers: names of scripted players; empty: all players of the env. One is drawn for each agent and match.
    Raises ConfigError if the env has no such players."""
    info = env_info(env.env, config.namespace())
    known = info.scripted_players
    if not known:
        raise ConfigError("the env has no scripted players to imitate; use --games=FOLDER")
    unknown = [name for name in teachers if name not in known]
    if unknown:
        raise ConfigError(f"--teachers: the env has no player {unknown[0]}; it has {', '.join(known)}")
    if len(info.kinds.spaces) > 1:
        raise ConfigError("the agents have different spaces; imitation needs one policy that plays them all")
    episodes: list[Episode] = []
    num_actions = 0

    def add(agent: int, episode: Episode) -> None:
        nonlocal num_actions
        episodes.append(episode)
        num_actions += len(episode.actions)

    def record(env: MultiAgentEnv, env_config: EnvConfig) -> MultiAgentEnv:
        return RecordedEnv(env, add)

    own = replace(config, run=replace(config.run, seed=seed))
    cast = Cast(teachers or known, matchmaking=DrawnPlayers)
    plan = plan_single(own, env, info, cast, around=[record])
    session = Session(plan, cast, Events(is_over=lambda: num_actions >= num_samples))
    session.play(StopSignals())  # without handlers: Ctrl+C ends the command
    return episodes


class DrawnPlayers:
    """A matchmaking that draws a scripted player at random for each agent in each match."""

    def __init__(self, setup: MatchSetup):
        self._setup = setup

    def next_match(self) -> Sequence[int]:
        """Returns the index of a player for each agent, [num_agents]."""
        numbers = self._setup.rng.integers(self._setup.num_policies, size=self._setup.num_agents)
        return [int(number) for number in numbers]

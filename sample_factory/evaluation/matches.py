"""Two policies against each other, match after match."""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from sample_factory.config.config import ConfigError
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.player import Player
from sample_factory.evaluation.policy import TrainedPolicy, load_policy
from sample_factory.evaluation.policy_choice import Contestant
from sample_factory.evaluation.spread import Spread, spread
from sample_factory.evaluation.win_rate import WinRate, win_rate
from sample_factory.runtime.clock import Every
from sample_factory.runtime.supervisor import StopSignals

PROGRESS_SECONDS = 5.0


class Match(NamedTuple):
    """The true objective of either team, the mean of its agents. has_first_half: of the agents."""

    objective: float
    opponent_objective: float
    has_first_half: bool


class Results(NamedTuple):
    """A win is one of the first of the two contestants."""

    wins: int
    draws: int
    losses: int

    def __str__(self) -> str:
        matches = "1 match" if sum(self) == 1 else f"{sum(self)} matches"
        return f"{matches}: {self.wins} wins, {self.draws} draws, {self.losses} losses"


def count_results(matches: Sequence[Match]) -> Results:
    wins = sum(match.objective > match.opponent_objective for match in matches)
    losses = sum(match.objective < match.opponent_objective for match in matches)
    return Results(wins, len(matches) - wins - losses, losses)


class Matches(NamedTuple):
    """Those of two contestants, seen with the eyes of the first."""

    contestants: tuple[Contestant, Contestant]
    played: tuple[Match, ...]

    @property
    def results(self) -> Results:
        return count_results(self.played)

    @property
    def win_rate(self) -> WinRate | None:
        """Wins of all matches; None if there are none."""
        return win_rate(self.results.wins, len(self.played)) if self.played else None

    @property
    def win_rate_without_draws(self) -> WinRate | None:
        """Wins of the matches that were no draws; None if there are none."""
        wins, _, losses = self.results
        return win_rate(wins, wins + losses) if wins + losses else None

    @property
    def objective(self) -> Spread:
        return spread([match.objective for match in self.played])

    @property
    def opponent_objective(self) -> Spread:
        return spread([match.opponent_objective for match in self.played])

    def summary(self) -> str:
        """For people."""
        lines = [f"{self.contestants[0]} against {self.contestants[1]}", str(self.results)]
        if not self.played:
            return "\n".join(lines)
        lines.append(f"win rate {self.win_rate}")
        if self.results.draws and self.win_rate_without_draws:
            lines.append(f"win rate without draws {self.win_rate_without_draws}")
        return "\n".join([*lines, f"true objective {self.objective} against {self.opponent_objective}"])

    def figures(self) -> dict[str, Any]:
        """For JSON; what is not known is None."""
        known = {
            "win_rate": self.win_rate,
            "win_rate_without_draws": self.win_rate_without_draws,
            "objective": self.objective if self.played else None,
            "opponent_objective": self.opponent_objective if self.played else None,
        }
        return {
            "env": self.contestants[0].config.run.env,
            "contestants": [
                {"experiment": str(contestant.config.experiment_dir), **contestant.choice._asdict()}
                for contestant in self.contestants
            ],
            **self.results._asdict(),
            **{name: value._asdict() if value else None for name, value in known.items()},
            "matches": [match._asdict() for match in self.played],
        }


def play_matches(contestants: tuple[Contestant, Contestant], family: EnvFamily, num_matches: int) -> Matches:
    """Plays so many, or until a signal, in an env as the first contestant's experiment describes it.

    A team is one half of the agents; after each match the teams swap halves. Deterministic with a seed if
    the env is. Raises ConfigError, CheckpointError, and what the env raises.
    """
    config = contestants[0].config
    if config.run.seed is not None:
        torch.manual_seed(config.run.seed)
    env_config = EnvConfig(0, 0, 0)
    with (
        StopSignals() as signals,
        contextlib.closing(make_adapted_env(family, config.namespace(), env_config)) as env,
    ):
        _check_teams(config.run.env, env)
        teams = [
            load_policy(contestant.config, contestant.choice, *env.kinds.spaces[0])
            for contestant in contestants
        ]
        series = _Series(env, teams, config.env.env_frameskip or 1)
        series.start(config.run.seed)
        played = _play(series, num_matches, lambda: signals.requested is not None)
    return Matches(contestants, tuple(played))


def _check_teams(env_name: str, env: MultiAgentEnv) -> None:
    if len(env.kinds.spaces) > 1:
        raise ConfigError(
            f"--env={env_name} has agents with different spaces; in a match, any policy must be able to play "
            "any agent"
        )
    if env.num_agents < 2 or env.num_agents % 2:
        raise ConfigError(
            f"--env={env_name} has {env.num_agents} agent{'s' * (env.num_agents > 1)}; a match needs two "
            "teams of equally many"
        )


def _play(series: "_Series", num_matches: int, is_stopped: Callable[[], bool]) -> list[Match]:
    """With a line now and then."""
    played: list[Match] = []
    is_time = Every(PROGRESS_SECONDS)
    while len(played) < num_matches:
        match = series.play_match(is_stopped)
        if match is None:
            break
        played.append(match)
        if is_time():
            print(f"{count_results(played)} (of {num_matches})", flush=True)
    return played


class _Series:
    """Matches of two teams in one env, whose agents are dealt out in halves anew for each match."""

    def __init__(self, env: MultiAgentEnv, teams: Sequence[TrainedPolicy], frameskip: int):
        self._half, self._teams = env.num_agents // 2, teams
        self._has_first_half = True  # the first team
        self._player = Player(env, self._policies(), frameskip)

    def start(self, seed: int | None) -> None:
        self._player.start(seed)

    def play_match(self, is_stopped: Callable[[], bool]) -> Match | None:
        """After it the teams swap halves. None when it was stopped."""
        objectives = self._play_episodes(is_stopped)
        if objectives is None:
            return None
        if np.isnan(objectives).any():
            raise ConfigError(f"the env reports true objectives {objectives.tolist()}: nobody has won")
        # fmean rounds once, so that teams of the same objectives are equal in whatever order they stand.
        first_half, second_half = (statistics.fmean(half) for half in np.split(objectives, 2))
        of_teams = (first_half, second_half) if self._has_first_half else (second_half, first_half)
        match = Match(*of_teams, self._has_first_half)
        self._has_first_half = not self._has_first_half
        self._player.assign(self._policies())
        return match

    def _policies(self) -> list[TrainedPolicy]:
        first, second = self._teams if self._has_first_half else self._teams[::-1]
        return [first] * self._half + [second] * self._half

    def _play_episodes(self, is_stopped: Callable[[], bool]) -> np.ndarray | None:
        """One of each agent, to its true objective. Raises ConfigError when they are not of one match."""
        has_ended = np.zeros(2 * self._half, bool)
        objectives = np.zeros(2 * self._half)
        while not has_ended.all():
            # Who is out early has to wait for the others.
            if (has_ended & self._player.active).any():
                raise ConfigError(
                    "the episodes of the env's agents do not end together: there are no matches"
                )
            if is_stopped():
                return None
            try:
                finished = self._player.step()
            except Exception:
                if not is_stopped():
                    raise
                return None  # the signal to stop has reached the simulator first
            for episode in finished:
                if not has_ended[episode.agent]:
                    objectives[episode.agent], has_ended[episode.agent] = episode.true_objective, True
        return objectives

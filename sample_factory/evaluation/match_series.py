"""Plays two policies against each other, match after match."""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily, resolve_family
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeRunner, Player
from sample_factory.evaluation.match_request import MatchRequest
from sample_factory.evaluation.policy import load_trained_policy
from sample_factory.evaluation.policy_choice import Contestant, ScriptedContestant
from sample_factory.evaluation.progress import Progress
from sample_factory.evaluation.result_statistics import MeanAndStd, WinRate, mean_and_std, win_rate
from sample_factory.evaluation.results import ResultFiles
from sample_factory.evaluation.scripted_policy import load_scripted
from sample_factory.evaluation.trained_env import explains_other_env
from sample_factory.runtime.supervisor import StopSignals


class MatchResult(NamedTuple):
    """The true objective of each team: the mean over its agents. has_first_half: of the env's agents."""

    objective: float
    opponent_objective: float
    has_first_half: bool


class Tally(NamedTuple):
    """Matches by their result for the first contestant."""

    wins: int
    draws: int
    losses: int

    def __str__(self) -> str:
        matches = "1 match" if sum(self) == 1 else f"{sum(self)} matches"
        return f"{matches}: {self.wins} wins, {self.draws} draws, {self.losses} losses"


def count_results(results: Sequence[MatchResult]) -> Tally:
    wins = sum(result.objective > result.opponent_objective for result in results)
    losses = sum(result.objective < result.opponent_objective for result in results)
    return Tally(wins, len(results) - wins - losses, losses)


class MatchSeries(NamedTuple):
    """All matches of two contestants, from the point of view of the first."""

    contestants: tuple[Contestant, Contestant | ScriptedContestant]
    results: tuple[MatchResult, ...]

    @property
    def tally(self) -> Tally:
        return count_results(self.results)

    @property
    def win_rate(self) -> WinRate | None:
        """Share of all matches that were won; None without matches."""
        return win_rate(self.tally.wins, len(self.results)) if self.results else None

    @property
    def win_rate_without_draws(self) -> WinRate | None:
        """Share of the matches with a winner that were won; None if there are none."""
        wins, _, losses = self.tally
        return win_rate(wins, wins + losses) if wins + losses else None

    @property
    def objective(self) -> MeanAndStd:
        return mean_and_std([result.objective for result in self.results])

    @property
    def opponent_objective(self) -> MeanAndStd:
        return mean_and_std([result.opponent_objective for result in self.results])

    def summary(self) -> str:
        """Returns a text of several lines for the console."""
        lines = [f"{self.contestants[0]} against {self.contestants[1]}", str(self.tally)]
        if not self.results:
            return "\n".join(lines)
        lines.append(f"win rate {self.win_rate}")
        if self.tally.draws and self.win_rate_without_draws:
            lines.append(f"win rate without draws {self.win_rate_without_draws}")
        return "\n".join([*lines, f"true objective {self.objective} against {self.opponent_objective}"])

    def figures(self) -> dict[str, Any]:
        """Returns the contents of the --json file; unknown values are None."""
        known = {
            "win_rate": self.win_rate,
            "win_rate_without_draws": self.win_rate_without_draws,
            "objective": self.objective if self.results else None,
            "opponent_objective": self.opponent_objective if self.results else None,
        }
        return {
            "env": self.contestants[0].config.env_name,
            "contestants": [contestant.figures() for contestant in self.contestants],
            **self.tally._asdict(),
            **{name: value._asdict() if value else None for name, value in known.items()},
            "matches": [result._asdict() for result in self.results],
        }


def run_match(request: MatchRequest) -> MatchSeries:
    """Plays the matches, prints the result and writes the file that --json names.

    Raises ConfigError when a checkpoint is missing, the env has no two teams or the file cannot be written,
    CheckpointError for an unusable checkpoint.
    """
    torch.set_num_threads(1)  # for a row or two, several threads only wait for each other
    family = resolve_family(request.contestants[0].config.env_name)
    series = play_matches(request.contestants, family, request.flags.num_matches)
    print(series.summary())
    ResultFiles(request.flags.json).write(series.figures())
    return series


def play_matches(
    contestants: tuple[Contestant, Contestant | ScriptedContestant], family: EnvFamily, num_matches: int
) -> MatchSeries:
    """Plays `num_matches` matches, fewer if a signal stops it, in the env of the first contestant's config.

    A team is one half of the agents; after each match the teams swap halves. Deterministic with a seed if
    the env is. Raises ConfigError, CheckpointError, and what the env raises.
    """
    config = contestants[0].config
    if config.run.seed is not None:
        torch.manual_seed(config.run.seed)
    env_config = EnvConfig(0, 0, 0)
    with (
        StopSignals() as signals,
        contextlib.ExitStack() as closed_at_end,
    ):
        with explains_other_env(config):
            env = make_adapted_env(family, config.namespace(), env_config)
            closed_at_end.enter_context(contextlib.closing(env))
        _check_teams(config.env_name, env)
        teams = [_load(contestant, env) for contestant in contestants]
        runner = _MatchRunner(env, teams, config.env.env_frameskip or 1)
        runner.start(config.run.seed)
        results = _play(runner, num_matches, lambda: signals.requested is not None)
    return MatchSeries(contestants, tuple(results))


def _load(contestant: Contestant | ScriptedContestant, env: MultiAgentEnv) -> Player:
    if isinstance(contestant, ScriptedContestant):
        return load_scripted(contestant.player, env)
    with explains_other_env(contestant.config):
        return load_trained_policy(contestant.config, contestant.choice, *env.kinds.spaces[0])


def _check_teams(env_name: str, env: MultiAgentEnv) -> None:
    if len(env.kinds.spaces) > 1:
        raise ConfigError(
            f"--env={env_name} has agents with different spaces; in a match, any policy must be able to play "
            "any agent"
        )
    if env.num_agents < 2 or env.num_agents % 2:
        raise ConfigError(
            f"--env={env_name} has {env.num_agents} agent{'s' * (env.num_agents > 1)}; a match needs two "
            "teams of equal size"
        )


def _play(runner: "_MatchRunner", num_matches: int, is_stopped: Callable[[], bool]) -> list[MatchResult]:
    """Plays and shows the progress."""
    results: list[MatchResult] = []
    progress = Progress(num_matches)
    while len(results) < num_matches:
        result = runner.play_match(is_stopped)
        if result is None:
            break
        results.append(result)
        progress.update(len(results), lambda: str(count_results(results)))
    progress.close()
    return results


class _MatchRunner:
    """Matches of two teams in one env; the teams swap halves of the agents after each match."""

    def __init__(self, env: MultiAgentEnv, teams: Sequence[Player], frameskip: int):
        self._half = env.num_agents // 2
        self._teams = teams
        self._has_first_half = True  # the first team
        self._runner = EpisodeRunner(env, self._policies(), frameskip)

    def start(self, seed: int | None) -> None:
        self._runner.start(seed)

    def play_match(self, is_stopped: Callable[[], bool]) -> MatchResult | None:
        """Plays one match and swaps the teams. Returns None if it was stopped before its end."""
        objectives = self._play_episodes(is_stopped)
        if objectives is None:
            return None
        if np.isnan(objectives).any():
            raise ConfigError(
                f"the env reports true objectives {objectives.tolist()}, so no winner can be determined"
            )
        # fmean rounds once, so that teams of equal objectives have equal means in any order of the agents.
        first_half, second_half = (statistics.fmean(half) for half in np.split(objectives, 2))
        ours = first_half if self._has_first_half else second_half
        theirs = second_half if self._has_first_half else first_half
        result = MatchResult(ours, theirs, self._has_first_half)
        self._has_first_half = not self._has_first_half
        self._runner.assign(self._policies())
        return result

    def _policies(self) -> list[Player]:
        first, second = self._teams if self._has_first_half else self._teams[::-1]
        return [first] * self._half + [second] * self._half

    def _play_episodes(self, is_stopped: Callable[[], bool]) -> np.ndarray | None:
        """Plays one episode of each agent; returns their true objectives, [num_agents] float64.

        Raises ConfigError when the episodes do not end together.
        """
        has_ended = np.zeros(2 * self._half, bool)
        objectives = np.zeros(2 * self._half)
        while not has_ended.all():
            # An agent whose episode ends early has to stay inactive until the match ends.
            if (has_ended & self._runner.active).any():
                raise ConfigError(
                    "the episodes of the env's agents do not end together, so they are no matches"
                )
            if is_stopped():
                return None
            try:
                finished = self._runner.step()
            except Exception:
                if not is_stopped():
                    raise
                return None  # the signal to stop reached the simulator first
            for episode in finished:
                if not has_ended[episode.agent]:
                    objectives[episode.agent] = episode.true_objective
                    has_ended[episode.agent] = True
        return objectives

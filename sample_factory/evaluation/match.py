"""`match`: two policies play against each other, match after match.

Torch is loaded by `run_match`, not before: bad flags are reported at once.
"""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeRunner, Player, ScriptedPolicy
from sample_factory.evaluation.match_command import COMMAND, MatchFlags
from sample_factory.evaluation.played_env import explains_other_env, with_eval_frameskip
from sample_factory.evaluation.policy_choice import PolicyChoice, chosen_policies
from sample_factory.evaluation.result_statistics import MeanAndStd, WinRate, mean_and_std, win_rate
from sample_factory.evaluation.results import EpisodeCount, Progress, write_json
from sample_factory.launch.checks import log_flags_without_effect
from sample_factory.runtime.supervisor import StopSignals


class Contestant(NamedTuple):
    """A policy of an experiment, or a scripted player of the env.

    config: of the experiment, which describes the model. player: a name, e.g. of a bot; the policy otherwise.
    """

    config: Config
    player: PolicyChoice | str

    def __str__(self) -> str:
        if isinstance(self.player, str):
            return f"the player {self.player} of the env"
        return f"{self.config.run.experiment} ({self.player})"

    def figures(self) -> dict[str, Any]:
        """Returns what identifies it, for a file."""
        if isinstance(self.player, str):
            return {"player": self.player}
        return {"experiment": str(self.config.experiment_dir), **self.player._asdict()}


class MatchResult(NamedTuple):
    """The true objective of each team: the mean over its agents. has_first_half: of the env's agents."""

    objective: float
    opponent_objective: float
    has_first_half: bool


class MatchSeries(NamedTuple):
    """All matches of two contestants, from the point of view of the first one."""

    contestants: tuple[Contestant, Contestant]
    results: list[MatchResult]

    @property
    def tally(self) -> tuple[int, int, int]:
        """Number of wins, draws and losses of the first contestant."""
        wins = sum(result.objective > result.opponent_objective for result in self.results)
        losses = sum(result.objective < result.opponent_objective for result in self.results)
        return wins, len(self.results) - wins - losses, losses

    def tally_text(self) -> str:
        wins, draws, losses = self.tally
        num_matches = len(self.results)
        matches = "1 match" if num_matches == 1 else f"{num_matches} matches"
        return f"{matches}: {wins} wins, {draws} draws, {losses} losses"

    @property
    def win_rate(self) -> WinRate | None:
        """Share of all matches that were won; None without matches."""
        return win_rate(self.tally[0], len(self.results)) if self.results else None

    @property
    def win_rate_without_draws(self) -> WinRate | None:
        """Share of the matches with a winner that were won; None without such matches."""
        wins, _, losses = self.tally
        return win_rate(wins, wins + losses) if wins + losses else None

    @property
    def objectives(self) -> tuple[MeanAndStd, MeanAndStd]:
        """True objectives of the two contestants."""
        ours, theirs, _ = zip(*self.results) if self.results else ((), (), ())
        return mean_and_std(ours), mean_and_std(theirs)

    def summary(self) -> str:
        """Returns a text of several lines for the console."""
        lines = [f"{self.contestants[0]} against {self.contestants[1]}", self.tally_text()]
        if not self.results:
            return "\n".join(lines)
        lines.append(f"win rate {self.win_rate}")
        if self.tally[1] and self.win_rate_without_draws:
            lines.append(f"win rate without draws {self.win_rate_without_draws}")
        ours, theirs = self.objectives
        return "\n".join([*lines, f"true objective {ours} against {theirs}"])

    def figures(self) -> dict[str, Any]:
        """Returns the contents of the --json file; values are None if there are no matches.

        May contain NaN, which `write_json` replaces.
        """
        ours, theirs = self.objectives if self.results else (None, None)
        known = {
            "win_rate": self.win_rate,
            "win_rate_without_draws": self.win_rate_without_draws,
            "objective": ours,
            "opponent_objective": theirs,
        }
        return {
            "env": self.contestants[0].config.env_name,
            "contestants": [contestant.figures() for contestant in self.contestants],
            **dict(zip(("wins", "draws", "losses"), self.tally)),
            **{name: value._asdict() if value else None for name, value in known.items()},
            "matches": [result._asdict() for result in self.results],
        }


def contestants_of(config: Config) -> tuple[Contestant, Contestant]:
    """Returns the policy and its opponent. The config of the policy has the flags of the command.

    Raises ConfigError and UnknownEnvError.
    """
    flags: MatchFlags = config.extra["match"]
    opponent_config = config
    if flags.opponent_experiment is not None:
        typed = [*config.argv, f"--experiment={flags.opponent_experiment}"]
        silent = COMMAND._replace(reads=None)
        opponent_config = parse_config(typed, resolve_trained_family, True, COMMAND.sections, silent)
    _check(config, opponent_config, flags)
    (choice,) = chosen_policies(config)
    if flags.opponent_player is not None:
        return Contestant(config, choice), Contestant(config, flags.opponent_player)
    index = choice.policy_index if flags.opponent_policy_index is None else flags.opponent_policy_index
    kind = config.monitoring.load_checkpoint_kind
    opponent_choice = PolicyChoice(index, flags.opponent_checkpoint or kind)
    if choice == opponent_choice and config.experiment_dir == opponent_config.experiment_dir:
        raise ConfigError(
            f"{config.run.experiment} ({choice}) would play against itself; choose --opponent_experiment, "
            "--opponent_policy_index or --opponent_checkpoint"
        )
    return Contestant(config, choice), Contestant(opponent_config, opponent_choice)


def _check(config: Config, opponent_config: Config, flags: MatchFlags) -> None:
    """Raises ConfigError for flags that contradict each other."""
    of_policy = (flags.opponent_experiment, flags.opponent_policy_index, flags.opponent_checkpoint)
    if flags.opponent_player is not None and any(value is not None for value in of_policy):
        raise ConfigError(
            f"--opponent_player={flags.opponent_player} takes the place of a policy; leave out "
            "--opponent_experiment, --opponent_policy_index and --opponent_checkpoint"
        )
    if config.env_name != opponent_config.env_name:
        raise ConfigError(
            f"{config.run.experiment} was trained in {config.env_name}, {opponent_config.run.experiment} in "
            f"{opponent_config.env_name}; choose with --env where they meet"
        )
    checkpoints = config.evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    for name, values in (("policy_index", config.evaluation.policy_index), ("checkpoint", checkpoints)):
        if len(values) != 1:
            raise ConfigError(
                f"--{name} has {len(values)} values; in a match it takes one, and the opponent's is "
                f"--opponent_{name}"
            )


def run_match(config: Config) -> MatchSeries:
    """Plays the matches in the env of the first contestant, prints the result and writes the --json file.

    A signal ends the series after the last complete match. With --seed, it can be repeated if the env is
    deterministic.

    Raises ConfigError for wrong flags, a missing checkpoint, an env without two teams and a file that cannot
    be written, CheckpointError for an unusable checkpoint, and what the env raises.
    """
    contestants = contestants_of(config)
    import torch

    torch.set_num_threads(1)  # for a row or two, several threads only wait for each other
    flags: MatchFlags = config.extra["match"]
    if config.run.seed is not None:
        torch.manual_seed(config.run.seed)
    with StopSignals() as signals, contextlib.ExitStack() as closed_at_end:
        with explains_other_env(config):
            env = closed_at_end.enter_context(contextlib.closing(_make_env(config)))
        _check_teams(config.env_name, env)
        log_flags_without_effect(config, env.kinds)
        teams = [_load(contestant, env) for contestant in contestants]
        series = MatchSeries(contestants, [])
        _play(env, teams, series, flags.num_matches, lambda: signals.requested is not None)
    print(series.summary())
    write_json(flags.json, series.figures())
    return series


def _make_env(config: Config) -> MultiAgentEnv:
    """Makes the env, in a single copy: the agents of different copies never meet."""
    config, family = with_eval_frameskip(config, resolve_family(config.env_name))
    cfg = config.namespace()
    if "vector_env_copies" in cfg:
        cfg.vector_env_copies = 1
    env = make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
    if isinstance(env.env, gym.vector.VectorEnv) and "vector_env_copies" not in cfg:
        env.close()
        raise ConfigError(
            f"--env={config.env_name} is a VectorEnv; its {env.num_agents} agents are copies that never meet"
        )
    return env


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


def _load(contestant: Contestant, env: MultiAgentEnv) -> Player:
    config, player = contestant
    if isinstance(player, str):
        return ScriptedPolicy(player, env)
    from sample_factory.evaluation.policy import load_trained_policy

    with explains_other_env(config):
        return load_trained_policy(config, player, *env.kinds.spaces[0])


def _play(
    env: MultiAgentEnv,
    teams: Sequence[Player],
    series: MatchSeries,
    num_matches: int,
    is_stopped: Callable[[], bool],
) -> None:
    """Adds matches to a series and shows the progress.

    A team is one half of the agents; after each match they swap halves.
    """
    config, results = series.contestants[0].config, series.results
    half = env.num_agents // 2
    first, second = teams
    agents = [first] * half + [second] * half
    runner = EpisodeRunner(env, agents, config.env.env_frameskip or 1)
    runner.start(config.run.seed)
    progress = Progress(num_matches)
    while len(results) < num_matches:
        objectives = _play_match(runner, is_stopped)
        if objectives is None:
            break
        # fmean rounds once, so that teams of equal objectives have equal means in any order of the agents.
        means = [statistics.fmean(part) for part in np.split(objectives, 2)]
        has_first_half = agents[0] is first
        ours, theirs = means if has_first_half else reversed(means)
        results.append(MatchResult(ours, theirs, has_first_half))
        agents.reverse()
        runner.assign(agents)
        progress.update(len(results), series.tally_text)
    progress.close()


def _play_match(runner: EpisodeRunner, is_stopped: Callable[[], bool]) -> np.ndarray | None:
    """Plays one episode of each agent; returns their true objectives, [num_agents]; None if it was stopped.

    Raises ConfigError when the episodes do not end together, and for an objective that is nan.
    """
    count = EpisodeCount(np.ones((1, runner.num_agents), np.int64))
    for finished in runner.play(is_stopped):
        for episode in finished:
            count.add(episode)
        if count.is_complete:
            break
        # An agent whose episode ends early has to stay inactive until the match ends.
        if (count.have_ended[0] & runner.active).any():
            raise ConfigError("the episodes of the env's agents do not end together, so they are no matches")
    if not count.is_complete:
        return None
    objectives = np.array([episode.true_objective for episode in count.episodes])
    if np.isnan(objectives).any():
        raise ConfigError(
            f"the env reports true objectives {objectives.tolist()}, so no winner can be determined"
        )
    return objectives


def match(config: Config) -> None:
    """The command. Raises as `run_match`."""
    run_match(config)

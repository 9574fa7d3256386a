"""`match`: two policies play against each other, many matches at once."""

import collections
import contextlib
import functools
import math
import statistics
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import EnvInfo, make_adapted_env
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.evaluation.env_choice import explains_other_env, with_eval_frameskip
from sample_factory.evaluation.match_command import COMMAND, MatchFlags
from sample_factory.evaluation.policy_choice import PolicyChoice, chosen_policies, find_checkpoint
from sample_factory.evaluation.result_files import write_json
from sample_factory.evaluation.result_statistics import MeanAndStd, WinRate, mean_and_std, win_rate
from sample_factory.evaluation.results import Progress
from sample_factory.evaluation.session import Events, Session
from sample_factory.evaluation.session_plan import (
    ONE_ENV,
    Cast,
    SavedPolicy,
    plan_session,
    prepared,
    size_for,
)
from sample_factory.exchange.messages import MatchEnded
from sample_factory.launch.checks import check_machine, log_flags_without_effect, probe_env
from sample_factory.launch.shared_imports import shared_imports
from sample_factory.runtime import cpu
from sample_factory.runtime.supervisor import StopSignals


class Contestant(NamedTuple):
    """One side of a match: a policy of an experiment, or a scripted player of the env.
    config: configuration of the experiment, which describes the network.
    player: the policy, or the name of a scripted player, e.g. of a bot."""

    config: Config
    player: PolicyChoice | str

    def __str__(self) -> str:
        if isinstance(self.player, str):
            return f"the player {self.player} of the env"
        return f"{self.config.run.experiment} ({self.player})"

    def figures(self) -> dict[str, Any]:
        """Returns the entries that identify the contestant in a --json file."""
        if isinstance(self.player, str):
            return {"player": self.player}
        return {"experiment": str(self.config.experiment_dir), **self.player._asdict()}


class MatchResult(NamedTuple):
    """The result of a match: for each contestant, the mean true objective of its agents.
    has_first_half: whether the first contestant played the team of agent 0; without declared teams, the first
        half of the env's agents."""

    objective: float
    opponent_objective: float
    has_first_half: bool


class MatchSeries(NamedTuple):
    """The results of all matches between two contestants; wins and losses are counted for the first
    contestant.
    num_wanted: number of matches that were to be played."""

    contestants: tuple[Contestant, Contestant]
    results: list[MatchResult]
    num_wanted: int

    @property
    def tally(self) -> tuple[int, int, int]:
        """Number of wins, draws and losses of the first contestant."""
        wins = sum(result.objective > result.opponent_objective for result in self.results)
        losses = sum(result.objective < result.opponent_objective for result in self.results)
        return wins, len(self.results) - wins - losses, losses

    @property
    def is_partial(self) -> bool:
        """Whether the series was stopped before all matches had ended, so that too many of them are short."""
        return len(self.results) < self.num_wanted

    def tally_text(self) -> str:
        wins, draws, losses = self.tally
        num_matches = len(self.results)
        matches = "1 match" if num_matches == 1 else f"{num_matches} matches"
        return f"{matches}: {wins} wins, {draws} draws, {losses} losses"

    @property
    def win_rate(self) -> WinRate | None:
        """Share of all matches that the first contestant won; None without matches."""
        return win_rate(self.tally[0], len(self.results)) if self.results else None

    @property
    def win_rate_without_draws(self) -> WinRate | None:
        """Share of the matches with a winner that the first contestant won; None without such matches."""
        wins, _, losses = self.tally
        return win_rate(wins, wins + losses) if wins + losses else None

    @property
    def objectives(self) -> tuple[MeanAndStd, MeanAndStd]:
        """Statistics of the true objectives of the two contestants."""
        ours, theirs, _ = zip(*self.results) if self.results else ((), (), ())
        return mean_and_std(ours), mean_and_std(theirs)

    def summary(self) -> str:
        """Returns lines of text for the console: contestants, wins and losses, win rates, true objectives."""
        lines = [f"{self.contestants[0]} against {self.contestants[1]}", self.tally_text()]
        if self.is_partial:
            lines.append(
                f"PARTIAL: stopped before {self.num_wanted} matches; biased, since short ones end first"
            )
        if not self.results:
            return "\n".join(lines)
        lines.append(f"win rate {self.win_rate}")
        if self.tally[1] and self.win_rate_without_draws:
            lines.append(f"win rate without draws {self.win_rate_without_draws}")
        ours, theirs = self.objectives
        return "\n".join([*lines, f"true objective {ours} against {theirs}"])

    def figures(self) -> dict[str, Any]:
        """Returns the contents of the --json file; statistics are None if there are no matches. May contain
        NaN, which `write_json` replaces."""
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
            "is_partial": self.is_partial,
            **{name: value._asdict() if value else None for name, value in known.items()},
            "matches": [result._asdict() for result in self.results],
        }


def contestants_of(config: Config) -> tuple[Contestant, Contestant]:
    """Returns the policy and the opponent that the flags of `match` choose. Each contestant has the
    configuration of its experiment; the policy's also has the flags of the command. Raises ConfigError for
    flags that contradict each other, an unknown experiment, or a policy that would play against itself."""
    flags: MatchFlags = config.extra["match"]
    opponent_config = config
    if flags.opponent_experiment is not None:
        typed = [*config.argv, f"--experiment={flags.opponent_experiment}"]
        silent = COMMAND._replace(reads=None)
        opponent_config = parse_config(typed, resolve_trained_family, silent)
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
    """Raises ConfigError if the flags name both a scripted player and a policy as the opponent, if the two
    policies were trained in different envs and --env does not choose one, or unless exactly one policy and
    one checkpoint are named for the first contestant."""
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

    Matches are played in parallel, in as many envs as `eval` has. A worker or an env that fails is replaced,
    and its matches are played again. A signal ends the series after the last complete match. With
    --serial_mode and --seed, a series can be repeated if the env is deterministic.

    Raises ConfigError for wrong flags, a missing checkpoint, an env without two teams and a file that cannot
    be written, CheckpointError for an unusable checkpoint, and Failure when an env or a process fails for
    good.
    """
    contestants = contestants_of(config)
    flags: MatchFlags = config.extra["match"]
    cpu.raise_open_files_limit()
    series = MatchSeries(contestants, [], flags.num_matches)
    for policy_config, player in contestants:
        if not isinstance(player, str):
            find_checkpoint(policy_config, player)  # raises
    with StopSignals() as signals, shared_imports(config):
        session = _make_session(contestants, series, flags)
        matches = session.play(signals)
    series.results[:] = map(_result, matches)
    print(series.summary())
    write_json(flags.json, series.figures())
    return series


def _make_session(
    contestants: tuple[Contestant, Contestant], series: MatchSeries, flags: MatchFlags
) -> Session:
    """Returns the session that plays the matches. While it plays, each result is appended to
    `series.results`."""
    own, opponent = contestants
    config, family = with_eval_frameskip(prepared(own.config), resolve_family(own.config.env_name))
    cfg = config.namespace()
    has_copies = "vector_env_copies" in cfg
    if has_copies:  # the agents of different copies never meet
        cfg.vector_env_copies = 1
    is_serial = config.sampling.serial_mode
    with explains_other_env(config):
        check_machine(config)
        info = probe_env(config, family, cfg)
    _check_teams(config, info, has_copies)
    log_flags_without_effect(config, info.kinds)
    cast = _cast(contestants, info)
    with contextlib.ExitStack() as explained:
        explained.enter_context(explains_other_env(config, warns=False))
        explained.enter_context(explains_other_env(opponent.config, warns=opponent.config is not own.config))
        plan = plan_session(
            config,
            functools.partial(make_adapted_env, family, cfg),
            info,
            cast,
            ONE_ENV if is_serial else size_for(config, info, flags.num_matches),
            flags.num_matches * info.num_agents,
            is_single=is_serial,
            reports_matches=True,
        )
        events = Events(
            on_end=lambda ended, number: series.results.append(_result(ended)), describe=series.tally_text
        )
        return Session(plan, cast, events, Progress(flags.num_matches))


def _check_teams(config: Config, info: EnvInfo, has_one_copy: bool) -> None:
    """Raises ConfigError unless the env has two teams of equally many agents with equal spaces.
    has_one_copy: whether a vector env is limited to one copy, so that its agents meet."""
    if info.are_copies and not has_one_copy:
        raise ConfigError(
            f"--env={config.env_name} is a VectorEnv; its {info.num_agents} agents are copies that never meet"
        )
    if len(info.kinds.spaces) > 1:
        raise ConfigError(
            f"--env={config.env_name} has agents with different spaces; in a match, any policy must be able "
            "to play any agent"
        )
    if info.num_agents < 2 or info.num_agents % 2:
        raise ConfigError(
            f"--env={config.env_name} has {info.num_agents} agent{'s' * (info.num_agents > 1)}; a match "
            "needs two teams of equal size"
        )
    sizes = sorted(collections.Counter(_teams(info)).values())
    if len(sizes) != 2 or sizes[0] != sizes[1]:
        raise ConfigError(
            f"--env={config.env_name} has the teams {info.teams}; a match needs two teams of equal size"
        )


def _teams(info: EnvInfo) -> list[int]:
    """Returns the team of each agent, [num_agents]: as the env declares its teams, else 0 for the first half
    of the agents and 1 for the second half."""
    half = info.num_agents // 2
    return list(info.teams_that_meet) or [0] * half + [1] * half


def _cast(contestants: tuple[Contestant, Contestant], info: EnvInfo) -> Cast:
    """Returns who plays which agent: in the first match, contestant 0 plays the team of agent 0; after each
    match, both swap teams. Raises ConfigError if the env has no scripted player of the given name."""
    scripts = [player for _, player in contestants if isinstance(player, str)]
    for player in scripts:
        known = info.scripted_players
        if player not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"--opponent_player={player}: the env has no such player; {has}")
    players = [
        player if isinstance(player, str) else SavedPolicy(config, player) for config, player in contestants
    ]
    teams = _teams(info)
    return Cast(players, seats=[int(team != teams[0]) for team in teams], swaps=True)


def _result(ended: MatchEnded) -> MatchResult:
    """Converts a match to its result from the point of view of contestant 0. Raises ConfigError if the
    episodes of the agents do not end together, or an objective is nan."""
    if any(count != 1 for count in ended.num_episodes):
        raise ConfigError("the episodes of the env's agents do not end together, so they are no matches")
    objectives = [ended.objectives[agent] for agent in range(len(ended.num_episodes))]
    if any(map(math.isnan, objectives)):
        raise ConfigError(f"the env reports true objectives {objectives}, so no winner can be determined")
    # fmean rounds once, so that teams of equal objectives have equal means in any order of the agents.
    ours, theirs = (
        statistics.fmean(
            objectives[agent] for agent in range(len(objectives)) if ended.policies[agent] == team
        )
        for team in (0, 1)
    )
    return MatchResult(ours, theirs, has_first_half=ended.policies[0] == 0)


def match(config: Config) -> None:
    """Runs the command `match`: plays the matches, prints and writes the results. Raises ConfigError for
    wrong flags or a missing checkpoint, CheckpointError for an unusable one, and Failure when an env or a
    process fails."""
    run_match(config)

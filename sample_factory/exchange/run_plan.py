"""Plans: everything that is decided about a run before its processes start.

A process gets only the part that it uses: rollout workers an EnvPlan, policy workers an ActingPlan, inline
samplers both. So no process has to import what only another one needs, such as torch or the env's modules.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.sampling_flags import SamplingFlags
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.exchange.topology import Topology
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.spaces.agent_kinds import AgentKinds

AroundEnv = Callable[[MultiAgentEnv, EnvConfig], MultiAgentEnv]

RANDOM_PLAYER = "random actions"  # a scripted player that every env has


class Note(NamedTuple):
    """A line for the log of a run, about a choice made while planning, or a flag that has no effect."""

    text: str
    is_warning: bool = False


class EnvPlan(NamedTuple):
    """Says how rollout workers make and step their envs.

    make_env: makes an env and its adapter. around: functions that are called in turn with each env that was
        made, and its EnvConfig; each returns the env to step instead, e.g. a wrapper.
    cfg: all flags as attributes, for a user's matchmaking.
    matchmaking: called with the MatchSetup of each env; returns its CheckedMatchmaking.
    scripts: policy id -> name of the env's scripted player that chooses the actions in place of a network.
        Empty in a training.
    seed: value of --seed, or a random number if it is not set.
    is_single: whether this is the only env, in the process of a command such as `enjoy`: the env is reset
        with `seed` itself, while several envs get different seeds; its exceptions propagate, and each of its
        steps is shown.
    mix_policies: value of --pbt_mix_policies_in_one_env. past_share: value of --selfplay_past_share.
    reward_scale, reward_clip, shared_reward: values of the flags, for the rewards that are stored, not for
        those that are reported. sharers: team of each agent of an env, for shared_reward; empty if that is 0.
    max_random_steps, max_random_seconds: limits of the random first steps of an env, and of all random steps
        of a worker.
    pause_seconds: longest pause of a worker after its first rollout.
    reports_infos: whether an observer reads the infos of episodes.
    reports_matches: whether the result of each match is sent (MatchEnded).
    teams: team of each agent of an env, for the results of matches; empty: all are opponents.
    first_worker, first_env_id: numbers of this machine's first worker and env in the run.
    kinds: kinds of agents in the trial before the run, which every env has to have; None: not checked.
    """

    make_env: Callable[[EnvConfig], MultiAgentEnv]
    cfg: argparse.Namespace
    matchmaking: Callable[[Any], Any]
    seed: int
    around: tuple[AroundEnv, ...] = ()
    scripts: Mapping[int, str] = {}
    is_single: bool = False
    mix_policies: bool = True
    past_share: float = 0.0
    reward_scale: float = 1.0
    reward_clip: float = 1000.0
    shared_reward: float = 0.0
    sharers: tuple[int, ...] = ()
    max_random_steps: int = 0
    max_random_seconds: float = 0.0
    pause_seconds: float = 0.0
    reports_infos: bool = False
    reports_matches: bool = False
    teams: tuple[int, ...] = ()
    first_worker: int = 0
    first_env_id: int = 0
    kinds: AgentKinds | None = None


class ActionChoice(NamedTuple):
    """Says how actions are chosen from the policy's distribution; in a training, all are drawn at random.

    deterministic: whether to take the most likely action instead. samples_continuous: whether continuous
        actions are drawn; otherwise their mean is taken, while discrete actions are still drawn.
    """

    deterministic: bool = False
    samples_continuous: bool = True


DRAWN = ActionChoice()


class ActingPlan(NamedTuple):
    """Says how policy workers answer requests.

    policies: policy id -> specification of the network.
    seed: value of --seed, or a random number if it is not set.
    choice: how actions are chosen from the networks' outputs.
    cuda_graphs: value of --cuda_graphs.
    experiment_dir: folder of the experiment, with the files of past selves.
    max_past_selves: maximum number of past selves that a policy worker keeps in memory.
    """

    policies: Mapping[int, PolicySpec]
    seed: int
    choice: ActionChoice = DRAWN
    cuda_graphs: bool = True
    experiment_dir: Path = Path()
    max_past_selves: int = 1


class SamplingPlan(NamedTuple):
    """Plan of all rollout and policy workers on one machine.

    info: spaces, agents and other properties of an env.
    topology: all counts of processes, envs, agents and buffers.
    state_size: number of floats in the recurrent state of an agent.
    flags: say how the processes are started; use the topology for counts, which may differ from the flags.
    niceness: niceness of all processes, to which the niceness of their role is added.
    silent_seconds: value of --heartbeat_reporting_interval.
    """

    envs: EnvPlan
    acting: ActingPlan
    info: EnvInfo
    topology: Topology
    state_size: int
    flags: SamplingFlags
    niceness: int = 0
    silent_seconds: float = 120.0

    @property
    def seed(self) -> int:
        """The value of --seed, or a random number if it is not set."""
        return self.envs.seed


class RunPlan(NamedTuple):
    """Holds every choice of a training, made in one pass by `launch.plan.plan_run`; nothing is looked up
    again later. For the main process only.

    config: the flags; defaults that depend on the observations are filled in, and --num_envs_per_worker is a
        number.
    family: makes the envs.
    algorithm: the factory that --algo names. The plan contains the factories of algorithm, networks and
        matchmaking because child processes, in which users' scripts do not run, know only built-in names.
    transfer_from: for each policy, the checkpoint that provides its first weights (--transfer_from), or None.
    observers: name -> Observer.
    writers: SummaryWriters in addition to those that write files, e.g. for W&B.
    notes: lines for the log of the run.
    evaluation: the MeasurementPlan of the evaluations during training (--eval_every_env_steps), or None.
    """

    config: Config
    family: EnvFamily
    sampling: SamplingPlan
    algorithm: Any
    transfer_from: tuple[Path | None, ...]
    observers: Mapping[str, Any] = {}
    writers: Sequence[Any] = ()
    notes: tuple[Note, ...] = ()
    evaluation: Any = None

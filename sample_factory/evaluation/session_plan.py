"""The plan of a session: who plays, in how many envs, and how actions are chosen."""

import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER
from sample_factory.config.sampling_flags import POLICY_WORKER_NICENESS
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.exchange.run_plan import ActingPlan, ActionChoice, AroundEnv, EnvPlan, SamplingPlan
from sample_factory.exchange.topology import Size, playing_topology
from sample_factory.launch.arrangement import USUAL_AGENTS, num_inline_samplers
from sample_factory.launch.checks import recurrent_state_size
from sample_factory.models.network_registry import users_parts
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.sampling.matchmaking.matchmaker import Seats
from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking

MakeEnv = Callable[[EnvConfig], MultiAgentEnv]


class SavedPolicy(NamedTuple):
    """Identifies a checkpoint. config: configuration of its experiment, which describes the network."""

    config: Config
    choice: PolicyChoice


class Cast(NamedTuple):
    """Says who plays which agent.
    players: by policy id, a checkpoint, or the name of a scripted player: one that the env has, or
        RANDOM_PLAYER.
    seats: the policy id of each agent. swaps: whether policies 0 and 1 swap their agents after each match.
    matchmaking: factory, as for `register_matchmaking`, of an object that chooses the players of each match;
        None: `seats` decides."""

    players: Sequence[SavedPolicy | str]
    seats: Sequence[int] = ()
    swaps: bool = False
    matchmaking: Callable[[Any], Any] | None = None

    @property
    def policies(self) -> dict[int, SavedPolicy]:
        """Policy id -> checkpoint, without scripted players."""
        return {
            policy_id: player for policy_id, player in enumerate(self.players) if not isinstance(player, str)
        }

    @property
    def scripts(self) -> dict[int, str]:
        """Policy id -> name, for the scripted players."""
        return {policy_id: player for policy_id, player in enumerate(self.players) if isinstance(player, str)}


ONE_ENV = Size(num_workers=1, num_envs=1)


def size_for(config: Config, info: EnvInfo, num_needed: int) -> Size:
    """Returns how many workers and envs play: as many as in the training, but no more envs than are needed.

    In an env with levels, the number of envs is a multiple of the number of levels, so that each env keeps
    one level and is never rebuilt for another. This rule does not apply to envs that can change their level
    if it would need more than --num_envs_per_worker envs in a worker.

    num_needed: number of episodes of each agent, or of matches; a multiple of the number of levels if all
        levels are played equally often.
    """
    flags = config.sampling
    num_workers = min(flags.num_workers, num_needed)
    usual = flags.num_envs_per_worker or max(1, USUAL_AGENTS // info.num_agents)
    num_envs = min(usual, -(-num_needed // num_workers))
    num_levels = max(1, len(info.levels))
    unit = num_levels // math.gcd(num_levels, num_workers)
    if num_levels > 1 and (unit <= usual or info.keeps_level):
        num_workers = max(1, min(num_workers, num_needed // unit))
        num_envs = max(1, min(usual, num_needed // num_workers) // unit) * unit
    num_splits = flags.worker_num_splits if num_envs % flags.worker_num_splits == 0 else 1
    if flags.serial_mode:
        return Size(1, num_envs * num_workers, num_splits)
    inline = flags.inline_samplers and min(flags.inline_samplers, num_workers)
    own_flags = replace(flags, num_workers=num_workers, num_policies=1, inline_samplers=inline)
    return Size(num_workers, num_envs, num_splits, num_inline_samplers(own_flags, config.run.device, False))


def plan_session(
    config: Config,
    make_env: MakeEnv,
    info: EnvInfo,
    cast: Cast,
    size: Size,
    num_episodes: int,
    state_size: int | None = None,
    around: Sequence[AroundEnv] = (),
    is_single: bool = False,
    reports_matches: bool = False,
) -> SamplingPlan:
    """Plans a session: which envs, checkpoints, workers and memory it needs.

    config: flags that say how processes are started and actions are chosen. make_env, info: the env.
    num_episodes: number of episodes of all agents together.
    state_size: floats in an agent's recurrent state; None: this function determines it from the networks.
    around: functions that wrap each env after it is made. is_single: whether there is only one env, in this
        process, whose exceptions propagate. reports_matches: whether to report matches instead of episodes.

    Raises ConfigError or Failure if a user's network cannot be made.
    """
    evaluation, sampling = config.evaluation, config.sampling
    config = prepared(config)
    seed = config.run.seed
    assert seed is not None
    saved = cast.policies
    policies = {policy_id: _spec(config, saved[policy_id], info, is_single) for policy_id in saved}
    if state_size is None:
        sizes = (_state_size(saved[policy_id], spec, is_single) for policy_id, spec in policies.items())
        state_size = max(sizes, default=0)
    matchmaking = cast.matchmaking or functools.partial(Seats, cast.seats, cast.swaps)
    envs = EnvPlan(
        make_env,
        config.namespace(),
        functools.partial(CheckedMatchmaking, "seats", matchmaking),
        seed,
        scripts=cast.scripts,
        reward_scale=config.learning.reward_scale,
        reward_clip=config.learning.reward_clip,
        around=tuple(around),
        is_single=is_single,
        reports_matches=reports_matches,
    )
    choice = ActionChoice(evaluation.eval_deterministic, evaluation.continuous_actions_sample)
    return SamplingPlan(
        envs=envs,
        acting=ActingPlan(policies, seed, choice, config.run.cuda_graphs),
        info=info,
        topology=playing_topology(info, config, len(cast.players), size, num_episodes),
        state_size=state_size,
        flags=sampling,
        # There is no learner that policy workers should leave the cores to.
        niceness=sampling.default_niceness - POLICY_WORKER_NICENESS,
        silent_seconds=config.monitoring.heartbeat_reporting_interval,
    )


def _spec(config: Config, saved: SavedPolicy, info: EnvInfo, is_single: bool) -> PolicySpec:
    """Returns the specification of a checkpoint's network, in the precision and on the device to play with.
    The precision is fp32, whatever the training used, unless --precision was typed and there are many envs.
    In serial mode the device is the CPU, which is faster for small batches, unless --device was typed."""
    kind = saved.choice.policy_index % len(info.kinds.spaces)
    spec = make_policy_spec(saved.config, *info.kinds.spaces[kind]).to_act()
    device = config.run.device if "device" in config.typed or not config.sampling.serial_mode else "cpu"
    precision = "fp32" if is_single else config.typed.get("precision", "fp32")
    return spec._replace(device=device, precision=precision)


def _state_size(saved: SavedPolicy, spec: PolicySpec, is_single: bool) -> int:
    if is_single and users_parts(saved.config.model):  # this process loads torch anyway
        return spec._replace(device="cpu").build().model.state_size
    return recurrent_state_size(saved.config, [spec])


def prepared(config: Config) -> Config:
    """Returns the configuration for playing: a missing --seed becomes a random number, and --device=gpu of
    the training becomes "auto", so that a machine without a GPU can play, unless --device was typed."""
    seed = random.SystemRandom().randrange(2**31) if config.run.seed is None else config.run.seed
    device = config.run.device
    if device == "gpu" and "device" not in config.typed:
        device = "auto"
    return replace(config, run=replace(config.run, seed=seed, device=device))


def plan_single(
    config: Config,
    env: "FirstEnv",
    info: EnvInfo,
    cast: Cast,
    around: Sequence[AroundEnv],
    num_episodes: int = NEVER,
) -> SamplingPlan:
    """Plans a session with one env in this process, which plays until it is stopped, or `num_episodes` have
    ended.
    around: functions that wrap the env.
    Raises ConfigError or Failure if a user's network cannot be made."""
    config = replace(config, sampling=replace(config.sampling, serial_mode=True))
    return plan_session(config, env, info, cast, ONE_ENV, num_episodes, around=around, is_single=True)


class FirstEnv:
    """Makes the envs of a session in this process. The constructor already makes the first env, so that its
    spaces can be read before the session starts.
    env: the newest env. A session closes the envs that it has played."""

    def __init__(self, make_env: MakeEnv):
        """Makes the first env by `make_env`, which is called again for each further env."""
        self._make_env = make_env
        self.env = make_env(EnvConfig(0, 0, 0, levels_in_turn=1))
        self._is_taken = False

    def __call__(self, env_config: EnvConfig) -> MultiAgentEnv:
        if self._is_taken:
            self.env = self._make_env(env_config)
        self._is_taken = True
        return self.env

    def close(self) -> None:
        """Closes the first env, unless a session has taken it."""
        if not self._is_taken:
            self.env.close()

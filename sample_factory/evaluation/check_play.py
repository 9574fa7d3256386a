"""Plays an env with random actions, made and adapted as a training would, and notes what it does."""

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.adapters.adapt import adapter_of
from sample_factory.envs.adapters.tensors import to_host
from sample_factory.envs.adapters.vector_env import VectorEnvAdapter, autoreset_mode
from sample_factory.envs.conventions import AUTO, convention_of
from sample_factory.envs.end_infos import OBJECTIVES, extra_stats
from sample_factory.envs.env_info import EnvInfo, env_info, own_spaces
from sample_factory.envs.env_trial import RandomStep, random_steps
from sample_factory.envs.protocol import COST, LEVEL, MultiAgentEnv, named_faults
from sample_factory.runtime.failures import Failure, one_line
from sample_factory.sampling.inference.number_reports import SpaceCheck
from sample_factory.spaces.actions import ACTION_MASK

STEPS = 400
REPEATED_STEPS = 100  # are played a second time, from the same seed
MAX_SECONDS = 10.0  # no further step after this


class Play:
    """Collects what the steps of an env have shown, up to the first exception, for a CheckReport.
    lines: title -> text of a line in the report. faults: cause -> text of one line.
    info: properties of the env; None if the env cannot be made."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self.info: EnvInfo | None = None


def play(env_name: str, make: Callable[[], MultiAgentEnv], cfg: Any, closes: bool = True) -> Play:
    """Makes an env, steps it with random actions, and repeats the first steps in a second env with the same
    seed. An env that ends its process ends the caller too, so run this in a child if the env is not trusted.
    make: returns the adapted env. cfg: all flags as attributes. closes: whether to close the env
        afterwards."""
    seen = Play()
    try:
        with _made(env_name, make, closes) as env:
            _describe(seen, env, env_name, cfg)
            first = _play_once(seen, env, env_name, cfg)
        with _made(env_name, make, closes) as env:
            again = [_checksums(step) for step in itertools.islice(random_steps(env, env_name), len(first))]
        differing = (i for i, (one, other) in enumerate(zip(first, again)) if one != other)
        step = next(differing, None)
        alike = f"{len(first) - 1} steps were the same in two envs with the same seed and actions"
        seen.lines["seeds"] = alike if step is None else f"do not repeat: step {step} differs"
    except (Failure, ConfigError) as error:
        seen.faults["raised"] = one_line(error)
    return seen


@contextlib.contextmanager
def _made(env_name: str, make: Callable[[], MultiAgentEnv], closes: bool) -> Iterator[MultiAgentEnv]:
    env = make()
    try:
        yield env
    finally:
        if closes:
            with named_faults(env_name, "close"):
                env.close()


def _describe(seen: Play, env: MultiAgentEnv, env_name: str, cfg: Any) -> None:
    """Adds report lines about what is known before the first step: adapter, conventions, agents, spaces."""
    with named_faults(env_name, "make"):
        info = seen.info = env_info(env, cfg)
        adapter, row = adapter_of(env), convention_of(env.env)
        both_ends = row.both_ends if cfg.env_both_ends == AUTO else cfg.env_both_ends
        has_mode = isinstance(adapter, VectorEnvAdapter)
        mode = f"; copies reset in {autoreset_mode(env.env).name}" if has_mode else ""
        package = f"of {row.package}" if row.package else "no row in envs/conventions.py"
        kinds = len(info.kinds.spaces)
        seen.lines |= {
            "recognised as": f"{adapter.recognised_as} ({type(env.env).__name__})",
            "conventions": f"{package}{mode}; both ends at once count as {both_ends}",
            "agents": f"{info.num_agents}{f' of {kinds} kinds' * (kinds > 1)}",
            "episodes": f"of at most {info.max_episode_steps or 'an unknown number of'} steps",
        }
        own = own_spaces(env)
        for kind in range(kinds):
            number = f" {kind}" * (kinds > 1)
            for name, space in own[info.kinds.of_agent.index(kind)]._asdict().items():
                seen.lines[f"{name}{number}"] = " ".join(str(space).split())


def _play_once(seen: Play, env: MultiAgentEnv, env_name: str, cfg: Any) -> list[tuple[int, int]]:
    """Steps the env with random actions, and adds report lines and faults about observations, ends, rewards,
    infos and speed. Returns `_checksums` of the reset and of the first REPEATED_STEPS steps."""
    watch, infos = _Watch(), dict[str, set[str]]()
    sums, rewards, allowed, seconds, ends = [], [], list[float](), list[float](), np.zeros(2, int)
    for number, step in enumerate(random_steps(env, env_name)):
        if number <= REPEATED_STEPS:
            sums.append(_checksums(step))
        result = step.result
        allowed += _look_at_observations(seen, env, step)
        rewards.append(np.asarray(result.rewards, float))
        ends += np.sum(result.terminated, dtype=int), np.sum(result.truncated, dtype=int)
        seconds.append(step.seconds)
        if result.costs is not None:
            infos.setdefault("cost", set()).add(COST)
        for info in result.end_infos.values():
            _look_at_info(seen, info, infos)
        if number == STEPS or sum(seconds) > MAX_SECONDS:
            break
        watch.follow(env.env, keeps_arrays=number < REPEATED_STEPS)
    assert seen.info is not None
    frames = len({*seen.info.copy_of_agent}) * seen.info.frameskip
    timed = seconds[REPEATED_STEPS + 1 :] or seconds[1:]
    all_rewards = np.concatenate(rewards)
    cut = np.mean(np.abs(all_rewards * cfg.reward_scale) > cfg.reward_clip)
    named = "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in infos.items())
    seen.lines |= {
        "ends": f"{ends[0]} terminated, {ends[1]} truncated in {number} steps; {watch.num_both} of them were "
        "reported as both at once",
        "rewards": f"{all_rewards.min():g} to {all_rewards.max():g} a step, {np.mean(all_rewards != 0):.0%} "
        f"not 0; times --reward_scale={cfg.reward_scale:g}, --reward_clip={cfg.reward_clip:g} cuts {cut:.0%}",
        "action masks": f"allow {np.mean(allowed):.0%} of the choices" if allowed else "none",
        "infos": named or ("nothing that is reported" if ends.any() else "no episode has ended"),
        "buffers": watch.describe(),
        "speed": f"{frames * len(timed) / sum(timed):,.0f} frames/s of this env alone",
    }
    return sums


def _checksums(step: RandomStep) -> tuple[int, int]:
    """Returns a CRC-32 of the observations and a CRC-32 of the rewards of a step."""
    rows = step.rows
    arrays = [array for own in rows.arrays_of_agent or [rows.arrays] for array in own.values()]
    rewards = np.asarray(step.result.rewards, float)
    return zlib.crc32(b"".join(array.tobytes() for array in arrays)), zlib.crc32(rewards.tobytes())


def _look_at_observations(seen: Play, env: MultiAgentEnv, step: RandomStep) -> list[float]:
    """Adds a fault if observations are outside of their space. Returns the share of the choices, 0..1, that
    the action masks allow: an entry for each kind of agents with a mask."""
    active = np.ones(env.num_agents, bool) if step.result.active is None else step.result.active
    shares = []
    for kind, spaces in enumerate(env.kinds.spaces):
        agents = np.flatnonzero((np.array(env.kinds.of_agent) == kind) & active)
        if not len(agents):
            continue
        obs = {key: array[agents, 0] for key, array in step.rows.arrays_of(agents[0]).items()}
        outside = SpaceCheck(spaces.observation).outside(obs)
        if outside is not None:
            seen.faults.setdefault("outside", f"an agent: {outside[1]}")
        if ACTION_MASK in obs:
            shares.append(float((obs[ACTION_MASK] != 0).mean()))
    return shares


def _look_at_info(seen: Play, info: Mapping[str, Any], infos: dict[str, set[str]]) -> None:
    """Collects which entries of an episode's last info are reported, and adds a fault for each entry that
    should be a number and is none.
    infos: "statistics", "objective" or "level" -> names of entries; extended in place."""
    numbers, left_out = extra_stats(info)
    objectives = {key for key in OBJECTIVES if key in info}
    for what, names in (
        ("statistics", {*numbers}),
        ("objective", objectives),
        ("level", {LEVEL} & info.keys()),
    ):
        if names:
            infos.setdefault(what, set()).update(names)
    for name, value in left_out.items():
        text = (
            f"{name} in the info of an episode's end is of type {type(value).__name__}, and is not reported"
        )
        seen.faults.setdefault(
            name, f"{text}; it should be {'a short text' if name == LEVEL else 'a number'}"
        )


class _Watch:
    """Wraps the `step` of a user's env, to see what an adapter would hide: arrays that the next step
    overwrites, and ends that are both terminated and truncated.
    num_both: number of ends that were reported as terminated and truncated at once."""

    def __init__(self) -> None:
        self.num_both = 0
        self._env: Any = None
        self._keeps_arrays = False
        self._last: tuple[Any, list[bytes]] | None = None  # observations and rewards, and their contents
        self._overwrites: bool | None = None  # None: it is not known

    def follow(self, env: Any, keeps_arrays: bool) -> None:
        """Replaces `env.step` by a function that also looks at the returned values; does nothing if the class
        has `__slots__`.
        keeps_arrays: whether to compare the arrays of each step with a copy of their contents after the
            next step, to see whether the env reuses them."""
        self._keeps_arrays = keeps_arrays
        if env is self._env:
            return
        self._env, step = env, env.step

        def watched(*args: Any) -> Any:
            returned = step(*args)
            if isinstance(returned, (tuple, list)) and len(returned) == 5:
                self._look(*returned[:4])
            return returned

        with contextlib.suppress(AttributeError):  # __slots__
            env.step = watched

    def _look(self, observations: Any, rewards: Any, terminated: Any, truncated: Any) -> None:
        if self._last is not None:
            arrays, contents = self._last
            self._overwrites = bool(self._overwrites) or _contents(arrays) != contents
        arrays = observations, rewards
        self._last = (arrays, _contents(arrays)) if self._keeps_arrays else None
        by_agent = isinstance(terminated, Mapping)
        are_terminated, are_truncated = (
            np.array([*end.values()] if by_agent else to_host(end), bool).ravel()
            for end in (terminated, truncated)
        )
        if len(are_terminated) == len(are_truncated):
            self.num_both += int((are_terminated & are_truncated).sum())

    def describe(self) -> str:
        """Returns a text that says whether a step of the env overwrites the arrays of the step before."""
        texts = {
            None: "not seen",
            True: "a step overwrites the arrays of the one before",
            False: "not reused",
        }
        return texts[self._overwrites]


def _contents(value: Any) -> list[bytes]:
    """Returns the bytes of an array, or of all arrays in nested mappings, tuples and lists."""
    value = to_host(value)
    if isinstance(value, np.ndarray):
        return [value.tobytes()]
    inner = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    )
    return [content for one in inner for content in _contents(one)]

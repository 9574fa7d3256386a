"""Advice on which flag makes a run faster."""

from collections.abc import Mapping
from typing import NamedTuple

from sample_factory.monitoring.bottleneck import PARTS, EnvCounts, better_num_envs, bottlenecks

SATURATED = 0.9  # of the cores' time
FAST_MICROSECONDS = 50.0  # per step: below that, messages and Python take longer than the env


class Situation(NamedTuple):
    """Flags of a run and properties of the machine on which the advice depends."""

    num_workers: int
    num_envs_per_worker: int
    policy_workers_per_policy: int
    inline_samplers: int
    batch_size: int
    ppo_epochs: int
    precision: str  # the flag
    resolution: tuple[int, int] | None  # width and height of images, if they are flags of the env
    on_gpu: bool  # learner and inference
    cores: int
    busy_cores: float | None
    envs: EnvCounts
    step_microseconds: float | None = None  # of one core, for one agent
    vector_env_copies: int | None = None  # None: the env has no such flag, or cannot be copied


def advice(waits: Mapping[str, float], situation: Situation) -> list[str]:
    """Returns a line for each part that limits the run, and one for the cores if all are busy.

    If there are so few envs per worker that other parts wait for their messages, that is the only one of
    these lines. The last line is about an env that takes microseconds for a step.

    waits: component -> share of its time, 0..1, in which it waits for others.
    """
    return [*_for_limits(waits, situation), *_for_fast_env(situation)]


def _for_fast_env(situation: Situation) -> list[str]:
    microseconds = situation.step_microseconds
    if microseconds is None or microseconds > FAST_MICROSECONDS or situation.vector_env_copies is None:
        return []
    found = []
    if situation.vector_env_copies == 1:
        found.append(
            "--vector_env_copies=20 --num_envs_per_worker=1 --worker_num_splits=1, to step them in one call"
        )
    if situation.inline_samplers == 0:
        found.append("--inline_samplers=1, a process that both simulates and infers")
    return [f"a step of the env takes {microseconds:.0f} us: try {'; '.join(found)}"] if found else []


def _for_limits(waits: Mapping[str, float], situation: Situation) -> list[str]:
    remedies = {"learner": _for_learner, "policy_worker": _for_inference, "rollout_worker": _for_simulation}
    limiting = bottlenecks(waits)
    num_envs = better_num_envs(waits, situation.envs)
    if num_envs is not None:
        return [
            f"few envs per worker: first try --num_envs_per_worker={num_envs} (now "
            f"{situation.num_envs_per_worker}): fewer messages and larger batches of inference"
        ]
    lines = []
    if 0 < len(limiting) < len(PARTS):
        for component in limiting:
            lines.append(f"{PARTS[component][0]}: try {'; '.join(remedies[component](situation))}")
    elif not _is_saturated(situation):
        more = _more("num_envs_per_worker", situation.num_envs_per_worker)
        lines.append(f"no part is the slowest: try {more}, which makes all parts wait less, or --sweep")
    if _is_saturated(situation):
        lines.append(
            f"cores: {situation.busy_cores:.1f} of {situation.cores} are busy all the time, so the parts "
            "slow each other down: more processes will not help, less work in any part will"
        )
    return lines


def _for_learner(situation: Situation) -> list[str]:
    found = []
    if not situation.on_gpu:
        found.append("a GPU (--device=gpu)")
    if situation.precision == "fp32":
        found.append("--precision=auto, which is bf16 where the hardware has it")
    if situation.ppo_epochs > 1:
        found.append(f"fewer --ppo_epochs (now {situation.ppo_epochs})")
    found.append(_more("batch_size", situation.batch_size))
    return found + _smaller_images(situation)


def _for_inference(situation: Situation) -> list[str]:
    found = [] if situation.on_gpu else ["a GPU (--device=gpu)"]
    found.append(f"{_more('num_envs_per_worker', situation.num_envs_per_worker)}, for larger batches")
    if not _is_saturated(situation):
        found.append(
            _more_samplers(situation, "policy_workers_per_policy", situation.policy_workers_per_policy)
        )
    return found + _smaller_images(situation)


def _for_simulation(situation: Situation) -> list[str]:
    if not _is_saturated(situation):
        return [_more_samplers(situation, "num_workers", situation.num_workers)]
    return ["a machine with more cores, or an env that takes less time for a step"]


def _smaller_images(situation: Situation) -> list[str]:
    if situation.resolution is None:
        return []
    width, height = situation.resolution
    return [f"smaller images, --res_w and --res_h (now {width}x{height})"]


def _more_samplers(situation: Situation, flag: str, now: int) -> str:
    """Returns the flag for more processes that simulate or infer; inline samplers do both."""
    if situation.inline_samplers == 0:
        return _more(flag, now)
    if situation.inline_samplers == situation.num_workers:
        return f"{_more('num_workers', situation.num_workers)} and as many --inline_samplers"
    return _more("inline_samplers", situation.inline_samplers)


def _more(flag: str, now: int) -> str:
    return f"a larger --{flag} (now {now:,})"


def _is_saturated(situation: Situation) -> bool:
    return situation.busy_cores is not None and situation.busy_cores >= SATURATED * situation.cores

"""Advice on which flag makes a run faster."""

from collections.abc import Mapping
from typing import Any

from sample_factory.monitoring.bottleneck import PARTS, better_num_envs, bottlenecks

SATURATED = 0.9  # of the cores' time
FAST_MICROSECONDS = 50.0  # per step: below that, messages and Python take longer than the env


def advice(
    waits: Mapping[str, float],
    flags: Mapping[str, Any],
    agents_per_env: int,
    on_gpu: bool,
    cores: int,
    busy_cores: float | None,
) -> list[str]:
    """Returns advice on which flags to change: a line for each component that limits the speed of the run,
    and a line about the cores if all are busy. If workers have too few envs, there is only a line about that.

    waits: component -> share of its time, 0..1, in which it waits for others. flags: flag -> value.
    on_gpu: whether learner and inference run on a GPU. cores: number of usable cores. busy_cores: mean number
        of cores that the run keeps busy; None if unknown.
    """
    num_splits = flags["worker_num_splits"]
    envs_per_split = flags["num_envs_per_worker"] // num_splits
    num_envs = better_num_envs(waits, num_splits, envs_per_split, agents_per_env)
    if num_envs is not None and flags["async_rl"]:
        return [
            f"few envs per worker: first try --num_envs_per_worker={num_envs} (now "
            f"{flags['num_envs_per_worker']}): fewer messages and larger batches of inference"
        ]
    is_saturated = busy_cores is not None and busy_cores >= SATURATED * cores
    limiting = bottlenecks(waits)
    lines = []
    if 0 < len(limiting) < len(PARTS):
        remedies = _remedies(flags, on_gpu, is_saturated)
        lines = [f"{PARTS[component][0]}: try {'; '.join(remedies[component])}" for component in limiting]
    elif not is_saturated:
        more = _more("num_envs_per_worker", flags)
        lines.append(f"no part is the slowest: try {more}, which makes all parts wait less")
    if is_saturated:
        lines.append(
            f"cores: {busy_cores:.1f} of {cores} are busy all the time, so the parts slow each other down: "
            "more processes will not help, less work in any part will"
        )
    return lines


def _remedies(flags: Mapping[str, Any], on_gpu: bool, is_saturated: bool) -> dict[str, list[str]]:
    """Returns component -> phrases that say what to try if this component limits the run's speed.
    flags: flag -> value. is_saturated: whether all cores are busy, so that more processes do not help."""
    gpu = [] if on_gpu else ["a GPU (--device=gpu)"]
    images = []
    if "res_w" in flags and "res_h" in flags:
        images = [f"smaller images, --res_w and --res_h (now {flags['res_w']}x{flags['res_h']})"]
    learner = [*gpu]
    if flags["precision"] == "fp32":
        learner.append("--precision=auto, which is bf16 where the hardware has it")
    if flags["ppo_epochs"] > 1:
        learner.append(f"fewer --ppo_epochs (now {flags['ppo_epochs']})")
    inference = [*gpu, f"{_more('num_envs_per_worker', flags)}, for larger batches"]
    simulation = ["a machine with more cores, or an env that takes less time for a step"]
    if not is_saturated:
        inference.append(_more_processes("policy_workers_per_policy", flags))
        simulation = [_more_processes("num_workers", flags)]
    return {
        "learner": [*learner, _more("batch_size", flags), *images],
        "policy_worker": [*inference, *images],
        "rollout_worker": simulation,
    }


def _more_processes(flag: str, flags: Mapping[str, Any]) -> str:
    """Returns a phrase that says how to get more processes of the kind that `flag` counts. With inline
    samplers, which both simulate and infer, the phrase names their flag instead."""
    if flags["serial_mode"]:
        return "--serial_mode=False: now all parts share one process"
    if flags["inline_samplers"] == 0:
        return _more(flag, flags)
    if flags["inline_samplers"] == flags["num_workers"]:
        return f"{_more('num_workers', flags)} and as many --inline_samplers"
    return _more("inline_samplers", flags)


def _more(flag: str, flags: Mapping[str, Any]) -> str:
    return f"a larger --{flag} (now {flags[flag]:,})"


def advice_for_fast_env(flags: Mapping[str, Any], step_microseconds: float) -> list[str]:
    """Returns a line of advice for an env so fast that messages and Python take longer; otherwise no line.
    flags: flag -> value in the run. step_microseconds: time that one core needs for a step of one agent."""
    is_fast = step_microseconds <= FAST_MICROSECONDS and (flags["env_frameskip"] or 1) == 1
    if not is_fast or "vector_env_copies" not in flags:  # the env cannot be copied
        return []
    found = []
    if flags["vector_env_copies"] == 1:
        found.append(
            "--vector_env_copies=20 --num_envs_per_worker=1 --worker_num_splits=1, to step them in one call"
        )
    if flags["inline_samplers"] == 0 and not flags["serial_mode"]:
        found.append("--inline_samplers=1, a process that both simulates and infers")
    return [f"a step of the env takes {step_microseconds:.0f} us: try {'; '.join(found)}"] if found else []

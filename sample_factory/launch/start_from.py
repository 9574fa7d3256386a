"""Finds the checkpoints that a run starts from: the experiment's, or those of --transfer_from."""

from dataclasses import replace
from pathlib import Path

from sample_factory.checkpoints.milestones import (
    PREFIXES,
    checkpoint_folder,
    env_frames_of,
    find_checkpoints,
    resumed_env_frames,
)
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import experiment_folder
from sample_factory.config.flags import ConfigError
from sample_factory.runtime.log import log

MAX_LISTED = 4  # checkpoints in a line


def _checkpoints(config: Config, kind: str) -> list[list[Path]]:
    """Returns each policy's checkpoints, sorted by version. kind: "latest" or "best"."""
    policies = range(config.sampling.num_policies)
    return [find_checkpoints(config.experiment_dir, policy_id, kind) for policy_id in policies]


def describe_last_checkpoints(config: Config) -> str:
    """Returns a sentence with the last checkpoint of each policy, for a run that ends without saving."""
    newest = [paths[-1] for paths in _checkpoints(config, "latest") if paths]
    if not newest:
        return "It did not save, and there is no checkpoint."
    listed = ", ".join(f"{path} ({env_frames_of(path):,} env frames)" for path in newest[:MAX_LISTED])
    more = ", ..." if len(newest) > MAX_LISTED else ""
    return f"It did not save; the last checkpoint is {listed}{more}"


def resumed_frames(config: Config) -> list[int]:
    """Returns the env frames of each policy that has a checkpoint to resume from."""
    kind = config.monitoring.load_checkpoint_kind
    policies = range(config.sampling.num_policies)
    frames = (resumed_env_frames(config.experiment_dir, policy_id, kind) for policy_id in policies)
    return [of_policy for of_policy in frames if of_policy is not None]


def why_done(config: Config) -> str | None:
    """Returns a sentence if earlier runs have trained all policies up to --train_for_env_steps, else None."""
    limit = config.monitoring.train_for_env_steps
    if config.resumed is None or config.sampling.sampler_only or config.sampling.benchmark:
        return None
    frames = resumed_frames(config)
    if len(frames) < config.sampling.num_policies or min(frames) < limit:
        return None
    least = min(frames)
    has = "has" if len(frames) == 1 else "has policies that each have at least"
    return (
        f"{config.run.experiment} {has} {least:,} env frames, and --train_for_env_steps={limit} is reached; "
        f"train for longer with --train_for_env_steps={2 * least}"
    )


def log_resumed(config: Config) -> None:
    """Logs the progress of a resumed experiment, the flags that have changed since, and a warning for each
    flag that has no effect on a resumed experiment."""
    if config.resumed is None:
        return
    name = config.run.experiment
    frames = sum(resumed_frames(config))
    changes = ", ".join(map(str, config.resumed.changed))
    log.info(
        "Resuming %s at %s env frames%s", name, f"{frames:,}", f"; changed: {changes}" if changes else ""
    )
    for flag, saved, given in config.resumed.ignored:
        log.warning(
            "%s = %s in --cfg=%s has no effect: %s was started with %s, which stays unless it is typed",
            flag,
            given,
            config.run.cfg,
            name,
            saved,
        )
    policies = range(config.sampling.num_policies)
    if "transfer_from" in config.typed and all(has_checkpoints(config, policy_id) for policy_id in policies):
        log.warning(
            "--transfer_from=%s has no effect: %s exists, and continues with its own weights",
            config.run.transfer_from,
            name,
        )


def has_checkpoints(config: Config, policy_id: int) -> bool:
    """Returns whether the run resumes a policy from the experiment's own checkpoints."""
    if config.run.restart_behavior != "resume":
        return False
    return any(find_checkpoints(config.experiment_dir, policy_id, kind) for kind in PREFIXES)


def transfer_files(config: Config) -> tuple[Path | None, ...]:
    """Returns for each policy the checkpoint of --transfer_from from which it gets its first weights. None
    without the flag, and for a policy that already has checkpoints in this experiment.

    Raises ConfigError if there is no checkpoint to transfer, or if it is in the folder that this run
    replaces.
    """
    policies = range(config.sampling.num_policies)
    name = config.run.transfer_from
    new = [policy_id for policy_id in policies if not has_checkpoints(config, policy_id)]
    if name is None or not new:
        return (None,) * len(policies)
    source = _find_source(config, name)
    folder, found = config.experiment_dir.resolve(), source.resolve()
    is_replaced = config.run.restart_behavior != "resume"  # the files in it are gone when training begins
    if found == folder or (is_replaced and folder in found.parents):
        raise ConfigError(f"--transfer_from={name} is of the experiment itself; choose another --experiment")
    return tuple(
        _transferred(config, source, policy_id) if policy_id in new else None for policy_id in policies
    )


def _transferred(config: Config, source: Path, policy_id: int) -> Path:
    """Returns the checkpoint to transfer to a policy: `source` if that is a file; otherwise, in the folder
    `source` of another experiment, the newest checkpoint of this policy, or of policy 0 if there is none.

    Raises ConfigError if the folder has no checkpoint of either policy.
    """
    if source.is_file():
        return source
    kind = config.monitoring.load_checkpoint_kind
    paths = find_checkpoints(source, policy_id, kind) or find_checkpoints(source, 0, kind)
    if not paths:
        folder = checkpoint_folder(source, 0)
        raise ConfigError(
            f"--transfer_from={config.run.transfer_from}: there is no {PREFIXES[kind]}_*.pth in {folder}"
        )
    return paths[-1]


def _find_source(config: Config, name: str) -> Path:
    """Returns the existing folder or file that --transfer_from names. Raises ConfigError if there is none."""
    run = config.run
    train_dir = experiment_folder(replace(run, experiments_root=None)).parent
    for path in (config.experiment_dir.parent / name, train_dir / name, Path(name).expanduser().absolute()):
        if name and path.exists():
            return path
    raise ConfigError(
        f"--transfer_from={name}: there is no experiment of this name in {train_dir}, and no such folder or "
        "file"
    )

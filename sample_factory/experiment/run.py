"""The running whole: allocates memory, starts workers, supervises, reports, stops."""

import errno
import logging
import os
import random
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sample_factory.config.config import RETIRED_FLAGS, Config, ConfigError
from sample_factory.envs.env_info import EnvInfo, probe_env_info
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.channels import NO_ENV, Channels, make_progress
from sample_factory.exchange.kind_storage import kind_layouts
from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.topology import Topology, make_topology
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.experiment import wiring as blueprint
from sample_factory.experiment.main_loop import Reporting
from sample_factory.experiment.wiring import Parts, Recipe
from sample_factory.learning.algorithm_registry import registered_algorithm
from sample_factory.models.encoder_registry import check_encoder_name, why_no_encoder
from sample_factory.models.policy_spec import state_size
from sample_factory.runtime import cpu
from sample_factory.runtime.child import Child, ChildFailed, call_in_child
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.folder_lock import NAME as LOCK_NAME
from sample_factory.runtime.folder_lock import FolderInUse, FolderLock
from sample_factory.runtime.gpu import why_no_gpu
from sample_factory.runtime.log import setup_logging
from sample_factory.runtime.queues import LocalQueue, Queue, check_transport, make_queue
from sample_factory.runtime.supervisor import Limits, StopSignals, Supervisor
from sample_factory.spaces.actions import action_layout

log = logging.getLogger("sample_factory")

STOP_GRACE_SECONDS = 8.0
POLL_SECONDS = 0.1
# Exceptions of child processes, by name because this process does not load torch.
CHECKPOINT_ERROR = "sample_factory.checkpoints.store.CheckpointError"
OUT_OF_GPU_MEMORY = "torch.OutOfMemoryError"


def run_experiment(config: Config, family: EnvFamily) -> int:
    """Trains until done, stopped or failed. Returns the exit code; raises ConfigError for what does not fit.

    Nothing of an existing experiment is touched before everything that can be checked has been.
    """
    setup_logging("main")
    cpu.raise_open_files_limit()  # every queue and every child costs descriptors
    for name in set(config.typed) & set(RETIRED_FLAGS):
        log.warning("--%s changes nothing: %s", name, RETIRED_FLAGS[name])
    with StopSignals() as signals:
        try:
            _check_algorithm(config)
            _check_encoder(config)
            _check_device(config)
            check_transport(config.sampling.queue)
            info = _probe(config, family)
            _check_observations(config, info)
            _check_actions(config, info)
            _check_population(config, info)
            _check_selfplay(config, info)
            topology = make_topology(config, info)
            lock = prepare_folder(config)
            parts = allocate(config, family, info, topology, lock)
            run = run_serially if config.sampling.serial_mode else run_in_processes
            return run(parts, signals)
        except ChildFailed as failure:
            log_failure(failure)
            return 1


def log_failure(failure: ChildFailed) -> None:
    """The line that a user looks for, and what can be done where we know it."""
    # The message of a CheckpointError is for the user, who has no use for the place where it was raised.
    reason = failure.message if failure.is_a(CHECKPOINT_ERROR) else failure.reason
    log.error("%s failed: %s", failure.name, reason)
    if failure.caused_by(OUT_OF_GPU_MEMORY):
        log.error(
            "The GPU's memory is used up. Learners take most of it: lower --batch_size. Every policy worker "
            "has a model of its own: lower --policy_workers_per_policy. nvidia-smi shows who else uses it"
        )


def _check_algorithm(config: Config) -> None:
    try:
        registered_algorithm(config.run.algo)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_device(config: Config) -> None:
    why = call_in_child("gpu_probe", why_no_gpu) if config.run.device == "gpu" else None
    if why is not None:
        raise ConfigError(f"--device=gpu, but {why}. Use --device=cpu or auto")


def _check_encoder(config: Config) -> None:
    try:
        check_encoder_name(config.model.encoder_custom)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    name = config.model.encoder_custom
    if name is not None and ":" in name:  # of a module that may well load torch
        why = call_in_child("encoder_probe", why_no_encoder, (name,))
        if why is not None:
            raise ConfigError(f"--encoder_custom={name}: {why}")


def _probe(config: Config, family: EnvFamily) -> EnvInfo:
    try:
        return probe_env_info(family, config.namespace())
    except ChildFailed as failure:
        if failure.is_a(ConfigError):
            raise ConfigError(failure.message) from None
        raise


def _check_observations(config: Config, info: EnvInfo) -> None:
    keys = dict.fromkeys(key for spaces in info.kinds.spaces for key in spaces.observation.spaces)
    unknown = [key for key in config.model.normalize_input_keys if key not in keys]
    if unknown:
        raise ConfigError(
            f"--normalize_input_keys: the env has no observation {', '.join(unknown)}, but {', '.join(keys)}"
        )


def _check_actions(config: Config, info: EnvInfo) -> None:
    has_box = any(action_layout(spaces.action).box_actions for spaces in info.kinds.spaces)
    if (
        has_box
        and config.learning.exploration_loss == "symmetric_kl"
        and config.learning.exploration_loss_coeff
    ):
        raise ConfigError(
            "--exploration_loss=symmetric_kl needs discrete actions, and this env has continuous ones: there "
            "is no uniform distribution over all numbers; use --exploration_loss=entropy"
        )


def _check_population(config: Config, info: EnvInfo) -> None:
    if config.population.with_pbt and len(info.kinds.spaces) > 1:
        raise ConfigError(
            "--with_pbt=True copies weights between policies, and the policies of this env have different "
            "spaces, since its agents have; use --with_pbt=False"
        )


def _check_selfplay(config: Config, info: EnvInfo) -> None:
    share = config.selfplay.selfplay_past_share
    if share > 0 and info.num_agents < 2:
        raise ConfigError(
            f"--selfplay_past_share={share} needs an env of several agents, and {config.run.env} has one: "
            "there is nobody to play against"
        )


def prepare_folder(config: Config) -> FolderLock:
    """The experiment folder, as --restart_behavior says, locked, and its log. Raises ConfigError."""
    folder, behavior = config.experiment_dir, config.run.restart_behavior
    try:
        contents = {path.name for path in folder.iterdir()} - {LOCK_NAME} if folder.exists() else set()
        if behavior == "overwrite" and contents and not contents & {"cfg.json", "config.json", "sf_log.txt"}:
            raise ConfigError(f"{folder} is no experiment (it has no cfg.json), and is not overwritten")
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        if contents and behavior != "resume":
            lock = _make_room(folder, behavior, lock)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied")
    except FolderInUse as error:
        raise ConfigError(f"{error}; stop that run, or choose another --experiment") from None
    except OSError as error:
        raise ConfigError(f"cannot write to the experiment folder {folder}: {error.strerror}") from None
    setup_logging("main", str(folder / "sf_log.txt") if config.monitoring.log_to_file else None)
    log.info("Experiment folder: %s", folder)
    return lock


def _make_room(folder: Path, behavior: str, lock: FolderLock) -> FolderLock:
    """Deletes a locked experiment, or moves it aside; returns the lock of the empty folder in its place."""
    if behavior == "overwrite":
        shutil.rmtree(folder)
    else:
        folder.rename(_unused_name(folder))
    lock.release()
    folder.mkdir()
    return FolderLock(folder)


def _unused_name(folder: Path) -> Path:
    number = 0
    while (candidate := folder.with_name(f"{folder.name}_old{number:04d}")).exists():
        number += 1
    return candidate


def allocate(
    config: Config, family: EnvFamily, info: EnvInfo, topology: Topology, lock: FolderLock | None = None
) -> Parts:
    """Shared memory and queues, sized by Topology."""
    buffers = TrajectoryBuffers(topology, kind_layouts(info.kinds), state_size(config.model))

    def queues(count: int) -> list[Queue]:
        if config.sampling.serial_mode:
            return [LocalQueue(waits=False) for _ in range(count)]
        return [make_queue(config.sampling.queue) for _ in range(count)]

    num_inline = _num_inline(config)  # they have queues of their own for these
    channels = Channels(
        inboxes=queues(0 if num_inline else topology.num_workers),
        requests=queues(0 if num_inline else topology.num_policies),
        learners=queues(topology.num_policies),
        reports=queues(1)[0],
        weights=[PolicyWeights() for _ in range(topology.num_policies)],
        progress=make_progress(topology),
    )
    seed = config.run.seed if config.run.seed is not None else random.SystemRandom().randrange(2**31)
    log.info(
        "%d workers x %d envs x %d agents; %d trajectory buffers of %d steps, %.0f MB shared; seed %d",
        topology.num_workers,
        topology.envs_per_split * topology.num_splits,
        topology.agents_per_env,
        topology.num_buffers,
        topology.rollout,
        buffers.nbytes / 2**20,
        seed,
    )
    population = blueprint.make_population(config, info, seed)
    league = blueprint.make_league(config)
    return Parts(config, family, info, buffers, channels, seed, lock, population, league)


def _recipes(parts: Parts) -> tuple[list[Recipe], list[Recipe], list[Recipe]]:
    """(learners, policy workers or --inline_samplers, rollout workers)."""
    topology, num_inline = parts.buffers.topology, _num_inline(parts.config)
    policies = range(topology.num_policies)
    learners = [blueprint.learner_recipe(parts, policy) for policy in policies]
    if num_inline:
        return learners, [blueprint.inline_sampler_recipe(parts, index) for index in range(num_inline)], []
    return (
        learners,
        [
            blueprint.policy_worker_recipe(parts, policy, index)
            for policy in policies
            for index in range(topology.policy_workers_per_policy)
        ],
        [blueprint.rollout_worker_recipe(parts, index) for index in range(topology.num_workers)],
    )


def _num_inline(config: Config) -> int:
    """Processes that are rollout and policy workers at once; in serial mode all is in one anyway."""
    return 0 if config.sampling.serial_mode else config.sampling.inline_samplers


def run_in_processes(parts: Parts, signals: StopSignals) -> int:
    """The usual way: one process per worker. Returns the exit code."""
    learners, policy_workers, rollout_workers = (
        [Child(*recipe) for recipe in recipes] for recipes in _recipes(parts)
    )
    config, reporting = parts.config, Reporting(parts)
    monitor = reporting.monitor
    failure: ChildFailed | None = None
    children = [*learners, *policy_workers, *rollout_workers]
    limits = Limits(start_seconds=config.sampling.reset_timeout_seconds)
    limits = limits._replace(silent_seconds=config.monitoring.heartbeat_reporting_interval)
    with Supervisor(children, rollout_workers, limits) as supervisor:
        try:
            supervisor.start_all()
            supervisor.wait_ready(limits.start_seconds, signals, lambda: reporting.take_in(0.0))
            if not signals.requested:
                config.save()  # now that it is known to work
            while not monitor.is_done and not signals.requested:
                reporting.turn(POLL_SECONDS)
                for dead in supervisor.check():
                    _replace(dead, parts, supervisor, reporting)
        except ChildFailed as error:
            failure = error
        if signals.requested:
            name = signal.Signals(signals.requested).name
            log.info("%s: saving and stopping; a second one would end everything at once", name)
        monitor.stopping()
        stopped = supervisor.stop_all([rollout_workers, policy_workers], STOP_GRACE_SECONDS)
        # Learners last and with more time: they finish an iteration and save what has been learned.
        learners_stopped = supervisor.stop_all([learners], blueprint.LEARNER_GRACE_SECONDS)
    reporting.close()
    for line in monitor.summary():
        log.info(line)
    failures = [failure] if failure else [*stopped.failed, *learners_stopped.failed]
    failures += [ChildFailed(name, "did not save in time and was killed") for name in learners_stopped.killed]
    for error in failures:
        log_failure(error)
    return 1 if failures else 0


def _replace(dead: Child, parts: Parts, supervisor: Supervisor, reporting: Reporting) -> None:
    """A rollout worker has died: its buffers come back, a new one takes its place."""
    index = int(dead.name.rpartition("_")[2])
    env = int(parts.channels.progress["stepping"][index])
    where = f" while its env {env} was stepped" if env != NO_ENV else ""
    reporting.take_in(0.0)  # what it had to say comes first
    count = parts.buffers.reclaim(index)
    reporting.worker_replaced(index, f"{dead.name} died{where} and is replaced: {dead.failure}")
    supervisor.restart(dead)
    log.info("%d buffers of %s came back", count, dead.name)


def run_serially(parts: Parts, signals: StopSignals) -> int:
    """--serial_mode: the same objects in this process, one after another. Returns the exit code."""
    context = ChildContext("serial")
    learners, policy_workers, rollout_workers = (
        [recipe.factory(*recipe.args, context) for recipe in recipes] for recipes in _recipes(parts)
    )
    parts.config.save()
    reporting = Reporting(parts)
    monitor = reporting.monitor
    try:
        while not monitor.is_done and not signals.requested:
            _take_turns([*rollout_workers, *policy_workers, *learners])
            for learner in learners:
                learner.train_once(timeout=0.0)
            reporting.turn(0.0)
    finally:
        for worker in rollout_workers:
            worker.close()
        for learner in learners:
            learner.save()
        reporting.close()
    for line in monitor.summary():
        log.info(line)
    return 0


def _take_turns(workers: Sequence[Any]) -> None:
    for worker in workers:
        worker.step(timeout=0.0)

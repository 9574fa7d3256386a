"""A training from start to end: its plan, then its processes and its result. For Python: `run`."""

import logging
import signal
from collections.abc import Callable
from typing import Any

from sample_factory.config.config import Config
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.evaluation.during_training import Evaluations
from sample_factory.evaluation.measurement import plan_evaluation
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.launch.exit_codes import log_failures
from sample_factory.launch.folder import prepare_folder, refuse_folder_in_use
from sample_factory.launch.objects_of_call import keep_objects, with_names
from sample_factory.launch.plan import plan_run
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate_training
from sample_factory.launch.serial import SerialRun
from sample_factory.launch.shared_imports import shared_imports
from sample_factory.launch.start_from import describe_last_checkpoints, log_resumed, resumed_frames, why_done
from sample_factory.launch.workers import training_specs
from sample_factory.mainloop.main_loop import MainLoop, Resources
from sample_factory.mainloop.run_result import (
    DONE,
    FAILED,
    STOPPED,
    RunResult,
    TrainingFailed,
    result_of,
    write_result,
)
from sample_factory.monitoring.wandb_writer import start_wandb
from sample_factory.runtime import cpu
from sample_factory.runtime.failures import Failure, collected
from sample_factory.runtime.local_ray import find_cluster
from sample_factory.runtime.log import log, restored_logging, setup_logging
from sample_factory.runtime.supervisor import StopRequested, StopSignals

INGEST = "sample_factory.cluster.ingest:Ingest"  # a name, because it imports Ray


def run(
    env: str | Callable[..., Any] | None = None, experiment: str | None = None, **flags: Any
) -> RunResult:
    """Trains agents, and returns when the run is done or stopped; the same call resumes it.

    For example:

        result = sample_factory.run("CartPole-v1", "cartpole", train_for_env_steps=200_000)
        print(result.status, result.reward)
        sample_factory.run(MyEnv, "mine", num_workers=2, encoder_custom=MyEncoder)

    Args:
        env: A class of envs, a function that returns an env, an id of Gymnasium, or the full name of an env.
            It may be left out to resume an experiment. See `register_env` for their parameters.
        experiment: Name of the run and of its folder in `train_dir`.
        flags: Any flag of `python -m sample_factory.train --help=all`, or of the env's family. The values are
            ints, floats, bools and texts; lists or tuples for flags with several values; dicts for flags with
            JSON, such as `env_kwargs`. None is the same as leaving an optional flag out. A flag that names
            code takes the code itself too: `encoder_custom=MyEncoder`, `observers=[MyObserver()]`.

    Returns:
        A RunResult, with status, reason, experiment_dir, env_frames, fps, seconds, reward and policies.

    Raises:
        ConfigError: A keyword or value is wrong; nothing was created. It is a ValueError.
        ImportError: The package of the env is not installed.
        TrainingFailed: The run failed; its `result` has what was reached. With `serial_mode=True`, an
            exception of an env or a network propagates as it is.

    Envs, encoders and algorithms that were registered before, in a script or a notebook too, reach the worker
    processes, and so do the ones that are passed here. Later calls in the same program find them again for
    this experiment, and by their names, such as "MyEnv", for other experiments.

    Ctrl+C, or the button of a notebook that interrupts, saves and stops; then `status` of the result is
    "stopped". A second one, more than a second later, raises KeyboardInterrupt without saving. While `run`
    runs in the main thread, it handles SIGINT, SIGTERM and SIGHUP. Runs at the same time need a process each.
    """
    named = {"env": env, "experiment": experiment}
    keywords = {**{name: value for name, value in named.items() if value is not None}, **flags}
    resolve = resolve_family if "env" in keywords else resolve_trained_family
    with restored_logging():
        setup_logging("main")
        config = parse_config([], resolve, keywords=with_names(keywords, trains=True))
        keep_objects(config.experiment_dir, keywords)
        with shared_imports(config):
            result = train_config(config, keeps_process=True)
    if result.status == FAILED:
        raise TrainingFailed(result)
    return result


def train_config(config: Config, keeps_process: bool = False) -> RunResult:
    """Trains until the run is done, is stopped by a signal, or has failed; returns the result, and writes it
    to the experiment folder.

    keeps_process: whether a second Ctrl+C raises KeyboardInterrupt instead of ending this process.

    Raises ConfigError if flags, W&B or the experiment folder make a run impossible, ImportError if a package
    that the env or a flag needs is missing, CommandFailed if the Ray cluster cannot be reached; all of these
    before any file of an existing experiment is touched. In serial mode, exceptions of workers propagate.
    """
    with StopSignals(lambda: describe_last_checkpoints(config), keeps_process) as signals:
        planned = _plan(config, signals)
        if isinstance(planned, RunResult):
            result = planned
        else:
            has_failed = True
            try:
                result = _train(planned, signals)
                has_failed = result.status == FAILED
            finally:
                for writer in planned.writers:
                    writer.close(has_failed)
    if not result.env_frames and config.resumed is not None:  # it has ended before a learner reported them
        result = result._replace(env_frames=sum(resumed_frames(config)))
    write_result(result)
    return result


def _plan(config: Config, signals: StopSignals) -> RunPlan | RunResult:
    """Plans a training. Returns a result instead of a plan if nothing will be trained: if the run is already
    complete, if a signal has stopped it, or if the env or a network cannot be made."""
    setup_logging("main")
    cpu.raise_open_files_limit()  # every queue and every child needs file descriptors
    try:
        with signals.interrupting():
            done = why_done(config)
            if done is not None:
                log.info(done)
                return RunResult(DONE, done, config.experiment_dir, sum(resumed_frames(config)))
            log.info("Checking %s ...", config.env_name, extra={"on_terminals": True})
            plan = plan_run(config, resolve_family(config.env_name))
            evaluation = plan_evaluation(plan)
            if config.monitoring.with_wandb:
                refuse_folder_in_use(config)  # before the run of W&B is resumed, which is another process's
            started, wandb_writer = start_wandb(plan.config)
            writers = [] if wandb_writer is None else [wandb_writer]
            return plan._replace(config=started, evaluation=evaluation, writers=writers)
    except StopRequested:
        log.info("Stopped before the training began")
        return RunResult(STOPPED, _why_stopped(signals), config.experiment_dir)
    except Failure as failure:
        log_failures([failure])
        return RunResult(FAILED, str(failure), config.experiment_dir)


def _train(plan: RunPlan, signals: StopSignals) -> RunResult:
    """Runs a planned training in the experiment folder; logs and returns the result. Removes the folder if it
    is new and the run fails or is stopped before it has learned anything."""
    config = plan.config
    folder = prepare_folder(config)
    resources: Resources | None = None
    failures: list[Failure] | None = None  # None: an exception propagates
    is_complete = False
    try:
        _log_plan(plan)
        resources = allocate_training(plan)._replace(lock=folder.lock)
        run = _make_run(plan, resources)
        loop = MainLoop(plan, resources, Evaluations)
        failures = run.run(loop, signals)
        is_complete = loop.is_done and not signals.requested
        if is_complete and not failures:
            with collected(failures):
                loop.check_result(run.stuck)
        loop.log_summary(has_failed=bool(failures))
    finally:
        has_results = resources is not None and _has_results(plan, resources)
        stays = is_complete or not folder.created or has_results
        folder.leave(stays)
    if signals.requested and not stays:
        log.info("Stopped before anything was learned: the folder of the run is removed")
    log_failures(failures, has_log_file=stays and config.monitoring.log_to_file)
    status, reason = STOPPED, _why_stopped(signals)
    if failures:
        status, reason = FAILED, str(failures[0])
    elif is_complete:
        status, reason = DONE, loop.stop_reason
    return result_of(status, reason, folder.path, loop.summary())


def _make_run(plan: RunPlan, resources: Resources) -> SerialRun | ProcessRun:
    learners = training_specs(plan, resources, INGEST)
    if plan.config.sampling.serial_mode:
        return SerialRun(plan.sampling, resources, learners)
    ray = find_cluster(plan.config.cluster.ray_address)
    return ProcessRun(plan.sampling, resources, learners, ray)


def _log_plan(plan: RunPlan) -> None:
    """Logs from which checkpoints the run resumes, and the notes of the plan: choices and warnings."""
    log_resumed(plan.config)
    for note in plan.notes:
        log.log(logging.WARNING if note.is_warning else logging.INFO, "%s", note.text)


def _why_stopped(signals: StopSignals) -> str:
    """Returns which signal has stopped the run, e.g. "SIGINT received"; empty if there was no signal."""
    return "" if signals.requested is None else f"{signal.Signals(signals.requested).name} received"


def _has_results(plan: RunPlan, resources: Resources) -> bool:
    """Returns whether this run has learned something, or has sampled with --sampler_only: then its folder
    is kept."""
    config = plan.config
    has_sampled = config.sampling.sampler_only and (config.experiment_dir / "cfg.json").exists()
    return has_sampled or bool(resources.channels.progress["iterations"].any())

"""Runs one experiment from start to end."""

import logging
import signal
from typing import NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_expectation
from sample_factory.config.sections import RETIRED_FLAGS
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.launch.exit_codes import describe, log_failures
from sample_factory.launch.folder import prepare_folder
from sample_factory.launch.plan import PlanEvaluation, plan_run
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate
from sample_factory.launch.serial import SerialRun
from sample_factory.launch.start_from import (
    describe_last_checkpoints,
    log_resumed,
    trained_frames,
    why_done,
)
from sample_factory.mainloop.main_loop import MainLoop, MakeSubscriber, Resources
from sample_factory.mainloop.run_result import DONE, FAILED, STOPPED, RunResult, result_of, write_result
from sample_factory.monitoring.status_line import MAX_WIDTH
from sample_factory.monitoring.wandb_writer import WandbWriter, start_wandb
from sample_factory.runtime import cpu
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.log import setup_logging
from sample_factory.runtime.supervisor import StopRequested, StopSignals

log = logging.getLogger("sample_factory")


class HigherParts(NamedTuple):
    """The parts of a training that lie above this package; the command that starts it hands them in.

    plan_evaluation, make_evaluations: plan the evaluations during training, and make their subscriber.
    ingest: "module:attribute" of the process that stores the trajectories of other machines.
    """

    plan_evaluation: PlanEvaluation
    make_evaluations: MakeSubscriber
    ingest: str


def train_experiment(
    config: Config, family: EnvFamily, higher: HigherParts, keeps_process: bool = False
) -> RunResult:
    """Trains until the run is done, is stopped by a signal, or has failed; logs and returns the result.

    Writes the result to the experiment folder. The files of an existing experiment are not touched before all
    checks have passed. Raises ConfigError if the flags do not fit together, the env or the machine, or if the
    experiment folder cannot be used. In serial mode, an exception of a worker propagates.

    keeps_process: a second Ctrl+C raises KeyboardInterrupt instead of ending this process.
    """
    setup_logging("main")
    cpu.raise_open_files_limit()  # every queue and every child needs file descriptors
    for name in set(config.typed) & set(RETIRED_FLAGS):
        log.warning("--%s has no effect: %s", name, RETIRED_FLAGS[name])
    with StopSignals(lambda: describe_last_checkpoints(config), keeps_process) as signals:
        try:
            with signals.interrupting():
                done = why_done(config)
                if done is None:
                    log.info("Checking %s ...", config.env_name, extra={"only_on_terminals": True})
                    plan = plan_run(config, family, plan_evaluation=higher.plan_evaluation)
                    started, wandb_writer = start_wandb(plan.config)
                    plan = plan._replace(config=started)
        except StopRequested:
            log.info("Stopped before the training began")
            result = RunResult(STOPPED, _why_stopped(signals), config.experiment_dir)
        except ChildFailed as failure:
            log_failures([failure], config.env_name, has_log_file=False)
            result = RunResult(FAILED, describe(failure, config.env_name), config.experiment_dir)
        else:
            if done is None:
                result = _run_planned(plan, higher, wandb_writer, signals)
            else:
                log.info(done)
                result = RunResult(DONE, done, config.experiment_dir, trained_frames(config))
    write_result(result)
    return result


def _run_planned(
    plan: RunPlan, higher: HigherParts, wandb_writer: WandbWriter | None, signals: StopSignals
) -> RunResult:
    """Trains in the experiment folder. A run that fails or is stopped before anything was learned leaves no
    folder."""
    config = plan.config
    folder = prepare_folder(config)
    resources: Resources | None = None
    failures: list[ChildFailed] | None = None
    try:
        _log_plan(plan)
        writers = [] if wandb_writer is None else [wandb_writer]
        resources = allocate(plan)._replace(lock=folder.lock, writers=writers)
        make_run = SerialRun if config.sampling.serial_mode else ProcessRun
        run = make_run(plan, resources, higher.ingest)
        further = [] if plan.evaluation is None else [higher.make_evaluations]
        loop = MainLoop(plan, resources, run.processes, further)
        failures = run.run(loop, signals)
    finally:
        folder.lock.release()  # so that this process, or another, can resume the experiment
        is_done = failures == [] and not signals.requested
        stays = is_done or not folder.created or (resources is not None and _has_results(plan, resources))
        if not stays:
            setup_logging("main")  # closes the log file
            folder.remove()
        if wandb_writer is not None:
            wandb_writer.close(has_failed=failures != [])
    if signals.requested and not stays:
        log.info("Stopped before anything was learned: the folder of the run is removed")
    log_failures(failures, config.env_name, has_log_file=stays and config.monitoring.log_to_file)
    if failures:
        return result_of(FAILED, describe(failures[0], config.env_name), folder.path, loop.summary())
    if is_done:
        return result_of(DONE, loop.stop_reason, folder.path, loop.summary())
    return result_of(STOPPED, _why_stopped(signals), folder.path, loop.summary())


def _log_plan(plan: RunPlan) -> None:
    """Logs what a start resumes, what was chosen, and which flags have no effect."""
    log_resumed(plan.config)
    for note in plan.notes:
        short = note.text if note.short is None else note.short
        log.log(logging.WARNING if note.is_warning else logging.INFO, "%s", note.text, extra={"short": short})
    config = plan.config
    expectation = read_expectation(config.run.cfg) if config.run.cfg and not config.is_foreign else None
    if expectation is not None:
        text = f"Expect {expectation}"
        short = text if len(text) <= MAX_WIDTH else text.replace("; ", "\n")
        log.info("%s", text, extra={"short": short})


def _why_stopped(signals: StopSignals) -> str:
    """Returns which signal has stopped the run, e.g. "SIGINT received"."""
    return "" if signals.requested is None else f"{signal.Signals(signals.requested).name} received"


def _has_results(plan: RunPlan, resources: Resources) -> bool:
    """Returns whether this run has learned something, or has sampled with --sampler_only."""
    config = plan.config
    has_sampled = config.sampling.sampler_only and (config.experiment_dir / "cfg.json").exists()
    return has_sampled or bool(resources.channels.progress["iterations"].any())

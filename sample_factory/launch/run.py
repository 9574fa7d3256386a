"""A training from start to end: its plan, then its processes and its result."""

import logging
import signal

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
from sample_factory.launch.start_from import log_resumed, resumed_frames, why_done
from sample_factory.mainloop.main_loop import MainLoop, MakeSubscriber, Resources
from sample_factory.mainloop.run_result import DONE, FAILED, STOPPED, RunResult, result_of
from sample_factory.monitoring.status_line import MAX_WIDTH
from sample_factory.monitoring.wandb_writer import start_wandb
from sample_factory.runtime import cpu
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.log import setup_logging
from sample_factory.runtime.supervisor import StopRequested, StopSignals

log = logging.getLogger("sample_factory")


def plan_training(
    config: Config, family: EnvFamily, plan_evaluation: PlanEvaluation, signals: StopSignals
) -> RunPlan | RunResult:
    """Returns the plan of a training, or its result if it ends here: there is nothing left to train, a signal
    has stopped it, or the env or a network cannot be made.

    Touches no file of an existing experiment. Raises as `plan_run`, and ConfigError if W&B refuses the run.
    """
    setup_logging("main")
    cpu.raise_open_files_limit()  # every queue and every child needs file descriptors
    for name in set(config.typed) & set(RETIRED_FLAGS):
        log.warning("--%s has no effect: %s", name, RETIRED_FLAGS[name])
    try:
        with signals.interrupting():
            done = why_done(config)
            if done is not None:
                log.info(done)
                return RunResult(DONE, done, config.experiment_dir, sum(resumed_frames(config)))
            log.info("Checking %s ...", config.env_name, extra={"only_on_terminals": True})
            plan = plan_run(config, family, plan_evaluation=plan_evaluation)
            started, wandb_writer = start_wandb(plan.config)
            return plan._replace(config=started, writers=[] if wandb_writer is None else [wandb_writer])
    except StopRequested:
        log.info("Stopped before the training began")
        return RunResult(STOPPED, _why_stopped(signals), config.experiment_dir)
    except ChildFailed as failure:
        log_failures([failure], config.env_name)
        return RunResult(FAILED, describe(failure, config.env_name), config.experiment_dir)


def run_training(
    plan: RunPlan, make_evaluations: MakeSubscriber, ingest: str, signals: StopSignals
) -> RunResult:
    """Trains until the run is done, is stopped by a signal, or has failed; logs and returns the result.

    A run that fails or is stopped before it has learned anything leaves no folder.

    make_evaluations: see MainLoop. ingest: see `worker_specs`.

    Raises ConfigError if the experiment folder cannot be used. In serial mode, an exception of a worker
    propagates.
    """
    config = plan.config
    folder = prepare_folder(config)
    resources: Resources | None = None
    failures: list[ChildFailed] | None = None  # None: an exception propagates
    try:
        _log_plan(plan)
        resources = allocate(plan)._replace(lock=folder.lock)
        make_run = SerialRun if config.sampling.serial_mode else ProcessRun
        run = make_run(plan, resources, ingest)
        loop = MainLoop(plan, resources, run.processes, make_evaluations)
        failures = run.run(loop, signals)
        loop.log_summary(has_failed=bool(failures))
    finally:
        folder.lock.release()  # so that this process, or another, can resume the experiment
        is_done = failures == [] and not signals.requested
        stays = is_done or not folder.created or (resources is not None and _has_results(plan, resources))
        if not stays:
            setup_logging("main")  # closes the log file
            folder.remove()
        for writer in plan.writers:
            writer.close(has_failed=failures != [])
    if signals.requested and not stays:
        log.info("Stopped before anything was learned: the folder of the run is removed")
    log_failures(failures, config.env_name, has_log_file=stays and config.monitoring.log_to_file)
    status, reason = STOPPED, _why_stopped(signals)
    if failures:
        status, reason = FAILED, describe(failures[0], config.env_name)
    elif is_done:
        status, reason = DONE, loop.stop_reason
    return result_of(status, reason, folder.path, loop.summary())


def _log_plan(plan: RunPlan) -> None:
    """Logs what is resumed, what was chosen, which flags have no effect, and what reward to expect."""
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
    """Returns which signal has stopped the run, e.g. "SIGINT received"; empty if none has."""
    return "" if signals.requested is None else f"{signal.Signals(signals.requested).name} received"


def _has_results(plan: RunPlan, resources: Resources) -> bool:
    """Returns whether this run has learned something, or has sampled with --sampler_only."""
    config = plan.config
    has_sampled = config.sampling.sampler_only and (config.experiment_dir / "cfg.json").exists()
    return has_sampled or bool(resources.channels.progress["iterations"].any())

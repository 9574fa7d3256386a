"""Runs one experiment from start to end."""

import logging
import signal
from collections.abc import Sequence

from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_expectation
from sample_factory.config.retired_flags import RETIRED_FLAGS
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import log_num_envs
from sample_factory.launch.checks import (
    Probed,
    check_and_probe,
    check_encoders,
    warn_of_framestack,
    warn_of_large_layers,
    warn_of_replaced_flags,
)
from sample_factory.launch.failure_log import describe, log_failures
from sample_factory.launch.folder import prepare_folder
from sample_factory.launch.parts import Parts, allocate
from sample_factory.launch.processes import run_in_processes
from sample_factory.mainloop.run_result import DONE, FAILED, STOPPED, RunResult, result_of, write_result
from sample_factory.launch.serial import run_serially
from sample_factory.launch.start_from import (
    describe_last_checkpoints,
    log_resumed,
    trained_frames,
    why_done,
)
from sample_factory.monitoring.status_line import MAX_WIDTH
from sample_factory.monitoring.summaries import SummaryWriter
from sample_factory.monitoring.wandb_writer import start_wandb
from sample_factory.runtime import cpu
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.log import setup_logging
from sample_factory.runtime.supervisor import StopRequested, StopSignals

log = logging.getLogger("sample_factory")


def run_experiment(config: Config, family: EnvFamily) -> int:
    """Calls `train_experiment`; returns the exit code: 0 done or stopped, 1 failed."""
    return 1 if train_experiment(config, family).status == FAILED else 0


def train_experiment(config: Config, family: EnvFamily, keeps_process: bool = False) -> RunResult:
    """Trains until the run is done, is stopped by a signal, or has failed; logs and returns the result.

    Writes the result to the experiment folder. The files of an existing experiment are not touched before all
    checks have passed. Raises ConfigError if the flags do not fit together, the env or the machine, or if the
    experiment folder cannot be used. In serial mode, an exception of a worker propagates.

    keeps_process: a second Ctrl+C raises KeyboardInterrupt instead of ending this process.
    """
    result = _train(config, family, keeps_process)
    write_result(result)
    return result


def _train(config: Config, family: EnvFamily, keeps_process: bool) -> RunResult:
    setup_logging("main")
    cpu.raise_open_files_limit()  # every queue and every child needs file descriptors
    for name in set(config.typed) & set(RETIRED_FLAGS):
        log.warning("--%s has no effect: %s", name, RETIRED_FLAGS[name])
    done = why_done(config)
    if done is not None:
        log.info(done)
        return RunResult(DONE, done, config.experiment_dir, trained_frames(config))
    log.info("Checking %s ...", config.env_name, extra={"only_on_terminals": True})
    with StopSignals(lambda: describe_last_checkpoints(config), keeps_process) as signals:
        try:
            with signals.interrupting():
                is_chosen = config.sampling.num_envs_per_worker is None
                config, probed = check_and_probe(config, family)
                if is_chosen:
                    log_num_envs(config, probed.info)
                config, wandb_writer = start_wandb(config)
        except StopRequested:
            log.info("Stopped before the training began")
            return RunResult(STOPPED, _why_stopped(signals), config.experiment_dir)
        except ChildFailed as failure:
            log_failures([failure], config.env_name, has_log_file=False)
            return RunResult(FAILED, describe(failure, config.env_name), config.experiment_dir)
        if wandb_writer is None:
            return _run_in_folder(config, family, probed, [], signals)
        has_failed = True
        try:
            result = _run_in_folder(config, family, probed, [wandb_writer], signals)
            has_failed = result.status == FAILED
            return result
        finally:
            wandb_writer.close(has_failed)


def _run_in_folder(
    config: Config,
    family: EnvFamily,
    probed: Probed,
    writers: Sequence[SummaryWriter],
    signals: StopSignals,
) -> RunResult:
    """A run that fails or is stopped before anything was learned leaves no folder.

    writers: of summaries, beside those for files of the experiment.
    """
    topology = make_topology(config, probed.info)
    folder = prepare_folder(config)
    parts: Parts | None = None
    is_done = False
    try:
        log_resumed(config)
        for line in check_encoders(config, probed.info):
            log.info("%s", line)
        warn_of_large_layers(config, probed.info)
        warn_of_framestack(config, probed.info)
        warn_of_replaced_flags(config)
        _log_expectation(config)
        parts = allocate(config, family, probed, topology, folder.lock)._replace(writers=writers)
        run_workers = run_serially if config.sampling.serial_mode else run_in_processes
        end = run_workers(parts, signals)
        is_done = not end.failures and not signals.requested
    finally:
        folder.lock.release()  # so that this process, or another, can resume the experiment
        stays = is_done or not folder.created or (parts is not None and _has_results(parts))
        if not stays:
            setup_logging("main")  # closes the log file
            folder.remove()
    if signals.requested and not stays:
        log.info("Stopped before anything was learned: the folder of the run is removed")
    log_failures(end.failures, config.env_name, has_log_file=stays and config.monitoring.log_to_file)
    if end.failures:
        return result_of(FAILED, describe(end.failures[0], config.env_name), folder.path, end.summary)
    if is_done:
        return result_of(DONE, end.stop_reason, folder.path, end.summary)
    return result_of(STOPPED, _why_stopped(signals), folder.path, end.summary)


def _why_stopped(signals: StopSignals) -> str:
    """Returns which signal has stopped the run, e.g. "SIGINT received"."""
    return "" if signals.requested is None else f"{signal.Signals(signals.requested).name} received"


def _has_results(parts: Parts) -> bool:
    """Returns whether this run has learned something, or has sampled with --sampler_only."""
    has_sampled = parts.config.sampling.sampler_only and (parts.config.experiment_dir / "cfg.json").exists()
    return has_sampled or bool(parts.channels.progress["iterations"].any())


def _log_expectation(config: Config) -> None:
    """Logs what a run with the --cfg file reaches, if the file says it."""
    expectation = read_expectation(config.run.cfg) if config.run.cfg and not config.is_foreign else None
    if expectation is not None:
        text = f"Expect {expectation}"
        short = text if len(text) <= MAX_WIDTH else text.replace("; ", "\n")
        log.info("%s", text, extra={"short": short})

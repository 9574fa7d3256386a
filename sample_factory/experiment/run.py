"""Runs one experiment from start to end."""

import logging

from sample_factory.config.config import Config
from sample_factory.config.parsing import RETIRED_FLAGS
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.topology import make_topology
from sample_factory.experiment.checks import check_and_probe
from sample_factory.experiment.folder import describe_last_checkpoints, prepare_folder
from sample_factory.experiment.parts import allocate
from sample_factory.experiment.processes import log_failure, run_in_processes
from sample_factory.experiment.serial import run_serially
from sample_factory.runtime import cpu
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.log import setup_logging
from sample_factory.runtime.supervisor import StopRequested, StopSignals

log = logging.getLogger("sample_factory")


def run_experiment(config: Config, family: EnvFamily) -> int:
    """Trains until the run is done, is stopped by a signal, or has failed.

    The files of an existing experiment are not touched before all checks have passed.

    Returns the exit code: 0 done or stopped, 1 failed. Raises ConfigError if the flags do not fit together,
    the env or the machine, or if the experiment folder cannot be used.
    """
    setup_logging("main")
    cpu.raise_open_files_limit()  # every queue and every child needs file descriptors
    for name in set(config.typed) & set(RETIRED_FLAGS):
        log.warning("--%s has no effect: %s", name, RETIRED_FLAGS[name])
    with StopSignals(lambda: describe_last_checkpoints(config)) as signals:
        try:
            with signals.interrupting():
                info = check_and_probe(config, family)
            topology = make_topology(config, info)
            lock = prepare_folder(config)
            try:
                parts = allocate(config, family, info, topology, lock)
                if config.sampling.serial_mode:
                    return run_serially(parts, signals)
                return run_in_processes(parts, signals)
            finally:
                lock.release()  # so that this process, or another, can resume the experiment
        except StopRequested:
            log.info("Stopped before the training began")
            return 0
        except ChildFailed as failure:
            log_failure(failure)
            return 1

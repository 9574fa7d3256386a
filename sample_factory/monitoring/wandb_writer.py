"""Sends the summaries of a run to Weights & Biases. Imports wandb only if it is asked for: it is an extra."""

import contextlib
import os
import queue
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.trust import WANDB_RUN_ID
from sample_factory.envs.packages import missing_package
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.log import log

# Settings of wandb, unless its environment variables (WANDB_INIT_TIMEOUT, ...) say otherwise.
SETTINGS: dict[str, Any] = {
    "init_timeout": 60.0,  # seconds
    "finish_timeout": 60.0,  # seconds for uploading what is left at the end of a run
    "finish_timeout_raises": True,
    "console": "off",  # sys.stdout and sys.stderr stay as they are
    "silent": True,  # wandb prints nothing, and asks for no key
}
MAX_PENDING = 10_000  # records that wait for the service process
GRACE_SECONDS = 10.0  # beyond finish_timeout, before the service process is killed


def start_wandb(config: Config) -> tuple[Config, "WandbWriter | None"]:
    """Starts or resumes a run of W&B if --with_wandb is set. Returns the flags, extended by the id of W&B's
    run, which cfg.json stores, and the writer; None without the flag. Raises ConfigError if W&B refuses the
    run or cannot be reached, or wandb is not installed."""
    if not config.monitoring.with_wandb:
        return config, None
    if not config.unknown.get(WANDB_RUN_ID):
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", config.run.experiment)[:80]  # W&B allows 128 characters in all
        run_id = f"{name}_{datetime.now():%Y%m%d_%H%M%S_%f}"
        config = replace(config, unknown={**config.unknown, WANDB_RUN_ID: run_id})
    return config, WandbWriter(config)


class WandbWriter:
    """In the main process: writes all summaries of an experiment into one run of W&B.

    1. A failure after the start is logged once, and training continues.
    2. `write` and `flush` never wait for wandb's service process, and `close` for a limited time only (unless
       WANDB_FINISH_TIMEOUT=0): a thread sends the records and finishes the run.
    3. Signal handlers, hooks of `sys` and streams of this process stay unchanged.
    4. wandb's service process ends with `close`, or when this process ends in any way.

    The x axis of all charts is env_frames. With several policies, tags begin with policy_N/.
    """

    def __init__(self, config: Config):
        """Starts or resumes the run of W&B; `config` contains its id. Raises ConfigError if W&B refuses the
        run or cannot be reached."""
        # Otherwise other code of this process uses wandb's service process.
        self._owns_service = "WANDB_SERVICE" not in os.environ
        self._run = _start(config, self._owns_service)
        num_policies = config.sampling.num_policies
        self._prefixes = [f"policy_{i}/" if num_policies > 1 else "" for i in range(num_policies)]
        self._upload = f"Upload it by: wandb sync {Path(self._run.dir).parent}"
        if not self._run.disabled:
            log.info("W&B: %s", f"offline. {self._upload}" if self._run.offline else self._run.url)
        self._records: queue.SimpleQueue[dict[str, float] | None] = queue.SimpleQueue()  # None: the end
        self._has_dropped = False
        self._exit_code = 0
        self._is_failing = False
        self._is_given_up = False
        self._thread = threading.Thread(target=self._send, name="wandb_writer", daemon=True)
        self._thread.start()

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Queues a point of a policy at env_frames; drops it if MAX_PENDING points already wait. scalars: tag
        -> value."""
        if self._is_failing:
            return
        if self._records.qsize() >= MAX_PENDING:
            if not self._has_dropped:
                log.warning("W&B's process does not respond: W&B lacks some summaries. Training continues")
            self._has_dropped = True
            return
        prefix = self._prefixes[policy_id]
        record = {f"{prefix}{tag}": value for tag, value in scalars.items()}
        self._records.put({**record, f"{prefix}env_frames": env_frames})

    def flush(self) -> None:
        """Does nothing: a thread of this object sends each point as soon as it is queued."""

    def close(self, has_failed: bool) -> None:
        """Uploads the remaining summaries, within a time limit, and ends wandb's service process. has_failed:
        whether W&B marks the run as failed."""
        if not self._run.offline and not self._run.disabled:
            log.info("Uploading the last summaries to W&B ...")
        self._exit_code = int(has_failed)
        self._records.put(None)
        limit = self._run.settings.finish_timeout  # 0: none
        self._thread.join(limit + GRACE_SECONDS if limit > 0 else None)
        self._is_given_up = self._thread.is_alive()
        if self._is_given_up:
            log.error("W&B lacks the end of the run: its process does not respond. %s", self._upload)
        if self._owns_service:
            _end_service(hangs=self._is_given_up)

    def _send(self) -> None:
        """In the thread of this object: sends the queued records, then finishes the run of W&B."""
        try:
            for prefix in self._prefixes:
                self._run.define_metric(f"{prefix}env_frames")
                self._run.define_metric(f"{prefix}*", step_metric=f"{prefix}env_frames")
            for record in iter(self._records.get, None):
                self._run.log(record)
        except Exception as error:  # any error of the package: a tracker must not end a training
            self._is_failing = True
            if not self._is_given_up:  # otherwise `close` has killed the service process
                log.error("W&B receives no more summaries: %s. Training continues", one_line(error))
            while self._records.get() is not None:
                pass
        try:
            self._run.finish(exit_code=self._exit_code)
        except Exception as error:  # as above; TimeoutError without a network
            if not (self._is_failing or self._is_given_up):
                log.error("W&B lacks the end of the run: %s. %s", one_line(error), self._upload)


def _start(config: Config, owns_service: bool) -> Any:
    """Starts or resumes W&B's run and returns it. Raises ConfigError if W&B refuses the run or cannot be
    reached, or wandb is not installed.
    owns_service: whether to start a service process of wandb that no other program uses."""
    flags = config.monitoring
    hooks = sys.exit, sys.excepthook
    try:
        import wandb
    except ImportError:
        raise missing_package("--with_wandb=True", "wandb", "wandb") from None
    try:
        if owns_service:
            wandb.setup(wandb.Settings(silent=True))  # before the first message of the package
        folder = None if flags.wandb_dir is None else Path(flags.wandb_dir).expanduser()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        settings = {name: SETTINGS[name] for name in SETTINGS if f"WANDB_{name.upper()}" not in os.environ}
        return wandb.init(
            project=flags.wandb_project,
            entity=flags.wandb_user,
            group=flags.wandb_group or config.env_name,
            job_type=flags.wandb_job_type,
            tags=list(flags.wandb_tags),
            id=config.unknown[WANDB_RUN_ID],
            name=config.run.experiment,
            resume="allow",
            dir=folder,
            config=config.flat(),
            allow_val_change=True,
            reinit="create_new",
            settings=wandb.Settings(**settings),
        )
    except BaseException as error:
        if owns_service:
            _end_service()
        if not isinstance(error, wandb.Error | OSError | ValueError):
            raise  # e.g. Ctrl+C
        offline = "WANDB_MODE=offline records the run on disk, without key and network, for `wandb sync`"
        raise ConfigError(f"--with_wandb=True: {one_line(error)}. {offline}") from None
    finally:
        # wandb replaces them to learn the exit code, which it is given here.
        sys.exit, sys.excepthook = hooks


def _end_service(hangs: bool = False) -> None:
    import wandb

    processes = [child for child in psutil.Process().children() if child.name() == "wandb-core"]
    for process in processes if hangs else ():
        process.kill()
    with contextlib.suppress(Exception):  # any error of the package: the process has ended already
        wandb.teardown()
    psutil.wait_procs(processes, timeout=5.0)  # one that died stays in the process table until then

"""Sends the summaries of a run to Weights & Biases. Imports wandb only if it is asked for: it is an extra."""

import contextlib
import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.trust import WANDB_RUN_ID
from sample_factory.envs.packages import missing_package

if TYPE_CHECKING:
    from wandb.sdk.wandb_run import Run

log = logging.getLogger("sample_factory")

MAX_NAME = 80  # characters of the experiment's name in the id; W&B allows 128 in all
# Settings of wandb, unless its environment variables (WANDB_INIT_TIMEOUT, ...) say otherwise.
SETTINGS: dict[str, Any] = {
    "init_timeout": 60.0,  # seconds
    "finish_timeout": 60.0,  # seconds for uploading what is left at the end of a run
    "finish_timeout_raises": True,
    "console": "off",  # sys.stdout and sys.stderr stay as they are
    "silent": True,  # wandb prints nothing, and asks for no key
}
MAX_PENDING = 10_000  # records that wait for the service process
GRACE_SECONDS = 10.0  # after finish_timeout
WAIT_SECONDS = 5.0  # for the end of the service process
CONTINUES = "Training continues, and the TensorBoard files are complete"
SERVICE_NAME = "wandb-core"  # of the process
SERVICE = "WANDB_SERVICE"  # environment variable that is set while wandb's service process runs


def start_wandb(config: Config) -> tuple[Config, "WandbWriter | None"]:
    """Starts or resumes a run of W&B with --with_wandb; returns the flags with its id.

    Raises ConfigError if W&B refuses it or cannot be reached, or wandb is not installed.
    """
    if not config.monitoring.with_wandb:
        return config, None
    config = with_run_id(config)
    return config, WandbWriter(config)


def with_run_id(config: Config) -> Config:
    """Returns the flags with the id of the W&B run, which cfg.json keeps: a resumed run continues it."""
    if config.unknown.get(WANDB_RUN_ID):
        return config
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", config.run.experiment)[:MAX_NAME]
    run_id = f"{name}_{datetime.now():%Y%m%d_%H%M%S_%f}"
    return replace(config, unknown={**config.unknown, WANDB_RUN_ID: run_id})


class WandbWriter:
    """In the main process: writes all summaries of an experiment into one run of W&B. Promises:

    1. Without a key or a network it is not created; a failure after that is logged once, and training
       continues.
    2. It changes no signal handler, no hook of `sys`, and no stream of this process.
    3. wandb's service process ends with `close`, and with this process, however it ends. While the service
       process hangs, `write` does not.

    The x axis of all charts is env_frames. With several policies, tags begin with policy_N/.
    """

    def __init__(self, config: Config):
        """config: with the id of the run. Raises ConfigError if W&B refuses it or cannot be reached."""
        self._num_policies = config.sampling.num_policies
        self._owns_service = SERVICE not in os.environ  # otherwise other code of this process uses it
        self._run = _start(config, self._owns_service)
        self._folder = Path(self._run.dir).parent
        for policy_id in range(self._num_policies):
            prefix = self._prefix(policy_id)
            self._run.define_metric(f"{prefix}env_frames")
            self._run.define_metric(f"{prefix}*", step_metric=f"{prefix}env_frames")
        self._is_online = not self._run.offline and not self._run.disabled
        if self._is_online:
            log.info("W&B: %s", self._run.url)
        elif self._run.offline:
            log.info("W&B: offline; upload the run later by: wandb sync %s", self._folder)
        self._records: queue.Queue[dict[str, float] | None] = queue.Queue(MAX_PENDING)  # None: the end
        self._is_full = False
        self._is_given_up = False
        self._exit_code = 0
        self._thread = threading.Thread(target=self._send, name="wandb_writer", daemon=True)
        self._thread.start()

    def write(self, policy_id: int, scalars: Mapping[str, float], env_frames: int) -> None:
        """Sends tag -> value of a policy at its env frames to the service process."""
        if not self._thread.is_alive():
            return
        prefix = self._prefix(policy_id)
        record = {f"{prefix}{tag}": value for tag, value in scalars.items()}
        try:
            self._records.put_nowait({**record, f"{prefix}env_frames": env_frames})
        except queue.Full:
            if not self._is_full:
                log.error("W&B's process does not respond: it does not receive all summaries. %s", CONTINUES)
            self._is_full = True

    def flush(self) -> None:
        """Does nothing: summaries are sent at once."""

    def close(self, has_failed: bool) -> None:
        """Uploads what is left, within a time limit, and ends the service process."""
        self._exit_code = int(has_failed)
        if self._is_online:
            log.info("Uploading the last summaries to W&B ...")
        with contextlib.suppress(queue.Full):
            self._records.put_nowait(None)
        limit = self._run.settings.finish_timeout  # 0: none
        self._thread.join(limit + GRACE_SECONDS if limit > 0 else None)
        hangs = self._is_given_up = self._thread.is_alive()
        if hangs:
            log.error("W&B's process does not respond, and is ended. %s", self._how_to_sync())
        if self._owns_service:
            _end_service(hangs)

    def _send(self) -> None:
        """In a thread of its own: sends the records, then finishes the run."""
        try:
            for record in iter(self._records.get, None):
                self._run.log(record)
        except Exception as error:  # any error of the package: a tracker must not end a training
            if not self._is_given_up:  # otherwise `close` has ended the process
                log.error("W&B receives no more summaries: %s. %s", _text(error), CONTINUES)
            return
        try:
            self._run.finish(exit_code=self._exit_code)
        except Exception as error:  # any error of the package; TimeoutError without a network
            log.error("W&B has not received the last summaries: %s. %s", _text(error), self._how_to_sync())

    def _how_to_sync(self) -> str:
        return f"Upload them by: wandb sync {self._folder}"

    def _prefix(self, policy_id: int) -> str:
        return f"policy_{policy_id}/" if self._num_policies > 1 else ""


def _start(config: Config, owns_service: bool) -> "Run":
    """Starts or resumes the run. Raises ConfigError."""
    flags = config.monitoring
    hooks = sys.exit, sys.excepthook
    try:
        import wandb
    except ImportError:
        raise missing_package("--with_wandb=True", "wandb", "wandb") from None
    try:
        settings = {
            name: value for name, value in SETTINGS.items() if f"WANDB_{name.upper()}" not in os.environ
        }
        if owns_service:
            wandb.setup(wandb.Settings(silent=True))  # before the first message of the package
        folder = None if flags.wandb_dir is None else Path(flags.wandb_dir).expanduser()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
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
        raise ConfigError(
            f"--with_wandb=True: {_text(error)}. WANDB_MODE=offline needs neither key nor network: it "
            "records the run on disk, for `wandb sync`"
        ) from None
    finally:
        # wandb replaces them to learn the exit code, which it is given here.
        sys.exit, sys.excepthook = hooks


def _end_service(hangs: bool = False) -> None:
    import wandb

    processes = [child for child in psutil.Process().children() if child.name() == SERVICE_NAME]
    for process in processes if hangs else ():
        process.kill()
    try:
        wandb.teardown()
    except Exception as error:  # any error of the package: the process has ended already
        log.debug("W&B's service process: %s", _text(error))
    psutil.wait_procs(processes, timeout=WAIT_SECONDS)  # one that died stays in the process table until then


def _text(error: BaseException) -> str:
    """Returns the message of an error in one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__

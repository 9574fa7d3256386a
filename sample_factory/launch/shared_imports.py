"""Imports torch while the main process plans a run or a session, and once for all processes."""

import contextlib
import importlib
import threading
from contextlib import AbstractContextManager

from sample_factory.config.config import Config
from sample_factory.runtime import cpu, gpu
from sample_factory.runtime.template import template

MODULES = ("sample_factory.learning.learner_worker", "sample_factory.sampling.inline_sampler")


def shared_imports(config: Config) -> AbstractContextManager[None]:
    """Preloads torch for the processes that are started inside the returned block: learners, samplers, policy
    workers and evaluations are forked from a process that has imported their modules. In serial mode, a
    thread of this process imports the modules, and only evaluations are forked.

    Nothing is forked on a machine with a GPU, where torch's libraries may start threads when they are
    imported.
    """
    if config.sampling.serial_mode:
        threading.Thread(target=_import_modules, daemon=True).start()
        if not config.monitoring.eval_every_env_steps:
            return contextlib.nullcontext()
    if gpu.may_have_gpu(config.run.device):
        return contextlib.nullcontext()
    # One thread, because a process with several cannot fork safely; each child sets its number of threads.
    environment = {**cpu.HUGE_PAGES, **cpu.ONE_THREAD, "OPENBLAS_NUM_THREADS": "1"}
    return template(MODULES, environment)


def _import_modules() -> None:
    """Imports torch and the workers' modules; runs in a thread, while the main thread tries out the env."""
    with contextlib.suppress(Exception):  # SerialRun imports them again, which raises it in the main thread
        for module in MODULES:
            importlib.import_module(module)

"""Imports torch once for all processes of a run, while the main process still plans it."""

import contextlib
import sys
from contextlib import AbstractContextManager

from sample_factory.config.config import Config
from sample_factory.runtime import cpu, gpu
from sample_factory.runtime.template import template

MODULES = ("sample_factory.learning.learner_worker", "sample_factory.sampling.inline_sampler")


def shared_imports(config: Config) -> AbstractContextManager[None]:
    """Returns a block in which learners, samplers and policy workers are forked from a process that has
    imported their modules.

    Without effect in serial mode, except on Linux, and on a machine with a GPU: there, torch's libraries may
    start threads when they are imported.
    """
    if sys.platform != "linux" or config.sampling.serial_mode or gpu.may_have_gpu(config.run.device):
        return contextlib.nullcontext()
    # One thread, because a process with several cannot fork safely; each child sets its number of threads.
    environment = {**cpu.HUGE_PAGES, **cpu.ONE_THREAD, "OPENBLAS_NUM_THREADS": "1"}
    return template(MODULES, environment)

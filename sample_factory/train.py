"""Trains agents: python -m sample_factory.train --env=doom_battle --experiment=my_experiment"""

import functools
import sys
import types
from typing import Any

from sample_factory.launch.command_line import main_of
from sample_factory.training.command import COMMAND
from sample_factory.version_2.finder import find_old_name

main = main_of(COMMAND)
__getattr__ = functools.partial(find_old_name, "train")  # run_rl and make_runner of version 2


class _CallableModule(types.ModuleType):
    """Lets `sample_factory.train(MyEnv, "mine", ...)` do what `sample_factory.run` does."""

    def __call__(self, *arguments: Any, **flags: Any) -> Any:
        from sample_factory.training.run import run

        return run(*arguments, **flags)


sys.modules[__name__].__class__ = _CallableModule


if __name__ == "__main__":
    sys.exit(main())

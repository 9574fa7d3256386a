"""Trains agents: python -m sample_factory.train --env=doom_battle --experiment=my_experiment"""

import sys
import types
from typing import Any

from sample_factory.launch.command_line import main_of
from sample_factory.training.command import COMMAND

main = main_of(COMMAND)


class _CallableModule(types.ModuleType):
    """Lets `sample_factory.train(MyEnv, "mine", ...)` do what `sample_factory.run` does."""

    def __call__(self, *arguments: Any, **flags: Any) -> Any:
        from sample_factory.training.run import run

        return run(*arguments, **flags)


sys.modules[__name__].__class__ = _CallableModule


if __name__ == "__main__":
    sys.exit(main())

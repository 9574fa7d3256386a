"""Pushes an experiment to the Hugging Face Hub, with a model card, the results of an evaluation and a video.

python -m sample_factory.hub.push_to_hub --experiment=my_experiment --hf_repository=user/name
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from sample_factory.config.commands import PUSH_TO_HUB
from sample_factory.config.flags import make_parser, parse_known
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_trained_family
from sample_factory.hub import PushFlags
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.log import setup_logging

SHORT_FLAGS = {"-r": "--hf_repository", "-d": "--experiment_dir"}  # of version 2


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 the Hub, an env or a process failed, 2 bad input."""

    def command(words: Sequence[str]) -> None:
        parser = make_parser()
        parser.add_argument("--experiment_dir")
        given, rest = parse_known(parser, [SHORT_FLAGS.get(word, word) for word in words])
        if given.experiment_dir is not None:
            folder = Path(given.experiment_dir).expanduser().absolute()
            rest += [f"--experiment={folder.name}", f"--train_dir={folder.parent}"]
        config = parse_config(rest, resolve_trained_family, True, {"hub": PushFlags}, PUSH_TO_HUB)
        from sample_factory.hub.push import push

        setup_logging("push_to_hub")
        print(f"pushed: {push(config)}")

    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())

"""Runs the Python code of a page, block by block, with tiny numbers: python run_snippets.py PAGE

Each block is a script of its own. A block after the line `<!-- needs: PACKAGE -->` is skipped where that
package is not installed, one after `<!-- not run -->` always. One after `<!-- run: ARGUMENTS; ARGUMENTS -->`
is run once with each of these command lines, otherwise without arguments.
"""

import importlib
import importlib.util
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sample_factory

BLOCK = re.compile(
    r"(?:<!-- (needs|not run|run):? ?([^>\n]*) -->\n)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL
)
# Appended to the flags of each command, so these win.
TINY_MODEL = ["--device=cpu", "--hidden_size=16", "--encoder_mlp_layers", "16"]
TINY_SIZES = ["--num_workers=1", "--num_envs_per_worker=2", "--rollout=8", "--batch_size=64"]
# A policy that hardly learns: its episodes stay short, so that there are enough of them.
TINY_RUN = ["--train_for_env_steps=400", "--learning_rate=1e-6", "--decorrelate_envs_on_one_worker=False"]
TINY = {
    "train": ["--serial_mode=True", *TINY_SIZES, *TINY_MODEL, *TINY_RUN],
    "enjoy": ["--device=cpu", "--no_render", "--max_num_episodes=1", "--max_num_frames=100"],
}
# Keywords of the functions of the package, instead of those in the code.
TINY_KEYWORDS = {
    "run": {
        "serial_mode": True,
        "device": "cpu",
        "hidden_size": 16,
        "encoder_mlp_layers": 16,
        "num_workers": 1,
        "num_envs_per_worker": 2,
        "rollout": 8,
        "batch_size": 64,
        "train_for_env_steps": 400,
        "learning_rate": 1e-6,
        "decorrelate_envs_on_one_worker": False,
    },
    "evaluate": {"num_episodes": 1},
}
# Times of loops in the code, and those instead.
SHORTER = {"time.time() - start < 20:": "time.time() - start < 0.5:"}


class Block(NamedTuple):
    """A script of a page. command_lines: the arguments of each of its runs."""

    code: str
    command_lines: Sequence[str]


def blocks(page: Path) -> list[Block]:
    """Returns the scripts that can be run here, with shorter loops."""
    found = []
    for mark, text, code in BLOCK.findall(page.read_text()):
        if mark == "not run" or (mark == "needs" and not is_installed(text)):
            continue
        for long, short in SHORTER.items():
            code = code.replace(long, short)
        found.append(Block(code, text.split(";") if mark == "run" else [""]))
    return found


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def with_tiny_numbers(main: Callable[[Sequence[str]], int], flags: Sequence[str]) -> Callable[..., int]:
    """Returns a command that runs with further flags, and fails loudly."""

    def tiny_main(argv: Sequence[str], **given: Any) -> int:
        exit_code = main([*argv, *flags], **given)
        assert exit_code == 0, f"{argv} ended with exit code {exit_code}"
        return exit_code

    return tiny_main


def with_tiny_keywords(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns the function with other values for some of its keywords."""
    return lambda *arguments, **given: function(*arguments, **{**given, **keywords})


def run(page: Path, folder: Path) -> None:
    """Runs all blocks of a page. folder: for the scripts."""
    for name, flags in TINY.items():
        module = importlib.import_module(f"sample_factory.{name}")
        module.main = with_tiny_numbers(module.main, flags)
    for name, keywords in TINY_KEYWORDS.items():
        setattr(sample_factory, name, with_tiny_keywords(getattr(sample_factory, name), keywords))
    for number, block in enumerate(blocks(page)):
        script = folder / f"{page.parent.name}_{number}.py"
        script.write_text(block.code)
        print(f"--- block {number}:\n{block.code}", flush=True)
        for command_line in block.command_lines:
            sys.argv = [str(script), *shlex.split(command_line)]
            run_script(script)


def run_script(script: Path) -> None:
    """Runs a script; `sys.exit` in it does not end the others."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        assert not end.code, f"{sys.argv} ended with exit code {end.code}"


if __name__ == "__main__":
    run(Path(sys.argv[1]).absolute(), Path.cwd())

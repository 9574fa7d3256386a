"""Every flag that the declarations say has an effect in a command is read by it, in real runs."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_factory.config.effects import why_without_effect
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from tests.config.declared_commands import COMMAND_OF
from tests.config.traced_commands import FAST, RUNS, arguments_of

# Read by `parse_config` itself, before there are sections.
READ_FIRST = {"cfg", "trust_code", "restart_behavior"}


def unread_flags(name: str, folder: Path) -> list[str]:
    """Returns the flags of the shared sections and of the env that should have an effect in a run, and that
    no process has read."""
    run = RUNS[name]
    command = COMMAND_OF[run.command]
    argv = [word for word in arguments_of(name, folder) if not word.startswith("--export")]
    facts = dict(zip(("observations", "actions", "agents"), run.facts))
    own = {word for word in argv if word.partition("=")[0] in OWN_FLAGS}
    words = [word for word in argv if word not in own]
    # A training has saved the defaults that follow the observation.
    is_new = command.experiment == "new"
    silent = command._replace(reads=None, sections={}, experiment="resumed" if is_new else command.experiment)
    config = parse_config(words, resolve_family, silent)
    config = dataclasses.replace(config, command=command)
    read = {*(folder / f"{name}.reads").read_text().split(), *READ_FIRST}
    return [
        field.name
        for section, values in config.sections.items()
        for field in dataclasses.fields(values)
        if command.uses(field.name, section)
        and not why_without_effect(config, field.name, facts)
        and field.name not in read
    ]


OWN_FLAGS = ("--out", "--episodes", "--games", "--imitate_epochs", "--timeout_seconds")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Returns the folder of the runs in FAST."""
    path = tmp_path_factory.mktemp("traced")
    trace(path, FAST)
    return path


def trace(folder: Path, names) -> None:
    here = Path(__file__).parent
    root = str(here.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here / "traced"), root])}
    command = [sys.executable, str(here / "traced_commands.py"), str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    for name in names:
        assert f"{name}: exit code 0" in done.stdout, done.stdout[-1000:] + done.stderr[-3000:]


@pytest.mark.parametrize("name", FAST)
def test_every_flag_that_should_have_an_effect_is_read(folder, name):
    assert unread_flags(name, folder) == []


if __name__ == "__main__":  # python -m tests.config.test_flag_reads FOLDER NAME ...
    place = Path(sys.argv[1])
    place.mkdir(exist_ok=True)
    for one in sys.argv[2:] or RUNS:
        try:
            trace(place, [one])
            print(one, unread_flags(one, place), flush=True)
        except AssertionError as error:
            print(one, "FAILED", error)

"""Every flag that the declarations say has an effect in a command is read by it, in real runs."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_factory.config.effects import why_without_effect
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from tests.config.declared_commands import COMMAND_OF

# Command -> its flags; the training comes first, and the others play its policy.
RUNS = {
    "train": "--env=gym_CartPole-v1 --num_workers=1 --num_envs_per_worker=2 --rollout=8 --batch_size=16 "
    "--num_batches_per_iteration=2 --train_for_env_steps=400 --save_best_after=0 --device=cpu "
    "--use_rnn=True --hidden_size=8 --encoder_mlp_layers 8 --serial_mode=True --seed=1",
    "enjoy": "--no_render --save_video --max_num_episodes=1 --seed=1",
    "eval": "--eval_episodes=2 --serial_mode=True --seed=1",
}
FACTS = {"observations": ("vector",), "actions": ("discrete",), "agents": ("one",)}  # of the env
# Read by `parse_config` itself, before there are sections.
READ_FIRST = {"cfg", "trust_code", "restart_behavior"}
# Runs in a process of its own, where tests/config/traced/sitecustomize.py notes which flags are read.
SCRIPT = """
import json, os, sys
from sample_factory.__main__ import main
folder, runs = json.loads(sys.argv[1])
for name, argv in runs.items():
    os.environ["FLAG_READS"] = f"{folder}/{name}.reads"
    code = main([name, *argv])
    print(f"{name}: exit code {code}", flush=True)
"""


def arguments_of(name: str, folder: Path) -> list[str]:
    return [*RUNS[name].split(), f"--train_dir={folder}", "--experiment=traced"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Returns the folder of the runs, with a file NAME.reads for each of them."""
    path = tmp_path_factory.mktemp("traced")
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here / "traced"), str(here.parents[1])])}
    request = json.dumps((str(path), {name: arguments_of(name, path) for name in RUNS}))
    command = [sys.executable, "-c", SCRIPT, request]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    for name in RUNS:
        assert f"{name}: exit code 0" in done.stdout, done.stdout[-1000:] + done.stderr[-3000:]
    return path


@pytest.mark.parametrize("name", RUNS)
def test_every_flag_that_should_have_an_effect_is_read(folder, name):
    command = COMMAND_OF[name]
    # A training has saved the defaults that follow the observation.
    is_new = command.experiment == "new"
    silent = command._replace(reads=None, experiment="resumed" if is_new else command.experiment)
    config = parse_config(arguments_of(name, folder), resolve_family, silent)
    config = dataclasses.replace(config, command=command)
    read = {*(folder / f"{name}.reads").read_text().split(), *READ_FIRST}
    unread = [
        field.name
        for section, values in config.sections.items()
        for field in dataclasses.fields(values)
        if command.uses(field.name, section)
        and not why_without_effect(config, field.name, FACTS)
        and field.name not in read
    ]
    assert unread == []

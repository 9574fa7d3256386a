"""`python -m sample_factory tb`: which experiments it selects, and that TensorBoard serves them."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.launch.command_line import parse
from sample_factory.monitoring.summaries import TensorboardWriter
from sample_factory.runner.start_tensorboard import (
    TB,
    TensorBoardFlags,
    find_experiments,
    tensorboard_command,
)
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
NAMES = ("battle_1", "battle_2", "grid/a/00_a_see_1", "grid/a/01_a_see_2", "other/duel")


@pytest.fixture
def train_dir(tmp_path):
    for name in NAMES:
        (tmp_path / name / ".summary" / "0").mkdir(parents=True)
    (tmp_path / "grid" / "runner").mkdir()
    (tmp_path / "battle_1" / ".push_to_hub.7" / ".summary").mkdir(parents=True)  # within an experiment
    return tmp_path


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ([], NAMES),
        (["battle_?"], NAMES[:2]),
        (["*see_1*", "duel"], (NAMES[2], NAMES[4])),
        (["grid"], NAMES[2:4]),
        (["grid/*see_2"], (NAMES[3],)),
        (["grid/a/"], NAMES[2:4]),
    ],
)
def test_a_mask_is_for_a_name_a_path_or_a_folder_around_an_experiment(train_dir, masks, expected):
    assert find_experiments(train_dir, masks) == [train_dir / name for name in expected]


def test_no_match_names_the_experiments_that_there_are(train_dir):
    with pytest.raises(ConfigError, match="matches nothing; there are battle_1, battle_2, grid/a/00_a_see_1"):
        find_experiments(train_dir, ["nothing"])
    with pytest.raises(ConfigError, match="there are no experiments"):
        find_experiments(train_dir / "no_folder", [])


def test_masks_may_follow_flags():
    flags = parse(TB, ["-q", "*battle*", "--bind_all", "grid", "--port=7"])
    assert flags == TensorBoardFlags(("*battle*", "grid"), port=7, bind_all=True, quiet=True)


def test_a_folder_that_tensorboard_cannot_select_is_one_line(train_dir):
    (train_dir / "grid/a/02_a_lay_512,256/.summary").mkdir(parents=True)
    with pytest.raises(ConfigError, match="with a comma or colon"):
        tensorboard_command(TensorBoardFlags(("*lay*",), str(train_dir)))


@pytest.mark.timeout(200)
def test_tensorboard_shows_the_selected_experiments_until_ctrl_c(train_dir):
    for name in NAMES:
        writer = TensorboardWriter(train_dir / name / ".summary" / "0")
        writer.write({"0_aux/avg_reward": 1.0}, 10)
        writer.flush()
    process = subprocess.Popen(
        [sys.executable, "-m", "sample_factory", "tb", "battle_2", "grid", f"--dir={train_dir}", "--port=0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines = iter(process.stderr.readline, "")
    address = next(found[0] for line in lines if (found := re.search(r"http://localhost:\d+", line)))

    def shown() -> set[str]:
        with urllib.request.urlopen(f"{address}/data/plugin/scalars/tags", timeout=60) as answer:
            return {run.removesuffix("/.summary/0") for run in json.loads(answer.read())}

    try:
        wait_until(lambda: shown() == {"battle_2", *NAMES[2:4]})  # it loads them one after another
    finally:
        os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 0
    process.stderr.close()

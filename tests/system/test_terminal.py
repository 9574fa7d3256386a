"""A run as a person sees it at a terminal of 80 columns."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.system.running import LIMIT_SECONDS, SMALL, command, environment

CLOCK = r"\d\d:\d\d:\d\d  "


def run_at_terminal(*arguments: str) -> list[str]:
    """Runs a command to its end and returns the lines of its screen."""
    ours, childs = pty.openpty()
    variables = {**environment(), "COLUMNS": "80", "TERM": "dumb"}
    process = subprocess.Popen(arguments, stdin=childs, stdout=childs, stderr=childs, env=variables)
    os.close(childs)
    screen = b""
    try:
        while data := _read(ours):
            screen += data
        assert process.wait(LIMIT_SECONDS) == 0, screen.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return screen.decode().splitlines()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux: no process has the terminal open any longer
        return b""


@pytest.mark.timeout(LIMIT_SECONDS + 30)
def test_a_run_at_a_terminal_is_short_lines_from_what_it_checks_to_the_next_commands(tmp_path: Path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text('{"env": "gym_CartPole-v1", "expect": "a reward of 20"}')
    flags = [f"--cfg={recipe}", "--experiment=a", "--train_for_env_steps=3000", *SMALL]
    lines = run_at_terminal(*command("train", tmp_path, *flags))
    assert all(re.match(f"{CLOCK}|          ", line) for line in lines), lines
    texts = [line[10:] for line in lines]
    assert texts[0] == "Checking gym_CartPole-v1 ..." and "Expect a reward of 20" in texts
    assert any(
        re.match(r"Starting 8 envs in 2 workers, and a learner \(seed \d+\) ...", text) for text in texts
    )
    status = (
        r" ?[\d.]+k? / 3k +\d+ %   \d:\d\d left +[\d,]+ FPS   reward [\d.]+( \(first \d+\))?( +lag [\d.]+)?$"
    )
    assert [text for text in texts if re.match(status, text)], texts
    end = next(i for i, text in enumerate(texts) if text.startswith("finished: "))
    frames = re.match(r"finished: ([\d,]+)", texts[end])[1]
    assert int(frames.replace(",", "")) >= 3000
    assert texts[end + 1].startswith("reward ")
    purposes = [text.split()[0] for text in texts[end + 2 :]]
    assert purposes == ["files", "watch", "continue", "curves", "tensorboard"]
    assert max(len(line) for line in lines[:end] if str(tmp_path) not in line) < 80
    log = (tmp_path / "a" / "sf_log.txt").read_text()
    assert " FPS   reward " in log and f"[main] INFO finished: {frames} " in log, (
        "the file has the same lines"
    )

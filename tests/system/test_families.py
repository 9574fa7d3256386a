"""Families on EnvPool in whole runs: trained in many copies, and played in one with a video."""

import av
import pytest

from sample_factory.enjoy import main as enjoy
from tests.system.running import train

COPIES = ("--vector_env_copies=4", "--num_workers=1", "--num_envs_per_worker=1", "--worker_num_splits=1")
SMALL_BATCHES = ("--rollout=8", "--recurrence=-1", "--batch_size=32", "--num_batches_per_iteration=1")


@pytest.mark.parametrize("env", ["atari_pong", "minigrid_DoorKey-5x5-v0"])
def test_an_env_is_trained_in_many_copies_and_filmed_in_one(env, tmp_path):
    place = [f"--env={env}", f"--train_dir={tmp_path}", "--experiment=run", "--device=cpu", "--seed=1"]
    flags = [*COPIES, *SMALL_BATCHES, "--serial_mode=True", "--train_for_env_steps=300"]
    assert train(tmp_path, *place, *flags)["env_steps"] >= 300
    assert enjoy([*place, "--save_video", "--no_render", "--max_num_frames=40"]) == 0
    (path,) = (tmp_path / "run").glob("*.mp4")
    with av.open(str(path)) as video:
        pictures = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(pictures) >= 10 and (pictures[0] != pictures[-1]).any()

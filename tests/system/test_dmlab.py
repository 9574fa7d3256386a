"""DMLab-30 in whole runs, on the stand-in for its engine: trained, resumed and played."""

from sample_factory.enjoy import main as enjoy
from tests.families.dmlab.conftest import STAND_IN
from tests.system.running import SMALL, scalars, train

PICTURE = ("--res_w=40", "--res_h=36")


def test_all_levels_are_trained_scored_and_played(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN), prepend=":")  # of the process that tries the env out
    place = [f"--train_dir={tmp_path}", "--experiment=lab", f"--dmlab_level_cache_path={tmp_path / 'cache'}"]
    flags = [*SMALL, *PICTURE, *place, "--serial_mode=True", "--num_envs_per_worker=16", "--rollout=8"]
    flags += ["--recurrence=8", f"--dmlab30_dataset={tmp_path}", "--seed=1"]
    for frames in (2000, 4000):  # the second run resumes the first
        train(tmp_path, "--env=dmlab_30", *flags, f"--train_for_env_steps={frames}")
    written = scalars(tmp_path / "lab")
    assert {
        "_dmlab/000_mean_human_norm_score",
        "_dmlab/000_capped_mean_human_norm_score",
        "_dmlab/03_rooms_watermaze_human_norm_score",
        "_dmlab/capped_29_explore_object_rewards_many_human_norm_score",
        "0_aux/avg_dmlab_target_objective",
        "0_aux/avg_z_03_rooms_watermaze_dmlab_raw_score",
        "0_aux/avg_z_03_rooms_watermaze_len",
    } <= set(written)
    used = tmp_path / "lab/dmlab_used_lvl_seeds/_contributed/dmlab30/rooms_watermaze.dm_lvl_seeds"
    seeds = used.read_text().split()
    assert len(seeds) == len(set(seeds)) > 2
    assert len(list((tmp_path / "cache").glob("explore_maze_noaas_*"))) > 8
    assert enjoy(["--env=dmlab_30", *place, "--max_num_episodes=2", "--save_video", "--no_render"]) == 0
    assert list((tmp_path / "lab").glob("*.mp4"))

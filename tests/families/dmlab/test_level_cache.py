"""The cache of generated maps, and the seeds of episodes."""

import logging
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sample_factory.families.dmlab.level_cache import LevelCache, seeds_file

LEVEL = "contributed/dmlab30/explore_goal_locations_small"


@pytest.fixture
def experiment_dir(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    return folder


@pytest.fixture
def make_cache(tmp_path, experiment_dir):
    """Returns a function that makes the cache of another env, as another process would."""

    def make(level=LEVEL):
        return LevelCache(tmp_path / "cache", level, experiment_dir)

    return make


def generate(cache: LevelCache, key: str, random: np.random.Generator, folder: Path) -> int:
    """Plays an episode whose map has this key, as the engine does. Returns its seed."""
    seed = cache.next_seed(random)
    pk3 = folder / "generated.pk3"
    if not cache.fetch(key, str(pk3)):
        pk3.write_text(f"map of {key}")
        cache.write(key, str(pk3))
    assert pk3.read_text() == f"map of {key}"
    pk3.unlink()
    return seed


def test_a_map_is_generated_once_and_listed_as_in_version_1(make_cache, tmp_path):
    rng = np.random.default_rng(1)
    first = generate(make_cache(), "key_a", rng, tmp_path)
    folder = tmp_path / "cache"
    assert (folder / "key_a").read_text() == "map of key_a"
    listed = folder / "_contributed/dmlab30/explore_goal_locations_small.dm_lvl_seeds"
    assert listed.read_text() == f"{first} key_a\n"
    second = make_cache()
    assert second.fetch("key_a", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "map of key_a"
    assert not second.fetch("key_b", str(tmp_path / "copy"))
    assert {path.name for path in folder.iterdir()} == {"key_a", "_contributed"}, "no unfinished file is left"


def list_seeds(folder: Path, *lines: str) -> None:
    path = seeds_file(folder, LEVEL)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


def test_each_cached_seed_is_used_once_by_all_envs_then_new_ones(make_cache, tmp_path):
    list_seeds(tmp_path / "cache", *(f"{seed} key_{seed}\n" for seed in range(100, 130)), "100 key_100\n")
    envs = [(make_cache(), np.random.default_rng(number)) for number in range(3)]
    seeds = [cache.next_seed(rng) for _ in range(12) for cache, rng in envs]
    assert sorted(seeds[:30]) == list(range(100, 130))
    assert seeds[:30] != sorted(seeds[:30]), "in random order"
    assert len(set(seeds)) == 36 and not set(seeds[30:]) & set(range(100, 130))
    assert all(0 <= seed < 2**31 - 1 for seed in seeds)


def test_a_resumed_run_uses_no_seed_again(make_cache, tmp_path, experiment_dir):
    list_seeds(tmp_path / "cache", "7 a\n", "8 b\n")
    first = make_cache().next_seed(np.random.default_rng(1))
    used = (
        experiment_dir / "dmlab_used_lvl_seeds/_contributed/dmlab30/explore_goal_locations_small.dm_lvl_seeds"
    )
    assert used.read_text() == f"{first}\n"
    assert {first, make_cache().next_seed(np.random.default_rng(1))} == {7, 8}


def test_the_same_new_seed_is_not_drawn_twice(make_cache):
    assert len({make_cache().next_seed(np.random.default_rng(1)) for _ in range(5)}) == 5


def test_levels_have_lists_of_their_own(make_cache):
    seeds = [make_cache(level).next_seed(np.random.default_rng(1)) for level in (LEVEL, "lt_chasm")]
    assert seeds[0] == seeds[1]


def test_a_line_that_a_killed_process_left_incomplete_is_no_error(make_cache, tmp_path):
    list_seeds(tmp_path / "cache", "7 a\n", "\n", "garbage\n", "8 b\n", "9")
    rng = np.random.default_rng(1)
    cache = make_cache()
    assert {cache.next_seed(rng) for _ in range(3)} == {7, 8, 9}


def test_nothing_is_written_before_the_experiment_has_a_folder(tmp_path):
    cache = LevelCache(tmp_path / "cache", LEVEL, tmp_path / "experiment")
    cache.next_seed(np.random.default_rng(1))
    assert list(tmp_path.iterdir()) == []


HOLD_THE_LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "ab+")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(1000)
"""


def test_a_process_that_dies_while_it_chooses_a_seed_blocks_no_other_one(make_cache, experiment_dir):
    used = seeds_file(experiment_dir / "dmlab_used_lvl_seeds", LEVEL)
    used.parent.mkdir(parents=True)
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(used)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        process.send_signal(signal.SIGKILL)
    make_cache().next_seed(np.random.default_rng(1))
    assert used.stat().st_size > 0


def test_a_cache_that_cannot_be_written_is_logged_once(make_cache, tmp_path, caplog):
    cache = make_cache()
    (tmp_path / "cache").write_text("no folder")
    cache.fetch = lambda key, path: False
    with caplog.at_level(logging.WARNING, "sample_factory"):
        for key in ("a", "b"):
            generate(cache, key, np.random.default_rng(1), tmp_path)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No more maps of contributed/dmlab30/explore_goal_locations_small are stored" in caplog.text


def test_a_list_of_used_seeds_that_cannot_be_written_is_logged_once(
    make_cache, tmp_path, experiment_dir, caplog
):
    list_seeds(tmp_path / "cache", "7 a\n", "8 b\n")
    (experiment_dir / "dmlab_used_lvl_seeds").write_text("no folder")
    cache = make_cache()
    with caplog.at_level(logging.WARNING, "sample_factory"):
        assert {cache.next_seed(np.random.default_rng(1)) for _ in range(2)} == {7, 8}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_engine_gets_the_seeds_and_the_maps(make, tmp_path):
    (tmp_path / "lab").mkdir()  # the folder of the experiment
    env = make("dmlab_explore_goal_locations_small")
    played = []
    for _ in range(3):
        env.reset()
        played.append(env.lab.seed)
    lines = seeds_file(tmp_path / "cache", LEVEL).read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == played
    assert all((tmp_path / "cache" / line.split()[1]).exists() for line in lines)
    env = make("dmlab_explore_goal_locations_small", "--restart_behavior=overwrite")
    for _ in range(3):
        env.reset()
    assert env.lab.seed not in played, "all of them were used in this experiment"

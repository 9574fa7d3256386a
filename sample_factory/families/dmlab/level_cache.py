"""Maps that DeepMind Lab has generated, kept on disk, and the seeds that lead to them.

The folder has the layout of version 1, so that its published sets of maps can be used: a file for each map,
by the key that the engine computes, and for each level a list `_<level>.dm_lvl_seeds` with lines "seed key".
Processes share it without any lock that one could hold when it dies: a map is complete before it gets its
name, lines are appended in one call, and the lock of the list of used seeds is the kernel's.
"""

import errno
import fcntl
import os
import shutil
import uuid
from io import FileIO
from pathlib import Path

import numpy as np

from sample_factory.runtime.log import log
from sample_factory.runtime.safe_files import open_file

SEEDS_SUFFIX = ".dm_lvl_seeds"
USED_SEEDS = "dmlab_used_lvl_seeds"  # folder of the lists of used seeds, below the experiment's folder
MAX_SEED = 2**31 - 1  # exclusive; the engine takes a C int


def seeds_file(folder: Path, level: str) -> Path:
    """Returns the file that lists a level's seeds, those of cached maps or those that are used, depending on
    `folder`: e.g. <folder>/_contributed/dmlab30/rooms_watermaze..."""
    return folder / f"_{level}{SEEDS_SUFFIX}"


class LevelCache:
    """Keeps generated maps on disk: the `level_cache` of deepmind_lab.Lab, for one env. The engine calls
    `fetch` and `write`.

    The env asks `next_seed` for the seed of each episode: first seeds of cached maps in random order, then
    new seeds.

    1. No seed is used twice in an experiment, by any process, also after a resume: used seeds are listed in
       the experiment folder. If the list cannot be written, this is logged once, and seeds may be used again.
    2. If the experiment folder does not exist, as in the trial of an env before a run, no list is written.
    """

    def __init__(self, folder: Path, level: str, experiment_dir: Path):
        self._folder = folder
        self._level = level
        self._experiment_dir = experiment_dir
        self._used_file = seeds_file(experiment_dir / USED_SEEDS, level)
        listed = seeds_file(folder, level)
        self._cached = sorted(set(_parse_seeds(listed.read_bytes()))) if listed.is_file() else []
        self._is_shuffled = False
        self._used: set[int] = set()
        self._num_read = 0  # bytes of the list of used seeds
        self._episode_seed = 0
        self._is_writable = True
        self._lists_used = True

    def next_seed(self, random: np.random.Generator) -> int:
        """Returns a seed for the next episode that is not listed as used, and lists it as used."""
        if not self._is_shuffled:
            random.shuffle(self._cached)
            self._is_shuffled = True
        if self._lists_used and self._experiment_dir.is_dir():
            try:
                self._episode_seed = self._choose_and_list(random)
                return self._episode_seed
            except OSError as error:  # a full disk, or the experiment of another account
                self._lists_used = False
                log.warning(
                    "Seeds of %s may be used again: %s cannot be written: %s",
                    self._level,
                    self._used_file,
                    error.strerror,
                )
        self._episode_seed = self._choose(random)
        return self._episode_seed

    def _choose_and_list(self, random: np.random.Generator) -> int:
        self._used_file.parent.mkdir(parents=True, exist_ok=True)
        with open_file(self._used_file, "ab+", buffering=0) as file:
            _lock(file)
            file.seek(self._num_read)
            lines = file.read()
            self._num_read += len(lines)
            self._used.update(_parse_seeds(lines))
            seed = self._choose(random)
            file.write(f"{seed}\n".encode())  # at the end, wherever the reading has ended
        return seed

    def _choose(self, random: np.random.Generator) -> int:
        while self._cached:
            seed = self._cached.pop()
            if seed not in self._used:
                return seed
        while (seed := int(random.integers(MAX_SEED))) in self._used:
            pass
        return seed

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copies the cached map with this key to `pk3_path`. Returns False if the map is not cached."""
        try:
            shutil.copyfile(self._folder / key, pk3_path)
        except FileNotFoundError:
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Caches the map at `pk3_path` as `key`, and its seed. If that fails, as on a full disk, logs a
        warning, and this process stores no more maps of the level."""
        if not self._is_writable:
            return
        try:
            self._store(key, pk3_path)
        except OSError as error:
            self._is_writable = False
            log.warning("No more maps of %s are stored in %s: %s", self._level, self._folder, error.strerror)

    def _store(self, key: str, pk3_path: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if not (self._folder / key).exists():
            unfinished = self._folder / f".{uuid.uuid4().hex}.unfinished"
            try:
                shutil.copyfile(pk3_path, unfinished)
                os.replace(unfinished, self._folder / key)
            finally:
                unfinished.unlink(missing_ok=True)
        seeds = seeds_file(self._folder, self._level)
        seeds.parent.mkdir(parents=True, exist_ok=True)
        with open_file(seeds, "ab", buffering=0) as file:  # one call: the lines of other processes stay whole
            file.write(f"{self._episode_seed} {key}\n".encode())


def _lock(file: FileIO) -> None:
    """Locks a file until it is closed or the process ends; does nothing on a file system without locks."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
    except OSError as error:  # a file system without locks: two envs may use the same seed
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def _parse_seeds(lines: bytes) -> list[int]:
    """Returns the seeds in lines of a `seeds_file`, the first number of each line. Skips a line without a
    number, which a full disk can leave."""
    words = [line.split()[:1] for line in lines.splitlines()]
    return [int(word[0]) for word in words if word and word[0].isdigit()]

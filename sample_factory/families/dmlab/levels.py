"""Levels of DeepMind Lab: the envs of version 1, the benchmark DMLab-30, and human-normalised scores."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.runtime.registry import did_you_mean

PREFIX = "dmlab_"
FOLDER = "contributed/dmlab30/"
RAW_SCORE = "_dmlab_raw_score"  # end of the name of a statistic
TARGET_OBJECTIVE = "dmlab_target_objective"  # a metric
CUTOFF = 0.8  # similarity from which an unknown name counts as a typing error


# The 30 tasks in their official order: mean scores of an episode by people and by a random policy, of the
# *_test version where there is one. Espeholt et al. 2018 (IMPALA, https://arxiv.org/abs/1802.01561), in the
# precision of their published code.
DMLAB_30: Mapping[str, tuple[float, float]] = {
    "rooms_collect_good_objects_train": (10, 0.073),
    "rooms_exploit_deferred_effects_train": (85.65, 8.501),
    "rooms_select_nonmatching_object": (65.9, 0.312),
    "rooms_watermaze": (54, 4.065),
    "rooms_keys_doors_puzzle": (53.8, 4.135),
    "language_select_described_object": (389.5, -0.07),
    "language_select_located_object": (280.7, 1.929),
    "language_execute_random_task": (254.05, -5.913),
    "language_answer_quantitative_question": (184.5, -0.33),
    "lasertag_one_opponent_small": (12.65, -0.224),
    "lasertag_three_opponents_small": (18.55, -0.214),
    "lasertag_one_opponent_large": (18.6, -0.083),
    "lasertag_three_opponents_large": (31.5, -0.102),
    "natlab_fixed_large_map": (36.9, 2.173),
    "natlab_varying_map_regrowth": (24.45, 2.989),
    "natlab_varying_map_randomized": (42.35, 7.346),
    "skymaze_irreversible_path_hard": (100, 0.1),
    "skymaze_irreversible_path_varied": (100, 14.4),
    "psychlab_arbitrary_visuomotor_mapping": (58.75, 0.163),
    "psychlab_continuous_recognition": (58.3, 0.224),
    "psychlab_sequential_comparison": (39.5, 0.129),
    "psychlab_visual_search": (78.5, 0.085),
    "explore_object_locations_small": (74.45, 3.575),
    "explore_object_locations_large": (65.65, 4.673),
    "explore_obstructed_goals_small": (206, 6.76),
    "explore_obstructed_goals_large": (119.5, 2.61),
    "explore_goal_locations_small": (267.5, 7.66),
    "explore_goal_locations_large": (194.5, 3.14),
    "explore_object_rewards_few": (77.7, 2.073),
    "explore_object_rewards_many": (106.7, 2.438),
}
HELD_OUT = ("rooms_collect_good_objects_test", "rooms_exploit_deferred_effects_test")
# Those that generate a map for each episode, for which the level cache is made.
WITH_GENERATED_MAPS = tuple(
    name
    for name in DMLAB_30
    if name.startswith(("lasertag_", "skymaze_", "explore_")) or name == "rooms_keys_doors_puzzle"
)
# Levels that show the images of --dmlab30_dataset.
WITH_DATASET = ("psychlab_arbitrary_visuomotor_mapping", "psychlab_continuous_recognition")
OTHERS = (
    *("lt_chasm", "lt_hallway_slope", "lt_horseshoe_color", "lt_space_bounce_hard"),
    *("nav_maze_random_goal_01", "nav_maze_random_goal_02", "nav_maze_random_goal_03"),
    *("nav_maze_static_01", "nav_maze_static_02", "nav_maze_static_03"),
    *("seekavoid_arena_01", "stairway_to_melon"),
)


class DmlabSpec(NamedTuple):
    """Lists the levels of an env; each level is a task. settings: further settings of all levels, by DeepMind
    Lab's names."""

    levels: Sequence[str]
    settings: Mapping[str, str] = {}


def level_name(level: str) -> str:
    """Returns the last part of a level's path, e.g. rooms_watermaze."""
    return level.rpartition("/")[2]


def _spec(*names: str, **settings: str) -> DmlabSpec:
    """Returns the spec of an env with the named levels. names: levels of DMLab-30, or paths of any other
    levels."""
    of_30 = (*DMLAB_30, *HELD_OUT)
    return DmlabSpec([f"{FOLDER}{name}" if name in of_30 else name for name in names], settings)


# The names of versions 1 and 2 after "dmlab_".
SPECS: Mapping[str, DmlabSpec] = {
    "30": _spec(*DMLAB_30),
    "level_cache": _spec(*WITH_GENERATED_MAPS),
    "benchmark": _spec("rooms_collect_good_objects_train"),
    "benchmark_slow_reset": _spec("rooms_keys_doors_puzzle"),
    "collect_good_objects": _spec("rooms_collect_good_objects_train"),
    "sparse": _spec("explore_goal_locations_large"),
    "very_sparse": _spec("explore_goal_locations_large", minGoalDistance="10"),
    "sparse_doors": _spec("explore_obstructed_goals_large"),
    "nonmatch": _spec("rooms_select_nonmatching_object"),
    "watermaze": _spec("rooms_watermaze"),
}
NAMES = (*SPECS, *DMLAB_30, *HELD_OUT, *OTHERS)


def find_spec(full_env_name: str) -> DmlabSpec:
    """Returns the spec of an env, i.e. its levels, by the name after `dmlab_`: a name of version 1, a level
    of DMLab-30, or the path of any other level.

    Raises UnknownEnvError for a name that is probably misspelt. A path with a folder is not checked: only the
    engine knows its levels.
    """
    name = full_env_name.removeprefix(PREFIX)
    if name in SPECS:
        return SPECS[name]
    hint = did_you_mean(name, NAMES, CUTOFF, PREFIX)
    if hint and name not in NAMES and "/" not in name:
        raise UnknownEnvError(
            f"unknown env {full_env_name!r}{hint} A level of your own needs a "
            f"folder in its name: {PREFIX}folder/{name}"
        )
    return _spec(name)


def stats_prefix(task: int, level: str) -> str:
    """Returns the beginning of the names of a task's statistics, e.g. z_03_rooms_watermaze."""
    return f"z_{task:02d}_{level_name(level)}"


def human_normalized(level: str, score: float) -> float:
    """Converts a mean score in a DMLab-30 level to percent: 0 is a random policy's score, 100 a human's."""
    human, random = DMLAB_30[level]
    return 100.0 * (score - random) / (human - random)


class HumanScores:
    """Computes human-normalised scores of one policy in DMLab-30. As in IMPALA (Espeholt et al. 2018), the
    scores of a level are averaged, then normalised, then capped at 100."""

    def __init__(self, env_name: str):
        names = [level_name(level) for level in find_spec(env_name).levels]
        is_benchmark = len(names) > 1 and all(name in DMLAB_30 for name in names)
        numbered = enumerate(names) if is_benchmark else ()
        self._levels = {stats_prefix(number, name) + RAW_SCORE: name for number, name in numbered}
        self._scores: dict[str, list[float]] = {}

    def add(self, extra_stats: Mapping[str, float]) -> Mapping[str, float]:
        """Adds the raw score of an episode. Once every level has at least one score, returns metric -> value
        and discards the scores; otherwise returns {}.

        The metrics are version 1's: the score of each level in percent, their mean, and the capped mean,
        which is also TARGET_OBJECTIVE.
        """
        for name in self._levels.keys() & extra_stats.keys():
            self._scores.setdefault(name, []).append(extra_stats[name])
        if not self._levels or len(self._scores) < len(self._levels):
            return {}
        metrics: dict[str, float] = {}
        percents = []
        for index, (name, level) in enumerate(self._levels.items()):
            percent = human_normalized(level, statistics.fmean(self._scores[name]))
            percents.append(percent)
            metrics[f"_dmlab/{index:02d}_{level}_human_norm_score"] = percent
            metrics[f"_dmlab/capped_{index:02d}_{level}_human_norm_score"] = min(100.0, percent)
        capped_mean = statistics.fmean(min(100.0, percent) for percent in percents)
        metrics["_dmlab/000_mean_human_norm_score"] = statistics.fmean(percents)
        metrics["_dmlab/000_capped_mean_human_norm_score"] = capped_mean
        metrics[TARGET_OBJECTIVE] = capped_mean
        self.clear()
        return metrics

    def clear(self) -> None:
        """Discards the scores that were collected since metrics were last returned."""
        self._scores = {}

"""Scores in relation to those of people and of a random policy, over all tasks of an env."""

import statistics
from collections.abc import Mapping

from sample_factory.envs.dmlab.dmlab_env import RAW_SCORE, Task, stats_prefix
from sample_factory.envs.dmlab.levels import DMLAB_30, find_spec, level_name

TARGET_OBJECTIVE = "dmlab_target_objective"


def human_normalized(level: str, score: float) -> float:
    """Returns a mean score of a level of DMLab-30 in percent: 0 is a random policy, 100 people."""
    human, random = DMLAB_30[level]
    return 100.0 * (score - random) / (human - random)


class HumanScores:
    """Collects the scores of one policy. As in IMPALA (Espeholt et al. 2018), scores of a level are averaged
    first, then normalised, then capped at 100, and each mean is over episodes of all tasks."""

    def __init__(self, env_name: str):
        spec = find_spec(env_name)
        names = [level_name(level) for level in spec.levels]
        is_benchmark = len(names) > 1 and all(name in DMLAB_30 for name in names)
        tasks = [Task(index, level) for index, level in enumerate(spec.levels)] if is_benchmark else []
        self._levels = {f"{stats_prefix(task)}{RAW_SCORE}": level_name(task.level) for task in tasks}
        self._scores: dict[str, list[float]] = {}

    def add(self, extra_stats: Mapping[str, float]) -> Mapping[str, float]:
        """Adds an episode. When each task has ended one since the last time, returns metric -> value, and
        begins again; otherwise returns nothing.

        The metrics are version 1's: scores of each level in percent, their mean, and the capped mean, which
        is also TARGET_OBJECTIVE.
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
        """Discards the scores collected since the last time."""
        self._scores = {}

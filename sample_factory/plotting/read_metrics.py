"""A run's metrics as a table of pandas: sample_factory.read_metrics."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sample_factory.config.experiment_folder import experiment_folder, find_experiment, read_saved
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import in_words_of_python
from sample_factory.config.sections import OWN_FOLDER, RunFlags
from sample_factory.plotting.read_summaries import read_policies, what_else

if TYPE_CHECKING:
    from pandas import DataFrame


def read_metrics(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    tags: str | Sequence[str] | None = None,
) -> "DataFrame":
    """Reads all numbers that an experiment has written for TensorBoard, also while it is trained.

    experiment: its name in `train_dir` (by default ./train_dir), or its folder.
    tags: one tag or several, e.g. "0_aux/avg_reward"; None: all of them.

    Returns a table with a row for each number, in the order of policy, tag and env_frames. Columns: `policy`
    (int64), `tag` (text), `env_frames` (int64: trained on so far, in all runs), `seconds` (float64: since the
    first number, without pauses between runs), `value` (float64). For a table with a column per tag, call
    `.pivot(index="env_frames", columns="tag", values="value")` on the rows of one policy.

    Raises ConfigError (a ValueError) if there is no such experiment (it names those beside it) or a tag that
    no policy has, and ImportError if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"read_metrics needs pandas ({error}): pip install -e '.[pandas]'") from None
    try:
        named = find_experiment(experiment, train_dir)
        place = {name: value for name, value in named.items() if name in OWN_FOLDER}
        read_saved(place, {}, evaluation=True)  # raises, with the experiments that there are
        _, policies = read_policies(experiment_folder(RunFlags(**place)))
        known = {tag for curves in policies for tag in curves}
        wanted = known if tags is None else {tags} if isinstance(tags, str) else set(tags)
        for tag in sorted(wanted - known):
            raise ConfigError(f"there are no numbers under the tag {tag}{what_else(tag, known)}")
    except ConfigError as error:
        raise in_words_of_python(error) from None
    tables = [
        pandas.DataFrame(
            {
                "policy": policy,
                "tag": tag,
                "env_frames": curves[tag].steps.astype(np.int64),
                "seconds": curves[tag].seconds,
                "value": curves[tag].values,
            }
        )
        for policy, curves in enumerate(policies)
        for tag in sorted(wanted & set(curves))
    ]
    return pandas.concat(tables, ignore_index=True)

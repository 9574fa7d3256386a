"""Converts the evolving settings of a population of Sample Factory 1 or 2: policy_00_cfg.json and so on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.config import Config
from sample_factory.config.consistency import check_values
from sample_factory.config.experiment_folder import read_json, write_atomically
from sample_factory.config.flags import ConfigError, coerce
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.population.pbt import settings_files, tuned_hyperparameters
from sample_factory.runtime.log import log

DOOM = "doom_"
NONE = b"null"  # the contents of the file of an env without reward shaping


def convert_population(source: Path, folder: Path, config: Config) -> None:
    """Converts the evolved hyperparameters and reward shaping of all policies, as far as they evolve in this
    version too. Does nothing for an experiment without a population.

    source: folder of the old experiment. folder: folder to write to. config: configuration of the new
        experiment.
    Raises ConfigError for settings that cannot be used, OSError for a file that cannot be written. A reward
    shaping of another form is logged and left out.
    """
    if not config.population.with_pbt:
        return
    names = tuned_hyperparameters(config.population, config.run.algo)
    for policy_id in range(config.sampling.num_policies):
        old, new = (settings_files(place, policy_id) for place in (source, folder))
        if old[0].exists():
            saved = read_json(old[0])
            evolved = {name: saved[name] for name in names if name in saved}
            section = LearningFlags(**coerce(LearningFlags, evolved, str(old[0])))
            check_values(section, dict.fromkeys(evolved, str(old[0])))
            _write(new[0], evolved)
        if old[1].is_file() and old[1].read_bytes().strip() != NONE:
            try:
                _write(new[1], new_shaping(read_json(old[1]), config.env_name))
            except ConfigError as error:
                log.warning("Policy %d starts from the default reward shaping: %s", policy_id, error)


def new_shaping(old: Mapping[str, Any], env_name: str) -> dict[str, Any]:
    """Converts a reward shaping to the form of this version. Only Doom envs have another form: {"gain": w,
    "loss": w} in place of pairs. Raises ConfigError for any other form."""
    if not env_name.startswith(DOOM) or "delta" not in old:
        return dict(old)
    try:
        pairs = [(name, *pair) for name, pair in old["delta"].items()]
        return {**old, "delta": {name: {"gain": gain, "loss": loss} for name, gain, loss in pairs}}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError('its "delta" should hold pairs of a gain and a loss') from None


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(values, indent=4) + "\n")

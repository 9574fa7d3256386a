"""The README.md of a repository: metadata that the Hub and leaderboards read, results, and commands."""

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.checkpoints.milestones import env_frames_of, find_checkpoints, version_of
from sample_factory.config.algorithms import algorithm_info
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import SAVED_NAMES, read_json
from sample_factory.config.flags import default_of
from sample_factory.config.observation_defaults import FOLLOWING
from sample_factory.config.parsing import as_arguments
from sample_factory.config.sections import OWN_FOLDER, TRAINING_SECTIONS, RunFlags
from sample_factory.config.trust import TRUST
from sample_factory.config.versions import VERSIONS_KEY, describe_versions
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_registry import is_found_by_all_commands
from sample_factory.evaluation.policy_choice import LATEST, PolicyChoice, chosen_policies, names_file
from sample_factory.hub.hub_access import LIBRARY

TASK = "reinforcement-learning"
TAGS = ("deep-reinforcement-learning", TASK, LIBRARY)
# The statistic that version 2 reports as the mean reward, and leaderboards compare.
METRIC = "true_objective"
# Not part of how a policy was trained.
LEFT_OUT = (*OWN_FOLDER, TRUST, "env", "cfg", "restart_behavior", "device", "log_to_file", "figures_file")


def model_card(
    config: Config, family: EnvFamily, checkpoint: Path, results: Mapping[str, Any] | None, has_video: bool
) -> str:
    """Returns the README.md of a repository, as text.
    config: configuration with the section "hub". checkpoint: file of the policy that is pushed.
    results: contents of evaluation.json; None for a card without results.
    has_video: whether the repository has a replay.mp4."""
    from huggingface_hub import EvalResult, ModelCardData

    header = ModelCardData(library_name=LIBRARY, tags=[*TAGS, config.env_name])
    metric = None if results is None else results["evaluations"][0]["statistics"].get(METRIC)
    if metric is not None and metric["mean"] is not None:  # of objectives that are not finite, there is none
        header.model_name = config.run.algo
        header.eval_results = [
            EvalResult(
                task_type=TASK,
                task_name=TASK,
                dataset_type=config.env_name,
                dataset_name=config.env_name,
                metric_type="mean_reward",
                metric_name="mean_reward",
                metric_value=f"{metric['mean']:.2f} +/- {metric['std']:.2f}",  # leaderboards parse this form
                verified=False,
            )
        ]
    flags = config.extra["hub"]
    repository: str = flags.hf_repository
    name = repository.partition("/")[2]
    has_commands = is_found_by_all_commands(config.env_name)
    enjoy = flags.enjoy_script or ("sample_factory.enjoy" if has_commands else "YOUR.ENJOY.MODULE")
    train = flags.train_script or ("sample_factory.train" if has_commands else "YOUR.TRAIN.MODULE")
    frames = env_frames_of(checkpoint)
    choice = chosen_policies(config)[0]
    latest = find_checkpoints(config.experiment_dir, choice.policy_index, LATEST)
    frames_to_come = 2 * env_frames_of((latest or [checkpoint])[-1])  # training goes on from the latest one
    played = played_flags(config, choice, checkpoint, results)
    play = "".join(f" {shlex.quote(word)}" for word in as_arguments(played))
    keywords = "".join(
        f", {flag.removeprefix('eval_')}={json.dumps(value) if isinstance(value, str) else value}"
        for flag, value in played.items()
    )
    saved = read_json(next(path for name in SAVED_NAMES if (path := config.experiment_dir / name).exists()))
    settings = "".join(f" \\\n    {flag}" for flag in training_flags(saved, family))
    made_with = saved.get(VERSIONS_KEY)
    with_versions = as_cell(describe_versions(made_with if isinstance(made_with, Mapping) else {}))
    env = shlex.quote(f"--env={config.env_name}")
    video = "`replay.mp4` shows the agent.\n\n" if has_video else ""
    return f"""---
{header}
---

# {name}

A policy for **{as_cell(config.env_name)}**, trained with **{as_cell(config.run.algo)}** of {with_versions}, \
for {frames:,} env frames ({version_of(checkpoint):,} SGD steps).

{video}{results_section(results)}## Use

The commands run in a checkout of Sample Factory 3 with `pip install -e '.[hub]'`. The package \
`sample-factory` 2 of PyPI has other networks, and does not load this policy.

```bash
python -m sample_factory load_from_hub -r {repository}
```

This makes the experiment `train_dir/{name}`. Watch and measure it, and continue its training:

```bash
python -m {enjoy} {env} --experiment={name}{play}
python -m sample_factory eval --experiment={name} --eval_episodes=100{play}
python -m {train} {env} --experiment={name} --train_for_env_steps={frames_to_come}
```

From Python:

```python
import sample_factory

policy = sample_factory.load_policy("{name}"{keywords})
env = policy.make_env()
observation, info = env.reset()
action = policy.act(observation)
```

## Training

All settings are in `cfg.json`, the curves in `.summary/`. Settings that differ from the defaults of the \
env, or that follow its observations:

```bash
python -m {train} {env} --experiment={name}_again{settings}
```
"""


def played_flags(
    config: Config, choice: PolicyChoice, checkpoint: Path, results: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns flag -> value, without defaults, to play the downloaded experiment as it was measured.
    checkpoint: file of `choice`. results: contents of evaluation.json; None if there is none."""
    policy_index, played = choice
    if names_file(played):
        folder = config.extra["hub"].hf_repository.partition("/")[2]
        path = checkpoint.relative_to(config.experiment_dir.resolve())
        played = f"train_dir/{folder}/{path.as_posix()}"
    is_deterministic = config.evaluation.eval_deterministic if results is None else results["deterministic"]
    flags = {"policy_index": policy_index, "checkpoint": played, "eval_deterministic": is_deterministic}
    defaults = {"policy_index": 0, "checkpoint": LATEST, "eval_deterministic": False}
    return {name: value for name, value in flags.items() if value != defaults[name]}


def results_section(results: Mapping[str, Any] | None) -> str:
    """Returns the section of the model card with a table of the evaluation's statistics, in Markdown; ""
    without results. results: contents of evaluation.json. Raises KeyError or TypeError for another form."""
    if results is None:
        return ""
    how = "the most likely actions" if results["deterministic"] else "actions drawn from the policy"
    lines = ["## Results", ""]
    for evaluation, checkpoint in zip(results["evaluations"], results["checkpoints"]):
        checkpoint = as_cell(checkpoint)
        policies = dict.fromkeys(as_cell(choice["policy_index"]) for choice in evaluation["policies"])
        played = f"policy {''.join(policies)} (`{checkpoint}`)"
        if len(policies) > 1:  # e.g. one for each kind of agents
            played = f"policies {' and '.join(policies)} together (`{checkpoint}` is one of them)"
        lines += [
            f"{int(evaluation['num_episodes'])} episodes of {played} with {how}; "
            "`evaluation.json` has each of them. The interval holds the true mean with 95 % confidence.",
            "",
            "| | mean | standard deviation | 95 % interval of the mean |",
            "|---|---|---|---|",
        ]
        statistics = evaluation["statistics"]
        for name, value in statistics.items():
            is_reward = name == METRIC and value == statistics.get("reward")
            if value["mean"] is not None and not is_reward:
                has_interval = value["low"] is not None
                interval = f"{value['low']:.3f} to {value['high']:.3f}" if has_interval else ""
                lines.append(f"| {as_cell(name)} | {value['mean']:.3f} | {value['std']:.3f} | {interval} |")
        lines.append("")
    return "\n".join([*lines, ""])


def as_cell(value: Any) -> str:
    """Converts a value from a file to text for a table, without line breaks, Markdown or HTML."""
    return re.sub(r"[^\w ./:+()%=,-]", "?", str(value))


def training_flags(saved: Mapping[str, Any], family: EnvFamily) -> list[str]:
    """Returns the flags to type to repeat a training with the saved settings: settings that differ from the
    defaults of the env family and of the algorithm, and settings whose default depends on the observations,
    since no env is made here to look at them."""
    sections = [section for name, section in TRAINING_SECTIONS.items() if name != "evaluation"]
    defaults = {"algo": RunFlags.algo, **family.defaults}
    defaults |= algorithm_info(str(saved.get("algo", defaults["algo"]))).defaults
    flags = []
    for section in [*sections, *([] if family.flags is None else [family.flags])]:
        for field in dataclasses.fields(section):
            default = defaults.get(field.name, default_of(field))
            default = list(default) if isinstance(default, tuple) else default  # JSON has lists
            value = saved.get(field.name, default)
            follows = family.follows_observation and field.name in FOLLOWING and value is not None
            cannot_be_typed = field.metadata["actions"] == ()
            if field.name in LEFT_OUT or cannot_be_typed or (value == default and not follows):
                continue
            # `as_arguments` leaves None out, which would not unset a default.
            typed = shlex.join(as_arguments({field.name: "None" if value is None else value}))
            if typed.isprintable():
                flags.append(typed)
    return flags

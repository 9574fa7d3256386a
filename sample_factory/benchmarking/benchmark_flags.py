"""The flags of `benchmark`. Imports no torch, so that bad flags are reported at once."""

from dataclasses import dataclass
from typing import Any

from sample_factory.benchmarking.random_sampler import DUMMY_SAMPLER
from sample_factory.config.command import OF_TRAINING, Command
from sample_factory.config.config import Config
from sample_factory.config.flags import flag
from sample_factory.config.parsing import as_arguments


@dataclass(frozen=True)
class BenchmarkFlags:
    """Measurement and file of the benchmark."""

    seconds: float = flag(60.0, "length of each of the three measurements, in seconds", at_least=2)
    warmup_seconds: float = flag(15.0, "seconds before each measurement that do not count", at_least=0)
    repeats: int = flag(
        1, "times that all stages are measured; the report is about the median of each", at_least=1
    )
    json: str | None = flag(
        None, "file for all figures, with hardware, versions and command lines", is_output=True
    )


BENCHMARK = Command(
    name="benchmark",
    experiment="new",
    description="Measures simulation, sampling and training one after the other, a minute each, and reports "
    "what limits the speed. It sets the flags that decide when training stops and where it writes; it changes"
    " no experiment.",
    examples="""
    # Measure the flags that a run will have.
    --env=doom_battle --num_envs_per_worker=16
    # The median of three runs.
    --env=doom_battle --repeats=3
    # Write all figures to a file.
    --env=gym_CartPole-v1 --seconds=20 --json=speed.json
    """,
    run="sample_factory.benchmarking.benchmark:benchmark",
    sections={"benchmark": BenchmarkFlags},
    reads=OF_TRAINING
    - {"experiment", "experiments_root", "train_dir", "restart_behavior", "benchmark", "sampler_only"}
    - {"figures_file", "status_interval", "load_checkpoint_kind"}
    - {"decorrelate_envs_on_one_worker", "decorrelate_experience_max_seconds"}
    - {
        "with_wandb",
        "wandb_user",
        "wandb_project",
        "wandb_group",
        "wandb_job_type",
        "wandb_tags",
        "wandb_dir",
    },
    instead=dict.fromkeys(("train_for_env_steps", "train_for_seconds"), "write --seconds=N"),
)


def training_flags(config: Config) -> list[str]:
    """Returns the typed flags for `train`, as arguments: all but the benchmark's own flags."""
    own = vars(config.extra["benchmark"])
    return as_arguments({name: value for name, value in _typed(config).items() if name not in own})


def simulation_flags(config: Config) -> list[str]:
    """Returns the typed flags that `dummy_sampler` reads, as arguments."""
    used = {name: value for name, value in _typed(config).items() if _is_of_simulation(config, name)}
    return as_arguments(used)


def _is_of_simulation(config: Config, name: str) -> bool:
    section = config.section_of(name)
    return section not in (None, "benchmark") and DUMMY_SAMPLER.uses(name, section)


def _typed(config: Config) -> dict[str, Any]:
    # `as_arguments` leaves None out, which would not unset what a --cfg file has set.
    return {name: "None" if value is None else value for name, value in config.typed.items()}

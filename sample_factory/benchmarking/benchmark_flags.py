"""The flags of `benchmark`. Imports neither torch nor matplotlib, so that bad flags are reported at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_factory.config.commands import BENCHMARK, DUMMY_SAMPLER
from sample_factory.config.config import Config
from sample_factory.config.flags import flag, make_parser, parse_known
from sample_factory.config.parsing import as_arguments, parse_config
from sample_factory.plotting.drawing import house_style
from sample_factory.plotting.plot_command import check_out, named_number


@dataclass(frozen=True)
class BenchmarkFlags:
    """Measurement and files of the benchmark."""

    seconds: float = flag(60.0, "length of each of the three measurements, in seconds", at_least=2)
    warmup_seconds: float = flag(15.0, "seconds before each measurement that do not count", at_least=0)
    repeats: int = flag(
        1, "times that all stages are measured; the report is about the median of each", at_least=1
    )
    json: str | None = flag(
        None, "file for all figures, with hardware, versions and command lines", is_output=True
    )
    chart: str | None = flag(None, "file for a bar chart of the speeds: .png, .svg or .pdf", is_output=True)
    compare: tuple[str, ...] = flag(
        (),
        "speed of another program on this machine, for the table and the chart; may be repeated",
        metavar="NAME=FPS",
    )

    def __post_init__(self) -> None:
        """Finds before the measurement what would otherwise fail after it. Raises ConfigError."""
        _ = self.others
        if self.chart is not None:
            check_out(Path(self.chart), "--chart")
            house_style()  # raises if matplotlib is missing

    @property
    def others(self) -> dict[str, float]:
        """Name -> FPS of --compare. Raises ConfigError."""
        form = "NAME=FPS, e.g. v2=1400"
        return dict(named_number("--compare", text, form, least=0.0) for text in self.compare)


def parse_arguments(argv: Sequence[str]) -> Config:
    """Returns the configuration of training with the extra section `benchmark`, BenchmarkFlags.

    Raises ConfigError and UnknownEnvError. Prints the help and exits with 0 on --help.
    """
    from sample_factory.envs.env_registry import resolve_family

    extra = {"benchmark": BenchmarkFlags}
    return parse_config(_join_repeated(argv), resolve_family, extra_sections=extra, command=BENCHMARK)


def _join_repeated(argv: Sequence[str]) -> list[str]:
    """--compare=A=1 --compare=B=2 becomes --compare A=1 B=2."""
    parser = make_parser()
    parser.add_argument("--compare", action="extend", nargs="*", default=[])
    found, rest = parse_known(parser, argv)
    return [*rest, "--compare", *found.compare] if found.compare else rest


def training_flags(config: Config) -> list[str]:
    """Returns the typed arguments without the flags of the benchmark."""
    own = vars(config.extra["benchmark"])
    return as_arguments({name: value for name, value in _typed(config).items() if name not in own})


def simulation_flags(config: Config) -> list[str]:
    """Returns the typed arguments that `dummy_sampler` reads."""
    used = {name: value for name, value in _typed(config).items() if _is_of_simulation(config, name)}
    return as_arguments(used)


def _is_of_simulation(config: Config, name: str) -> bool:
    section = config.section_of(name)
    return section not in (None, "benchmark") and DUMMY_SAMPLER.uses(name, section)


def _typed(config: Config) -> dict[str, Any]:
    # `as_arguments` leaves None out, which would not unset what a --cfg file has set.
    return {name: "None" if value is None else value for name, value in config.typed.items()}

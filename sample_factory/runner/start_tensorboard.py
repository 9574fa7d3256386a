"""Starts TensorBoard on some of the experiments in a folder."""

import fnmatch
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sample_factory.config.command import Command
from sample_factory.config.experiment_folder import NUM_LISTED
from sample_factory.config.flags import ConfigError, flag
from sample_factory.launch.command_line import main_of
from sample_factory.runtime.programs import Program


@dataclass(frozen=True)
class TensorBoardFlags:
    """TensorBoard."""

    filters: tuple[str, ...] = flag(
        (),
        "experiments to show, by name or path below --dir, with * and ?; without one: all of them",
        metavar="MASK",
        is_positional=True,
    )
    dir: str = flag("train_dir", "folder of experiments", metavar="FOLDER")
    port: int = flag(6006, "port of TensorBoard")
    bind_all: bool = flag(False, "reachable from other machines")
    quiet: bool = flag(False, "without TensorBoard's own messages", aliases=("-q",))
    refresh_every: int = flag(
        36_000,
        "time after which TensorBoard starts again, also with new experiments",
        metavar="SECONDS",
        aliases=("-r",),
    )
    reload_interval: int = flag(60, "seconds between two looks for new data")


def find_experiments(folder: Path, masks: Sequence[str]) -> list[Path]:
    """Returns the experiment folders, at any depth below `folder`, that match a mask; all without masks.

    A mask with * and ? is compared with the name and the path below `folder` of the experiment, and of each
    folder around it. Raises ConfigError if nothing matches.
    """
    places = {place.parent.relative_to(folder) for place in folder.rglob(".summary")}
    everything = sorted(path for path in places if places.isdisjoint(path.parents))  # none within another
    found = []
    for path in everything:
        names = [name for part in (path, *path.parents[:-1]) for name in (part.name, str(part))]
        if not masks or any(fnmatch.fnmatchcase(name, mask.rstrip("/")) for name in names for mask in masks):
            found.append(folder / path)
    if not everything:
        raise ConfigError(f"--dir={folder}: there are no experiments with summaries in this folder")
    if not found:
        listed = ", ".join(map(str, everything[:NUM_LISTED]))
        raise ConfigError(f"no experiment in {folder} matches {' or '.join(masks)}; there are {listed}")
    return found


def tensorboard_command(flags: TensorBoardFlags) -> list[str]:
    """Returns the command that starts TensorBoard. Raises ConfigError if no experiment matches."""
    folder = Path(flags.dir).expanduser()
    where = f"--logdir={folder}"
    found = find_experiments(folder, flags.filters)
    if flags.filters:
        unusable = [path for path in found if "," in str(path) or ":" in str(path)]  # its own separators
        if unusable:
            fault = "TensorBoard cannot select a folder with a comma or colon in its name"
            raise ConfigError(f"{unusable[0]}: {fault}")
        where = "--logdir_spec=" + ",".join(f"{path.relative_to(folder)}:{path}" for path in found)
    network = "--bind_all" if flags.bind_all else "--host=localhost"
    options = [f"--port={flags.port}", network, f"--reload_interval={flags.reload_interval}"]
    # Its data server would also show points that a resumed run has left behind, see TensorboardWriter.begin.
    options += ["--samples_per_plugin=scalars=1000", "--load_fast=false"]
    return [sys.executable, "-m", "tensorboard.main", where, *options]


def watch(flags: TensorBoardFlags) -> int:
    """Runs TensorBoard until Ctrl+C; returns its exit code. Raises ConfigError if no experiment matches."""
    while True:
        command = tensorboard_command(flags)
        print(" ".join(command), flush=True)
        process = Program(command, subprocess.DEVNULL if flags.quiet else None)
        try:
            return process.wait(flags.refresh_every)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            return 0
        finally:
            process.end((signal.SIGTERM, None))


TB = Command(
    name="tb",
    description="Starts TensorBoard on experiments that are selected by the names of their folders.",
    examples="""
    # All experiments in train_dir.
    
    # Those with battle in their names, also in folders of grids.
    '*battle*'
    # The runs of a grid with seed 0.
    'my_grid/*_see_0*' --dir=train_dir --port=6007
    """,
    run=watch,
    sections={"tensorboard": TensorBoardFlags},
)
main = main_of(TB)

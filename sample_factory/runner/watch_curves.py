"""Starts TensorBoard on some of the experiments in a folder."""

import argparse
import fnmatch
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sample_factory.config.commands import TB
from sample_factory.config.experiment_folder import NUM_LISTED
from sample_factory.config.flags import ConfigError
from sample_factory.config.help import make_command_parser
from sample_factory.config.unknown_flags import parse_words


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError. Prints the help and exits with 0 on --help."""
    parser = make_command_parser(TB)
    add = parser.add_argument
    masks = "experiments to show, by name or path below --dir, with * and ?; without one: all of them"
    add("filters", nargs="*", metavar="MASK", help=masks)
    add("--dir", type=Path, default="train_dir", help="folder of experiments (default: ./train_dir)")
    add("--port", type=int, default=6006, help="port of TensorBoard (default: 6006)")
    add("--bind_all", action="store_true", help="reachable from other machines")
    add("-q", "--quiet", action="store_true", help="without TensorBoard's own messages")
    restart = "time after which TensorBoard starts again, also with new experiments (default: 36000)"
    add("-r", "--refresh_every", type=int, default=36000, metavar="SECONDS", help=restart)
    interval = "seconds between two looks for new data (default: 60)"
    add("--reload_interval", type=int, default=60, help=interval)
    return parse_words(parser, argv)


def find_experiments(folder: Path, masks: Sequence[str]) -> list[Path]:
    """Returns the folders of experiments, at any depth, that match a mask; all without masks.

    A mask is for the name or the path below `folder` of an experiment, or of a folder around it.
    Raises ConfigError if there are none.
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


def tensorboard_command(arguments: argparse.Namespace) -> list[str]:
    """Returns the command. Raises ConfigError if no experiment matches."""
    folder = arguments.dir.expanduser()
    where = f"--logdir={folder}"
    found = find_experiments(folder, arguments.filters)
    if arguments.filters:
        unusable = [path for path in found if "," in str(path) or ":" in str(path)]  # its own separators
        if unusable:
            fault = "TensorBoard cannot select a folder with a comma or colon in its name"
            raise ConfigError(f"{unusable[0]}: {fault}")
        where = "--logdir_spec=" + ",".join(f"{path.relative_to(folder)}:{path}" for path in found)
    network = "--bind_all" if arguments.bind_all else "--host=localhost"
    options = [f"--port={arguments.port}", network, f"--reload_interval={arguments.reload_interval}"]
    return [sys.executable, "-m", "tensorboard.main", where, *options, "--samples_per_plugin=scalars=1000"]


def watch(argv: Sequence[str]) -> int:
    """Runs TensorBoard until Ctrl+C; returns its exit code. Raises ConfigError."""
    arguments = parse_arguments(argv)
    while True:
        command = tensorboard_command(arguments)
        print(" ".join(command), flush=True)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL if arguments.quiet else None)
        try:
            return process.wait(arguments.refresh_every)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            return 0
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

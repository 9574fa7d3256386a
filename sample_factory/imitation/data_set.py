"""Reads data sets in Minari's formats, which may come from strangers, as data only.

Only descriptions of spaces are handed to Minari. Its own reader makes the env that the metadata name, with
any function as its entry point; follows links in an HDF5 file to other files; and lets Pillow guess the
format of a picture, which for PostScript runs Ghostscript.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sample_factory.config.experiment_folder import read_json
from sample_factory.config.flags import ConfigError
from sample_factory.config.trust import refuse_links
from sample_factory.envs.packages import is_installed, missing_package

METADATA = "metadata.json"
MAX_METADATA_BYTES = 500_000_000  # the space of an image has a lower and an upper bound for each number
HDF5_FILE = "main_data.hdf5"
REMEDY = "Replace it by a copy"
NUMBERS = "biuf"  # kinds of NumPy's dtypes


class RawEpisode(NamedTuple):
    """An episode of T steps as a Minari data set stores it.
    observations, actions: values of the data set's spaces, in batches of T + 1 and T, with None in place of
        texts.
    rewards, terminations, truncations: [T]."""

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


class DataSet(NamedTuple):
    """A Minari data set on disk.
    read: returns the episode with an index, 0 to num_episodes - 1. A damaged file may raise any exception."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    num_episodes: int
    read: Callable[[int], RawEpisode]


def open_data_set(name: str) -> DataSet:
    """Opens a Minari data set: a folder, or a name in `minari list local`. Raises ConfigError if it does not
    exist, cannot be read, or was written by a version of Minari that the installed one does not read."""
    from minari import supported_dataset_versions
    from minari.storage import get_dataset_path

    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = get_dataset_path(name)
        if not folder.is_dir():
            raise ConfigError(f"there is no folder of this name, and no {folder}")
    refuse_links(folder, REMEDY)
    data = folder / "data"
    metadata = read_json(data / METADATA, MAX_METADATA_BYTES)
    version, length = metadata.get("minari_version"), metadata.get("total_episodes")
    if version not in supported_dataset_versions:
        raise ConfigError(f"it is of Minari {version}, which the installed one does not read")
    if type(length) is not int or length < 0:
        raise ConfigError(f"total_episodes = {length!r} in {METADATA} should be a number from 0")
    observations, actions = (_space(metadata, key) for key in ("observation_space", "action_space"))
    has_jpegs = metadata.get("jpeg_encoding", True) is not False
    reader = _reader(metadata.get("data_format"))

    def read(index: int) -> RawEpisode:
        parts = reader(data, index, has_jpegs, observations, actions)
        return _checked(RawEpisode(*parts))

    return DataSet(observations, actions, length, read)


def _space(metadata: dict[str, Any], key: str) -> gym.Space[Any]:
    from minari.serialization import deserialize_space

    text = metadata.get(key)
    if not isinstance(text, str):
        raise ConfigError(
            f"{METADATA} has no {key}. The env that it may name instead is not made, since that could run "
            "any code; record the data set with its spaces"
        )
    try:
        space: gym.Space[Any] = deserialize_space(text)
    except Exception:  # Minari raises many kinds, some without a message
        raise ConfigError(f"{key} in {METADATA} is not a space as Minari writes it") from None
    return space


def _reader(data_format: Any) -> Callable[..., tuple[Any, ...]]:
    if data_format in ("arrow", "parquet"):
        return lambda *args: _read_arrow(data_format, *args)
    if data_format != "hdf5":
        raise ConfigError(f"data_format = {data_format!r} in {METADATA} should be arrow, parquet or hdf5")
    if not is_installed("h5py"):
        raise missing_package("an HDF5 file", "h5py", "record")
    return _read_hdf5


def _checked(episode: RawEpisode) -> RawEpisode:
    """Validates an episode and returns it unchanged. Raises ValueError if its arrays contain anything but
    numbers, or have different numbers of steps, and for rewards that are not finite."""
    seen = _arrays(episode.observations)
    steps = [episode.rewards, episode.terminations, episode.truncations]
    arrays = [*_arrays(episode.actions), *steps]
    for array in (*seen, *arrays):
        if array.dtype.kind not in NUMBERS:
            raise ValueError(f"it has arrays of {array.dtype}, not of numbers")
    lengths = {len(array) for array in arrays} | {len(array) - 1 for array in seen}
    if len(lengths) != 1:
        raise ValueError(f"its parts have different numbers of steps: {sorted(lengths)}")
    if any(array.ndim != 1 for array in steps) or not np.all(np.isfinite(episode.rewards)):
        raise ValueError("its rewards and ends should be one finite number a step")
    return episode


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return [array for part in parts for array in _arrays(part)]
    return [] if value is None else [value]


def _decode(space: gym.Space[Any], part: Callable[..., Any], has_jpegs: bool, path: tuple[Any, ...]) -> Any:
    """Reads a batch of B values of a space from a data set: an array [B, *shape], or nested dicts and tuples
    of arrays for a Dict or Tuple; None for a Text space.

    part: function that reads one array. part(path, is_files=False) returns B values with their numbers in
        order, but perhaps in another shape; part(path, is_files=True) returns B picture files, as bytes.
    has_jpegs: whether images are stored as JPEG files. path: keys and indices that lead from the whole space
        to `space`.
    """
    if isinstance(space, gym.spaces.Dict):
        return {key: _decode(child, part, has_jpegs, (*path, key)) for key, child in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_decode(child, part, has_jpegs, (*path, i)) for i, child in enumerate(space.spaces))
    if isinstance(space, gym.spaces.Text):
        return None
    if has_jpegs and _is_picture(space):
        return np.stack([_picture(file) for file in part(path, is_files=True)])
    return part(path, is_files=False).reshape(-1, *(space.shape or ()))


def _is_picture(space: gym.Space[Any]) -> bool:
    from minari.dataset.minari_storage import is_image_space

    return bool(is_image_space(space))


def _picture(file: bytes) -> np.ndarray:
    from PIL import Image

    try:
        return np.array(Image.open(io.BytesIO(file), formats=["JPEG"]))
    except OSError:
        raise ValueError("a picture is not a JPEG file, or damaged") from None


def _read_arrow(
    data_format: str, data: Path, index: int, has_jpegs: bool, observed: gym.Space[Any], acted: gym.Space[Any]
) -> tuple[Any, ...]:
    import pyarrow as pa
    import pyarrow.dataset

    ignored = ["_", ".", METADATA]
    files = pyarrow.dataset.dataset(str(data / str(index)), format=data_format, ignore_prefixes=ignored)
    columns = ["observations", "actions", "rewards", "terminations", "truncations"]
    table = files.to_table(columns=columns).combine_chunks()

    def column(name: str, num_padding: int = 0) -> Any:
        chunks = table[name].chunks
        whole = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        return whole[: len(whole) - num_padding]

    def part_of(array: Any) -> Callable[..., Any]:
        def part(path: tuple[Any, ...], is_files: bool) -> Any:
            leaf = array
            for key in path:
                leaf = leaf.field(str(key))
            if is_files:
                return leaf.to_pylist()
            while pa.types.is_list(leaf.type) or pa.types.is_fixed_size_list(leaf.type):
                leaf = leaf.flatten()
            return leaf.to_numpy(zero_copy_only=False)

        return part

    return (
        _decode(observed, part_of(column("observations")), has_jpegs, ()),
        _decode(acted, part_of(column("actions", 1)), has_jpegs, ()),
        *(column(name, 1).to_numpy(zero_copy_only=False) for name in columns[2:]),
    )


def _read_hdf5(
    data: Path, index: int, has_jpegs: bool, observed: gym.Space[Any], acted: gym.Space[Any]
) -> tuple[Any, ...]:
    import h5py

    with h5py.File(data / HDF5_FILE, "r") as file:

        def part_of(name: str) -> Callable[..., Any]:
            def part(path: tuple[Any, ...], is_files: bool) -> Any:
                names = [f"_index_{key}" if isinstance(key, int) else key for key in path]
                stored = _hdf5_item(file, [f"episode_{index}", name, *names])
                row_type = h5py.check_vlen_dtype(stored.dtype) if is_files else None
                # An opaque type that names Python objects would be read as pointers to them.
                if np.dtype(row_type or stored.dtype).kind not in NUMBERS:
                    raise ValueError(f"{stored.name} has {stored.dtype}, not numbers")
                return [row.tobytes() for row in stored[()]] if is_files else stored[()]

            return part

        return (
            _decode(observed, part_of("observations"), has_jpegs, ()),
            _decode(acted, part_of("actions"), has_jpegs, ()),
            *(part_of(name)((), False) for name in ("rewards", "terminations", "truncations")),
        )


def _hdf5_item(file: Any, names: list[str]) -> Any:
    """Returns the array at a path of names in an HDF5 file. Raises ValueError if a link in the path, or the
    array itself, may lead to another file."""
    import h5py

    item = file
    for name in (part for text in names for part in text.split("/")):
        if not isinstance(item, h5py.Group) or not isinstance(item.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} below {item.name} is missing, or a link")
        item = item[name]
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise ValueError(f"{item.name} is no array, or one of another file")
    return item

"""Data sets of strangers: read as Minari reads them, without code of theirs and without files elsewhere."""

import json
import os
import shutil

import gymnasium as gym
import h5py
import minari
import numpy as np
import pytest
from minari.data_collector.episode_buffer import EpisodeBuffer
from PIL import EpsImagePlugin

from sample_factory.config.flags import ConfigError
from sample_factory.imitation.data_set import open_data_set
from sample_factory.imitation.games import load_games
from sample_factory.spaces.agent_kinds import KindSpaces

FORMATS = ("arrow", "parquet", "hdf5")
OBSERVED = gym.spaces.Dict(
    {
        "numbers": gym.spaces.Box(-1, 1, (2, 3), np.float32),
        "picture": gym.spaces.Box(0, 255, (32, 40, 3), np.uint8),
        "pair": gym.spaces.Tuple([gym.spaces.Discrete(5), gym.spaces.Box(0, 1, (), np.float64)]),
        "words": gym.spaces.Text(10),
    }
)
ACTED = gym.spaces.Tuple([gym.spaces.MultiDiscrete([3, 4]), gym.spaces.Discrete(3, start=2)])
SPACES = KindSpaces(
    gym.spaces.Dict({"numbers": gym.spaces.Box(-1, 1, (2, 3), np.float32)}),
    gym.spaces.Tuple([gym.spaces.MultiDiscrete([3, 4]), gym.spaces.Discrete(3)]),
)


def episodes():
    rng = np.random.default_rng(0)
    for length in (1, 7):
        rows = length + 1
        yield EpisodeBuffer(
            observations={
                "numbers": rng.uniform(-1, 1, (rows, 2, 3)).astype(np.float32),
                "picture": rng.integers(0, 256, (rows, 32, 40, 3)).astype(np.uint8),
                "pair": (rng.integers(5, size=rows), rng.random(rows)),
                "words": ["word"] * rows,
            },
            actions=(rng.integers(3, size=(length, 2)), rng.integers(2, 5, length)),
            rewards=rng.random(length),
            terminations=np.arange(rows - 1) == length - 1,
            truncations=np.zeros(length, bool),
            infos={},
        )


@pytest.fixture(params=FORMATS)
def folder(request, tmp_path, monkeypatch):
    """A data set that others have recorded with Minari."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari.create_dataset_from_buffers(
        "games-v0",
        list(episodes()),
        observation_space=OBSERVED,
        action_space=ACTED,
        data_format=request.param,
        **dict.fromkeys(("author", "author_email", "code_permalink", "algorithm_name", "description"), "x"),
    )
    return tmp_path / "games-v0"


def change_metadata(folder, **changes):
    file = folder / "data" / "metadata.json"
    known = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))


def refusal(folder):
    with pytest.raises(ConfigError) as caught:
        list(load_games(str(folder), SPACES))
    text = str(caught.value)
    assert str(folder) in text and "\n" not in text
    return text


def assert_equal(found, expected):
    if isinstance(expected, dict):
        for key in expected.keys() - {"words"}:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_every_format_is_read_as_minari_reads_it(folder):
    expected = minari.MinariDataset(folder / "data")
    for name in (str(folder), "games-v0"):
        found = open_data_set(name)
        assert found.num_episodes == len(expected) == 2
        assert (found.observation_space, found.action_space) == (OBSERVED, ACTED)
        for index in range(2):
            for part, values in found.read(index)._asdict().items():
                assert_equal(values, getattr(expected[index], part))


@pytest.mark.parametrize("missing", [("observation_space", "action_space"), ("action_space",)])
@pytest.mark.parametrize("key", ["env_spec", "eval_env_spec"])
@pytest.mark.parametrize("folder", ["arrow"], indirect=True)  # metadata are the same in each format
def test_the_env_that_a_data_set_names_is_never_made(folder, tmp_path, missing, key):
    kwargs = {"command": f"touch {tmp_path / 'ran'}"}
    spec = {"id": "X-v0", "entry_point": "os:system", "kwargs": kwargs, "additional_wrappers": []}
    change_metadata(folder, **{key: json.dumps(spec)})
    assert len(list(load_games(str(folder), SPACES))) == 2
    change_metadata(folder, **dict.fromkeys(missing))
    for name in (folder, folder.name):
        assert missing[0] in refusal(name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation_space": "null"}, "observation_space"),
        ({"observation_space": {"type": "Discrete", "n": 2, "start": 0}}, "observation_space"),
        ({"action_space": '{"type": "Tuple", "subspaces": [' * 100_000}, "action_space"),
        ({"action_space": '{"type": "os:system"}'}, "action_space"),
        ({"total_episodes": 10**18}, "episode 2"),
        ({"total_episodes": -1}, "total_episodes = -1"),
        ({"total_episodes": "2"}, "total_episodes = '2'"),
        ({"data_format": "pickle"}, "data_format = 'pickle'"),
        ({"data_format": None}, "data_format = None"),
        ({"minari_version": "99"}, "Minari 99"),
    ],
)
@pytest.mark.parametrize("folder", ["arrow"], indirect=True)
def test_metadata_of_the_wrong_form_are_refused_in_one_line(folder, changes, words):
    change_metadata(folder, **changes)
    assert words in refusal(folder)


def test_a_data_set_that_leads_to_other_files_is_refused(folder, tmp_path):
    inside = next(path for path in (folder / "data").rglob("*") if path.is_file() and path.suffix != ".json")
    elsewhere = tmp_path / "elsewhere"
    shutil.move(inside, elsewhere)
    inside.symlink_to(elsewhere)
    assert f"{inside} is a link" in refusal(folder)
    inside.unlink()
    os.link(elsewhere, inside)
    assert f"{inside} is a link" in refusal(folder)
    inside.unlink()
    os.mkfifo(inside)
    assert f"{inside} is a named pipe" in refusal(folder)


def external_link(file, parent, name, elsewhere):
    parent[name] = h5py.ExternalLink(str(elsewhere), f"/episode_0/{name}")


def soft_link_through_an_external_link(file, parent, name, elsewhere):
    file["other"] = h5py.ExternalLink(str(elsewhere), "/")
    parent[name] = h5py.SoftLink(f"/other/episode_0/{name}")


def external_storage(file, parent, name, elsewhere):
    parent.create_dataset(name, (1,), "f8", external=[(str(elsewhere), 0, h5py.h5f.UNLIMITED)])


def virtual_dataset(file, parent, name, elsewhere):
    layout = h5py.VirtualLayout((1,), "f8")
    layout[:] = h5py.VirtualSource(str(elsewhere), f"/episode_0/{name}", (1,))
    parent.create_virtual_dataset(name, layout)


def opaque_objects(file, parent, name, elsewhere):
    kind = h5py.h5t.create(h5py.h5t.OPAQUE, 8)
    kind.set_tag(b"NUMPY:|O")  # h5py would read the bytes as pointers
    h5py.h5d.create(parent.id, name.encode(), kind, h5py.h5s.create_simple((1,)))


def texts(file, parent, name, elsewhere):
    parent.create_dataset(name, data=["a"])


@pytest.mark.parametrize(
    "put",
    [
        external_link,
        soft_link_through_an_external_link,
        external_storage,
        virtual_dataset,
        opaque_objects,
        texts,
    ],
)
@pytest.mark.parametrize("where", ["rewards", "observations/numbers", "observations/picture"])
@pytest.mark.parametrize("folder", ["hdf5"], indirect=True)
def test_an_hdf5_file_with_parts_elsewhere_or_objects_is_refused(folder, tmp_path, put, where):
    file = folder / "data" / "main_data.hdf5"
    elsewhere = shutil.copy(file, tmp_path / "other.hdf5")
    parent, _, name = f"episode_0/{where}".rpartition("/")
    with h5py.File(file, "a") as changed:
        del changed[parent][name]
        put(changed, changed[parent], name, elsewhere)
    assert "episode 0" in refusal(folder)


@pytest.mark.parametrize("folder", ["arrow", "hdf5"], indirect=True)
def test_pictures_of_other_formats_than_jpeg_start_no_program(folder, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 32\n%%EndComments\n%%EOF\n"
    if (folder / "data" / "main_data.hdf5").exists():
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            del file["episode_0/observations/picture"]
            file["episode_0/observations"]["picture"] = np.tile(np.frombuffer(postscript, np.uint8), (2, 1))
    else:
        import pyarrow as pa
        import pyarrow.feather

        path = next((folder / "data" / "0").glob("*.arrow"))
        table = pyarrow.feather.read_table(path, memory_map=False)
        seen = table["observations"].combine_chunks()
        parts = {field.name: seen.field(field.name) for field in seen.type}
        parts["picture"] = pa.array([postscript] * 2, pa.binary())
        seen = pa.StructArray.from_arrays(list(parts.values()), list(parts))
        table = table.set_column(table.column_names.index("observations"), "observations", seen)
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    assert "episode 0" in refusal(folder) and not started
    # So would Minari's own reader.
    with pytest.raises(Exception):  # noqa: B017
        minari.MinariDataset(folder / "data")[0]
    assert started


@pytest.mark.parametrize("folder", ["hdf5"], indirect=True)  # a table has columns of one length
def test_parts_of_different_lengths_are_refused(folder):
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = np.zeros(3)
    assert "different numbers of steps: [3, 7]" in refusal(folder)

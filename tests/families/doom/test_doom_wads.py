import hashlib
import logging
import subprocess
import sys

from sample_factory.families.doom import game_configuration
from sample_factory.families.doom.game_configuration import find_wad

SHA_PREFIXES = {
    "basic.wad": "fd0b7e5e",
    "battle.wad": "b29b4619",
    "battle2.wad": "0851ae13",
    "cig.wad": "3ae9dade",
    "deadly_corridor.wad": "3c868f88",
    "defend_the_center.wad": "eb3f8d3b",
    "defend_the_line.wad": "b1d0fc43",
    "health_gathering.wad": "c77c8ba3",
    "my_way_home.wad": "18e98ff4",
}


def test_the_maps_found_are_byte_for_byte_those_of_the_paper():
    for name, prefix in SHA_PREFIXES.items():
        path, doom_map = find_wad(name)
        assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(prefix), name
        assert doom_map is None


def test_the_users_folder_comes_first(tmp_path):
    (tmp_path / "basic.wad").write_bytes(b"mine")
    assert find_wad("basic.wad", [None, tmp_path])[0] == tmp_path / "basic.wad"
    assert find_wad("battle.wad", [tmp_path])[0].name == "D3_battle.wad"


def test_a_replacement_of_a_map_is_logged_once(caplog):
    game_configuration.warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "sample_factory"):
        first = find_wad("ssl2.wad")
        second = find_wad("ssl2.wad")
    assert first == second and first[1] is not None
    assert len(caplog.records) == 1 and "ssl2.wad" in caplog.text


def test_the_original_is_preferred_to_its_replacement(tmp_path):
    (tmp_path / "ssl2.wad").write_bytes(b"original")
    assert find_wad("ssl2.wad", [tmp_path]) == (tmp_path / "ssl2.wad", None)


def test_flags_are_read_without_loading_the_engine():
    check = (
        "import sys; from sample_factory.families.doom import doom_family; "
        "assert not {'vizdoom', 'cv2', 'torch', 'envpool_assets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)

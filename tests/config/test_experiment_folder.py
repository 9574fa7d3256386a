import subprocess

import pytest

from sample_factory.config.experiment_folder import append_whole, read_expectation, read_file_of_flags
from tests.mounts import mount_tmpfs


def test_a_line_that_the_disk_takes_only_a_part_of_is_taken_back(tmp_path):
    disk = tmp_path / "disk"
    mount_tmpfs(disk, "size=8k")
    try:
        path = disk / "figures.jsonl"
        append_whole(path, b"first\n")
        (disk / "ballast").write_bytes(b"x" * 4096)
        with pytest.raises(OSError, match="no room for 6,000 bytes|No space left"):
            append_whole(path, b"x" * 6000)
        assert path.read_bytes() == b"first\n"
        (disk / "ballast").unlink()
        append_whole(path, b"second\n")
        assert path.read_bytes() == b"first\nsecond\n"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_of_flags_may_say_what_to_expect_and_have_comments(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text('{"env": "doom_basic", "expect": "a reward of about 0.8", "comment": ["any", "text"]}')
    assert read_file_of_flags(str(path)).values == {"env": "doom_basic"}
    assert read_expectation(str(path)) == "a reward of about 0.8"
    path.write_text('{"env": "doom_basic"}')
    assert read_expectation(str(path)) is None

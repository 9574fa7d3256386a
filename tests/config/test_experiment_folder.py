import subprocess

import pytest

from sample_factory.config.experiment_folder import append_whole
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

"""Small real disks."""

import subprocess
from pathlib import Path

import pytest


def mount_tmpfs(folder: Path, options: str) -> None:
    """Skips the test where that is not permitted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "sample_factory_test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted: {mounted.stderr.strip()}")

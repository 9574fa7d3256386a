"""The versions that a run was made with: for its log, its cfg.json, its model card, and benchmarks."""

import functools
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_factory.config import VERSION

PACKAGES = ("torch", "numpy", "gymnasium")
OWN = "sample_factory"
VERSIONS_KEY = "versions"  # in cfg.json


@functools.cache
def versions() -> Mapping[str, str]:
    """Returns name -> version of this package, of Python and of PACKAGES, without importing them.

    "commit": of the checkout that this package lies in, with "-dirty" if files in it have changed; absent
    where there is none.
    """
    found = {"sample_factory": VERSION, "commit": _commit(), "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # installed without metadata
            found[name] = ""
    return {name: version for name, version in found.items() if version}


def other_distributions() -> list[str]:
    """Returns other installed distributions with a package `sample_factory`, which may be imported in place
    of this package, e.g. ["HASARD 0.2.0"].

    Reads top_level.txt: the lists of all files, which importlib.metadata would read, take seconds.
    """
    found = []
    for file in (file for folder in sys.path for file in Path(folder).glob("*.dist-info/top_level.txt")):
        name, _, version = file.parent.stem.partition("-")
        is_own = name.lower() == OWN and not version.startswith(("1.", "2."))
        if not is_own and OWN in file.read_text(errors="replace").split():
            found.append(f"{name} {version}")
    return found


def _commit() -> str:
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():
        return ""
    # Names of tags are left out: the version says more.
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]
    try:
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or the checkout of another account
        return ""
    return done.stdout.strip()


def describe_versions(found: Mapping[str, Any]) -> str:
    """Returns a phrase, e.g. "Sample Factory 3.0.0 (commit 0123456789ab), torch 2.13.0, Python 3.11.7".

    found: as `versions` returns it, perhaps from the cfg.json of another run, which may lack all of it.
    """
    commit = f" (commit {found['commit']})" if found.get("commit") else ""
    others = [
        f"{name} {found[key]}" for name, key in (("torch", "torch"), ("Python", "python")) if found.get(key)
    ]
    return ", ".join([f"Sample Factory {found.get('sample_factory', VERSION[0])}{commit}", *others])

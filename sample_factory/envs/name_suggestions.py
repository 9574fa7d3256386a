"""The full name of an env that was given without the prefix of its family, or misspelt."""

import difflib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

VERSION = re.compile(r"[-_]v(\d+)$")
CUTOFF = 0.75  # similarity below which a name is no suggestion


def suggest_name(env_name: str, listed: Iterable[str]) -> str | None:
    """Returns the full name of an env that was probably meant by a misspelt name or a name without prefix;
    None if no known name is similar.

    listed: the names of all envs of families that can list them. Gymnasium is imported only if none of these
        is similar, PettingZoo never.
    """
    found = _similar(env_name, listed)
    if found is None:
        import gymnasium

        found = _similar(env_name, (f"gym_{name}" for name in gymnasium.registry))
    if found is None and re.search(r"-v\d+$", env_name):
        return f"gym_{env_name}"  # an id of a package that has yet to be imported, such as ALE/Pong-v5
    return found or _similar(env_name, _pettingzoo_names())


def _similar(env_name: str, names: Iterable[str]) -> str | None:
    """Returns the name most similar to `env_name`, compared with and without prefix and version; None if the
    similarity of all names is below CUTOFF."""
    by_key: dict[str, str] = {}
    # Of names with equal ends, the last one is taken: without a namespace, and of the latest version.
    for name in sorted(names, key=lambda name: ("/" not in name, [*map(int, VERSION.findall(name))])):
        tail = name.partition("_")[2].lower()
        by_key |= dict.fromkeys((_plain(tail), tail, name.lower()), name)
    word = env_name.lower()
    # mujoco_ant, the name in version 2, is found by its second part.
    for key in (word, _plain(word), _plain(word.partition("_")[2])):
        if key in by_key:
            return by_key[key]
    close = difflib.get_close_matches(word, by_key, n=1, cutoff=CUTOFF)
    return by_key[close[0]] if close else None


def _plain(name: str) -> str:
    """Returns the last part of a name without its version: Pong for ALE/Pong-v5."""
    return VERSION.sub("", re.split(r"[/.:]", name)[-1])


def _pettingzoo_names() -> Iterator[str]:
    """Yields the names of PettingZoo's envs, if it is installed; imports nothing."""
    spec = importlib.util.find_spec("pettingzoo")
    for place in (spec.submodule_search_locations if spec else None) or ():
        for file in Path(place).glob("*/*_v*.py"):
            yield f"pettingzoo_{file.parent.name}.{file.stem}"

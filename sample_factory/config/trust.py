"""Which cfg.json this account has written, and what one of another account must not decide.

A cfg.json is data, wherever it comes from. It may come from a stranger, so it decides neither which code is
imported or called, nor where files are written, nor which services are used, unless

- this account has written it: `Config.save` signs it, as Jupyter signs notebooks, with HMAC-SHA256 and a
  random key that lies in the account's configuration folder; or
- the person has typed the same flags now, or --trust_code.
"""

import dataclasses
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError, Layer, shortened
from sample_factory.config.sections import PLACE, TRAINING_SECTIONS

log = logging.getLogger("sample_factory")

SIGNATURE = "signature"  # key of cfg.json
TRUST = "trust_code"  # the flag
ENV_KWARGS = "env_kwargs"
EVAL_FLAGS = "eval_flags"
NEVER_FOREIGN = "never_foreign"  # metadata of a flag: see `flag`
NAMES_CODE = "names_code"
KEY_BYTES = 32
# Marks of paths and of "module:attribute" in a text.
MARKS = re.compile(r"[:/\\~]|\.\.")
# The folders of PettingZoo's own envs; any other module after the prefix is imported from anywhere.
PETTINGZOO_GROUPS = ("atari", "butterfly", "classic", "mpe", "sisl")
FOREIGN_PETTINGZOO = re.compile(rf"pettingzoo_(?!({'|'.join(PETTINGZOO_GROUPS)})[./]\w+$)")


def key_file() -> Path:
    """Returns the file of the account's signing key. Raises RuntimeError if the account has no home."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "sample_factory" / "signing_key"


def signed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the contents of a cfg.json with their signature; creates the key when there is none.

    Without a signature if the key can be neither read nor written; logged if the signature will be missed.
    """
    unsigned = {key: value for key, value in values.items() if key != SIGNATURE}
    try:
        return {**unsigned, SIGNATURE: _digest(unsigned, _read_key() or _create_key())}
    except (OSError, RuntimeError) as error:
        if code_named_in(unsigned):
            log.warning(
                "cfg.json is not signed, because this account's key cannot be stored (%s): commands that use "
                "this experiment will need --%s",
                error,
                TRUST,
            )
        return unsigned


def is_signed(values: Mapping[str, Any]) -> bool:
    """Returns whether this account has written these contents of a cfg.json."""
    signature = values.get(SIGNATURE)
    try:
        key = _read_key()
    except (OSError, RuntimeError):
        return False
    if key is None or not isinstance(signature, str) or not signature.isascii():
        return False
    unsigned = {name: value for name, value in values.items() if name != SIGNATURE}
    return hmac.compare_digest(signature, _digest(unsigned, key))


def _digest(values: Mapping[str, Any], key: bytes) -> str:
    text = json.dumps(values, sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _read_key() -> bytes | None:
    try:
        key = key_file().read_bytes()
    except FileNotFoundError:
        return None
    return key if len(key) == KEY_BYTES else None


def _create_key() -> bytes:
    """Returns a new key, or the one that another process has created meanwhile."""
    path = key_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    key = secrets.token_bytes(KEY_BYTES)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(key)
        try:
            os.link(temporary, path)  # fails if the file exists, unlike a renaming
        except FileExistsError:
            existing = _read_key()
            if existing is not None:
                return existing
            os.replace(temporary, path)  # the file is damaged
        return key
    finally:
        temporary.unlink(missing_ok=True)


def refuse_code(layer: Layer, typed: Collection[str]) -> None:
    """Raises ConfigError if the file of another account names code, and the person has not typed the name.

    Called before the family of the env is resolved, which imports modules. typed: names of the flags that
    were typed. Does nothing for a layer of this account.
    """
    if layer.foreign is None:
        return
    named = code_named_in(layer.values, typed)
    if named:
        shown = ", ".join(f"{name} = {shortened(text)}" for name, text in named.items())
        first = next(iter(named))
        raise ConfigError(
            f"{layer.foreign} was not written by this account, and names code that would be imported or "
            f"called: {shown}. If you trust its author, add --{TRUST}; or type such a flag yourself: "
            f"--{first}=..."
        )


def refuse_links(folder: Path) -> None:
    """Raises ConfigError for a symbolic link in the folder of another account that leads out of it."""
    inside = folder.resolve()
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise ConfigError(
                    f"{path} is a link out of the folder, which was not written by this account: files "
                    f"elsewhere would be read or overwritten. Delete the link; or, if you trust its author, "
                    f"add --{TRUST}"
                )


def without_places(layer: Layer, sections: Mapping[str, type], typed: Collection[str] = ()) -> Layer:
    """Returns the file of another account without folders, services and files outside the experiment.

    They are places on the machine of its author. Logs what is left out. Unchanged for a layer of this
    account.
    """
    if layer.foreign is None:
        return layer
    left_out = {}
    for field in (field for section in sections.values() for field in dataclasses.fields(section)):
        for name in (field.name, *field.metadata["aliases"]):
            value = layer.values.get(name)
            if (
                name in layer.values
                and name not in PLACE
                and value != field.default
                and _is_place(field, value)
            ):
                left_out[name] = value
    shown = {name: value for name, value in left_out.items() if name not in typed}
    if shown:
        log.warning(
            "%s was not written by this account; not used from it: %s",
            layer.foreign,
            ", ".join(f"{name} = {shortened(str(value))}" for name, value in shown.items()),
        )
    kept = {name: value for name, value in layer.values.items() if name not in left_out}
    return layer._replace(values=kept)


def _is_place(field: "dataclasses.Field[Any]", value: Any) -> bool:
    """Returns whether a value is a place outside the folder of the experiment."""
    if field.metadata[NEVER_FOREIGN] or field.metadata["metavar"] == "FOLDER":
        return True
    items = value if isinstance(value, list) else [value]
    return field.metadata["metavar"] in ("FILE", "RUN") and any(
        isinstance(item, str) and (item in ("", ".", "..") or MARKS.search(item)) for item in items
    )


def code_named_in(values: Mapping[str, Any], typed: Collection[str] = ()) -> dict[str, str]:
    """Returns flag -> text for the flags that name code to import or to call, or its arguments.

    values: flag -> value, as in cfg.json. typed: flags that are left out, except for arguments.
    """
    fields = (field for section in TRAINING_SECTIONS.values() for field in dataclasses.fields(section))
    flags = [field.name for field in fields if field.metadata[NAMES_CODE] and field.name not in typed]
    named = {name: text for name in flags for text in _texts_in(values.get(name)) if _is_code(name, text)}
    arguments, flags_of_evaluations = values.get(ENV_KWARGS), values.get(EVAL_FLAGS)
    if isinstance(arguments, str) and ENV_KWARGS not in typed and _are_for_code(arguments, values.get("env")):
        named[ENV_KWARGS] = arguments
    if isinstance(flags_of_evaluations, str) and EVAL_FLAGS not in typed:
        words = _words(flags_of_evaluations)
        if any(MARKS.search(word) or _is_code("env", word.removeprefix("--env=")) for word in words):
            named[EVAL_FLAGS] = flags_of_evaluations
    return named


def _is_code(flag: str, text: str) -> bool:
    """Returns whether the value of a flag that may name code does."""
    if flag == "env":
        return ":" in text or ".." in text or FOREIGN_PETTINGZOO.match(text) is not None
    return ":" in text


def _are_for_code(arguments: str, env: Any) -> bool:
    """Returns whether --env_kwargs are for a function that is no built-in env, or may name code or files."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return False  # refused by the family
    calls_code = isinstance(env, str) and _is_code("env", env) and parsed != {}
    return calls_code or any(map(MARKS.search, _texts_in(parsed)))


def _texts_in(value: Any) -> Iterator[str]:
    """Yields all texts in a value from JSON, also the names in objects. Without recursion: it may be deep."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark is missing; refused when the flags are used
        return [text]

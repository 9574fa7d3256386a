"""Decides what may be used from a cfg.json that another account has written.

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
import os
import re
import secrets
import shlex
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError, Layer, default_of, shortened
from sample_factory.config.sections import ALIASES, FLAG_NAMES, FLAGS, OWN_FOLDER
from sample_factory.config.versions import versions
from sample_factory.runtime.log import log
from sample_factory.runtime.safe_files import special_kind

SIGNATURE = "signature"  # key of cfg.json
TRUST = "trust_code"  # the flag
ENV_KWARGS = "env_kwargs"
EVAL_FLAGS = "eval_flags"
WANDB_RUN_ID = "wandb_unique_id"  # key of cfg.json, as in versions 1 and 2
SERVICES = ("with_wandb", "wandb_user", "wandb_project", "ray_address")  # flags that send data elsewhere
KEY_BYTES = 32
SAFE_TORCH = [2, 10]  # the first version in which `weights_only` keeps code from running
# Marks of paths and of "module:attribute" in a text.
MARKS = re.compile(r"[:/\\~]|\.\.")
# The folders of PettingZoo's own envs; any other module after the prefix is imported from anywhere.
PETTINGZOO_GROUPS = ("atari", "butterfly", "classic", "mpe", "sisl")
FOREIGN_PETTINGZOO = re.compile(rf"pettingzoo_(?!({'|'.join(PETTINGZOO_GROUPS)})[./]\w+$)")


def key_file() -> Path:
    """Returns the file of the account's signing key. Raises RuntimeError if the account has no home."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():  # as the XDG specification says
        folder = Path.home() / ".config"
    return folder / "sample_factory" / "signing_key"


def signed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the contents of a cfg.json with their signature; creates the key when there is none.

    If the key can be neither read nor written, a warning is logged and there is no signature.
    """
    unsigned = {key: value for key, value in values.items() if key != SIGNATURE}
    try:
        return {**unsigned, SIGNATURE: _digest(unsigned, _read_key() or _create_key())}
    except (OSError, RuntimeError) as error:
        log.warning(
            "cfg.json is not signed, because this account's key cannot be stored (%s): commands treat this "
            "experiment like one of another account, see sample_factory/config/TRUST.md",
            error,
        )
        return unsigned


def foreign_file(path: Path, values: Mapping[str, Any], trusts: bool = False) -> Path | None:
    """Returns `path` if a cfg.json with these contents counts as written by another account, else None.

    trusts: --trust_code was given. A link is foreign: it could lead to a file that this account has signed.
    """
    return None if trusts or (is_signed(values) and not path.is_symlink()) else path


def is_signed(values: Mapping[str, Any]) -> bool:
    """Returns whether this account has written these contents of a cfg.json."""
    signature = values.get(SIGNATURE)
    if not isinstance(signature, str) or not signature.isascii():
        return False
    unsigned = {name: value for name, value in values.items() if name != SIGNATURE}
    try:
        key = _read_key()
        return key is not None and hmac.compare_digest(signature, _digest(unsigned, key))
    except (OSError, RuntimeError):  # RecursionError too: the values are nested too deeply
        return False


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
    """Creates the random key with which this account signs each cfg.json, and writes it to `key_file()`.
    Returns it, or the key that another process has written meanwhile."""
    path = key_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = secrets.token_bytes(KEY_BYTES)
    fd, temporary = tempfile.mkstemp(dir=path.parent)  # readable by this account only
    try:
        with open(fd, "wb") as file:
            file.write(key)
        try:
            os.link(temporary, path)  # fails if the file exists, unlike a renaming
        except OSError:
            existing = _read_key()  # of a process that was faster
            if existing is not None:
                return existing
            os.replace(temporary, path)  # the file is damaged, or the file system has no links
        return key
    finally:
        Path(temporary).unlink(missing_ok=True)


def refuse_code(layer: Layer, typed: Collection[str], known: Mapping[str, Any] | None = None) -> None:
    """Protects from a file of another account, from which `layer` was read: raises ConfigError if the file
    names code that the person has not named, or if checkpoints beside the file are not safe to read. Does
    nothing for a file of this account.

    typed: names of the flags that were typed.
    known: flag -> value in a file or script of this account. None: before the family of the env is resolved;
        then only an env that names code is refused, since resolving would import that code.
    """
    if layer.foreign is None:
        return
    torch = versions().get("torch", "of an unknown version")
    if [*map(int, re.findall(r"\d+", torch))][:2] < SAFE_TORCH:
        raise ConfigError(
            f"{layer.foreign} is not signed by this account, and torch {torch} can run code in a checkpoint: "
            f"pip install 'torch>=2.10' (CVE-2026-24747), or add --{TRUST} if you trust the author"
        )
    named = [name for name in code_named_in(layer.values) if name not in typed]
    if known is None and "env" not in named:
        return
    named = [name for name in named if (known or {}).get(name) != layer.values[name]]
    if named:
        flags = " ".join(_as_typed(name, layer.values[name]) for name in named)
        raise ConfigError(
            f"{layer.foreign} is not signed by this account, and names code that would be imported or "
            f"called: {flags}. Type these flags yourself, or add --{TRUST} if you trust the author"
        )


def _as_typed(name: str, value: Any) -> str:
    """Formats a flag and its value for a shell's command line."""
    if isinstance(value, list):
        return shlex.join([f"--{name}", *(shortened(str(item)) for item in value)])
    return shlex.quote(f"--{name}={shortened(str(value))}")


def refuse_links(folder: Path, remedy: str) -> None:
    """Raises ConfigError for anything in a folder of another account that is not plain data: a link that
    leads out, also a hard link; a named pipe, device or socket; a folder that cannot be searched for these.

    remedy: what to do about a link, the end of the error message.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a run may be deleting old checkpoints
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}")

    inside = folder.resolve()
    for parent, folders, files in os.walk(folder, onerror=refuse):
        for path in (Path(parent, name) for name in (*folders, *files)):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            kind = special_kind(found.st_mode)
            if kind is not None:
                raise ConfigError(f"{path} is {kind}, and only files belong there; delete it")
            is_link = stat.S_ISLNK(found.st_mode)
            leads_out = is_link and not path.resolve().is_relative_to(inside)
            if leads_out or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
                raise ConfigError(f"{path} is a link: files elsewhere would be read or overwritten. {remedy}")


def may_be_changed_by_others(folder: Path) -> bool:
    """Returns whether a folder belongs to another account, or every account may write to it or replace it."""
    found = folder.stat()
    return found.st_uid != os.geteuid() or writable_by_all(folder) is not None


def writable_by_all(folder: Path) -> Path | None:
    """Returns the folder if every account may write to it, or the folder around it if every account may
    delete what is there; None if neither is so."""
    if folder.stat().st_mode & stat.S_IWOTH:
        return folder
    parent = folder.absolute().parent
    mode = parent.stat().st_mode
    return parent if mode & stat.S_IWOTH and not mode & stat.S_ISVTX else None


def without_foreign_paths(
    layer: Layer, sections: Mapping[str, type], of_program: Collection[str] = (), typed: Collection[str] = ()
) -> Layer:
    """Returns the flags of another account's file without folders, services and files outside the experiment,
    which belong to the machine of the author. Returns the flags of this account's files unchanged.

    of_program: names of sections of which nothing is used, as their values are for one call of a command.
    typed: names of typed flags; all other flags that are removed are logged.
    """
    if layer.foreign is None:
        return layer
    left_out = {WANDB_RUN_ID} & layer.values.keys()
    for section_name, section in sections.items():
        for field in dataclasses.fields(section):
            value = layer.values.get(field.name, default_of(field))
            if section_name in of_program or (value != default_of(field) and _is_outside(field, value)):
                left_out.add(field.name)
    kept = {name: value for name, value in layer.values.items() if name not in left_out}
    shown = {name: layer.values[name] for name in layer.values.keys() - kept.keys() - {*typed}}
    if shown:
        log.warning(
            "%s is not signed by this account; not used from it: %s",
            layer.foreign,
            ", ".join(f"{name} = {shortened(str(value))}" for name, value in sorted(shown.items())),
        )
    return layer._replace(values=kept)


def _is_outside(field: "dataclasses.Field[Any]", value: Any) -> bool:
    """Returns whether the value of a flag is a service, or a path outside the folder of the experiment."""
    if field.name in OWN_FOLDER:
        return False
    if field.name in SERVICES or field.metadata["metavar"] == "FOLDER":
        return True
    return field.metadata["metavar"] in ("FILE", "RUN") and any(
        text in ("", ".") or MARKS.search(text) for text in _texts_in(value)
    )


def code_named_in(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the flags whose values name code to import or to call, or may contain such a name.

    values: flag -> value, as in cfg.json.
    """
    flags = [name for name, field in FLAGS.items() if field.metadata["names_code"]]
    named = [name for name in flags if any(_is_code(name, text) for text in _texts_in(values.get(name)))]
    for name, may_name_code in ((ENV_KWARGS, _have_texts), (EVAL_FLAGS, _have_names)):
        text = values.get(name)
        if isinstance(text, str) and may_name_code(text):
            named.append(name)
    return named


def _is_code(flag: str, text: str) -> bool:
    """Returns whether a value of a flag with `names_code` names code."""
    if flag in ("env", "levels"):
        # The value of a level may be an argument of the function that makes the env.
        arguments = re.findall(r"=([^,]*)", text) if flag == "levels" else ()
        is_argument = any(not _is_number(value) and value not in ("True", "False") for value in arguments)
        return ":" in text or ".." in text or is_argument or FOREIGN_PETTINGZOO.match(text) is not None
    return ":" in text


def _have_texts(arguments: str) -> bool:
    """Returns whether any argument in --env_kwargs is a text: to some envs it names a module, a program or a
    file."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return False  # refused by the family
    return isinstance(parsed, dict) and any(any(_texts_in(value)) for value in parsed.values())


def _have_names(flags: str) -> bool:
    """Returns whether --eval_flags may name code, files, folders or services."""
    try:
        words = shlex.split(flags)
    except ValueError:  # a quotation mark is missing; refused when the flags are used
        words = [flags]
    places = {name for name, field in FLAGS.items() if _is_place(field)}
    name = ""
    for word in words:
        text = word
        if word.startswith("--"):
            name, _, text = word[2:].partition("=")
        # A text for a flag of an env family may be a path.
        is_plain = name in FLAG_NAMES or text in ("", "True", "False") or _is_number(text)
        if (
            ALIASES.get(name, name) in places
            or MARKS.search(word)
            or not is_plain
            or (name in ("env", "levels") and _is_code(name, text))
        ):
            return True
    return False


def _is_place(field: "dataclasses.Field[Any]") -> bool:
    """Returns whether the value of a flag is a file, folder or service, or lets code be trusted."""
    is_path = field.metadata["metavar"] in ("FOLDER", "FILE", "RUN")
    return is_path or field.name in (*SERVICES, *OWN_FOLDER, TRUST)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _texts_in(value: Any) -> Iterator[str]:
    """Yields every text in a JSON value, the keys of objects included.

    Iterative, because the value may be nested deeper than Python can recurse.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending += [*item, *item.values()]
        elif isinstance(item, list):
            pending += item

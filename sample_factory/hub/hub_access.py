"""Requests to the Hugging Face Hub, whose failures are one line."""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sample_factory.config.flags import ConfigError
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.runtime.failures import CommandFailed

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
VIDEO = "replay.mp4"
RESULTS = "evaluation.json"
LIBRARY = "sample-factory"  # name of this library at the Hub
# Beginnings of the paths of files that a push deletes in the repository where it has no such file itself.
MIRRORED = ("checkpoint_p", ".summary/", RESULTS, VIDEO)
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


class HubError(CommandFailed):
    """The Hub cannot be used, or refuses a request; the message says why in one line."""


def make_api() -> "HfApi":
    """Returns the client of the Hub at HF_ENDPOINT. Raises MissingPackage."""
    if not is_installed("huggingface_hub"):
        raise missing_package("the Hugging Face Hub", "huggingface_hub", "hub")
    from huggingface_hub import HfApi

    return HfApi(library_name=LIBRARY)


def check_repository_name(repository: str | None) -> str:
    """Returns the name. Raises ConfigError unless it is USER/NAME."""
    if repository is None:
        raise ConfigError("the repository is missing: --hf_repository=USER/NAME")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) is None:
        raise ConfigError(
            f"--hf_repository={repository} should be USER/NAME, with the name of an account or organization "
            "of the Hub"
        )
    return repository


def prepare_push(repository: str | None, private: bool) -> "HfApi":
    """Creates a repository unless it exists. private: whether a new one is.

    Raises MissingPackage, ConfigError for a wrong name, and HubError without a token or a permission.
    """
    api = make_api()
    name = check_repository_name(repository)
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(
            f"there is no token for {api.endpoint}: {LOGIN}; {api.endpoint}/settings/tokens makes one, which "
            "needs the permission to write"
        )
    with explained(api, name, "write to"):
        api.create_repo(name, private=private or None, exist_ok=True)
    return api


def upload(api: "HfApi", repository: str, folder: Path, message: str) -> str:
    """Uploads a folder in one commit, and returns the address of the repository. Raises HubError.

    Files in the repository that are MIRRORED and not in the folder are deleted; its history keeps them.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    with explained(api, repository, "write to"):
        outdated = [
            name
            for name in api.list_repo_files(repository)
            if name.startswith(MIRRORED) and name not in files
        ]
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(name, path) for name, path in sorted(files.items())
        ]
        operations += [CommitOperationDelete(name) for name in outdated]
        api.create_commit(repository, operations, commit_message=message)
    return f"{api.endpoint}/{repository}"


def download(api: "HfApi", repository: str, revision: str | None, folder: Path) -> None:
    """Downloads all files of a repository into an empty folder. Raises HubError.

    revision: branch, tag or commit; None: the newest commit.
    """
    with explained(api, repository, "read"):
        # The library's record of the download lies in the folder too, so that nothing is left elsewhere.
        api.snapshot_download(
            repository, revision=revision, local_dir=folder, cache_dir=folder / ".cache" / "huggingface"
        )


@contextlib.contextmanager
def explained(api: "HfApi", repository: str, action: str) -> Iterator[None]:
    """Raises HubError, in one line, for a failed request. action: "read" or "write to"."""
    try:
        yield
    except Exception as error:  # whatever the client, its HTTP library or the disk raises
        reason = _reason(error, api.endpoint, repository)
        raise HubError(f"cannot {action} {repository}: {reason}") from None


def _reason(error: BaseException, endpoint: str, repository: str) -> str:
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    causes = list(_with_causes(error))
    answer = next((cause for cause in causes if isinstance(cause, HfHubHTTPError)), None)
    if isinstance(answer, GatedRepoError):
        return f"access has to be requested at {endpoint}/{repository}"
    if isinstance(answer, RevisionNotFoundError):
        return "it has no such --revision"
    if isinstance(answer, RepositoryNotFoundError):
        return f"{endpoint} has no such repository, or it is private: check the name, or {LOGIN}"
    if answer is not None:
        status = answer.response.status_code
        advice = {401: f"; the token is not valid: {LOGIN}", 403: "; the token lacks the permission"}
        said = answer.server_message or answer.response.reason_phrase
        return f"{endpoint} answers {status}, {' '.join(said.split())}{advice.get(status, '')}"
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
        return "HF_HUB_OFFLINE is set"
    for cause in causes:
        if isinstance(cause, OSError) and (cause.filename is not None or cause.errno in DISK_IS_FULL):
            return f"{cause.filename or 'this machine'}: {cause.strerror}"
    last = causes[-1]
    said = f"{type(last).__name__}: {_first_line(last)}"
    if isinstance(last, OSError) or type(last).__module__.startswith("http"):  # httpx, httpcore, ...
        return f"no answer from {endpoint} ({said}); check the network"
    return said


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error, the error that it was raised from, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")

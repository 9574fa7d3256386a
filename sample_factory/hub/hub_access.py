"""Requests to the Hugging Face Hub; a failure is reported in one line."""

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
    """Raised if the Hub cannot be used, or refuses a request; the message gives the reason in one line."""


def make_api(repository: str | None) -> "HfApi":
    """Returns a client of the Hub at HF_ENDPOINT, after checking the name of the repository. Raises
    MissingPackage without huggingface_hub, and ConfigError unless the name is USER/NAME."""
    if not is_installed("huggingface_hub"):
        raise missing_package("the Hugging Face Hub", "huggingface_hub", "hub")
    if repository is None:
        raise ConfigError("the repository is missing: --hf_repository=USER/NAME")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) is None:
        raise ConfigError(
            f"--hf_repository={repository} should be USER/NAME, with the name of an account or organization "
            "of the Hub"
        )
    from huggingface_hub import HfApi

    return HfApi(library_name=LIBRARY)


def prepare_push(repository: str | None, private: bool) -> "HfApi":
    """Creates a repository unless it exists; returns the client for `upload`.
    private: visibility of a repository that is created.
    Raises MissingPackage without huggingface_hub, ConfigError for a wrong name, and HubError without a token
    or a permission."""
    api = make_api(repository)
    assert repository is not None, "make_api has checked it"
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(
            f"there is no token for {api.endpoint}: {LOGIN}; {api.endpoint}/settings/tokens makes one, which "
            "needs the permission to write"
        )
    with explained(api, repository, "write to"):
        api.create_repo(repository, private=private or None, exist_ok=True)
    return api


def upload(api: "HfApi", repository: str, folder: Path, message: str) -> str:
    """Uploads a folder in one commit, and returns the URL of the repository. Files in the repository that are
    MIRRORED and not in the folder are deleted; its history keeps them.
    message: title of the commit. Raises HubError if the Hub cannot be reached or refuses the commit."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    with explained(api, repository, "write to"):
        gone = [name for name in api.list_repo_files(repository) if name not in files]
        added = [CommitOperationAdd(name, path) for name, path in sorted(files.items())]
        deleted = [CommitOperationDelete(name) for name in gone if name.startswith(MIRRORED)]
        # Not upload_folder: it may make several commits, so that a failure leaves half of the files.
        api.create_commit(repository, [*added, *deleted], commit_message=message)
    return f"{api.endpoint}/{repository}"


def download(api: "HfApi", repository: str, revision: str | None, folder: Path) -> None:
    """Downloads all files of a repository into an empty folder. Raises HubError if that fails for any reason.

    revision: branch, tag or commit; None: the newest commit.
    """
    with explained(api, repository, "read"):
        # The library's record of the download lies in the folder too, so that nothing is left elsewhere.
        api.snapshot_download(
            repository, revision=revision, local_dir=folder, cache_dir=folder / ".cache" / "huggingface"
        )


@contextlib.contextmanager
def explained(api: "HfApi", repository: str, action: str) -> Iterator[None]:
    """Converts any exception of a request to the Hub into a HubError of one line. action: "read" or "write
    to"."""
    try:
        yield
    except Exception as error:  # whatever the client, its HTTP library or the disk raises
        raise HubError(f"cannot {action} {repository}: {_reason(error, api.endpoint, repository)}") from None


def _reason(error: BaseException, endpoint: str, repository: str) -> str:
    from huggingface_hub import errors

    cause: BaseException | None = error
    while cause is not None:  # the error, then the error that caused it, and so on
        if isinstance(cause, errors.GatedRepoError):
            return f"access has to be requested at {endpoint}/{repository}"
        if isinstance(cause, errors.RevisionNotFoundError):
            return "it has no such --revision"
        if isinstance(cause, errors.RepositoryNotFoundError):
            return f"{endpoint} has no such repository, or it is private: check the name, or {LOGIN}"
        if isinstance(cause, errors.HfHubHTTPError):
            status = cause.response.status_code
            advice = {401: f"; the token is not valid: {LOGIN}", 403: "; the token lacks the permission"}
            said = cause.server_message or cause.response.reason_phrase
            return f"{endpoint} answers {status}, {' '.join(said.split())}{advice.get(status, '')}"
        if isinstance(cause, errors.OfflineModeIsEnabled):
            return "HF_HUB_OFFLINE is set"
        if isinstance(cause, OSError) and (cause.filename is not None or cause.errno in DISK_IS_FULL):
            return f"{cause.filename or 'this machine'}: {cause.strerror}"
        last, cause = cause, cause.__cause__
    said = ": ".join([type(last).__name__, *str(last).splitlines()[:1]])
    if isinstance(last, OSError) or type(last).__module__.startswith("http"):  # httpx, httpcore, ...
        return f"no answer from {endpoint} ({said}); check the network"
    return said

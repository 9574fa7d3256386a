"""Names of versions 1 and 2 are looked up only after a module of the package was not found."""

from collections.abc import Iterator

from sample_factory.runtime.registry import resolve

INSTALL = "sample_factory.version_2.finder:install"


class PathWithOldNames(list[str]):
    """A package's `__path__` that makes the module names of versions 1 and 2 importable.

    It lists the folders of the package. An import that has searched all of them without success reaches the
    end of the list, which installs `version_2.finder` to answer this import and later ones.
    """

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        resolve(INSTALL)()

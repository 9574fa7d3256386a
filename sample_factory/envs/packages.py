"""Optional packages: whether one is installed, and the error if it is not."""

import importlib.util
import sys

from sample_factory.config.flags import ConfigError


class MissingPackage(ConfigError, ImportError):
    """Raised if an env needs a package that is not installed; the message is one line with the way to install
    it."""


def is_installed(module: str) -> bool:
    """Returns whether a module can be imported. Imports its parent packages, but not the module itself."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of what is around it, which may also be no package
        return False


def missing_package(user: str, package: str, extra: str, alternative: str = "") -> MissingPackage:
    """Returns the error for a package that `user`, e.g. "env 'atari_pong'", needs.

    extra: the X in `pip install -e '.[X]'`. alternative: what works without the package, in words.
    """
    text = f"{user} needs the package {package}, which is not installed: {how_to_install(extra)}"
    return MissingPackage(f"{text}; or {alternative}" if alternative else text)


def how_to_install(extra: str) -> str:
    """Returns the command that installs an extra of this project, as the end of a sentence. extra: one name,
    or alternatives such as "envpool or atari"."""
    extras = " or ".join(f"'.[{name}]'" for name in extra.split(" or "))
    return f"pip install -e {extras} in the checkout"

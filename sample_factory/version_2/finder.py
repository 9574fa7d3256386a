"""Makes imports of versions 1 and 2 work, or fail with one line that says what to write instead."""

import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from sample_factory.runtime.registry import resolve
from sample_factory.version_2.names import MODULES, NAMES, PAGE

PACKAGE = "sample_factory."
EXAMPLES = ("sf_examples", "sample_factory_examples")  # the other packages of versions 2 and 1


class _OldModule(types.ModuleType):
    """Takes the place of a module of version 1 or 2; `names.py` lists the counterparts of its names."""

    def __getattr__(self, name: str) -> Any:
        """Returns the counterpart of an old name, or raises an ImportError that says what to write."""
        path = self.__name__.removeprefix(PACKAGE)
        if name == "__all__":  # `import *`
            return [known for known, target in NAMES.get(path, {}).items() if " " not in target]
        if name.startswith("__") or _is_listed(f"{path}.{name}"):  # the second: the caller imports it next
            raise AttributeError(name)
        return find_old_name(path, name, _advice(path))


def find_old_name(path: str, name: str, advice: str = "") -> Any:
    """Returns the counterpart in this version of a name of the old module `sample_factory.<path>`.

    advice: what to write in place of a name that `names.py` does not list.
    Raises ImportError, with what to write, for a name without a counterpart, and AttributeError, without
    advice, for a name that is not listed.
    """
    target = NAMES.get(path, {}).get(name, advice)
    if not target:
        raise AttributeError(f"module {full_name(path)} has no attribute {name}")
    if " " in target:
        raise ImportError(f"{full_name(path)}.{name} is not in this version: {target}")
    return resolve(target)


def full_name(path: str) -> str:
    """Converts a path in `names.py` to the full name of the module, e.g. "algo" to sample_factory.algo."""
    return path if path.startswith(EXAMPLES) else f"{PACKAGE}{path}"


class OldModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that makes the old modules that `names.py` lists. As the last entry of sys.meta_path, the
    hook is called only for modules without a file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of an old module; None for a module that versions 1 and 2 do not have either.
        Raises ModuleNotFoundError, with what to write, for an old module without a counterpart."""
        own = fullname.removeprefix(PACKAGE)
        if own == fullname and own.partition(".")[0] not in EXAMPLES:
            return None
        if _is_listed(own):
            is_package = "main" not in NAMES.get(own, {})
            # `python -m` makes the origin the first of sys.argv.
            return importlib.machinery.ModuleSpec(fullname, self, origin=fullname, is_package=is_package)
        if any(own == name or own.startswith(f"{name}.") for name in MODULES):
            # Without `name`, so that `from package import module` does not replace the message.
            raise ModuleNotFoundError(f"{fullname} is not in this version: {_advice(own)}")
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _OldModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: `_OldModule` looks up names when they are used."""

    def get_code(self, fullname: str) -> types.CodeType | None:
        """Returns code for `python -m`, which calls the module's function `main`; None without `main`."""
        if "main" not in NAMES.get(fullname.removeprefix(PACKAGE), {}):
            return None
        # The condition: a child process may import the program again, under another name.
        source = f"import sys\nfrom {fullname} import main\nif __name__ == '__main__':\n    sys.exit(main())"
        return compile(source, fullname, "exec")


def _is_listed(path: str) -> bool:
    """Returns whether `names.py` lists a module or one of its submodules. path: without "sample_factory."."""
    return any(name == path or name.startswith(f"{path}.") for name in NAMES)


def _advice(path: str) -> str:
    """Returns what to write in place of a module: the sentence that `names.py` lists for the module or the
    nearest package that contains it; without one, a reference to the page about version 2."""
    while path:
        if path in MODULES:
            return MODULES[path]
        path = path.rpartition(".")[0]
    return PAGE


@functools.cache
def install() -> None:
    """Installs the import hook for modules of versions 1 and 2 in this process; repeated calls do nothing."""
    sys.meta_path.append(OldModuleFinder())

"""The `cfg` of functions that users write, such as make_env: every flag as an attribute."""

import argparse
from collections.abc import Mapping
from typing import Any, ClassVar

from sample_factory.config.flags import section_fields
from sample_factory.config.retired_flags import RETIRED_DEFAULTS
from sample_factory.config.sections import TRAINING_SECTIONS
from sample_factory.config.unknown_flags import suggestion


class FlagNamespace(argparse.Namespace):
    """All flags of an experiment: `cfg.gamma`, `cfg["gamma"]`, `"gamma" in cfg`, `cfg.get("gamma")`.

    As in versions 1 and 2 it is an argparse.Namespace. Names of version 2 are read and set as the flags that
    they are aliases of: `cfg.rnn_size` is `cfg.hidden_size`. `vars(cfg)` has each flag once. Flags
    without an effect here, such as `cfg.batched_sampling`, are in it only if set, and can always be read.
    """

    _ALIASES: ClassVar[Mapping[str, str]] = {
        alias: field.name
        for section in TRAINING_SECTIONS.values()
        for field, _ in section_fields(section)
        for alias in field.metadata["aliases"]
    }

    def __getattr__(self, name: str) -> Any:
        """Called for a name that is no flag. Raises AttributeError, with the nearest flag."""
        flag = self._ALIASES.get(name)
        if flag is not None and flag in vars(self):
            return vars(self)[flag]
        if name in RETIRED_DEFAULTS:
            return RETIRED_DEFAULTS[name]
        hint = "" if name.startswith("_") else suggestion(name, vars(self)).replace("--", "")
        raise AttributeError(f"cfg has no flag {name}{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self._ALIASES.get(name, name), value)

    def __contains__(self, name: object) -> bool:
        return self._ALIASES.get(str(name), name) in vars(self) or name in RETIRED_DEFAULTS

    def __getitem__(self, name: str) -> Any:
        """Returns the value of a flag. Raises KeyError, with the nearest flag."""
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of a flag, or the default if there is no such flag."""
        return getattr(self, name, default)

"""Installed as the package `sf_examples`: scripts of version 2 may import it before `sample_factory`."""

import sample_factory.version_2.finder  # noqa: F401  finds the modules, or says what to write instead

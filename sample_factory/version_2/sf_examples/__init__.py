"""Installed as the package `sf_examples`: scripts of version 2 may import it before `sample_factory`."""

from sample_factory.version_2 import finder

finder.install()  # finds the modules, or says what to write instead

"""The version of this package, for every module that writes it into a file."""

VERSION = "3.0.0"

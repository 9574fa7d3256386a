"""Flags: their declarations, the command line, and the files of an experiment's settings."""

VERSION = "3.0.0"

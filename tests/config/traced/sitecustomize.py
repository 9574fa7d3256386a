"""Python imports this at the start of each process of a traced command: notes which flags are read.

FLAG_READS names a file, which gets a line for each flag that a process reads from a section of the
configuration or from the `cfg` of an env. Reads that only copy, check or print all flags do not count.
"""

import argparse
import dataclasses
import os
import sys

COPYING_FILES = ("dataclasses.py", "argparse.py", "copy.py", "<string>")
COPYING_FILES += ("config/flags.py", "config/consistency.py", "config/effects.py", "config/help.py")
COPYING_FUNCTIONS = ("flat_values",)
noted = set()


def note(name, frame):
    """Writes the name of a flag, unless its reader copies, checks or prints all flags."""
    code = frame.f_code
    is_copy = code.co_qualname.partition(".<")[0] in COPYING_FUNCTIONS
    if is_copy or code.co_filename.endswith(COPYING_FILES):
        return
    key = os.environ.get("FLAG_READS"), name
    if key[0] and key not in noted:
        noted.add(key)
        file = os.open(key[0], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{name}\n".encode())
        os.close(file)


def traced(section):
    """Returns the dataclass; if its fields are flags, each read of one is noted."""
    names = {field.name for field in dataclasses.fields(section) if "only_with" in field.metadata}

    def read(self, name):
        value = object.__getattribute__(self, name)
        if name in names:
            note(name, sys._getframe(1))
        return value

    if names:
        section.__getattribute__ = read
    return section


def read_namespace(self, name):
    value = object.__getattribute__(self, name)
    if not name.startswith("_"):
        note(name, sys._getframe(1))
    return value


make_dataclass = dataclasses._process_class
dataclasses._process_class = lambda *args, **options: traced(make_dataclass(*args, **options))
argparse.Namespace.__getattribute__ = read_namespace

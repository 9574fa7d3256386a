"""Carries the package to a machine with a GPU, a torch of its own, and no network.

With a network: collects the wheels in a folder, without torch and what torch needs.

    python tests/gpu/kit.py build gpu_kit --python=3.12

There, in a copy of this repository with that folder, by the python3 that has torch:

    python3 tests/gpu/kit.py install gpu_kit && source gpu_kit/venv/bin/activate
    ./all_tests.sh tests/gpu && python -m tests.gpu.suite --json=gpu.json

The virtual environment has its own NumPy and the like, and sees all other packages of the machine. Uses the
standard library only.
"""

import argparse
import fnmatch
import importlib.util
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_MB = 60
# What tests/gpu and the benchmark need, in the versions of the extra `test` where it has them. Without OpenCV
# (Doom needs it for unusual resolutions), PyAV (videos), matplotlib, and the server of TensorBoard.
PACKAGES = (
    *("numpy", "gymnasium", "cloudpickle", "Farama-Notifications", "psutil", "vizdoom"),
    *("tensorboard", "protobuf", "absl-py", "packaging"),
    *("envpool", "envpool-assets", "dm-env", "dm-tree", "attrs", "wrapt", "optree", "typing_extensions"),
    *("pytest", "pytest-timeout", "pluggy", "iniconfig", "Pygments", "hypothesis", "sortedcontainers"),
    *("pip", "setuptools"),
)
# This file of EnvPool imports all suites; in the kit it imports only the one that is there.
ENVPOOL_ENTRY = "envpool/entry.py"
ENVPOOL_SUITES = b"import envpool.atari.registration\n"
# Package -> patterns of files that the kit leaves out of its wheel. The last pattern that fits a file
# decides; one that begins with "!" keeps the file.
LEFT_OUT = {
    "vizdoom": ("vizdoom/freedoom1.wad",),
    "tensorboard": ("*/webfiles.zip",),
    "envpool": ("envpool/*/*.so", "envpool/*.so.*", "!envpool/atari/*"),
    "envpool_assets": ("envpool_assets/*", "!*.py", "!*/atari/*", "!envpool_assets/vizdoom/maps/*"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("build", "install"))
    parser.add_argument("folder", type=Path, help="of the kit")
    parser.add_argument(
        "--python", default="{}.{}".format(*sys.version_info), help="version there, e.g. 3.12"
    )
    arguments = parser.parse_args()
    if arguments.command == "build":
        build(arguments.folder, arguments.python)
    else:
        install(arguments.folder)


def build(folder: Path, python: str) -> None:
    """Fills the folder with wheels for a version of Python, and prints their sizes."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run(
        [*download, f"--python-version={python}", f"--dest={wheels}", *requirements(python)], check=True
    )
    total = 0.0
    for wheel in sorted(wheels.glob("*.whl")):
        name = wheel.name.partition("-")[0]
        if name != "pip":  # Python runs it out of the wheel, which it can only unpack as it is
            shorten(wheel, LEFT_OUT.get(name, ()))
        megabytes = wheel.stat().st_size / 1e6
        total += megabytes
        print(f"{megabytes:6.2f} MB  {wheel.name}")
    print(f"{total:6.2f} MB  altogether")
    if total > MAX_MB:
        sys.exit(f"the kit is larger than {MAX_MB} MB: leave more out")


def requirements(python: str) -> list[str]:
    """Returns PACKAGES, in the versions that pyproject.toml pins for a version of Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {}
    for requirement in project["optional-dependencies"]["test"]:
        package, _, marker = requirement.partition(";")
        is_for_new = ">=" in marker
        if not marker or is_for_new == (tuple(map(int, python.split("."))) >= (3, 14)):
            pinned[package.partition("==")[0].lower()] = package.strip()
    return [pinned.get(name.lower(), name) for name in PACKAGES]


def shorten(wheel: Path, patterns: tuple[str, ...]) -> None:
    """Rewrites a wheel without the files that the patterns leave out, and compresses it better."""
    shortened = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(shortened, "w") as new:
        for entry in old.infolist():
            if not is_left_out(entry.filename, patterns):
                content = ENVPOOL_SUITES if entry.filename == ENVPOOL_ENTRY else old.read(entry)
                new.writestr(entry, content, zipfile.ZIP_LZMA)
    shortened.rename(wheel)


def is_left_out(name: str, patterns: tuple[str, ...]) -> bool:
    """Returns what the last pattern says that fits a file's name."""
    fitting = [pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern.removeprefix("!"))]
    return bool(fitting) and not fitting[-1].startswith("!")


def install(folder: Path) -> None:
    """Makes a virtual environment from the wheels, the checkout, and the packages of this interpreter."""
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"{sys.executable} has no torch; run this by the python3 that has it")
    place = (folder / "venv").absolute()
    # Without pip, for which Debian needs another package: the kit has it as a wheel.
    venv.create(place, clear=True, symlinks=True, with_pip=False)
    python = place / "bin" / "python"
    question = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", question], text=True).strip())
    # Instead of --system-site-packages: if this interpreter belongs to a virtual environment, that would show
    # the packages of the interpreter below it. Those of the new environment come first.
    theirs = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in theirs]
    (packages / "of_the_machine.pth").write_text("".join(lines))
    wheels = sorted((folder / "wheels").glob("*.whl"))
    pip = next(wheel for wheel in wheels if wheel.name.startswith("pip-"))
    command = [python, pip / "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, *wheels], check=True)
    subprocess.run([*command, "--no-build-isolation", "--editable", ROOT], check=True)
    (place / "gpu_kit").touch()  # tells all_tests.sh to install nothing
    shown = "import torch; print('torch', torch.__version__, 'with a GPU:', torch.cuda.is_available())"
    subprocess.run([python, "-c", shown], check=True)
    print(f"source {folder}/venv/bin/activate")


if __name__ == "__main__":
    main()

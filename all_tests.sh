#!/usr/bin/env bash
# Checks formatting, lint and types, then runs every test. With arguments, runs those tests only:
# ./all_tests.sh tests/config -x
# ./all_tests.sh conformance: plays the plain packages beside the product instead, see tests/conformance.
# Makes a virtual environment in .venv if none is active, and installs what the tests need.
set -euo pipefail
cd "$(dirname "$0")"
if [[ -z "${VIRTUAL_ENV:-}" ]]; then
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "python3 is older than 3.11")'
  [[ -f .venv/bin/activate ]] || python3 -m venv .venv
  # shellcheck disable=SC1091
  source .venv/bin/activate
fi
if [[ -f "$VIRTUAL_ENV/gpu_kit" ]]; then
  # Made by tests/gpu/kit.py: it uses the machine's own torch, which must stay, and has neither ruff nor mypy.
  exec python -m pytest "$@"
fi
# torch first and by its exact version: without one, pip may choose a build with gigabytes of CUDA packages.
pip install --quiet "$(grep -o 'torch==[0-9.]*' pyproject.toml)"
pip install --quiet -e ".[test]"
if [[ "${1:-}" == conformance ]]; then
  failed=0
  # Without what they require: an opencv-python would be installed over opencv-python-headless.
  pip install --quiet --no-deps -r tests/conformance/requirements.txt
  python -m pytest -n 2 --dist=loadfile tests/conformance --ignore=tests/conformance/simulators || failed=1
  # An environment of their own: the suite's NumPy and MuJoCo are others.
  [[ -f .venv-conformance/bin/pip ]] || python3 -m venv .venv-conformance
  .venv-conformance/bin/pip install --quiet -e . -r tests/conformance/simulators/requirements.txt
  .venv-conformance/bin/python -m pytest -n 2 --dist=loadfile tests/conformance/simulators || failed=1
  exit $failed
fi
ruff format --check .
ruff check .
mypy
if (($#)); then
  exec python -m pytest "$@"
fi
# Three processes on two cores, since tests of whole runs often wait. All tests of a file run in the same
# process and share its fixtures.
exec python -m pytest -n 3 --dist=loadfile --no-loadscope-reorder

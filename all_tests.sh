#!/usr/bin/env bash
# Runs every test. Makes a virtual environment in .venv if none is active, and installs what the tests need.
set -euo pipefail
cd "$(dirname "$0")"
if [[ -z "${VIRTUAL_ENV:-}" ]]; then
  [[ -d .venv ]] || python3 -m venv .venv
  # shellcheck disable=SC1091
  source .venv/bin/activate
fi
# torch first and by its exact version: without one, pip may choose a build with gigabytes of CUDA packages.
pip install --quiet torch==2.13.0
pip install --quiet -e ".[test]"
exec python -m pytest "$@"

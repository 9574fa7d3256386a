#!/usr/bin/env bash
# Builds the sdist and the wheel into build/release, checks them, and installs each in a fresh environment, where
# the wheel trains Doom for a minute. Uploads nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$PWD/build/release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$release"
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet build twine
"$work/tools/bin/python" -m build --outdir "$release" .
"$work/tools/bin/twine" check --strict "$release"/*

version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' sample_factory/config/__init__.py)
grep -q "^## \[$version\]" .github/CHANGELOG.md || { echo "CHANGELOG.md has no section [$version]"; exit 1; }
if [[ "${GITHUB_REF_TYPE:-}" == tag && "$GITHUB_REF_NAME" != "v$version" ]]; then
  echo "the tag $GITHUB_REF_NAME should be v$version"
  exit 1
fi

torch=$(grep -o 'torch==[0-9.]*' pyproject.toml)
# The checkout must not be imported.
unset PYTHONPATH
cd "$work"
for package in "$release"/*.tar.gz "$release"/*.whl; do
  python3 -m venv --clear fresh
  fresh/bin/pip install --quiet "$torch" "$package"
  [[ "$(fresh/bin/sample-factory --version)" == "$version" ]]
done
fresh/bin/sample-factory-train --env=doom_basic --experiment=release --train_for_seconds=60
fresh/bin/sample-factory eval --experiment=release --eval_episodes=10
echo "Sample Factory $version can be released: $(ls "$release" | tr '\n' ' ')"

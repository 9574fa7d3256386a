"""Runs the Python code of every page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.config.test_pages import PAGES, ROOT
from tests.examples.run_snippets import blocks

pytestmark = pytest.mark.timeout(400)  # seconds, as in test_examples.py

PROGRAM = Path(__file__).with_name("run_snippets.py")
PAGES_WITH_CODE = [page for page in PAGES if blocks(page)]


def test_pages_have_code():
    assert len(PAGES_WITH_CODE) >= 3


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_code_of_a_page_runs(page, tmp_path):
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(page)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout

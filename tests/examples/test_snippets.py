"""Runs the Python code of every page."""

from pathlib import Path

import pytest

from tests.config.test_pages import PAGES, ROOT
from tests.examples.run_snippets import blocks
from tests.forked import run_programs

pytestmark = pytest.mark.timeout(400)  # seconds, as in test_examples.py

PROGRAM = Path(__file__).with_name("run_snippets.py")
PAGES_WITH_CODE = [page for page in PAGES if blocks(page)]


def test_pages_have_code():
    assert len(PAGES_WITH_CODE) >= 3


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_code_of_a_page_runs(page, tmp_path):
    [(code, shown)] = run_programs([[str(PROGRAM), str(page)]], tmp_path, timeout=300, cwd=tmp_path)
    assert code == 0, shown

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.profile()
    return made

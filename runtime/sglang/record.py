"""The results of the smoke tests, one file for each epoch, where they outlive the rank and its journal."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from runtime.sglang.smoking import Outcome

KEPT = 50


def directory(environ: Mapping[str, str]) -> Path | None:
    """``smoke`` in the unit's StateDirectory=; None outside a unit."""
    state = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(state) / "smoke" if state else None


def keep(place: Path, epoch: int, outcome: Outcome, told: Mapping[str, object]) -> None:
    """Write ``EPOCH.json``, with what else is to be ``told`` in it, and remove all but the newest ``KEPT``.

    :raises OSError: it is not kept; another of the same epoch still is.
    """
    place.mkdir(mode=0o755, exist_ok=True)
    file = place / f"{epoch}.json"
    whole = {"epoch": epoch, **told, "ok": outcome.ok, "sentence": outcome.sentence, "results": outcome.results}
    draft = place / f".{epoch}.new"
    try:
        draft.write_text(json.dumps(whole) + "\n", encoding="utf-8")
        draft.chmod(0o644)
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    kept = sorted((path for path in place.glob("*.json") if path.stem.isdecimal()), key=lambda path: int(path.stem))
    for old in kept[:-KEPT]:
        old.unlink(missing_ok=True)

"""Points in time as people write them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

EXPECTED = "10m, 2h, 3d, 14:30, today, 2026-11-30 or 2026-11-30T14:30:00"
_AGO = re.compile(r"(\d+(?:\.\d+)?) ?(s|sec|m|min|h|d)")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_CLOCK = ("%H:%M", "%H:%M:%S")


def moment(text: str, now: datetime) -> datetime:
    """So long ago, or a time of day (the last one that has been), or a date with or without one. now: with its zone.

    Raises ValueError, or OverflowError for what was before the year 1.
    """
    text = text.strip().lower().removesuffix(" ago")
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if (ago := _AGO.fullmatch(text)) is not None:
        return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]])
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    for form in _CLOCK:
        try:
            # The zone is the one of `now`.
            time = datetime.strptime(text, form)  # noqa: DTZ007
        except ValueError:
            continue
        found = midnight.replace(hour=time.hour, minute=time.minute, second=time.second)
        return found if found <= now else found - timedelta(days=1)
    found = datetime.fromisoformat(text.upper())
    return found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)

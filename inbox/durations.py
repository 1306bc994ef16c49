"""Durations as people write them: "1 d", "2 h 30 min", "90 s"."""

import re

# Seconds of each unit, the longest first; the first name is the one that is shown.
UNITS = (
    (("d", "day", "days"), 86_400),
    (("h", "hour", "hours"), 3_600),
    (("min", "minute", "minutes"), 60),
    (("s", "sec", "second", "seconds"), 1),
)
SECONDS = {name: seconds for names, seconds in UNITS for name in names}
# Longer than any that could be meant.
MAX_LENGTH = 60
_PART = re.compile(r"([0-9]{1,9}) ?([a-z]+)")
_WHOLE = re.compile(rf"{_PART.pattern}(?: ?{_PART.pattern})*")


class NoDuration(ValueError):
    """Write a duration with its units, such as "1 d", "2 h 30 min" or "90 s"."""


def seconds_in(text: str) -> int:
    """Return the seconds of a duration; raises `NoDuration`, whose text says what is wrong."""
    text = " ".join(text.lower().split())
    if len(text) > MAX_LENGTH or not _WHOLE.fullmatch(text):
        raise NoDuration(NoDuration.__doc__)
    parts = _PART.findall(text)
    units = [unit for _, unit in parts]
    unknown = [unit for unit in units if unit not in SECONDS]
    if unknown:
        raise NoDuration(f'There is no unit "{unknown[0]}": write d, h, min or s.')
    sizes = [SECONDS[unit] for unit in units]
    if sizes != sorted(set(sizes), reverse=True):
        raise NoDuration("Name each unit once, the longest first.")
    return sum(int(number) * size for (number, _), size in zip(parts, sizes, strict=True))


def in_words(seconds: int) -> str:
    """Return the duration as `seconds_in` reads it."""
    parts = []
    for names, size in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {names[0]}")
    return " ".join(parts) or "0 s"

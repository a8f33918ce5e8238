"""Values that Python's standard library does not have, and DB-API's types."""

from __future__ import annotations

import datetime
import time
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """An INTERVAL. A month has no fixed number of days, nor a day of hours: the parts stay apart.

    A result has an ``Interval`` where it has months, and else a ``timedelta``.
    """

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __str__(self) -> str:
        sign = "-" if self.microseconds < 0 else ""
        seconds, micro = divmod(abs(self.microseconds), 1_000_000)
        fraction = f".{micro:06d}" if micro else ""
        clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
        return f"{self.months} mons {self.days} days {clock}"


class Json:
    """A parameter of JSON. A ``dict`` is one by itself; a list, a text or a number is wrapped."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Json({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class DBAPIType:
    """A set of type codes: ``description[0][1] == seracdb.NUMBER``."""

    __slots__ = ("name", "codes")

    def __init__(self, name: str, *codes: int) -> None:
        self.name = name
        self.codes = frozenset(codes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DBAPIType):
            return self.codes == other.codes
        return other in self.codes

    def __hash__(self) -> int:
        return hash(self.codes)

    def __repr__(self) -> str:
        return f"seracdb.{self.name}"


# Type codes are PostgreSQL's numbers of types.
STRING = DBAPIType("STRING", 18, 19, 25, 114, 1042, 1043, 2950, 3802)
BINARY = DBAPIType("BINARY", 17)
NUMBER = DBAPIType("NUMBER", 20, 21, 23, 700, 701, 1700)
DATETIME = DBAPIType("DATETIME", 1082, 1083, 1114, 1184, 1186)
ROWID = DBAPIType("ROWID", 26)

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:
    """The local date of a number of seconds since 1970."""
    return datetime.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:
    """The local time of day of a number of seconds since 1970."""
    return datetime.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """The local date and time of a number of seconds since 1970."""
    return datetime.datetime(*time.localtime(ticks)[:6])

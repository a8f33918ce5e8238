"""Conditions on rows that a server tests (``filter`` of :func:`seracdb.remote.plan`).

The server casts a constant's text to the column's type, and a cast may round or assume. So a
constant is checked here first: it must be a value of the column's type exactly. What has a meaning
on the server that SQL does not have is refused.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

from seracdb._errors import DataError, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")

#: PostgreSQL's type in the metadata of a field: NUMERIC without digits, which comes as text, and
#: the beginning of CHAR's.
_TYPE_KEY = b"postgresql.type"
_NUMERIC = b"1700:-1"
_CHAR = b"1042:"
#: Decimals as they are: the program's own context may round. Columns have at most 38 digits.
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])
#: A fraction of a second that Python would cut to microseconds.
_FINER = re.compile(r"[.,]\d{6}0*[1-9]")


def condition(field: pa.Field, operator: str, value: Any) -> list[list[str]]:
    """``column operator value`` as the server's conditions, all of which must hold.

    Raises DataError for a value that is none of the column's type, NotSupportedError for a column
    whose type the server does not compare, ProgrammingError for an unknown operator.
    """
    if operator not in OPERATORS:
        raise ProgrammingError(f'"{operator}" is none of the operators {" ".join(OPERATORS)}', sqlstate="42601")
    constant = _constant(field, value)
    if isinstance(constant, float) and constant == 0:
        return _beside_zero(field.name, operator)
    return [[field.name, operator, constant if isinstance(constant, str) else repr(constant)]]


def _beside_zero(name: str, operator: str) -> list[list[str]]:
    """Comparisons with zero. The server orders -0.0 before 0.0; in SQL they are equal."""
    least, greatest = [name, ">=", "-0.0"], [name, "<=", "0.0"]
    return {
        "=": [least, greatest],
        "<>": [[name, "<>", "-0.0"], [name, "<>", "0.0"]],
        "<": [[name, "<", "-0.0"]],
        "<=": [greatest],
        ">": [[name, ">", "0.0"]],
        ">=": [least],
    }[operator]


def _constant(field: pa.Field, value: Any) -> str | float:
    """The constant's text; a float as such."""
    import pyarrow.types as types

    kind = field.type
    if value is None:
        raise DataError(f'column "{field.name}": no row is compared with NULL', sqlstate="22004")
    try:
        if types.is_boolean(kind) and isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, bool):
            raise ValueError("a boolean")
        if types.is_integer(kind):
            return _integer(kind, value)
        if types.is_floating(kind):
            return _float(kind, value)
        if types.is_decimal(kind):
            return _decimal(kind, value)
        if types.is_date(kind):
            return str(_of_class(value, datetime.date, datetime.datetime))
        if types.is_time(kind):
            return str(_of_class(value, datetime.time, None))
        if types.is_timestamp(kind):
            return _timestamp(kind, value)
        told = (field.metadata or {}).get(_TYPE_KEY, b"")
        if types.is_string(kind) and told != _NUMERIC:
            if not isinstance(value, str):
                raise ValueError("no text")
            # SQL does not count the blanks that CHAR ends with, and the server keeps none.
            return value.rstrip(" ") if told.startswith(_CHAR) else value
    except (ArithmeticError, OverflowError, TypeError, ValueError, struct.error) as error:
        message = f'column "{field.name}": {value!r} is no value of the type {kind}: {error}'
        raise DataError(message, sqlstate="22023") from None
    message = f'column "{field.name}": the server compares no values of its type ({kind})'
    raise NotSupportedError(message, sqlstate="0A000")


def _integer(kind: pa.DataType, value: Any) -> str:
    number = int(value) if isinstance(value, str) else value
    bound = 1 << (kind.bit_width - 1)
    if not isinstance(number, int) or not -bound <= number < bound:
        raise ValueError(f"no integer of {kind.bit_width} bits")
    return str(number)


def _float(kind: pa.DataType, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it is not finite")
    if isinstance(value, int) and int(number) != value:
        raise ValueError("it has too many digits")
    if kind.bit_width == 32 and struct.unpack("f", struct.pack("f", number))[0] != number:
        raise ValueError("it has more digits than 32 bits hold")
    return number


def _decimal(kind: pa.DataType, value: Any) -> str:
    try:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except InvalidOperation:
        raise ValueError("no number") from None
    if not number.is_finite():
        raise ValueError("it is not finite")
    try:
        scaled = _EXACT.scaleb(number, kind.scale)
    except Inexact:
        raise ValueError("it has more digits") from None
    if scaled != scaled.to_integral_value() or scaled.copy_abs() >= 10**kind.precision:
        raise ValueError("it has more digits")
    return format(number, "f")


def _of_class(value: Any, cls: Any, but: Any) -> Any:
    """A value of a class, or the one that a text says; not of the class ``but``."""
    finer = "it is finer than a microsecond"
    if isinstance(value, str) and _FINER.search(value):
        raise ValueError(finer)
    read = cls.fromisoformat(value) if isinstance(value, str) else value
    # pandas' NaT is a datetime, and equal to nothing.
    if not isinstance(read, cls) or (but is not None and isinstance(read, but)) or read != read:
        raise ValueError(f"no {cls.__name__}")
    # pandas counts nanoseconds.
    if getattr(read, "nanosecond", 0):
        raise ValueError(finer)
    if getattr(read, "tzinfo", None) is not None and cls is datetime.time:
        raise ValueError("a time with a time zone")
    return read


def _timestamp(kind: pa.DataType, value: Any) -> str:
    # fromisoformat of Python 3.10 does not know Z.
    text = value[:-1] + "+00:00" if isinstance(value, str) and value.endswith("Z") else value
    read = _of_class(text, datetime.datetime, None)
    if (read.tzinfo is None) != (kind.tz is None):
        raise ValueError("it has no time zone" if kind.tz is not None else "it has a time zone")
    return str(read if kind.tz is None else read.astimezone(datetime.timezone.utc))


def conditions(schema: pa.Schema, wanted: Iterable[Any]) -> list[list[str]]:
    """Conditions ``(column, operator, value)`` as the server takes them."""
    found = []
    for name, operator, value in wanted:
        found += condition(schema.field(name), operator, value)
    return found

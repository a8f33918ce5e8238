"""The exceptions of DB-API 2.0, and those of single SQLSTATEs that programs ask for."""

from __future__ import annotations

from typing import Any


class Warning(Exception):  # noqa: A001 - DB-API's name
    """An important warning."""


class Error(Exception):
    """An error of the database, or of its use.

    ``sqlstate`` is PostgreSQL's code of five characters. ``detail`` and ``hint`` say more, where
    there is more to say. ``position`` is the line and the column of the statement's text at which
    the error was found, both from 1. ``name`` is the column, relation, function or constraint that
    it is about; ``schema`` and ``table`` are those of a violated constraint.
    """

    sqlstate: str | None

    def __init__(
        self,
        message: str = "",
        *,
        sqlstate: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
        position: tuple[int, int] | None = None,
        name: str | None = None,
        schema: str | None = None,
        table: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.detail = detail
        self.hint = hint
        self.position = position
        self.name = name
        self.schema = schema
        self.table = table

    def __str__(self) -> str:
        text = self.message
        if self.position is not None:
            text += f" (line {self.position[0]}, column {self.position[1]})"
        if self.detail:
            text += f"\nDETAIL: {self.detail}"
        if self.hint:
            text += f"\nHINT: {self.hint}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__.copy())


def _rebuild(cls: type[Error], message: str, attributes: dict[str, Any]) -> Error:
    error = cls(message)
    error.__dict__.update(attributes)
    return error


class InterfaceError(Error):
    """A wrong use of the package: a closed connection, a connection in a forked process."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value that does not fit: out of range, not of its type, a division by zero."""


class OperationalError(DatabaseError):
    """An error that is not the statement's own: a conflict, a limit, a full disk, a
    cancellation."""


class IntegrityError(DatabaseError):
    """A violated constraint."""


class InternalError(DatabaseError):
    """A transaction in the wrong state, or an error in the database itself."""


class ProgrammingError(DatabaseError):
    """A wrong statement: its syntax, a name that does not exist, a missing right."""


class NotSupportedError(DatabaseError):
    """Something that SeracDB does not do."""


class UniqueViolation(IntegrityError):
    """23505: a key is there already."""


class ForeignKeyViolation(IntegrityError):
    """23503: a row that is referred to is missing, or still referred to."""


class NotNullViolation(IntegrityError):
    """23502: NULL in a column that has none."""


class CheckViolation(IntegrityError):
    """23514: a CHECK that does not hold."""


class SerializationFailure(OperationalError):
    """40001: another transaction was first. Run the transaction again."""


class DeadlockDetected(OperationalError):
    """40P01: transactions wait for each other. Run the transaction again."""


class LockNotAvailable(OperationalError):
    """55P03: a row or table is locked, and the statement does not wait."""


class QueryCanceled(OperationalError):
    """57014: the statement was cancelled, or took too long."""


_BY_SQLSTATE = {
    "23502": NotNullViolation,
    "23503": ForeignKeyViolation,
    "23505": UniqueViolation,
    "23514": CheckViolation,
    "40001": SerializationFailure,
    "40P01": DeadlockDetected,
    "55P03": LockNotAvailable,
    "57014": QueryCanceled,
}

_BY_CLASS = {
    "08": InterfaceError,
    "0A": NotSupportedError,
    "20": ProgrammingError,
    "21": ProgrammingError,
    "22": DataError,
    "23": IntegrityError,
    "24": InternalError,
    "25": InternalError,
    "2B": InternalError,
    "2D": InternalError,
    "2F": InternalError,
    "38": InternalError,
    "39": InternalError,
    "3B": InternalError,
    "3D": ProgrammingError,
    "3F": ProgrammingError,
    "42": ProgrammingError,
    "44": ProgrammingError,
    "P0": InternalError,
    "XX": InternalError,
}


def of_sqlstate(sqlstate: str, message: str, **details: Any) -> Error:
    """The exception of an error of the database. Classes that are not listed are of the
    operation."""
    cls = _BY_SQLSTATE.get(sqlstate) or _BY_CLASS.get(sqlstate[:2], OperationalError)
    return cls(message, sqlstate=sqlstate, **details)

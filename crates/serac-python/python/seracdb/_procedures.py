"""Stored procedures in Python: their names, their types, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from seracdb import _seracdb
from seracdb._errors import ProgrammingError
from seracdb._functions import _annotations, _names, columns_of, sql_type

if TYPE_CHECKING:
    from seracdb._connection import Connection

F = TypeVar("F", bound=Callable[..., Any])

#: Names and types, as ``{"id": int, "name": "varchar"}``.
Columns = Mapping[str, Any] | Iterable[tuple[str, Any]]


class ProcedureCancelled(BaseException):
    """Raised in a procedure whose statement was cancelled, or has taken too long, so that it ends.

    It is no ``Exception``, as ``KeyboardInterrupt`` is none: handlers of errors let it pass.
    """


def _parameters(function: Callable[..., Any], given: Columns | None) -> list[tuple[str, str]]:
    if given is not None:
        return columns_of(given)
    hints = _annotations(function)
    found = []
    for parameter in _names(function, 1):
        if parameter.name not in hints:
            raise TypeError(f"the parameter {parameter.name} has no annotation: name the types of the parameters")
        found.append((parameter.name, sql_type(hints[parameter.name])))
    return found


def create_procedure(
    connection: Connection, name: str, function: Callable[..., Any], parameters: Columns | None, returns: Columns | None
) -> None:
    """``Connection.create_procedure`` of a function."""
    if not callable(function):
        raise TypeError(f"{function!r} cannot be called")
    if connection.read_only:
        message = "a connection that only reads cannot make a procedure, because it may write"
        raise ProgrammingError(message, sqlstate="25006")
    _seracdb.create_procedure(
        connection, name, function, _parameters(function, parameters), columns_of(returns or {})
    )


def decorator(
    connection: Connection, name: str, parameters: Columns | None, returns: Columns | None
) -> Callable[[F], F]:
    """``Connection.create_procedure`` without a function."""

    def decorate(function: F) -> F:
        create_procedure(connection, name, function, parameters, returns)
        return function

    return decorate


def drop_procedure(connection: Connection, name: str, if_exists: bool) -> None:
    """``Connection.drop_procedure``."""
    if not _seracdb.drop_procedure(connection, name) and not if_exists:
        raise ProgrammingError(f'procedure "{name}" does not exist', sqlstate="42883", name=name)

"""Python functions in SQL: their types, and what Arrow batches are to them."""

from __future__ import annotations

import datetime
import decimal
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from seracdb._types import Interval, Json

#: SQL's types of Python's classes.
_TYPES: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    str: "text",
    bytes: "bytea",
    bytearray: "bytea",
    decimal.Decimal: "numeric",
    datetime.date: "date",
    datetime.time: "time",
    datetime.datetime: "timestamp",
    datetime.timedelta: "interval",
    Interval: "interval",
    uuid.UUID: "uuid",
    dict: "jsonb",
    Json: "jsonb",
}

#: The same of pyarrow's types, by their names.
_ARROW_TYPES = {
    "bool": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "integer",
    "uint32": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "large_string": "text",
    "string_view": "text",
    "binary": "bytea",
    "large_binary": "bytea",
    "binary_view": "bytea",
    "date32[day]": "date",
    "time64[us]": "time",
    "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamp with time zone",
    "month_day_nano_interval": "interval",
}

_VOLATILITIES = ("immutable", "stable", "volatile")
_NULL_HANDLING = ("default", "special")


def sql_type(of: Any) -> str:
    """The name of a type in SQL, for a text, a class, an annotation or a type of pyarrow."""
    if isinstance(of, str):
        return of
    if isinstance(of, type) and of in _TYPES:
        return _TYPES[of]
    origin, arguments = typing.get_origin(of), typing.get_args(of)
    if origin in (typing.Union, types.UnionType):
        # Every value of SQL may be NULL.
        rest = [argument for argument in arguments if argument is not type(None)]
        if len(rest) == 1:
            return sql_type(rest[0])
    if origin is typing.Annotated:
        return sql_type(arguments[0])
    if origin in (list, Sequence) and len(arguments) == 1:
        return sql_type(arguments[0]) + "[]"
    if origin in (dict, Mapping):
        return "jsonb"
    name = str(of)
    if name in _ARROW_TYPES:
        return _ARROW_TYPES[name]
    if name.startswith("decimal128("):
        return "numeric(" + name.removeprefix("decimal128(")
    raise TypeError(f"{of!r} has no type in SQL: name one, as 'bigint'")


def _names(function: Any, skip: int) -> list[Any]:
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):
        raise TypeError(f"the parameters of {function!r} are not known: name their types") from None
    in_order = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for parameter in parameters:
        if parameter.kind not in in_order:
            raise TypeError(f"the parameter {parameter} of {function!r} has no place in SQL: name the types")
    return parameters


def _annotations(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        # Annotations of other names say nothing here.
        return {}


def parameter_types(function: Any, given: Any, skip: int = 0) -> list[str]:
    """The types of a function's parameters, given or annotated. The first ``skip`` do not count."""
    if given is not None:
        if isinstance(given, str):
            raise TypeError("parameters are a list of types")
        return [sql_type(of) for of in given]
    hints = _annotations(function)
    found = []
    for parameter in _names(function, skip):
        if parameter.name not in hints:
            raise TypeError(f"the parameter {parameter.name} has no annotation: name the types of the parameters")
        found.append(sql_type(hints[parameter.name]))
    return found


def return_type(function: Any, given: Any) -> str:
    """The type of a function's value, given or annotated."""
    if given is not None:
        return sql_type(given)
    hints = _annotations(function)
    if hints.get("return") in (None, type(None)):
        raise TypeError("the value has no annotation: name its type with returns")
    return sql_type(hints["return"])


def columns_of(given: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Names and types of columns."""
    columns = typing.cast("Iterable[tuple[str, Any]]", given.items() if isinstance(given, Mapping) else given)
    return [(name, sql_type(of)) for name, of in columns]


def checked(name: str, value: str, allowed: Sequence[str]) -> str:
    """One of the words that an argument may be."""
    if value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise ValueError(f'{name} is one of {words}, not "{value}"')
    return value


def create_function(
    connection: Any,
    name: str,
    function: Callable[..., Any],
    parameters: Sequence[Any] | None,
    returns: Any,
    kind: str,
    null_handling: str,
    volatility: str,
) -> None:
    """``Connection.create_function``."""
    if not callable(function):
        raise TypeError(f"{function!r} cannot be called")
    is_arrow = checked("kind", kind, ("scalar", "arrow")) == "arrow"
    is_strict = checked("null_handling", null_handling, _NULL_HANDLING) == "default"
    checked("volatility", volatility, _VOLATILITIES)
    if is_arrow:
        needed()
        if parameters is None or returns is None:
            raise TypeError('the types of a function of kind "arrow" must be named: its annotations are those of arrays')
        if not parameters:
            raise ValueError('a function of kind "arrow" has a parameter: its arrays tell how many rows there are')
    types_of_parameters = parameter_types(function, parameters)
    connection._lend_function(
        name, "scalar", types_of_parameters, return_type(function, returns), [], volatility, is_strict, function, is_arrow
    )


def create_aggregate(
    connection: Any,
    name: str,
    cls: type,
    parameters: Sequence[Any] | None,
    returns: Any,
    kind: str,
    null_handling: str,
) -> None:
    """``Connection.create_aggregate``."""
    for method in ("step", "finish"):
        if not callable(getattr(cls, method, None)):
            raise TypeError(f"an aggregate is a class with the methods step and finish: {cls!r} has no {method}")
    is_arrow = checked("kind", kind, ("scalar", "arrow")) == "arrow"
    is_strict = checked("null_handling", null_handling, _NULL_HANDLING) == "default"
    if is_arrow:
        needed()
        if parameters is None or returns is None:
            raise TypeError('the types of an aggregate of kind "arrow" must be named')
        if not parameters:
            raise ValueError('an aggregate of kind "arrow" has a parameter: its arrays tell how many rows there are')
    step: Any = cls.step  # type: ignore[attr-defined]
    finish: Any = cls.finish  # type: ignore[attr-defined]
    types_of_parameters = parameter_types(step, parameters, skip=1)
    merges = callable(getattr(cls, "merge", None))
    word = "merging" if merges else "aggregate"
    connection._lend_function(
        name, word, types_of_parameters, return_type(finish, returns), [], "volatile", is_strict, cls, is_arrow
    )


def create_table_function(
    connection: Any,
    name: str,
    function: Callable[..., Any],
    parameters: Sequence[Any] | None,
    columns: Mapping[str, Any] | Iterable[tuple[str, Any]],
) -> None:
    """``Connection.create_table_function``."""
    if not callable(function):
        raise TypeError(f"{function!r} cannot be called")
    types_of_parameters = parameter_types(function, parameters)
    connection._lend_function(
        name, "table", types_of_parameters, None, columns_of(columns), "volatile", False, function, False
    )


def needed() -> None:
    """Makes sure of pyarrow, whose arrays functions of Arrow take."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError(
            'functions of kind "arrow" need the package pyarrow: pip install pyarrow', name="pyarrow"
        ) from None


def arrow_columns(batch: Any) -> tuple[Any, ...]:
    """The columns of a batch as pyarrow's arrays."""
    import pyarrow

    return tuple(pyarrow.record_batch(batch).columns)


def arrow_array(result: Any) -> Any:
    """What a function of Arrow has given as one array."""
    import pyarrow

    if isinstance(result, pyarrow.ChunkedArray):
        if result.num_chunks == 1:
            return result.chunk(0)
        return pyarrow.concat_arrays(result.chunks) if result.chunks else pyarrow.array([], result.type)
    if isinstance(result, pyarrow.Scalar):
        raise TypeError("a function of Arrow gives an array, and not a single value")
    if hasattr(type(result), "__arrow_c_array__"):
        return result
    if hasattr(result, "to_arrow"):
        return arrow_array(result.to_arrow())
    array = pyarrow.array(result, from_pandas=True)
    return arrow_array(array) if isinstance(array, pyarrow.ChunkedArray) else array

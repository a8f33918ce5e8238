"""Rows as frames of other packages, by Arrow's C interface."""

from __future__ import annotations

import sys
from typing import Any

from seracdb._errors import DataError


def _needed(package: str, method: str) -> ImportError:
    return ImportError(f".{method}() needs the package {package}: pip install {package}", name=package)


class Frames:
    """What has ``__arrow_c_stream__`` as a frame."""

    __slots__ = ()

    def _raise_failure(self) -> None:
        """Raises the error of the rows' query, if it has failed."""

    def _made(self, make: Any) -> Any:
        try:
            return make(self)
        except Exception:
            # The consumer has an error of its own, of which the text alone is the database's.
            self._raise_failure()
            raise

    def reader(self) -> Any:
        """A ``pyarrow.RecordBatchReader``: batches as they come."""
        try:
            import pyarrow
        except ImportError:
            raise _needed("pyarrow", "reader") from None
        return self._made(pyarrow.RecordBatchReader.from_stream)

    def arrow(self) -> Any:
        """A ``pyarrow.Table``."""
        try:
            import pyarrow
        except ImportError:
            raise _needed("pyarrow", "arrow") from None
        return self._made(pyarrow.table)

    def pl(self) -> Any:
        """A ``polars.DataFrame``. Polars has no intervals: they are durations, and those of
        months an error. It has no infinite dates and timestamps."""
        try:
            import polars
        except ImportError:
            raise _needed("polars", "pl") from None
        frame = self._made(lambda rows: polars.DataFrame(_Durations(rows)))
        for column in frame.get_columns():
            _check_series(column)
        return frame

    def df(self) -> Any:
        """A ``pandas.DataFrame``. Decimals, dates and times have ``pandas.ArrowDtype``, so that
        pandas makes no object for each value. NUMERICs with their own digits are texts, as in
        Arrow. Infinite dates and timestamps are an error.
        """
        try:
            import pandas
        except ImportError:
            raise _needed("pandas", "df") from None
        import pyarrow.types

        def dtype(data_type: Any) -> Any:
            is_kept = pyarrow.types.is_decimal(data_type) or pyarrow.types.is_date(data_type)
            return pandas.ArrowDtype(data_type) if is_kept or pyarrow.types.is_time(data_type) else None

        return _with_plain_lists(self._finite()).to_pandas(types_mapper=dtype)

    def _finite(self) -> Any:
        """A ``pyarrow.Table`` without infinite dates and timestamps."""
        table = self.arrow()
        for column in table.columns:
            _check_array(column)
        return table

    def fetchnumpy(self) -> dict[str, Any]:
        """A dict of NumPy arrays by the names of columns; masked arrays for columns with NULL.
        Infinite dates and timestamps are an error: NumPy would read one of them as no value."""
        table = _with_plain_lists(self._finite())
        import numpy

        arrays = {}
        for name, column in zip(table.column_names, table.columns):
            array = column.to_numpy()
            if column.null_count:
                mask = column.is_null().to_numpy()
                filler = _filler(column.type)
                if filler is not None:
                    array = column.fill_null(filler).to_numpy()
                array = numpy.ma.masked_array(array, mask=mask)
            arrays[name] = array
        return arrays


def known(frame: Any) -> Any:
    """A frame as Arrow's interface has it: Polars gives a column of NULLs alone a buffer, which the
    interface does not have."""
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(frame, polars.DataFrame) and polars.Null in frame.dtypes:
        return frame.cast({polars.Null: polars.String})
    return frame


def _check_ends(least: int | None, greatest: int | None, bits: int) -> None:
    """Refuses the numbers of the infinite dates and timestamps, which are the ends of the range."""
    is_infinity = greatest == 2 ** (bits - 1) - 1
    if is_infinity or least == -(2 ** (bits - 1)):
        shown = "infinity" if is_infinity else "-infinity"
        message = f'"{shown}" is out of the range of dates and times of frames: cast it to text'
        raise DataError(message, sqlstate="22008")


def _check_array(array: Any) -> None:
    """Refuses infinite dates and timestamps in an array of pyarrow."""
    import pyarrow.compute
    import pyarrow.types

    compute: Any = pyarrow.compute
    of = array.type
    if pyarrow.types.is_list(of):
        _check_array(compute.list_flatten(array))
    elif pyarrow.types.is_struct(of):
        for at in range(of.num_fields):
            _check_array(compute.struct_field(array, [at]))
    elif pyarrow.types.is_date(of) or pyarrow.types.is_timestamp(of):
        ends = compute.min_max(array)
        _check_ends(ends["min"].value, ends["max"].value, of.bit_width)


def _check_series(series: Any) -> None:
    """The same in a series of Polars."""
    import polars

    of = series.dtype
    if isinstance(of, polars.List):
        _check_series(series.explode())
    elif isinstance(of, polars.Struct):
        for field in series.struct.unnest().get_columns():
            _check_series(field)
    elif isinstance(of, (polars.Date, polars.Datetime)):
        numbers = series.to_physical()
        _check_ends(numbers.min(), numbers.max(), 32 if isinstance(of, polars.Date) else 64)


class _Durations:
    """Rows with durations in the place of intervals."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._rows._stream_of_durations()


def _with_plain_lists(table: Any) -> Any:
    """A table of pyarrow whose lists have elements that pyarrow gives to NumPy."""
    import pyarrow

    def plain(data_type: Any) -> Any:
        if pyarrow.types.is_list(data_type):
            element = data_type.value_field
            return pyarrow.list_(element.with_type(plain(element.type)))
        if pyarrow.types.is_string_view(data_type):
            return pyarrow.string()
        if pyarrow.types.is_binary_view(data_type) or pyarrow.types.is_fixed_size_binary(data_type):
            return pyarrow.binary()
        return data_type

    def of_field(field: Any) -> Any:
        return field.with_type(plain(field.type)) if pyarrow.types.is_list(field.type) else field

    wanted = pyarrow.schema([of_field(field) for field in table.schema], table.schema.metadata)
    return table if wanted.equals(table.schema) else table.cast(wanted)


def _filler(data_type: Any) -> Any:
    """What stands in the place of NULL in a column of a type whose arrays have no NaN."""
    import pyarrow.types

    if pyarrow.types.is_boolean(data_type):
        return False
    return 0 if pyarrow.types.is_integer(data_type) else None

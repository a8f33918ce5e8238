"""Rows as frames of other packages, by Arrow's C interface."""

from __future__ import annotations

from typing import Any


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
        """A ``polars.DataFrame``."""
        try:
            import polars
        except ImportError:
            raise _needed("polars", "pl") from None
        return self._made(polars.DataFrame)

    def df(self) -> Any:
        """A ``pandas.DataFrame``. NUMERICs with their own digits are texts, as in Arrow."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise _needed("pandas", "df") from None
        return self.arrow().to_pandas()

    def fetchnumpy(self) -> dict[str, Any]:
        """A dict of NumPy arrays by the names of columns; masked arrays for columns with NULL."""
        table = self.arrow()
        import numpy

        arrays = {}
        for name, column in zip(table.column_names, table.columns):
            array = column.to_numpy()
            if column.null_count:
                import pyarrow.compute

                mask = pyarrow.compute.is_null(column).to_numpy()
                filler = _filler(column.type)
                if filler is not None:
                    array = column.fill_null(filler).to_numpy()
                array = numpy.ma.masked_array(array, mask=mask)
            arrays[name] = array
        return arrays



def _filler(data_type: Any) -> Any:
    """What stands in the place of NULL in a column of a type whose arrays have no NaN."""
    import pyarrow.types

    if pyarrow.types.is_boolean(data_type):
        return False
    return 0 if pyarrow.types.is_integer(data_type) else None

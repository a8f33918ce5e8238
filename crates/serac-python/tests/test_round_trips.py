"""Values of every type on every way: parameter, column, result, frame, stream of Arrow.

hypothesis makes the examples: a few, and always the same ones. `SERACDB_EXAMPLES=1000` asks for
others, and that many of each test.
"""

import datetime as dt
import decimal
import json
import math
import os
import string
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy
import pandas
import polars
import pyarrow
import pytest
import seracdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seracdb import Interval, Json

EXAMPLES = int(os.environ.get("SERACDB_EXAMPLES", "0"))

examples = settings(
    max_examples=EXAMPLES or 6,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    # One connection serves all examples of a test: each makes its tables anew.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1)

# Values in Python.

# Texts of SQL have no zero byte, and Python's half characters are none.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
# A moment at the ends of Python's range has no date in UTC.
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=ZONES)
DELTAS = st.timedeltas()
INTERVALS = st.builds(
    Interval,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63) // 1000 + 1, 2**63 // 1000 - 1),
)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda unscaled: Decimal(f"{unscaled}E-{scale}"))


def numbers() -> st.SearchStrategy[Decimal]:
    """Numbers of any digits, and those that are none."""
    digits = st.integers(-(10**60), 10**60)
    finite = st.builds(lambda unscaled, exponent: Decimal(f"{unscaled}E{exponent}"), digits, st.integers(-80, 80))
    return finite | st.sampled_from([Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity"), Decimal("-0.00")])


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4),
    max_leaves=10,
)


def is_same(back: Any, value: Any) -> bool:
    """Whether two values are the same, also if they are no numbers. The parts of documents may have
    changed their kind of number: 1e22 is the integer 10**22."""
    if isinstance(value, float | Decimal) and isinstance(back, float | Decimal | int):
        if math.isnan(value) or math.isnan(back):
            return math.isnan(value) and math.isnan(back)
        return back == value or (isinstance(value, float) and float(back) == value)
    if isinstance(value, dict):
        return isinstance(back, dict) and back.keys() == value.keys() and all(is_same(back[k], value[k]) for k in value)
    if isinstance(value, list | tuple):
        return (
            isinstance(back, list | tuple)
            and len(back) == len(value)
            and all(is_same(one, other) for one, other in zip(back, value, strict=True))
        )
    return bool(back == value) and isinstance(back, bool) == isinstance(value, bool)


def interval_of(months: int, days: int, microseconds: int) -> Interval | dt.timedelta:
    """An interval as a result has it."""
    if months == 0:
        try:
            return dt.timedelta(days=days, microseconds=microseconds)
        except OverflowError:
            pass
    return Interval(months, days, microseconds)


class SqlType(NamedTuple):
    """A type of SQL: values for it, and what comes back."""

    name: str
    values: st.SearchStrategy[Any]
    result: Callable[[Any], Any] = lambda value: value
    # A value as pyarrow, and as Polars, gives it in a list.
    of_arrow: Callable[[Any], Any] = lambda value: value
    is_column: bool = True
    has_equality: bool = True
    # A result as a parameter.
    parameter: Callable[[Any], Any] = lambda value: value


def rounded(scale: int) -> Callable[[Decimal], Decimal]:
    context = decimal.Context(prec=100)
    return lambda value: value.quantize(Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP, context)


def of_interval(value: Any) -> Any:
    """An interval as pyarrow gives it: (months, days, nanoseconds); as Polars does: a duration."""
    if isinstance(value, dt.timedelta):
        return value
    months, days, nanoseconds = value
    return interval_of(months, days, nanoseconds // 1000)


def result_of_interval(value: Any) -> Any:
    return value if isinstance(value, dt.timedelta) else interval_of(*value)


def result_of_document(value: Any) -> Any:
    return value.value if isinstance(value, Json) else value


SINGLES = st.floats(width=32)
SQL_TYPES = [
    SqlType("boolean", st.booleans()),
    SqlType("smallint", integers(16)),
    SqlType("integer", integers(32)),
    SqlType("bigint", integers(64)),
    SqlType("real", SINGLES),
    SqlType("double precision", st.floats()),
    SqlType("numeric", numbers() | integers(80), lambda value: Decimal(value), Decimal),
    SqlType("numeric(5,2)", decimals(5, 2), of_arrow=Decimal),
    SqlType("numeric(18,18)", decimals(18, 18), of_arrow=Decimal),
    SqlType("numeric(19,0)", decimals(19, 0), of_arrow=Decimal),
    SqlType("numeric(38,10)", decimals(38, 10), of_arrow=Decimal),
    SqlType("numeric(20,3)", decimals(16, 5), rounded(3), Decimal),
    SqlType("text", TEXTS),
    SqlType("varchar(40)", TEXTS),
    # Beside NULL in a UNION it is a CHAR without a length, which keeps its blanks.
    SqlType("char(40)", TEXTS, lambda value: value.rstrip(" "), lambda value: value.rstrip(" ")),
    SqlType("bytea", st.binary(max_size=40)),
    SqlType("date", st.dates()),
    SqlType("time", st.times()),
    SqlType("timestamp", st.datetimes()),
    SqlType("timestamptz", MOMENTS, lambda value: value.astimezone(UTC)),
    SqlType("interval", DELTAS | INTERVALS, result_of_interval, of_interval),
    SqlType("uuid", st.uuids(), of_arrow=lambda value: uuid.UUID(bytes=value)),
    SqlType("json", DOCUMENTS.map(Json), result_of_document, json.loads, has_equality=False),
    SqlType("jsonb", DOCUMENTS.map(Json), result_of_document, json.loads, parameter=Json),
    SqlType("boolean[]", st.lists(st.none() | st.booleans(), max_size=5), is_column=False),
    SqlType("bigint[]", st.lists(st.none() | integers(64), max_size=5), is_column=False),
    SqlType("double precision[]", st.lists(st.none() | st.floats(), max_size=5), is_column=False),
    SqlType("text[]", st.lists(st.none() | TEXTS, max_size=5), is_column=False),
    SqlType("bytea[]", st.lists(st.none() | st.binary(max_size=9), max_size=5), is_column=False),
    SqlType("date[]", st.lists(st.none() | st.dates(), max_size=5), is_column=False),
    SqlType("timestamp[]", st.lists(st.none() | st.datetimes(), max_size=5), is_column=False),
    SqlType(
        "numeric[]",
        st.lists(st.none() | numbers(), max_size=5),
        of_arrow=lambda value: [None if part is None else Decimal(part) for part in value],
        is_column=False,
    ),
    SqlType(
        "uuid[]",
        st.lists(st.none() | st.uuids(), max_size=5),
        of_arrow=lambda value: [None if part is None else uuid.UUID(bytes=part) for part in value],
        is_column=False,
    ),
    SqlType(
        "integer[]",
        st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(integers(32), min_size=n, max_size=n), min_size=1, max_size=3)),
        is_column=False,
    ),
]
COLUMN_TYPES = [of for of in SQL_TYPES if of.is_column]


def by_name(of: SqlType) -> str:
    return of.name


@pytest.fixture(scope="module")
def con():
    with seracdb.connect(autocommit=True) as con:
        yield con


def remake(con: seracdb.Connection, definition: str) -> None:
    con.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({definition})")


def results(of: SqlType, values: list[Any]) -> list[Any]:
    return [None if value is None else of.result(value) for value in values]


def has_length(values: list[Any]) -> bool:
    """Whether Polars has the values: intervals without months, of at most 2**63 microseconds."""

    def fits(value: Any) -> bool:
        most = dt.timedelta(microseconds=2**63 - 1)
        return not isinstance(value, Interval) and (not isinstance(value, dt.timedelta) or abs(value) <= most)

    return all(map(fits, values))


def check(of: SqlType, back: list[Any], values: list[Any]) -> None:
    expected = results(of, values)
    assert len(back) == len(expected)
    for one, other in zip(back, expected, strict=True):
        assert is_same(one, other), (of.name, one, other)


@pytest.mark.parametrize("of", SQL_TYPES, ids=by_name)
@examples
@given(data=st.data())
def test_parameters_come_back(con, of, data):
    value = data.draw(st.none() | of.values)
    cast = f"$1::{of.name}"
    check(of, [con.execute(f"SELECT {cast}", (value,)).fetchone()[0]], [value])
    check(of, [con.prepare(f"SELECT {cast}").one(value)[0]], [value])
    if of.name == "integer[]":
        # An array of several dimensions has no place beside others in a column.
        return
    # As Arrow, in frames of each package, with a NULL beside it.
    query = f"SELECT v FROM (SELECT 1 AS at, {cast} AS v UNION ALL SELECT 2, NULL) AS q ORDER BY at"
    for back in [
        con.execute(query, (value,)).arrow()["v"].to_pylist(),
        con.execute(query, (value,)).reader().read_all()["v"].to_pylist(),
    ]:
        check(of, [None if part is None else of.of_arrow(part) for part in back], [value, None])
    assert con.execute(query, (value,)).df()["v"].isna().tolist()[1]
    assert con.execute(query, (value,)).fetchnumpy()["v"].mask.tolist()[1]
    if has_length(results(of, [value])):
        back = con.execute(query, (value,)).pl()["v"].to_list()
        check(of, [None if part is None else of.of_arrow(part) for part in back], [value, None])


@pytest.mark.parametrize("of", COLUMN_TYPES, ids=by_name)
@examples
@given(data=st.data())
def test_columns_keep_values(con, of, data):
    """By statements on keys and by any others, hot and frozen, as rows and in frames."""
    values = data.draw(st.lists(st.none() | of.values, max_size=12))
    remake(con, f"id INT PRIMARY KEY, v {of.name}")
    insert, select = con.prepare("INSERT INTO t VALUES ($1, $2)"), con.prepare("SELECT v FROM t WHERE id = $1")
    half = len(values) // 2
    for at, value in enumerate(values[:half]):
        assert insert(at, value) == 1
    con.executemany("INSERT INTO t VALUES ($1, $2)", list(enumerate(values))[half:])
    everything = "SELECT v FROM t ORDER BY id"
    for freezes in [False, True]:
        if freezes:
            con.execute("FREEZE TABLE t")
        check(of, [select.one(at)[0] for at in range(len(values))], values)
        check(of, [v for (v,) in con.execute(everything)], values)
        table = con.execute(everything).arrow()
        check(of, [None if part is None else of.of_arrow(part) for part in table["v"].to_pylist()], values)
        if has_length(results(of, values)):
            frame = con.execute(everything).pl()
            check(of, [None if part is None else of.of_arrow(part) for part in frame["v"].to_list()], values)
        assert len(con.execute(everything).df()) == len(values)
        scan = con.table("t").scan(["id", "v"]).arrow().to_pylist()
        back = [row["v"] for row in sorted(scan, key=lambda row: row["id"])]
        check(of, [None if part is None else of.of_arrow(part) for part in back], values)
    if of.has_equality:
        for value in results(of, values):
            if value is not None:
                (found,) = con.execute("SELECT count(*) FROM t WHERE v = $1", (of.parameter(value),)).fetchone()
                assert found >= 1, (of.name, value)


@pytest.mark.parametrize("of", COLUMN_TYPES, ids=by_name)
@examples
@given(data=st.data())
def test_results_are_appended_again(con, of, data):
    """A table, its frame in each package, and the table that the frame is appended to."""
    values = data.draw(st.lists(st.none() | of.values, max_size=8))
    remake(con, f"id INT, v {of.name}")
    con.executemany("INSERT INTO t VALUES ($1, $2)", list(enumerate(values)))
    con.execute(f"DROP TABLE IF EXISTS u; CREATE TABLE u (id INT, v {of.name})")
    cursor = con.execute("SELECT * FROM t ORDER BY id")
    frames: list[Any] = [cursor.arrow(), con.execute("SELECT * FROM t ORDER BY id"), con.table("t").scan()]
    if has_length(results(of, values)):
        frames.append(con.execute("SELECT * FROM t ORDER BY id").pl())
    for frame in frames:
        con.execute("DELETE FROM u")
        assert con.append("u", frame) == len(values)
        check(of, [v for (v,) in con.execute("SELECT v FROM u ORDER BY id")], values)


@examples
@given(before=TEXTS, wrong=st.sampled_from("\0\ud800\udfff"), behind=TEXTS)
def test_texts_that_are_none_are_refused(con, before, wrong, behind):
    text = before + wrong + behind
    remake(con, "id INT PRIMARY KEY, v TEXT")
    for statement in ["SELECT $1::text", "INSERT INTO t VALUES (1, $1)", "SELECT id FROM t WHERE v = $1"]:
        with pytest.raises((seracdb.DataError, UnicodeEncodeError)):
            con.execute(statement, (text,))
    with pytest.raises((seracdb.DataError, UnicodeEncodeError)):
        con.append("t", polars.DataFrame({"id": [1], "v": [text]}))
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


@examples
@given(value=st.integers(-(10**9000), 10**9000))
def test_integers_of_any_size(con, value):
    remake(con, "id INT PRIMARY KEY, v NUMERIC")
    con.prepare("INSERT INTO t VALUES (1, $1)")(value)
    ((back,),) = con.execute("SELECT v FROM t WHERE v = $1", (value,)).fetchall()
    assert back == value
    assert con.execute("SELECT $1::numeric", (value,)).fetchone()[0] == value


@examples
@given(value=st.floats(allow_nan=False).filter(lambda value: abs(value) > 3.5e38 and math.isfinite(value)))
def test_numbers_that_do_not_fit_are_refused(con, value):
    remake(con, "id INT PRIMARY KEY, v REAL, w SMALLINT")
    for column in ["v", "w"]:
        with pytest.raises(seracdb.DataError):
            con.execute(f"INSERT INTO t (id, {column}) VALUES (1, $1)", (value,))
        with pytest.raises(seracdb.DataError):
            con.append("t", pyarrow.table({"id": [1], column: [value]}))
    assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)


# Columns of frames.


class ArrowColumn(NamedTuple):
    """A type of Arrow: values for it, and what a table that was made for it gives."""

    type: pyarrow.DataType
    values: st.SearchStrategy[Any]
    result: Callable[[Any], Any] = lambda value: value


def moments(unit: str, *, least: int = -(2**63) + 1, most: int = 2**63 - 1) -> st.SearchStrategy[int]:
    """Counts of units that are moments of Python's."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    first, last = -62_135_596_800 * per_second, 253_402_300_799 * per_second
    return st.integers(max(first, least), min(last, most))


def micros(unit: str) -> Callable[[int], int]:
    """What is left of a count of units in microseconds: fractions are cut."""
    return {
        "s": lambda count: count * 10**6,
        "ms": lambda count: count * 10**3,
        "us": lambda count: count,
        "ns": lambda count: int(count / abs(count)) * (abs(count) // 1000) if count else 0,
    }[unit]


def time_of(unit: str) -> Callable[[int], dt.time]:
    return lambda count: (dt.datetime.min + dt.timedelta(microseconds=micros(unit)(count))).time()


def moment_of(unit: str, zone: str | None) -> Callable[[int], dt.datetime]:
    tzinfo = UTC if zone else None
    return lambda count: (EPOCH + dt.timedelta(microseconds=micros(unit)(count))).replace(tzinfo=tzinfo)


def span_of(unit: str) -> Callable[[int], Any]:
    return lambda count: interval_of(0, 0, micros(unit)(count))


def dictionary(index: pyarrow.DataType, values: pyarrow.DataType) -> pyarrow.DataType:
    return pyarrow.dictionary(index, values)


DAY = 86_400
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ARROW_COLUMNS = [
    ArrowColumn(pyarrow.bool_(), st.booleans()),
    *[ArrowColumn(getattr(pyarrow, f"int{bits}")(), integers(bits)) for bits in (8, 16, 32, 64)],
    *[ArrowColumn(getattr(pyarrow, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32)],
    ArrowColumn(pyarrow.uint64(), st.integers(0, 2**64 - 1), Decimal),
    ArrowColumn(pyarrow.float16(), st.floats(width=16)),
    ArrowColumn(pyarrow.float32(), SINGLES),
    ArrowColumn(pyarrow.float64(), st.floats()),
    ArrowColumn(pyarrow.string(), TEXTS),
    ArrowColumn(pyarrow.large_string(), TEXTS),
    ArrowColumn(pyarrow.string_view(), TEXTS),
    ArrowColumn(pyarrow.binary(), st.binary(max_size=20)),
    ArrowColumn(pyarrow.large_binary(), st.binary(max_size=20)),
    ArrowColumn(pyarrow.binary_view(), st.binary(max_size=20)),
    ArrowColumn(pyarrow.binary(5), st.binary(min_size=5, max_size=5)),
    ArrowColumn(pyarrow.binary(16), st.binary(min_size=16, max_size=16), lambda value: uuid.UUID(bytes=value)),
    ArrowColumn(pyarrow.decimal32(7, 3), decimals(7, 3)),
    ArrowColumn(pyarrow.decimal64(18, 0), decimals(18, 0)),
    ArrowColumn(pyarrow.decimal128(18, 4), decimals(18, 4)),
    ArrowColumn(pyarrow.decimal128(38, 38), decimals(38, 38)),
    ArrowColumn(pyarrow.decimal128(10, -3), decimals(10, 0).map(lambda value: value.scaleb(3))),
    ArrowColumn(pyarrow.decimal256(30, 2), decimals(30, 2)),
    ArrowColumn(pyarrow.decimal256(76, 5), decimals(76, 5)),
    ArrowColumn(pyarrow.date32(), st.dates()),
    ArrowColumn(pyarrow.date64(), st.dates(), lambda value: dt.datetime.combine(value, dt.time())),
    *[
        ArrowColumn(make(unit), st.integers(0, DAY * PER_SECOND[unit] - 1), time_of(unit))
        for make, unit in [
            (pyarrow.time32, "s"),
            (pyarrow.time32, "ms"),
            (pyarrow.time64, "us"),
            (pyarrow.time64, "ns"),
        ]
    ],
    *[
        ArrowColumn(pyarrow.timestamp(unit, zone), moments(unit), moment_of(unit, zone))
        for unit in PER_SECOND
        for zone in [None, "UTC", "Europe/Berlin", "+05:30"]
    ],
    *[
        ArrowColumn(pyarrow.duration(unit), st.integers(-(2**63) // by, (2**63 - 1) // by), span_of(unit))
        for unit, by in [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)]
    ],
    ArrowColumn(
        pyarrow.month_day_nano_interval(),
        st.tuples(integers(32), integers(32), integers(64)),
        lambda value: interval_of(value[0], value[1], micros("ns")(value[2])),
    ),
    *[
        ArrowColumn(dictionary(index, text), TEXTS)
        for index in [pyarrow.int8(), pyarrow.uint16(), pyarrow.int64()]
        for text in [pyarrow.string(), pyarrow.large_string()]
    ],
    ArrowColumn(dictionary(pyarrow.int32(), pyarrow.int64()), integers(64)),
    ArrowColumn(dictionary(pyarrow.int32(), pyarrow.binary()), st.binary(max_size=5)),
    ArrowColumn(pyarrow.null(), st.none()),
]


def array_of(of: ArrowColumn, values: list[Any], null_in_values: bool) -> pyarrow.Array:
    if not pyarrow.types.is_dictionary(of.type):
        return pyarrow.array(values, of.type)
    # A NULL may stand in the indices, or among the values.
    own = list(dict.fromkeys([*values, *([None] if null_in_values else [])]))
    if not null_in_values:
        own = [value for value in own if value is not None]
    at = [own.index(value) if value in own else None for value in values]
    return pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(at, of.type.index_type), pyarrow.array(own, of.type.value_type)
    )


@st.composite
def tables(draw: Any, of: ArrowColumn) -> tuple[pyarrow.Table, list[Any]]:
    """A table of one column in pieces, some of them empty, cut out of larger arrays."""
    chunks, values = [], []
    for piece in draw(st.lists(st.lists(st.none() | of.values, max_size=6), max_size=4)):
        before = draw(st.integers(0, len(piece)))
        whole = array_of(of, piece[:before] + piece, draw(st.booleans()))
        chunks.append(whole.slice(before))
        values.extend(piece)
    return pyarrow.table({"v": pyarrow.chunked_array(chunks, of.type)}), values


@pytest.mark.parametrize("of", ARROW_COLUMNS, ids=lambda of: str(of.type))
@examples
@given(data=st.data())
def test_streams_of_arrow_into_tables(con, of, data):
    """Each type of Arrow makes a column that has its values; and the column gives them to Arrow."""
    table, values = data.draw(tables(of))
    expected = [None if value is None else of.result(value) for value in values]
    frames = [table, table.to_reader(max_chunksize=2)]
    for frame in frames:
        con.execute("DROP TABLE IF EXISTS t")
        assert con.append("t", frame, create=True) == len(values)
        assert is_same([v for (v,) in con.execute("SELECT v FROM t")], expected)
        con.execute("FREEZE TABLE t")
        assert is_same([v for (v,) in con.execute("SELECT v FROM t")], expected)
        # What the database gives it also takes.
        con.execute("DROP TABLE IF EXISTS u; CREATE TABLE u AS SELECT * FROM t WHERE false")
        assert con.append("u", con.execute("SELECT * FROM t")) == len(values)
        assert is_same([v for (v,) in con.execute("SELECT v FROM u")], expected)


class FrameColumn(NamedTuple):
    """A type of Polars or pandas."""

    type: Any
    values: st.SearchStrategy[Any]
    result: Callable[[Any], Any] = lambda value: value


WORDS = ["", "a", "bb", "ü", "a word of more than twelve bytes"]
POLARS_COLUMNS = [
    FrameColumn(polars.Boolean(), st.booleans()),
    FrameColumn(polars.Int8(), integers(8)),
    FrameColumn(polars.Int64(), integers(64)),
    FrameColumn(polars.UInt64(), st.integers(0, 2**64 - 1), Decimal),
    FrameColumn(polars.Float32(), SINGLES),
    FrameColumn(polars.Float64(), st.floats()),
    FrameColumn(polars.Decimal(38, 10), decimals(38, 10)),
    FrameColumn(polars.String(), TEXTS),
    FrameColumn(polars.Categorical(), st.sampled_from(WORDS)),
    FrameColumn(polars.Enum(WORDS), st.sampled_from(WORDS)),
    FrameColumn(polars.Binary(), st.binary(max_size=20)),
    FrameColumn(polars.Date(), st.dates()),
    FrameColumn(polars.Time(), st.times()),
    FrameColumn(polars.Datetime("us"), st.datetimes()),
    FrameColumn(polars.Datetime("ms"), st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    FrameColumn(polars.Datetime("us", "Asia/Kolkata"), MOMENTS, lambda value: value.astimezone(UTC)),
    FrameColumn(polars.Duration("us"), st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000))),
    FrameColumn(polars.Duration("ms"), st.integers(-(10**12), 10**12).map(lambda ms: dt.timedelta(milliseconds=ms))),
    FrameColumn(polars.Null(), st.none()),
]


@pytest.mark.parametrize("of", POLARS_COLUMNS, ids=lambda of: str(of.type))
@examples
@given(data=st.data())
def test_frames_of_polars(con, of, data):
    values = data.draw(st.lists(st.none() | of.values, max_size=10))
    frame = polars.DataFrame({"v": polars.Series(values, dtype=of.type, strict=False)})
    # In several pieces, as a frame has them after vstack().
    frame = polars.concat([frame, frame.head(0), frame], rechunk=False)
    con.execute("DROP TABLE IF EXISTS t")
    assert con.append("t", frame, create=True) == 2 * len(values)
    expected = [None if value is None else of.result(value) for value in values * 2]
    assert is_same([v for (v,) in con.execute("SELECT v FROM t")], expected)
    back = con.execute("SELECT v FROM t").pl()["v"]
    if of.type in (polars.UInt64(), polars.Categorical(), polars.Enum(WORDS), polars.Null()):
        back = back.cast(of.type) if of.type != polars.Null() else back
    assert is_same(back.to_list(), [Decimal(v) if v is not None and of.result is Decimal else v for v in frame["v"]])


PANDAS_COLUMNS = [
    *[FrameColumn(f"int{bits}", integers(bits)) for bits in (8, 16, 32, 64)],
    *[FrameColumn(f"uint{bits}", st.integers(0, 2**bits - 1)) for bits in (8, 16, 32)],
    FrameColumn("Int64", st.none() | integers(64)),
    FrameColumn("UInt8", st.none() | st.integers(0, 255)),
    FrameColumn("float32", SINGLES.filter(lambda value: not math.isnan(value))),
    # pandas has no NULL beside NaN in these.
    FrameColumn("float64", st.none() | st.floats(allow_nan=False)),
    FrameColumn("Float64", st.none() | st.floats(allow_nan=False)),
    FrameColumn("bool", st.booleans()),
    FrameColumn("boolean", st.none() | st.booleans()),
    FrameColumn("str", st.none() | TEXTS),
    FrameColumn("string", st.none() | TEXTS),
    FrameColumn("category", st.none() | st.sampled_from(WORDS)),
    FrameColumn("object", st.none() | TEXTS),
    FrameColumn("object", st.none() | st.binary(max_size=20)),
    FrameColumn("object", st.none() | st.booleans()),
    FrameColumn("object", st.none() | st.dates()),
    FrameColumn("object", st.none() | st.times()),
    FrameColumn("object", st.none() | decimals(18, 2)),
    FrameColumn("datetime64[us]", st.none() | st.datetimes()),
    FrameColumn("datetime64[us, UTC]", st.none() | MOMENTS, lambda value: value.astimezone(UTC)),
    FrameColumn(
        "datetime64[ns]", st.none() | st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
    ),
    FrameColumn("timedelta64[us]", st.none() | st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000))),
    FrameColumn("timedelta64[ns]", st.none() | st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000))),
    FrameColumn("int64[pyarrow]", st.none() | integers(64)),
    FrameColumn("string[pyarrow]", st.none() | TEXTS),
]


@pytest.mark.parametrize("at", range(len(PANDAS_COLUMNS)), ids=[column.type for column in PANDAS_COLUMNS])
@examples
@given(data=st.data())
def test_frames_of_pandas(con, at, data):
    of = PANDAS_COLUMNS[at]
    values = data.draw(st.lists(of.values, min_size=0 if of.type != "object" else 1, max_size=10))
    frame = pandas.DataFrame({"id": range(len(values)), "v": pandas.Series(values, dtype=of.type)})
    # Every second row: NumPy's arrays have gaps then.
    frame, values = frame.iloc[::2], values[::2]
    con.execute("DROP TABLE IF EXISTS t")
    assert con.append("t", frame[["id", "v"]].reset_index(drop=True), create=True) == len(values)
    expected = [None if value is None else of.result(value) for value in values]
    assert is_same([v for (v,) in con.execute("SELECT v FROM t ORDER BY id")], expected)
    back = con.execute("SELECT v FROM t ORDER BY id").df()["v"]
    assert [value is None for value in expected] == back.isna().tolist()
    if of.type.startswith(("int", "uint", "float", "bool")) and values:
        assert back.astype(of.type if of.type != "boolean" else "object").tolist() == values or None in values


NUMPY_TYPES = [
    ("smallint", integers(16), "int16"),
    ("integer", integers(32), "int32"),
    ("bigint", integers(64), "int64"),
    ("real", SINGLES, "float32"),
    ("double precision", st.floats(), "float64"),
    ("boolean", st.booleans(), "bool"),
    ("text", TEXTS, "object"),
    ("bytea", st.binary(max_size=9), "object"),
    ("timestamp", st.datetimes(), "datetime64[us]"),
    ("timestamptz", MOMENTS.map(lambda value: value.astimezone(UTC)), "datetime64[us]"),
    ("date", st.dates(), "datetime64[D]"),
]


@pytest.mark.parametrize(("sql_type", "own", "dtype"), NUMPY_TYPES, ids=[name for name, _, _ in NUMPY_TYPES])
@examples
@given(data=st.data())
def test_arrays_of_numpy(con, sql_type, own, dtype, data):
    """From a table as arrays, masked where there is NULL; and each of their scalars as a
    parameter."""
    values = data.draw(st.lists(st.none() | own, min_size=1, max_size=10))
    remake(con, f"id INT PRIMARY KEY, v {sql_type}")
    con.executemany("INSERT INTO t VALUES ($1, $2)", list(enumerate(values)))
    array = con.execute("SELECT v FROM t ORDER BY id").fetchnumpy()["v"]
    has_null = None in values
    assert isinstance(array, numpy.ma.MaskedArray) == has_null
    if any(value is not None for value in values):
        assert array.dtype == dtype
    back = array.tolist()
    if sql_type == "timestamptz":
        back = [None if value is None else value.replace(tzinfo=UTC) for value in back]
    assert is_same(back, values)
    for key, scalar in enumerate(array):
        if scalar is numpy.ma.masked:
            continue
        if isinstance(scalar, numpy.generic) and not (dtype.startswith("float") and numpy.isnan(scalar)):
            cast = {"real": "::real", "timestamptz": "::timestamp AT TIME ZONE 'UTC'"}.get(sql_type, "")
            found = con.execute(f"SELECT count(*) FROM t WHERE id = {key} AND v = $1{cast}", (scalar,)).fetchone()
            assert found == (1,), scalar


# Streams with many columns and batches.


@examples
@given(data=st.data())
def test_wide_streams_of_many_batches(con, data):
    columns = data.draw(st.lists(st.sampled_from(ARROW_COLUMNS), min_size=1, max_size=6))
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=6))
    schema = pyarrow.schema([(f"c{at}", of.type) for at, of in enumerate(columns)])
    batches, expected = [], []
    for size in sizes:
        rows = [[data.draw(st.none() | of.values) for of in columns] for _ in range(size)]
        arrays = [array_of(of, [row[at] for row in rows], data.draw(st.booleans())) for at, of in enumerate(columns)]
        batches.append(pyarrow.record_batch(arrays, schema=schema))
        for row in rows:
            expected.append([None if v is None else of.result(v) for v, of in zip(row, columns, strict=True)])
    con.execute("DROP TABLE IF EXISTS t")
    assert con.append("t", pyarrow.RecordBatchReader.from_batches(schema, iter(batches)), create=True) == len(expected)
    assert is_same(con.execute("SELECT * FROM t").fetchall(), expected)
    again = con.execute("SELECT * FROM t")
    assert pyarrow.RecordBatchReader.from_stream(again).read_all().num_rows == len(expected)


@examples
@given(rows=st.integers(0, 20_000), wanted=st.sampled_from(["large_string", "string", "string_view", "dictionary"]))
def test_a_consumer_chooses_the_form_of_texts(con, rows, wanted):
    data_type = {
        "large_string": pyarrow.large_string(),
        "string": pyarrow.string(),
        "string_view": pyarrow.string_view(),
        "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    }[wanted]
    cursor = con.execute("SELECT i, 'text ' || i % 7 AS v FROM generate_series(1, $1) AS g (i)", (rows,))
    schema = pyarrow.schema([("i", pyarrow.int32()), ("v", data_type)])
    table = pyarrow.RecordBatchReader.from_stream(cursor, schema=schema).read_all()
    assert table.schema.types == schema.types
    assert table["v"].to_pylist() == [f"text {i % 7}" for i in range(1, rows + 1)]


@pytest.mark.parametrize(
    "value",
    [
        pyarrow.array([[1, None], None, []]),
        pyarrow.array([[[1]], None], pyarrow.large_list(pyarrow.list_(pyarrow.int8()))),
        pyarrow.array([{"a": 1}, None]),
        pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    ],
    ids=lambda value: str(value.type),
)
def test_nested_columns_of_frames_are_refused(con, value):
    """No column has such a type. The error names it, and nothing is left behind."""
    con.execute("DROP TABLE IF EXISTS t")
    with pytest.raises(seracdb.NotSupportedError, match="Arrow type"):
        con.append("t", pyarrow.table({"v": value}), create=True)
    with pytest.raises(seracdb.ProgrammingError):
        con.execute("SELECT * FROM t")


@examples
@given(
    name=st.text(string.printable, min_size=1, max_size=20).filter(lambda name: "\0" not in name),
    other=st.text(min_size=1, max_size=10).filter(lambda name: "\0" not in name and name.isprintable()),
)
def test_names_of_columns_come_back(con, name, other):
    names = list(dict.fromkeys([name, other]))
    table = pyarrow.table({name: [at] for at, name in enumerate(names)})
    con.execute("DROP TABLE IF EXISTS t")
    con.append("t", table, create=True)
    cursor = con.execute("SELECT * FROM t")
    assert [column[0] for column in cursor.description] == names
    assert cursor.arrow().column_names == names
    assert con.table("t").scan([names[0]]).arrow().to_pydict() == {names[0]: [0]}

"""Python functions in SQL."""

import datetime
import decimal
import gc
import itertools
import threading
import time
import uuid
import weakref
from typing import Any, Optional

import numpy
import polars
import pyarrow
import pyarrow.compute
import pytest
import seracdb

#: Its functions are made when it is imported.
compute: Any = pyarrow.compute


def rows(con, sql, parameters=None):
    return con.execute(sql, parameters).fetchall()


# ---- functions of rows


def test_types_come_from_annotations(con):
    def repeated(text: str, times: Optional[int]) -> str | None:
        return None if times is None else text * times

    assert con.create_function("repeated", repeated) is con
    assert rows(con, "SELECT repeated('ab', 2), repeated('x', NULL)") == [("abab", None)]
    # By SQL's rules of calls: an integer is a bigint, a text is none.
    assert rows(con, "SELECT repeated(name, 1 + 1::smallint) FROM (VALUES ('a'), (NULL)) AS t (name)") == [("aa",), (None,)]
    for call in ["repeated('a')", "repeated('a', 'b'::text)", "repeated('a', 1, 2)", "repeated(1, 1)"]:
        with pytest.raises(seracdb.ProgrammingError, match="does not exist") as error:
            con.execute(f"SELECT {call}")
        assert error.value.sqlstate == "42883"
        assert "repeated(text, bigint)" in str(error.value.detail)


VALUES = [
    ("boolean", True, "true"),
    ("smallint", 7, "7::smallint"),
    ("integer", -7, "-7"),
    ("bigint", 2**40, "1099511627776"),
    ("real", 0.5, "0.5::real"),
    ("double precision", 0.1, "0.1::float8"),
    ("numeric", decimal.Decimal("1.250"), "1.250"),
    ("numeric", decimal.Decimal(10) ** 50, "1" + "0" * 50),
    ("text", "é", "'é'"),
    ("varchar", "v", "'v'::varchar"),
    ("bytea", b"\x00\xff", "'\\x00ff'::bytea"),
    ("date", datetime.date(2024, 2, 29), "DATE '2024-02-29'"),
    ("time", datetime.time(1, 2, 3, 4), "TIME '01:02:03.000004'"),
    ("timestamp", datetime.datetime(2024, 1, 2, 3, 4, 5), "TIMESTAMP '2024-01-02 03:04:05'"),
    (
        "timestamp with time zone",
        datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
        "TIMESTAMPTZ '2024-01-02 00:00:00Z'",
    ),
    ("interval", datetime.timedelta(days=1, seconds=2), "INTERVAL '1 day 2 seconds'"),
    ("interval", seracdb.Interval(1, 2, 3), "INTERVAL '1 month 2 days 0.000003 seconds'"),
    ("uuid", uuid.UUID(int=5), "'00000000-0000-0000-0000-000000000005'::uuid"),
    ("jsonb", {"a": [1, None, "x"]}, """'{"a": [1, null, "x"]}'::jsonb"""),
    ("json", ["x"], """'["x"]'::json"""),
    ("bigint[]", [1, None, 3], "ARRAY[1, NULL, 3]::bigint[]"),
    ("text[]", ["a", "b"], "ARRAY['a', 'b']"),
]


@pytest.mark.parametrize(("of", "value", "constant"), VALUES, ids=[f"{of}-{value}" for of, value, _ in VALUES])
def test_values_of_every_type_go_in_and_out(con, of, value, constant):
    seen = []

    def same(argument):
        seen.append(argument)
        return argument

    con.create_function("same", same, [of], of)
    assert rows(con, f"SELECT same({constant}), same(NULL)") == [(value, None)]
    assert seen == [value] and type(seen[0]) is type(value)
    con.create_function("same", same, [of], of, null_handling="special")
    assert rows(con, f"SELECT same(x) FROM (VALUES ({constant}), (NULL)) AS t (x)") == [(value,), (None,)]
    # A column of a table has no arrays.
    if not of.endswith("[]"):
        con.execute(f"CREATE TABLE kept (x {of})")
        con.execute(f"INSERT INTO kept VALUES (same({constant}))")
        assert rows(con, "SELECT x FROM kept") == [(value,)]


def test_values_of_numpy_and_of_other_classes(con):
    results = {"n": numpy.int32(3), "f": numpy.float64(0.5), "b": numpy.bool_(True), "l": numpy.array([1, 2])}
    for of, key, value in [("int", "n", 3), ("float8", "f", 0.5), ("boolean", "b", True), ("bigint[]", "l", [1, 2])]:
        con.create_function("given", results.get, ["text"], of)
        assert rows(con, "SELECT given($1)", (key,)) == [(value,)]
    con.create_function("digits", lambda: decimal.Decimal("2.345"), [], "numeric(5, 2)")
    assert rows(con, "SELECT digits()") == [(decimal.Decimal("2.35"),)]


@pytest.mark.parametrize(
    ("of", "value", "sqlstate"),
    [
        ("bigint", "1", "42804"),
        ("bigint", 1.5, "42804"),
        ("bigint", True, "42804"),
        ("bigint", 2**70, "22003"),
        ("smallint", 2**20, "22003"),
        ("text", 1, "42804"),
        ("double precision", "x", "42804"),
        ("date", "2024-01-01", "42804"),
        ("timestamp", datetime.datetime.now(datetime.timezone.utc), "42804"),
        ("bigint[]", 1, "42804"),
        ("bigint[]", ["a"], "42804"),
        ("boolean", 1, "42804"),
        ("numeric(3, 1)", 1000, "22003"),
    ],
)
def test_values_of_other_types_are_refused(con, of, value, sqlstate):
    con.create_function("wrong", lambda: value, [], of)
    with pytest.raises(seracdb.DatabaseError) as error:
        rows(con, "SELECT wrong()")
    assert error.value.sqlstate == sqlstate
    assert "wrong" in str(error.value)


def test_exceptions_are_errors_with_the_traceback(con):
    def fails(x: int) -> int:
        return 1 // (x - 3)

    con.create_function("fails", fails)
    con.execute("CREATE TABLE t (x BIGINT)")
    with pytest.raises(seracdb.InternalError, match="ZeroDivisionError") as error:
        con.execute("INSERT INTO t SELECT fails(i) FROM generate_series(1, 5) AS g (i)")
    assert error.value.sqlstate == "38000"
    assert error.value.name == "fails"
    assert "return 1 // (x - 3)" in str(error.value.detail)
    assert rows(con, "SELECT count(*) FROM t") == [(0,)]
    # A unicode message, and one without a text.
    con.create_function("fails", lambda x: (_ for _ in ()).throw(ValueError("é" * 5000)), [int], int)
    with pytest.raises(seracdb.InternalError, match="é"):
        con.execute("SELECT fails(1)")
    con.create_function("fails", lambda x: (_ for _ in ()).throw(KeyError()), [int], int)
    with pytest.raises(seracdb.InternalError, match="KeyError"):
        con.execute("SELECT fails(1)")


def test_volatility(con):
    for volatility in ["immutable", "stable", "volatile"]:
        calls = itertools.count(1)
        con.create_function(volatility, lambda: next(calls), [], int, volatility=volatility)
        values = [value for (value,) in rows(con, f"SELECT {volatility}() FROM generate_series(1, 5)")]
        # Others may be called once, and when the statement is planned.
        assert values == [1, 2, 3, 4, 5] if volatility == "volatile" else len(set(values)) == 1
    with pytest.raises(ValueError, match="volatility is one of"):
        con.create_function("f", lambda: 1, [], int, volatility="sometimes")


def test_functions_everywhere_in_a_statement(con):
    con.create_function("twice", lambda x: 2 * x, [int], int)
    con.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT)")
    con.execute("INSERT INTO t SELECT i, twice(i) FROM generate_series(1, 10) AS g (i)")
    assert rows(con, "SELECT a FROM t WHERE twice(a) = b AND twice(b) > 36 ORDER BY twice(a) DESC") == [(10,)]
    assert rows(con, "SELECT twice(a) AS d, sum(twice(b)) FROM t GROUP BY d HAVING twice(1) = 2 ORDER BY d LIMIT 1") == [
        (2, 4)
    ]
    assert rows(con, "UPDATE t SET b = twice(b) WHERE a = twice(1) RETURNING twice(b)") == [(16,)]
    assert rows(con, "SELECT twice($1)", (21,)) == [(42,)]
    statement = con.prepare("SELECT twice(b) FROM t WHERE a = $1")
    assert statement(2) == [(16,)]
    insert = con.prepare("INSERT INTO t VALUES ($1, twice($2))")
    assert insert(100, 4) == 1
    assert rows(con, "SELECT b FROM t WHERE a = 100") == [(8,)]
    assert con.execute("DELETE FROM t WHERE a = twice(50)").rowcount == 1
    assert rows(con, "SELECT * FROM twice(4) AS f") == [(8,)]


def test_a_replaced_function_is_the_new_one_in_kept_plans(con):
    con.create_function("f", lambda x: x + 1, [int], int)
    con.execute("CREATE TABLE t (a BIGINT)")
    con.execute("INSERT INTO t VALUES (1)")
    statement = con.prepare("SELECT f(a) + $1 FROM t")
    assert statement(0) == [(2,)]
    con.create_function("f", lambda x: x + 10, [int], int)
    assert statement(0) == [(11,)]
    con.remove_function("f")
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        statement(0)
    with pytest.raises(seracdb.ProgrammingError, match="no function f"):
        con.remove_function("f")


def test_names(con):
    con.create_function("addOne", lambda x: x + 1, [int], int)
    assert rows(con, 'SELECT addOne(1), "addOne"(2)') == [(2, 3)]
    for taken in ["abs", "SUM", "now", "row_number", "generate_series", "int4", "read_csv", "coalesce"]:
        with pytest.raises(seracdb.ProgrammingError, match="database's own") as error:
            con.create_function(taken, lambda: 1, [], int)
        assert error.value.sqlstate == "42723"
    # A function is a connection's own.
    with con.connect() as other, pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        other.execute("SELECT addone(1)")


def test_what_the_database_keeps_cannot_call_them(con):
    con.create_function("f", lambda x: x, [int], int, volatility="immutable")
    con.create_aggregate("agg", Total, [int], int)
    con.execute("CREATE TABLE t (a BIGINT)")
    for statement in [
        "CREATE TABLE u (a BIGINT CHECK (f(a) > 0))",
        "CREATE TABLE u (a BIGINT DEFAULT f(1))",
        "CREATE TABLE u (a BIGINT, b BIGINT GENERATED ALWAYS AS (f(a)) STORED)",
        "CREATE INDEX i ON t (f(a))",
        "CREATE INDEX i ON t (a) WHERE f(a) > 0",
        "ALTER TABLE t ADD CHECK (f(a) > 0)",
        "CREATE VIEW v AS SELECT f(a) FROM t",
        "CREATE VIEW v AS SELECT agg(a) OVER () FROM t",
        "CREATE VIEW v AS SELECT 1 AS a WHERE EXISTS (SELECT agg(a) FROM t)",
        "CREATE MATERIALIZED VIEW v AS SELECT agg(a) FROM t",
    ]:
        with pytest.raises(seracdb.NotSupportedError, match="of the program"):
            con.execute(statement)
    con.execute("INSERT INTO t VALUES (1)")
    con.execute("ALTER TABLE t ALTER COLUMN a TYPE NUMERIC USING f(a) + 1")
    assert rows(con, "SELECT a FROM t") == [(2,)]


def test_wrong_definitions(con):
    with pytest.raises(TypeError, match="annotation"):
        con.create_function("f", lambda x: x)
    with pytest.raises(TypeError, match="annotation"):
        con.create_function("f", lambda: 1, [])
    with pytest.raises(TypeError, match="no type in SQL"):
        con.create_function("f", lambda x: x, [object], int)
    with pytest.raises(TypeError, match="cannot be called"):
        con.create_function("f", 3, [], int)
    with pytest.raises(ValueError, match="kind is one of"):
        con.create_function("f", lambda: 1, [], int, kind="row")
    with pytest.raises(seracdb.ProgrammingError, match='type "colour" does not exist'):
        con.create_function("f", lambda x: x, ["colour"], int)
    with pytest.raises(seracdb.ProgrammingError):
        con.create_function("f", lambda x: x, ["int; DROP TABLE t"], int)
    with pytest.raises(seracdb.NotSupportedError):
        con.create_function("f", lambda x: x, ["numeric[]"], int)
    with pytest.raises(TypeError, match="step"):
        con.create_aggregate("f", int, [int], int)


def test_types_of_arrow_and_annotated_lists(con):
    def tagged(tags: list[str], at: datetime.date) -> dict[str, object]:
        return {"tags": tags, "year": at.year}

    con.create_function("tagged", tagged)
    assert rows(con, "SELECT tagged(ARRAY['a'], DATE '2024-01-01')") == [({"tags": ["a"], "year": 2024},)]
    con.create_function("f", lambda x: x, [pyarrow.int32()], pyarrow.decimal128(9, 2))
    assert rows(con, "SELECT f(3)") == [(decimal.Decimal("3.00"),)]


# ---- batches of Arrow


def test_functions_of_batches(con):
    batches = []

    def squared(x):
        batches.append(len(x))
        return compute.multiply(x, x)

    con.create_function("squared", squared, ["bigint"], "bigint", kind="arrow")
    assert rows(con, "SELECT sum(squared(i)) FROM generate_series(1, 20000) AS g (i)") == [
        (sum(i * i for i in range(1, 20001)),)
    ]
    # One call for a batch, not one for a row.
    assert 1 <= len(batches) <= 20 and sum(batches) == 20000


def test_batches_without_nulls_or_with_them(con):
    con.create_function("known", lambda x: pyarrow.array([len(x) - x.null_count] * len(x)), [int], int, kind="arrow")
    values = "(VALUES (1), (NULL), (3)) AS t (x)"
    assert rows(con, f"SELECT known(x) FROM {values}") == [(2,), (None,), (2,)]
    con.create_function(
        "nulls", lambda x: pyarrow.array([x.null_count] * len(x)), [int], int, kind="arrow", null_handling="special"
    )
    assert rows(con, f"SELECT nulls(x) FROM {values}") == [(1,), (1,), (1,)]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.to_numpy(zero_copy_only=False) + 1,
        lambda x: [value + 1 for value in x.to_pylist()],
        lambda x: polars.Series(x) + 1,
        lambda x: pyarrow.chunked_array([compute.add(x, 1)]),
        lambda x: compute.add(x, 1).cast("int32"),
    ],
)
def test_results_of_other_packages(con, make):
    con.create_function("plus", make, ["bigint"], "bigint", kind="arrow")
    assert rows(con, "SELECT plus(i) FROM generate_series(1, 3) AS g (i)") == [(2,), (3,), (4,)]


def test_numbers_and_texts_in_batches(con):
    con.create_function(
        "shout", lambda x: compute.utf8_upper(x.cast("string")), ["text"], "text", kind="arrow"
    )
    assert rows(con, "SELECT shout('ab'), shout(t) FROM (SELECT 'cd' AS t)") == [("AB", "CD")]
    # Numbers with their own digits are texts, in both directions.
    con.create_function("digits", lambda x: x, ["numeric"], "numeric", kind="arrow")
    assert rows(con, "SELECT digits(1.50), digits(1e40)") == [(decimal.Decimal("1.50"), decimal.Decimal(10) ** 40)]


@pytest.mark.parametrize(
    ("make", "sqlstate"),
    [
        (lambda x: x.slice(1), "39000"),
        (lambda x: pyarrow.array(["a"] * len(x)), "42804"),
        (lambda x: pyarrow.array([b"1"] * len(x), pyarrow.large_binary()), "42804"),
        (lambda x: pyarrow.scalar(1), "38000"),
        (lambda x: 7, "38000"),
        (lambda x: None, "38000"),
    ],
)
def test_wrong_results_of_batches(con, make, sqlstate):
    for of in ["bigint", "numeric"]:
        if of == "numeric" and sqlstate == "42804" and make(pyarrow.array([1]))[0].as_py() == "a":
            continue
        con.create_function("wrong", make, ["bigint"], of, kind="arrow")
        with pytest.raises(seracdb.DatabaseError) as error:
            rows(con, "SELECT wrong(i) FROM generate_series(1, 3) AS g (i)")
        assert error.value.sqlstate == sqlstate


def test_functions_of_batches_need_their_types(con):
    with pytest.raises(TypeError, match="must be named"):
        con.create_function("f", lambda x: x, kind="arrow")
    with pytest.raises(ValueError, match="has a parameter"):
        con.create_function("f", lambda: 1, [], int, kind="arrow")


# ---- aggregates


class Total:
    """The sum of integers, on several threads."""

    def __init__(self):
        self.total = 0

    def step(self, value: int) -> None:
        self.total += value

    def merge(self, other: "Total") -> None:
        self.total += other.total

    def finish(self) -> int:
        return self.total


class Joined:
    """Texts in their order: its states do not merge."""

    def __init__(self):
        self.texts = []

    def step(self, text, separator):
        self.texts.append(text)
        self.separator = separator

    def finish(self):
        return self.separator.join(self.texts) if self.texts else None


class Spread:
    """The distance between the greatest and the least, of whole arrays."""

    def __init__(self):
        self.least = self.most = None

    def step(self, values):
        low, high = compute.min_max(values).values()
        self.least = min(value for value in (self.least, low.as_py()) if value is not None)
        self.most = max(value for value in (self.most, high.as_py()) if value is not None)

    def merge(self, other):
        if other.least is not None:
            self.step(pyarrow.array([other.least, other.most]))

    def finish(self):
        return None if self.least is None else self.most - self.least


def test_aggregates(con):
    con.create_aggregate("total", Total)
    con.create_aggregate("joined", Joined, [str, str], str)
    con.create_aggregate("spread", Spread, ["bigint"], "bigint", kind="arrow")
    con.execute("CREATE TABLE t AS SELECT i, i % 7 AS k, 'n' || i AS n FROM generate_series(1, 30000) AS g (i)")
    assert rows(con, "SELECT total(i), spread(i), count(*) FROM t") == [(450015000, 29999, 30000)]
    own = rows(con, "SELECT k, total(i), spread(i) FROM t GROUP BY k ORDER BY k")
    assert own == rows(con, "SELECT k, sum(i)::bigint, max(i) - min(i) FROM t GROUP BY k ORDER BY k")
    many = "SELECT i / 3 AS g, total(i), spread(i) FROM t GROUP BY g ORDER BY g"
    assert rows(con, many) == rows(con, "SELECT i / 3 AS g, sum(i)::bigint, max(i) - min(i) FROM t GROUP BY g ORDER BY g")
    assert rows(con, "SELECT joined(n, '+' ORDER BY i DESC) FROM t WHERE i < 4") == [("n3+n2+n1",)]
    assert rows(con, "SELECT k, joined(n, ',' ORDER BY i) FROM t WHERE i < 10 GROUP BY k ORDER BY k LIMIT 3") == [
        (0, "n7"),
        (1, "n1,n8"),
        (2, "n2,n9"),
    ]


def test_aggregates_of_no_rows_nulls_and_filters(con):
    con.create_aggregate("total", Total)
    con.create_aggregate("joined", Joined, [str, str], str)
    assert rows(con, "SELECT total(1), joined('a', ',') WHERE false") == [(0, None)]
    values = "(VALUES (1, 'a'), (NULL, NULL), (3, 'c')) AS t (x, n)"
    assert rows(con, f"SELECT total(x), joined(n, '-') FROM {values}") == [(4, "a-c")]
    assert rows(con, f"SELECT total(x) FILTER (WHERE x > 1), joined(n, '') FILTER (WHERE false) FROM {values}") == [(3, None)]

    class Rows:
        def __init__(self):
            self.rows = 0

        def step(self, *_):
            self.rows += 1

        def finish(self):
            return self.rows

    con.create_aggregate("row_total", Rows, [], int)
    con.create_aggregate("all_rows", Rows, [int], int, null_handling="special")
    assert rows(con, f"SELECT row_total(), row_total(*), all_rows(x) FROM {values}") == [(3, 3, 3)]


def test_aggregates_as_windows(con):
    con.create_aggregate("total", Total)
    con.create_aggregate("joined", Joined, [str, str], str)
    series = "generate_series(1, 6) AS g (i)"
    for frame in [
        "ORDER BY i",
        "",
        "ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "PARTITION BY i % 2 ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
        "ORDER BY i ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    ]:
        query = f"SELECT i, {{}} OVER ({frame}) FROM {series} ORDER BY i"
        assert rows(con, query.format("total(i)")) == rows(con, query.format("sum(i)"))
    assert rows(con, f"SELECT joined(i::text, '') OVER (ORDER BY i ROWS 2 PRECEDING) FROM {series}") == [
        ("1",),
        ("12",),
        ("123",),
        ("234",),
        ("345",),
        ("456",),
    ]


def test_errors_of_aggregates(con):
    con.create_aggregate("total", Total)
    with pytest.raises(seracdb.NotSupportedError, match="DISTINCT"):
        con.execute("SELECT total(DISTINCT 1)")
    with pytest.raises(seracdb.ProgrammingError, match="nested"):
        con.execute("SELECT total(total(1))")
    with pytest.raises(seracdb.ProgrammingError):
        con.execute("SELECT 1 WHERE total(1) = 1")

    class Fails(Total):
        def finish(self) -> int:
            raise RuntimeError("no end")

    con.create_aggregate("fails", Fails, [int], int)
    with pytest.raises(seracdb.InternalError, match="no end") as error:
        rows(con, "SELECT fails(i) FROM generate_series(1, 3) AS g (i)")
    assert error.value.sqlstate == "38000"
    con.create_aggregate("wrong", Joined, [str, str], int)
    with pytest.raises(seracdb.ProgrammingError, match="for a value of the type Int64"):
        rows(con, "SELECT wrong('a', 'b')")


# ---- functions in FROM


def test_table_functions_of_rows(con):
    def numbered(word: str, times: int):
        for number in range(times):
            yield number, word * number

    columns = {"number": int, "word": str}
    assert con.create_table_function("numbered", numbered, columns=columns) is con
    assert rows(con, "SELECT * FROM numbered('ab', 3)") == [(0, ""), (1, "ab"), (2, "abab")]
    assert rows(con, "SELECT max(number), count(*) FROM numbered('a', 5000) WHERE number % 2 = 0") == [(4998, 2500)]
    assert rows(con, "SELECT n.word FROM numbered($1, $2) AS n WHERE n.number = 1", ("x", 2)) == [("x",)]
    assert con.prepare("SELECT count(*) FROM numbered('a', $1)")(7) == [(7,)]
    with pytest.raises(seracdb.NotSupportedError, match="constants"):
        con.execute("SELECT * FROM generate_series(1, 2) AS g (i), numbered('a', g.i)")
    with pytest.raises(seracdb.ProgrammingError, match="stands in FROM"):
        con.execute("SELECT numbered('a', 1)")
    with pytest.raises(seracdb.ProgrammingError, match="does not exist"):
        con.execute("SELECT * FROM numbered(1)")


def test_table_functions_of_dicts_values_and_frames(con):
    con.create_table_function("dicts", lambda: [{"b": "x"}, {"a": 1}], [], [("a", int), ("b", "text")])
    assert rows(con, "SELECT * FROM dicts()") == [(None, "x"), (1, None)]
    con.create_table_function("words", lambda text: text.split(), [str], {"word": str})
    assert rows(con, "SELECT word FROM words('a b')") == [("a",), ("b",)]
    con.create_table_function("frame", lambda: polars.DataFrame({"a": [1, 2]}), [], {"n": "numeric"})
    assert rows(con, "SELECT sum(n) FROM frame()") == [(decimal.Decimal(3),)]
    schema = pyarrow.schema([("a", pyarrow.int64())])

    def reader(count):
        batches = (pyarrow.record_batch([[at] * 3], schema=schema) for at in range(count))
        return pyarrow.RecordBatchReader.from_batches(schema, batches)

    con.create_table_function("read", reader, [int], {"a": int})
    assert rows(con, "SELECT a, count(*) FROM read(3) GROUP BY a ORDER BY a") == [(0, 3), (1, 3), (2, 3)]
    # It is called anew for each place, and each execution.
    assert rows(con, "SELECT count(*) FROM read(2) AS x, read(2) AS y") == [(36,)]


def test_a_table_function_is_asked_only_for_what_is_wanted(con):
    given = []

    def endless():
        while True:
            given.append(1)
            yield (len(given),)

    con.create_table_function("endless", endless, [], {"n": int})
    assert len(rows(con, "SELECT n FROM endless() LIMIT 5")) == 5
    assert len(given) <= 10_000
    con.execute("EXPLAIN SELECT * FROM endless()")


def test_code_that_cleans_up_does_not_wait_for_its_statement(con):
    schema = pyarrow.schema([("a", pyarrow.int64())])
    seen = []

    def batches():
        try:
            while True:
                yield pyarrow.record_batch([[1] * 1000], schema=schema)
        finally:
            try:
                con.execute("SELECT 1")
            except seracdb.Error as error:
                seen.append(str(error))

    con.create_table_function("made", lambda: pyarrow.RecordBatchReader.from_batches(schema, batches()), [], {"a": int})
    assert len(rows(con, "SELECT a FROM made() LIMIT 3")) == 3
    end = time.monotonic() + 30
    while not seen:
        assert time.monotonic() < end
        gc.collect()
        time.sleep(0.01)
    assert "waits for the code that uses it" in seen[0]


@pytest.mark.parametrize(
    ("result", "sqlstate"),
    [
        ([(1,)], "42804"),
        ([(1, 2, 3)], "42804"),
        ([(1, "a")], "42804"),
        ([{"c": 1}], "42804"),
        ([5], "42804"),
        (5, "38000"),
        (None, "38000"),
        (pyarrow.table({"a": [1]}), "42804"),
        (pyarrow.table({"a": [1], "b": ["x"]}), "42804"),
    ],
)
def test_wrong_rows_of_table_functions(con, result, sqlstate):
    con.create_table_function("wrong", lambda: result, [], {"a": int, "b": float})
    with pytest.raises(seracdb.DatabaseError) as error:
        rows(con, "SELECT * FROM wrong()")
    assert error.value.sqlstate == sqlstate


def test_wrong_columns_of_table_functions(con):
    with pytest.raises(seracdb.ProgrammingError):
        con.create_table_function("f", lambda: [], [], {})
    with pytest.raises(seracdb.ProgrammingError, match="more than once"):
        con.create_table_function("f", lambda: [], [], [("a", int), ("a", int)])


# ---- threads, cancelling, lifetimes


def test_cancelling_between_rows(con):
    def slow(x):
        time.sleep(0.01)
        return x

    con.create_function("slow", slow, [int], int)
    timer = threading.Timer(0.3, con.cancel)
    timer.start()
    start = time.monotonic()
    with pytest.raises(seracdb.QueryCanceled):
        rows(con, "SELECT sum(slow(i)) FROM generate_series(1, 8000) AS g (i)")
    assert time.monotonic() - start < 20
    # The next statement runs.
    assert rows(con, "SELECT slow(1)") == [(1,)]


def test_a_function_cannot_use_its_own_connection(con):
    con.create_function("inner_", lambda: con.execute("SELECT 1").fetchone()[0], [], int)
    with pytest.raises(seracdb.Error, match="waits for the code that uses it"):
        con.execute("SELECT inner_()")

    def outer():
        with con.connect() as other:
            return other.execute("SELECT 5").fetchone()[0]

    con.create_function("outer_", outer, [], int)
    assert rows(con, "SELECT outer_()") == [(5,)]


def test_functions_in_threads(con):
    con.create_function("thread_square", lambda x: x * x, [int], int)
    con.create_aggregate("total", Total)
    failures = []

    def work():
        try:
            for _ in range(5):
                got = rows(con, "SELECT total(thread_square(i)) FROM generate_series(1, 2000) AS g (i)")
                assert got == [(sum(i * i for i in range(1, 2001)),)]
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_functions_are_freed():
    class Callable:
        def __init__(self, connection):
            self.connection = connection

        def __call__(self, x):
            return x

    con = seracdb.connect(autocommit=True)
    function = Callable(con)
    reference = weakref.ref(function)
    con.create_function("f", function, [int], int)
    assert rows(con, "SELECT f(i) FROM generate_series(1, 3) AS g (i)") == [(1,), (2,), (3,)]
    con.remove_function("f")
    del function
    gc.collect()
    assert reference() is None
    # One that is not removed goes with its connection.
    function = Callable(con)
    reference = weakref.ref(function)
    con.create_function("f", function, [int], int)
    connection = weakref.ref(con)
    del function, con
    gc.collect()
    assert reference() is None and connection() is None


def test_an_aggregate_of_no_rows_has_its_value_everywhere(con):
    class Count:
        def __init__(self):
            self.count = 0

        def step(self, _):
            self.count += 1

        def finish(self):
            return self.count

    con.create_aggregate("own_count", Count, [int], int)
    con.execute("CREATE TABLE outer_rows (i INT)")
    con.execute("CREATE TABLE inner_rows (i INT)")
    con.execute("INSERT INTO outer_rows VALUES (1), (2)")
    con.execute("INSERT INTO inner_rows VALUES (1), (1)")
    assert rows(con, "SELECT own_count(i) FROM inner_rows WHERE i > 5") == [(0,)]
    query = "SELECT i, (SELECT own_count(r.i) FROM inner_rows AS r WHERE r.i = o.i) FROM outer_rows AS o ORDER BY i"
    assert rows(con, query) == [(1, 2), (2, 0)]
    frame = "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING"
    query = f"SELECT i, own_count(i) OVER (ORDER BY i {frame}) FROM outer_rows ORDER BY i"
    assert rows(con, query) == [(1, 0), (2, 1)]


# ---- functions in FROM, row by row


def test_rows_come_as_they_are_wanted(con):
    given = []

    def numbers():
        for number in itertools.count():
            given.append(number)
            yield number

    con.create_table_function("numbers", numbers, [], [("i", int)])
    assert rows(con, "SELECT i FROM numbers() LIMIT 1") == [(0,)]
    assert len(given) <= 4
    given.clear()
    assert len(rows(con, "SELECT i FROM numbers() LIMIT 5000")) == 5_000
    assert len(given) <= 12_000


def test_rows_do_not_wait_for_later_ones(con):
    go_on = threading.Event()

    def numbers():
        yield from range(3)
        go_on.wait(60)
        yield 3

    con.create_table_function("numbers", numbers, [], [("i", int)])
    began = time.monotonic()
    assert rows(con, "SELECT i FROM numbers() LIMIT 3") == [(0,), (1,), (2,)]
    assert time.monotonic() - began < 30
    go_on.set()


def test_a_generator_ends_with_its_statement(con):
    given = []

    def numbers():
        for number in range(10_000):
            given.append(number)
            time.sleep(0.01)
            yield number

    con.create_table_function("numbers", numbers, [], [("i", int)])
    con.execute("SET statement_timeout = 300")
    with pytest.raises(seracdb.QueryCanceled):
        rows(con, "SELECT i FROM numbers()")
    time.sleep(0.3)
    count = len(given)
    time.sleep(0.5)
    assert len(given) == count

"""The dialect of SQLAlchemy: what is SeracDB's own. The folder sqlalchemy_suite runs
SQLAlchemy's tests."""

import datetime
import decimal
import json
import threading
import uuid
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import seracdb  # noqa: E402
import sqlalchemy as sa  # noqa: E402
from sqlalchemy import orm  # noqa: E402
from sqlalchemy.dialects import postgresql  # noqa: E402


@pytest.fixture
def engine():
    engine = sa.create_engine("seracdb://")
    yield engine
    engine.dispose()


@pytest.fixture
def item(engine):
    table = sa.Table(
        "item",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(20), unique=True),
        sa.Column("price", sa.Numeric(10, 2)),
    )
    table.metadata.create_all(engine)
    return table


def test_a_database_in_memory_belongs_to_its_engine(engine, item):
    with engine.begin() as connection:
        connection.execute(item.insert(), {"name": "pen"})
    with sa.create_engine("seracdb:///:memory:").connect() as other:
        assert not sa.inspect(other).has_table("item")
    counts = []

    def read():
        with engine.connect() as connection:
            counts.append(connection.scalar(sa.select(sa.func.count()).select_from(item)))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 8
    # Neither ends with the connections of the pool.
    engine.dispose()
    read()
    assert counts[-1] == 1


def test_urls(tmp_path):
    url = f"seracdb:///{tmp_path / 'db'}?durability=relaxed&threads=1&memory_limit=100000000"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a INTEGER)")
    reader = sa.create_engine(f"{url}&read_only=true")
    with pytest.raises(sa.exc.InternalError, match="read-only transaction"), reader.begin() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    reader.dispose()
    engine.dispose()
    for wrong in ("seracdb://host/db", "seracdb:///db?speed=1", "seracdb:///db?threads=many", "seracdb:///db?read_only=x"):
        with pytest.raises(sa.exc.ArgumentError):
            sa.create_engine(wrong).connect()


def test_the_connection_beneath(engine, item):
    with engine.begin() as connection:
        beneath = connection.connection.driver_connection
        assert isinstance(beneath, seracdb.Connection)
        connection.execute(item.insert(), [{"name": "pen"}, {"name": "book"}])
        assert beneath.append("item", beneath.execute("SELECT id + 10 AS id, name || 's' AS name FROM item")) == 2
    with engine.connect() as connection:
        assert connection.scalars(sa.select(item.c.name).order_by(item.c.id)).all() == ["pen", "book", "pens", "books"]


def test_a_transaction_has_one_snapshot(engine, item):
    count = sa.select(sa.func.count()).select_from(item)
    with engine.connect() as reader, engine.connect() as writer:
        assert reader.get_isolation_level() == "REPEATABLE READ"
        assert reader.scalar(count) == 0
        writer.execute(item.insert(), {"name": "pen"})
        writer.commit()
        assert reader.scalar(count) == 0
        reader.rollback()
        assert reader.scalar(count) == 1


@pytest.mark.parametrize("level", ["READ COMMITTED", "READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"])
def test_isolation_levels(engine, item, level):
    count = sa.select(sa.func.count()).select_from(item)
    with engine.connect().execution_options(isolation_level=level) as connection, engine.connect() as writer:
        assert connection.get_isolation_level() == level
        if level != "AUTOCOMMIT":
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == level.lower()
        assert connection.scalar(count) == 0
        writer.execute(item.insert(), {"name": "pen"})
        writer.commit()
        assert connection.scalar(count) == (level in ("READ COMMITTED", "READ UNCOMMITTED", "AUTOCOMMIT"))
    # The next user of the connection has the default again.
    with engine.connect() as connection:
        assert connection.get_isolation_level() == "REPEATABLE READ"


def test_an_engine_of_one_isolation_level():
    engine = sa.create_engine("seracdb://", isolation_level="SERIALIZABLE")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "serializable"


def test_read_only_transactions(engine, item):
    with engine.connect().execution_options(postgresql_readonly=True) as connection:
        with pytest.raises(sa.exc.InternalError, match="read-only transaction"):
            connection.execute(item.insert(), {"name": "pen"})
    with engine.begin() as connection:
        connection.execute(item.insert(), {"name": "pen"})


def test_savepoints(engine, item):
    with engine.begin() as connection:
        connection.execute(item.insert(), {"id": 1, "name": "pen"})
        with pytest.raises(sa.exc.IntegrityError) as caught, connection.begin_nested():
            connection.execute(item.insert(), {"id": 1, "name": "book"})
        assert isinstance(caught.value.orig, seracdb.UniqueViolation)
        with connection.begin_nested():
            connection.execute(item.insert(), {"id": 2, "name": "book"})
    with engine.connect() as connection:
        assert connection.scalars(sa.select(item.c.id).order_by(item.c.id)).all() == [1, 2]


def test_returning_and_conflicts(engine, item):
    with engine.begin() as connection:
        rows = [{"name": f"item {i}", "price": i} for i in range(2500)]
        made = connection.execute(item.insert().returning(item.c.id, sort_by_parameter_order=True), rows)
        assert made.scalars().all() == list(range(1, 2501))
        insert = postgresql.insert(item).values(name="item 7", price=1)
        raised = insert.on_conflict_do_update(
            index_elements=[item.c.name], set_={"price": item.c.price + insert.excluded.price}
        )
        assert connection.execute(raised.returning(item.c.id, item.c.price)).one() == (8, decimal.Decimal("8.00"))
        assert connection.execute(insert.on_conflict_do_nothing()).rowcount == 0
        gone = item.delete().where(item.c.id > 2498).returning(item.c.id)
        assert sorted(connection.scalars(gone)) == [2499, 2500]
        changed = item.update().where(item.c.id <= 2).values(price=sa.null()).returning(item.c.name)
        assert sorted(connection.scalars(changed)) == ["item 0", "item 1"]
        assert connection.execute(item.insert(), [{"name": "x"}, {"name": "y"}]).rowcount == 2


def test_rows_come_as_they_are_asked_for(engine):
    # All of these rows would not fit in memory.
    numbers = sa.text("SELECT i, repeat('x', 1000) FROM generate_series(1, 100000000) AS g (i)")
    with engine.connect() as connection:
        result = connection.execution_options(stream_results=True, max_row_buffer=100).execute(numbers)
        assert [row.i for row in next(result.partitions(100))] == list(range(1, 101))
        result.close()
        assert connection.scalar(sa.select(1)) == 1


def test_types(engine):
    values: dict[str, tuple[Any, Any]] = {
        "flag": (sa.Boolean, True),
        "small": (sa.SmallInteger, -7),
        "big": (sa.BigInteger, 2**62),
        "ratio": (sa.Double, 0.1),
        "number": (sa.Numeric(20, 5), decimal.Decimal("3.12500")),
        "free": (sa.Numeric, decimal.Decimal("1.10")),
        "text": (sa.Text, "größer"),
        "raw": (sa.LargeBinary, b"\x00\xff"),
        "day": (sa.Date, datetime.date(2024, 2, 29)),
        "clock": (sa.Time, datetime.time(1, 2, 3, 4)),
        "moment": (sa.DateTime, datetime.datetime(2024, 2, 29, 1, 2, 3, 4)),
        "instant": (sa.DateTime(timezone=True), datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc)),
        "span": (sa.Interval, datetime.timedelta(days=-3, microseconds=5)),
        "code": (sa.Uuid, uuid.UUID(int=5)),
        "document": (sa.JSON, {"a": [1, None, "x"]}),
        "binary_document": (postgresql.JSONB, ["b"]),
        "kind": (sa.Enum("short", "rather long", name="kind"), "rather long"),
    }
    columns: list[sa.Column[Any]] = [sa.Column(name, type_) for name, (type_, _) in values.items()]
    table = sa.Table("every", sa.MetaData(), *columns)
    table.metadata.create_all(engine)
    row = {name: value for name, (_, value) in values.items()}
    with engine.begin() as connection:
        connection.execute(table.insert(), [row, dict.fromkeys(row)])
        for name, value in row.items():
            if name != "document":
                assert connection.scalar(sa.select(table.c[name]).where(table.c[name] == value)) == value, name
        assert connection.execute(table.select().where(table.c.flag)).one() == tuple(row.values())
        assert connection.execute(table.select().where(table.c.flag.is_(None))).one() == (None,) * len(row)
        assert connection.scalar(sa.select(table.c.document["a"][2].as_string()).where(table.c.flag)) == "x"
        inside = table.c.binary_document.contains(["b"])
        assert connection.scalar(sa.select(sa.func.count()).where(inside).select_from(table)) == 1
    reflected = sa.Table("every", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        assert connection.execute(reflected.select().where(reflected.c.flag)).one() == tuple(row.values())
    with pytest.raises(sa.exc.NotSupportedError), engine.begin() as connection:
        sa.Table("list", sa.MetaData(), sa.Column("numbers", sa.ARRAY(sa.Integer))).create(connection)


def test_functions_of_the_user_for_json():
    engine = sa.create_engine(
        "seracdb://",
        json_serializer=lambda value: json.dumps({"wrapped": value}),
        json_deserializer=lambda text: json.loads(text, parse_float=decimal.Decimal),
    )
    for type_ in (sa.JSON, postgresql.JSON, postgresql.JSONB):
        table = sa.Table("document", sa.MetaData(), sa.Column("it", type_))
        table.create(engine)
        with engine.begin() as connection:
            connection.execute(table.insert(), {"it": 1.25})
            assert connection.scalar(sa.select(table.c.it)) == {"wrapped": decimal.Decimal("1.25")}
            text = sa.text("SELECT it FROM document").columns(it=type_)
            assert connection.scalar(text) == {"wrapped": decimal.Decimal("1.25")}
        table.drop(engine)


def test_reflection(engine):
    metadata = sa.MetaData()
    parent = sa.Table("parent", metadata, sa.Column("id", sa.Integer, primary_key=True))
    child = sa.Table(
        "child",
        metadata,
        sa.Column("id", sa.BigInteger, sa.Identity(start=5), primary_key=True),
        sa.Column("parent", sa.ForeignKey(parent.c.id, name="child_parent", ondelete="CASCADE")),
        sa.Column("name", sa.Text, server_default="none"),
        sa.Column("twice", sa.BigInteger, sa.Computed("id * 2")),
        sa.Column("kind", sa.SmallInteger),
        sa.CheckConstraint("name <> ''", name="name_is_there"),
        sa.Index("child_name", "name", postgresql_include=["kind"], postgresql_where=sa.text("kind > 0")),
        sa.Index("child_kind", "kind", postgresql_using="bitmap"),
        comment="a child",
    )
    metadata.create_all(engine)
    inspector = sa.inspect(engine)
    # The index that the foreign key has brought along is not one of the program's.
    indexes = {index["name"]: index for index in inspector.get_indexes("child")}
    assert set(indexes) == {"child_name", "child_kind"}
    assert indexes["child_name"]["column_names"] == ["name"]
    options = indexes["child_name"]["dialect_options"]
    assert (options["postgresql_include"], options["postgresql_where"]) == (["kind"], "kind > 0")
    assert indexes["child_kind"]["dialect_options"]["postgresql_using"] == "bitmap"
    (key,) = inspector.get_foreign_keys("child")
    assert (key["name"], key["referred_table"], key["options"]) == ("child_parent", "parent", {"ondelete": "CASCADE"})
    columns = {column["name"]: column for column in inspector.get_columns("child")}
    assert columns["id"]["identity"]["start"] == 5 and columns["name"]["default"] == "'none'"
    assert columns["twice"]["computed"] == {"sqltext": "id * 2", "persisted": True}
    assert inspector.get_table_comment("child") == {"text": "a child"}
    assert [check["name"] for check in inspector.get_check_constraints("child")] == ["name_is_there"]

    again = sa.MetaData()
    again.reflect(engine)
    metadata.drop_all(engine)
    again.create_all(engine)
    assert {index["name"] for index in sa.inspect(engine).get_indexes("child")} == {"child_name", "child_kind"}
    with engine.begin() as connection:
        connection.execute(again.tables["parent"].insert(), {"id": 1})
        made = again.tables["child"].insert().values(parent=1).returning(again.tables["child"].c.id)
        assert connection.scalar(made) == 5
    # Options of this dialect's own name are refused, not passed over.
    with pytest.raises(sa.exc.ArgumentError):
        sa.Index("wrong", child.c.name, seracdb_include=["kind"])


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(unique=True)
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str]
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def test_objects(engine):
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        ada = Author(name="Ada", books=[Book(title=f"volume {i}") for i in range(3)])
        session.add_all([ada, Author(name="Bob")])
        session.commit()
        assert ada.id == 1 and [book.id for book in ada.books] == [1, 2, 3]
    with orm.Session(engine) as session:
        counts = sa.select(Author.name, sa.func.count(Book.id)).outerjoin(Book).group_by(Author.name)
        assert dict(session.execute(counts).all()) == {"Ada": 3, "Bob": 0}
        ada = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).filter_by(name="Ada")).one()
        ada.books.pop()
        session.commit()
        assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 2
        session.add(Author(name="Ada"))
        with pytest.raises(sa.exc.IntegrityError):
            session.commit()


def test_a_conflict_is_told(engine, item):
    with engine.begin() as connection:
        connection.execute(item.insert(), {"id": 1, "price": 1})
    with engine.connect() as one, engine.connect() as other:
        for connection in (one, other):
            assert connection.scalar(sa.select(item.c.price)) == 1
        one.execute(item.update().values(price=2))
        one.commit()
        with pytest.raises(sa.exc.OperationalError) as caught:
            other.execute(item.update().values(price=3))
        assert isinstance(caught.value.orig, seracdb.SerializationFailure)


def test_a_closed_connection_leaves_the_pool(engine):
    engine = sa.create_engine("seracdb://", pool_pre_ping=True)
    with engine.connect() as connection:
        beneath = connection.connection.driver_connection
    beneath.close()
    with engine.connect() as connection:
        assert connection.scalar(sa.select(1)) == 1
    # The query that finds out whether it is alive has left no transaction, in which the level could
    # not be set.
    for _ in range(2):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            assert connection.scalar(sa.select(sa.literal(2))) == 2
            assert connection.connection.driver_connection.transaction_status == "idle"


def test_statements_are_cached(engine, item):
    with engine.connect() as connection:
        for key in range(3):
            result = connection.execute(sa.select(item.c.name).where(item.c.id == key))
            hits = result.context.cache_hit.name
        assert hits == "CACHE_HIT"

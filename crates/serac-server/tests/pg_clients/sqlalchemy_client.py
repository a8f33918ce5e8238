"""SQLAlchemy and pandas against the server. Argument: the port."""

import datetime as dt
import decimal
import sys
import uuid

import pandas
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql

PORT = int(sys.argv[1])
engine = sa.create_engine(f"postgresql+psycopg://ada@127.0.0.1:{PORT}/db")


def reflection():
    """What the inspector says of tables that were made as text."""
    with engine.begin() as connection:
        for statement in """
            CREATE SCHEMA shop;
            CREATE TABLE customer (id SERIAL PRIMARY KEY, name VARCHAR(40) NOT NULL, email TEXT UNIQUE, born DATE,
                balance NUMERIC(12,2) DEFAULT 0 CONSTRAINT balance_is_positive CHECK (balance >= 0), active BOOLEAN,
                code CHAR(3), made TIMESTAMPTZ);
            CREATE TABLE shop.orders (id BIGINT PRIMARY KEY,
                customer_id INTEGER NOT NULL REFERENCES customer(id) ON DELETE CASCADE, placed TIMESTAMP,
                note TEXT DEFAULT 'none', amount DOUBLE PRECISION, UNIQUE (customer_id, placed));
            CREATE TABLE line (order_id BIGINT, no SMALLINT, data BYTEA, span INTERVAL, at TIME, ident UUID, r REAL,
                PRIMARY KEY (order_id, no), CONSTRAINT line_order FOREIGN KEY (order_id) REFERENCES shop.orders(id)
                ON UPDATE CASCADE ON DELETE SET NULL);
            CREATE INDEX customer_name ON customer (name, born DESC);
            CREATE UNIQUE INDEX customer_code ON customer (code);
            CREATE UNIQUE INDEX customer_mail ON customer (lower(email), code) WHERE active;
            CREATE VIEW rich AS SELECT id, name FROM customer WHERE balance > 100;
            CREATE SEQUENCE tickets INCREMENT BY 2 START WITH 5;
            CREATE TABLE identities (a INTEGER GENERATED ALWAYS AS IDENTITY, b INTEGER)
        """.split(";"):
            connection.execute(sa.text(statement))
    inspector = sa.inspect(engine)
    assert inspector.default_schema_name == "public"
    assert set(inspector.get_schema_names()) == {"information_schema", "public", "shop"}, inspector.get_schema_names()
    assert sorted(inspector.get_table_names()) == ["customer", "identities", "line"], inspector.get_table_names()
    assert inspector.get_table_names("shop") == ["orders"]
    assert inspector.get_view_names() == ["rich"]
    assert {"tickets", "customer_id_seq"} <= set(inspector.get_sequence_names())
    assert inspector.has_table("customer") and inspector.has_table("rich") and not inspector.has_table("orders")
    assert inspector.has_table("orders", schema="shop") and inspector.has_sequence("tickets")
    assert inspector.has_index("customer", "customer_name") and inspector.has_schema("shop")
    assert "customer" in inspector.get_view_definition("rich")

    columns = {column["name"]: column for column in inspector.get_columns("customer")}
    assert list(columns) == ["id", "name", "email", "born", "balance", "active", "code", "made"]
    types = {name: str(column["type"]) for name, column in columns.items()}
    assert types == {
        "id": "INTEGER",
        "name": "VARCHAR(40)",
        "email": "TEXT",
        "born": "DATE",
        "balance": "NUMERIC(12, 2)",
        "active": "BOOLEAN",
        "code": "CHAR(3)",
        "made": "TIMESTAMP",
    }, types
    assert columns["made"]["type"].timezone and not columns["id"]["nullable"] and columns["email"]["nullable"]
    assert columns["id"]["default"] == "nextval('customer_id_seq'::regclass)", columns["id"]
    assert columns["id"]["autoincrement"] is True and columns["balance"]["default"].startswith("0")
    types = [str(column["type"]) for column in inspector.get_columns("line")]
    assert types == ["BIGINT", "SMALLINT", "BYTEA", "INTERVAL", "TIME", "UUID", "REAL"], types
    types = [str(column["type"]) for column in inspector.get_columns("orders", schema="shop")]
    assert types == ["BIGINT", "INTEGER", "TIMESTAMP", "TEXT", "DOUBLE PRECISION"], types
    identity = inspector.get_columns("identities")[0]["identity"]
    assert identity["always"] and identity["start"] == 1 and identity["increment"] == 1, identity
    assert [column["name"] for column in inspector.get_columns("rich")] == ["id", "name"]

    key = inspector.get_pk_constraint("line")
    assert key["constrained_columns"] == ["order_id", "no"] and key["name"] == "line_pkey", key
    assert inspector.get_pk_constraint("identities")["constrained_columns"] == []
    (key,) = inspector.get_foreign_keys("line")
    assert key["name"] == "line_order" and key["constrained_columns"] == ["order_id"], key
    assert (key["referred_schema"], key["referred_table"], key["referred_columns"]) == ("shop", "orders", ["id"]), key
    assert key["options"] == {"onupdate": "CASCADE", "ondelete": "SET NULL"}, key
    (key,) = inspector.get_foreign_keys("orders", schema="shop")
    assert key["referred_table"] == "customer" and key["options"] == {"ondelete": "CASCADE"}, key

    indexes = {index["name"]: index for index in inspector.get_indexes("customer")}
    assert set(indexes) == {"customer_name", "customer_code", "customer_mail", "customer_email_key"}, indexes
    assert indexes["customer_name"]["column_names"] == ["name", "born"] and not indexes["customer_name"]["unique"]
    assert indexes["customer_name"]["column_sorting"] == {"born": ("desc",)}, indexes["customer_name"]
    assert indexes["customer_code"]["unique"]
    assert indexes["customer_mail"]["expressions"] == ["lower(email)", "code"], indexes["customer_mail"]
    assert indexes["customer_mail"]["dialect_options"]["postgresql_where"] == "active", indexes["customer_mail"]
    assert indexes["customer_email_key"]["duplicates_constraint"] == "customer_email_key"
    (unique,) = inspector.get_unique_constraints("orders", schema="shop")
    assert unique["column_names"] == ["customer_id", "placed"], unique
    (check,) = inspector.get_check_constraints("customer")
    assert check["name"] == "balance_is_positive" and "balance >= 0" in check["sqltext"], check
    assert inspector.get_table_comment("customer") == {"text": None}
    assert inspector.get_enums() == [] and inspector.get_domains() == []

    metadata = sa.MetaData()
    metadata.reflect(engine)
    metadata.reflect(engine, schema="shop")
    assert set(metadata.tables) == {"customer", "identities", "line", "shop.orders"}, set(metadata.tables)
    customer, orders = metadata.tables["customer"], metadata.tables["shop.orders"]
    assert [c.name for c in customer.primary_key] == ["id"]
    with engine.begin() as connection:
        connection.execute(customer.insert(), [{"name": "ada"}, {"name": "bob"}])
        rows = connection.execute(sa.select(customer.c.id, customer.c.name).order_by(customer.c.id)).all()
        assert rows == [(1, "ada"), (2, "bob")], rows
        joined = sa.select(sa.func.count()).select_from(customer.outerjoin(orders))
        assert connection.execute(joined).scalar_one() == 2


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(30), unique=True)
    born: orm.Mapped[dt.date | None]
    token: orm.Mapped[uuid.UUID] = orm.mapped_column(default=uuid.uuid4)
    more: orm.Mapped[dict | None] = orm.mapped_column(postgresql.JSONB)
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str]
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(10, 2))
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def objects():
    """Tables from classes, relations between them, transactions."""
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        ada = Author(name="Ada", born=dt.date(1815, 12, 10), more={"langs": ["en", "fr"], "age": {"at": 36}})
        ada.books = [Book(title=f"volume {i}", price=decimal.Decimal(i) / 4) for i in range(5)]
        session.add_all([ada, Author(name="Bob")])
        session.commit()
        assert ada.id == 1 and [book.id for book in ada.books] == [1, 2, 3, 4, 5]
    with orm.Session(engine) as session:
        query = sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.name)
        ada, bob = session.scalars(query).all()
        assert ada.born == dt.date(1815, 12, 10) and isinstance(ada.token, uuid.UUID)
        assert [book.title for book in ada.books] == [f"volume {i}" for i in range(5)] and bob.books == []
        assert ada.more == {"langs": ["en", "fr"], "age": {"at": 36}} and bob.more is None
        spoken = sa.select(Author.name).where(Author.more["langs"].contains(["fr"]), Author.more["age"]["at"].as_integer() > 30)
        assert session.scalars(spoken).all() == ["Ada"]
        assert session.scalars(sa.select(Author.name).where(Author.more.has_key("langs"))).all() == ["Ada"]
        book = session.scalars(sa.select(Book).options(orm.joinedload(Book.author)).where(Book.price > 0.9)).one()
        assert book.author is ada and book.price == decimal.Decimal("1.00")
        counts = sa.select(Author.name, sa.func.count(Book.id)).outerjoin(Book).group_by(Author.name)
        assert dict(session.execute(counts).all()) == {"Ada": 5, "Bob": 0}
        book.author = bob
        session.delete(ada.books[0])
        session.commit()
        assert [book.title for book in bob.books] == ["volume 4"] and len(ada.books) == 3
        session.add(Author(name="Ada"))
        try:
            session.commit()
            raise AssertionError("a unique violation was expected")
        except sa.exc.IntegrityError:
            session.rollback()
        with session.begin_nested() as nested:
            bob.name = "Robert"
            session.flush()
            nested.rollback()
        assert session.scalars(sa.select(Author.name).order_by(Author.name)).all() == ["Ada", "Bob"]
    with engine.connect() as connection:
        insert = sa.insert(Author).returning(Author.id, Author.name)
        rows = connection.execute(insert, [{"name": f"author {i}", "token": uuid.uuid4()} for i in range(3)]).all()
        assert [row.name for row in rows] == ["author 0", "author 1", "author 2"]
        connection.rollback()
        assert connection.execute(sa.select(sa.func.count()).select_from(Author)).scalar_one() == 2


def data_frames():
    """A frame into a table and back."""
    days = pandas.date_range("2024-01-01", periods=1000)
    frame = pandas.DataFrame({"n": range(1000), "x": [i / 8 for i in range(1000)], "t": [f"t{i}" for i in range(1000)], "d": days})
    assert frame.to_sql("frame", engine, index=False, chunksize=100) is not None
    read = pandas.read_sql("SELECT * FROM frame ORDER BY n", engine)
    assert read["n"].tolist() == frame["n"].tolist() and read["x"].tolist() == frame["x"].tolist()
    assert read["t"].tolist() == frame["t"].tolist() and read["d"].tolist() == frame["d"].tolist()
    assert pandas.read_sql_table("frame", engine, columns=["n"])["n"].sum() == 499_500
    frame.to_sql("frame", engine, index=False, if_exists="replace")
    assert pandas.read_sql("SELECT count(*) AS c FROM frame", engine)["c"][0] == 1000


def dropped():
    Base.metadata.drop_all(engine)
    assert not sa.inspect(engine).has_table("author")


for check in [reflection, objects, data_frames, dropped]:
    check()
    print(check.__name__, "ok")
print("done")

// pgjdbc against the server. Argument: the port. Run as `java -cp postgresql.jar Jdbc.java PORT`.

import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

public class Jdbc {
    static String url;

    static void check(boolean holds, Object what) {
        if (!holds) throw new AssertionError(String.valueOf(what));
    }

    static void equal(Object found, Object wanted) {
        check(Objects.equals(found, wanted), found + " is not " + wanted);
    }

    static Connection connect() throws SQLException {
        return DriverManager.getConnection(url, "ada", "");
    }

    /** The rows of a result, with the given columns. */
    static List<String> rows(ResultSet result, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        while (result.next()) {
            StringJoiner row = new StringJoiner(" ");
            for (String column : columns) row.add(result.getString(column));
            rows.add(row.toString());
        }
        result.close();
        return rows;
    }

    static void metadata(Connection c) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute("CREATE SCHEMA shop");
            s.execute("CREATE TABLE customer (id SERIAL PRIMARY KEY, name VARCHAR(40) NOT NULL, email TEXT UNIQUE,"
                + " balance NUMERIC(12,2) DEFAULT 0, made TIMESTAMPTZ)");
            s.execute("CREATE TABLE shop.orders (id BIGINT, no SMALLINT, customer_id INTEGER REFERENCES customer(id)"
                + " ON DELETE CASCADE, PRIMARY KEY (no, id))");
            s.execute("CREATE INDEX customer_name ON customer (name, made DESC)");
            s.execute("CREATE VIEW rich AS SELECT id, name FROM customer WHERE balance > 100");
        }
        DatabaseMetaData m = c.getMetaData();
        equal(m.getDatabaseProductName(), "PostgreSQL");
        equal(rows(m.getCatalogs(), "TABLE_CAT").contains("db"), true);
        List<String> schemas = rows(m.getSchemas(), "TABLE_SCHEM");
        equal(schemas, List.of("information_schema", "pg_catalog", "public", "shop"));
        equal(rows(m.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"),
            List.of("public customer TABLE", "public rich VIEW"));
        equal(rows(m.getTables(null, null, "orders", null), "TABLE_SCHEM", "TABLE_NAME"), List.of("shop orders"));
        check(rows(m.getTables(null, "pg_catalog", "pg_cl%", null), "TABLE_NAME", "TABLE_TYPE").contains("pg_class SYSTEM TABLE"), "pg_class");
        equal(rows(m.getTables(null, "public", "%", new String[] {"SEQUENCE"}), "TABLE_NAME"), List.of("customer_id_seq"));
        equal(rows(m.getColumns(null, "public", "customer", "%"), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE",
                "DECIMAL_DIGITS", "NULLABLE", "ORDINAL_POSITION", "IS_AUTOINCREMENT"),
            List.of("id 4 serial 10 0 0 1 YES", "name 12 varchar 40 0 0 2 NO", "email 12 text 2147483647 0 1 3 NO",
                "balance 2 numeric 12 2 1 4 NO", "made 93 timestamptz 35 6 1 5 NO"));
        equal(rows(m.getColumns(null, "public", "customer", "balance"), "COLUMN_DEF"), List.of("0"));
        equal(rows(m.getPrimaryKeys(null, "shop", "orders"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"),
            List.of("no 1 orders_pkey", "id 2 orders_pkey"));
        String[] key = {"PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_SCHEM", "FKTABLE_NAME", "FKCOLUMN_NAME", "KEY_SEQ",
            "UPDATE_RULE", "DELETE_RULE", "FK_NAME", "PK_NAME", "DEFERRABILITY"};
        List<String> keys = List.of("customer id shop orders customer_id 1 3 0 orders_customer_id_fkey customer_pkey 7");
        equal(rows(m.getImportedKeys(null, "shop", "orders"), key), keys);
        equal(rows(m.getExportedKeys(null, "public", "customer"), key), keys);
        equal(rows(m.getIndexInfo(null, "public", "customer", false, false), "NON_UNIQUE", "INDEX_NAME", "ORDINAL_POSITION",
                "COLUMN_NAME", "ASC_OR_DESC"),
            List.of("f customer_email_key 1 email A", "f customer_pkey 1 id A", "t customer_name 1 name A",
                "t customer_name 2 made D"));
        List<String> types = rows(m.getTypeInfo(), "TYPE_NAME");
        check(types.containsAll(List.of("int4", "int8", "text", "varchar", "numeric", "timestamptz", "uuid", "bytea")), types);
        check(rows(m.getTableTypes(), "TABLE_TYPE").contains("VIEW"), "table types");
        check(!rows(m.getTablePrivileges(null, "public", "customer"), "GRANTEE", "PRIVILEGE").isEmpty(), "privileges");
        equal(rows(m.getBestRowIdentifier(null, "public", "customer", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME"),
            List.of("id"));
        rows(m.getProcedures(null, "public", "%"), "PROCEDURE_NAME");
        check(rows(m.getFunctions(null, null, "lower"), "FUNCTION_NAME").contains("lower"), "functions");
        rows(m.getUDTs(null, "public", "%", null), "TYPE_NAME");
        check(m.getSQLKeywords() != null && m.getMaxColumnNameLength() == 63, "limits");
        try (PreparedStatement s = c.prepareStatement("SELECT id, name, balance FROM customer WHERE id = ?")) {
            ResultSetMetaData columns = s.getMetaData();
            equal(columns.getColumnCount(), 3);
            equal(columns.getColumnTypeName(3), "numeric");
            equal(columns.getColumnType(2), Types.VARCHAR);
            equal(s.getParameterMetaData().getParameterType(1), Types.INTEGER);
        }
    }

    /** More than five executions: the driver then prepares on the server, and takes values in binary form. */
    static void prepared(Connection c) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, t TEXT, n NUMERIC(12,2), d DOUBLE PRECISION, b BOOLEAN,"
                + " l BIGINT, at TIMESTAMP, day DATE, data BYTEA, u UUID)");
        }
        UUID uuid = UUID.fromString("00010203-0405-0607-0809-0a0b0c0d0e0f");
        try (PreparedStatement s = c.prepareStatement("INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")) {
            for (int i = 0; i < 12; i++) {
                s.setInt(1, i);
                s.setString(2, "text " + i);
                s.setBigDecimal(3, new BigDecimal("12." + (10 + i)));
                s.setDouble(4, i / 8.0);
                s.setBoolean(5, i % 2 == 0);
                s.setLong(6, 1L << (i + 30));
                s.setTimestamp(7, Timestamp.valueOf("2024-02-29 01:02:03.5"));
                s.setDate(8, java.sql.Date.valueOf("2024-02-29"));
                s.setBytes(9, new byte[] {0, (byte) i, -1});
                s.setObject(10, uuid);
                equal(s.executeUpdate(), 1);
            }
        }
        try (PreparedStatement s = c.prepareStatement("SELECT * FROM item WHERE id = ?")) {
            for (int i = 0; i < 12; i++) {
                s.setInt(1, i);
                ResultSet r = s.executeQuery();
                check(r.next(), i);
                equal(r.getString("t"), "text " + i);
                equal(r.getBigDecimal("n"), new BigDecimal("12." + (10 + i)));
                equal(r.getDouble("d"), i / 8.0);
                equal(r.getBoolean("b"), i % 2 == 0);
                equal(r.getLong("l"), 1L << (i + 30));
                equal(r.getTimestamp("at"), Timestamp.valueOf("2024-02-29 01:02:03.5"));
                equal(r.getDate("day"), java.sql.Date.valueOf("2024-02-29"));
                equal(r.getBytes("data")[1], (byte) i);
                equal(r.getObject("u"), uuid);
                check(!r.next(), "one row");
            }
        }
        try (PreparedStatement s = c.prepareStatement("SELECT count(*) FROM item WHERE id = ANY(?)")) {
            for (int i = 0; i < 7; i++) {
                s.setArray(1, c.createArrayOf("int4", new Integer[] {1, 2, 100}));
                ResultSet r = s.executeQuery();
                check(r.next() && r.getInt(1) == 2, "two of them");
            }
        }
        try (PreparedStatement s = c.prepareStatement("SELECT array_agg(id ORDER BY id) FROM item WHERE id < ?")) {
            for (int i = 0; i < 7; i++) {
                s.setInt(1, 3);
                ResultSet r = s.executeQuery();
                check(r.next(), "a row");
                equal(List.of((Object[]) r.getArray(1).getArray()), List.of(0, 1, 2));
            }
        }
    }

    static void batches(Connection c) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute("CREATE TABLE numbered (id SERIAL PRIMARY KEY, t TEXT UNIQUE)");
        }
        try (PreparedStatement s = c.prepareStatement("INSERT INTO numbered (t) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int i = 0; i < 20; i++) {
                s.setString(1, "t" + i);
                s.addBatch();
            }
            for (int count : s.executeBatch()) equal(count, 1);
            ResultSet keys = s.getGeneratedKeys();
            for (int i = 1; i <= 20; i++) check(keys.next() && keys.getInt("id") == i, i);
            s.setString(1, "one more");
            equal(s.executeUpdate(), 1);
            keys = s.getGeneratedKeys();
            check(keys.next() && keys.getInt(1) == 21, "the key");
        }
        try (PreparedStatement s = c.prepareStatement("INSERT INTO numbered (t) VALUES (?)", new String[] {"id"})) {
            s.setString(1, "t3");
            try {
                s.executeUpdate();
                check(false, "a duplicate");
            } catch (SQLException e) {
                equal(e.getSQLState(), "23505");
            }
        }
    }

    static void transactions(Connection c) throws SQLException {
        c.setAutoCommit(false);
        try (Statement s = c.createStatement()) {
            equal(s.executeUpdate("UPDATE numbered SET t = 'x' || t"), 21);
            Savepoint savepoint = c.setSavepoint("here");
            equal(s.executeUpdate("DELETE FROM numbered"), 21);
            c.rollback(savepoint);
            Savepoint unnamed = c.setSavepoint();
            c.releaseSavepoint(unnamed);
            ResultSet r = s.executeQuery("SELECT count(*) FROM numbered WHERE t LIKE 'x%'");
            check(r.next() && r.getLong(1) == 21, "as before the savepoint");
            c.rollback();
            r = s.executeQuery("SELECT count(*) FROM numbered WHERE t LIKE 'x%'");
            check(r.next() && r.getLong(1) == 0, "as before the transaction");
        }
        // A cursor: so many rows at a time.
        try (Statement s = c.createStatement()) {
            s.setFetchSize(7);
            ResultSet r = s.executeQuery("SELECT v FROM generate_series(1, 100) AS g(v) ORDER BY v");
            for (int i = 1; i <= 100; i++) check(r.next() && r.getInt(1) == i, i);
            check(!r.next(), "the end");
        }
        c.commit();
        c.setAutoCommit(true);
        c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        equal(c.getTransactionIsolation(), Connection.TRANSACTION_SERIALIZABLE);
        c.setReadOnly(true);
        c.setAutoCommit(false);
        try (Statement s = c.createStatement()) {
            s.executeUpdate("DELETE FROM numbered");
            check(false, "a change in a read-only transaction");
        } catch (SQLException e) {
            equal(e.getSQLState(), "25006");
        }
        c.rollback();
        c.setAutoCommit(true);
        c.setReadOnly(false);
        check(c.isValid(5), "valid");
        equal(c.getSchema(), "public");
        equal(c.getCatalog(), "db");
    }

    public static void main(String[] arguments) throws Exception {
        url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/db?connectTimeout=20&socketTimeout=60";
        try (Connection c = connect()) {
            metadata(c);
            System.out.println("metadata ok");
            prepared(c);
            System.out.println("prepared ok");
            batches(c);
            System.out.println("batches ok");
            transactions(c);
            System.out.println("transactions ok");
        }
        System.out.println("done");
    }
}

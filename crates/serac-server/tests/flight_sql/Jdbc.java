// Arrow's JDBC driver for Flight SQL against the server. Argument: the URL.

import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

public class Jdbc {
    static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    static void fails(Statement statement, String sql, String text) throws Exception {
        try {
            statement.execute(sql);
        } catch (SQLException error) {
            check(error.getMessage().contains(text), error);
            return;
        }
        throw new AssertionError(sql + " does not fail");
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0]);
                Statement statement = connection.createStatement()) {
            check(connection.getMetaData().getDatabaseProductName().equals("SeracDB"), "name");
            statement.executeUpdate("CREATE TABLE jdbc (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(10,2), day DATE, d DOUBLE PRECISION)");
            check(statement.executeUpdate("INSERT INTO jdbc VALUES (1, 'one', 1.50, DATE '2024-02-29', 0.5), (2, NULL, NULL, NULL, NULL)") == 2, "rows");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc (id, name) VALUES (?, ?)")) {
                for (int i = 10; i < 13; i++) {
                    insert.setLong(1, i);
                    insert.setString(2, "a name that is long: " + i);
                    insert.addBatch();
                }
                insert.executeBatch();
                insert.setLong(1, 13);
                insert.setString(2, "ü");
                check(insert.executeUpdate() == 1, "one row");
            }
            try (ResultSet rows = statement.executeQuery("SELECT * FROM jdbc ORDER BY id")) {
                check(rows.next() && rows.getLong("id") == 1 && rows.getString("name").equals("one"), "first");
                check(rows.getBigDecimal("price").equals(new BigDecimal("1.50")), rows.getBigDecimal("price"));
                check(rows.getDate("day").toString().equals("2024-02-29") && rows.getDouble("d") == 0.5, "day");
                check(rows.next() && rows.getString("name") == null && rows.getBigDecimal("price") == null, "second");
                check(rows.next() && rows.getString("name").equals("a name that is long: 10"), "third");
            }
            try (PreparedStatement query = connection.prepareStatement("SELECT name FROM jdbc WHERE id = ?")) {
                for (int i = 10; i < 13; i++) {
                    query.setLong(1, i);
                    try (ResultSet rows = query.executeQuery()) {
                        check(rows.next() && rows.getString(1).endsWith(": " + i) && !rows.next(), i);
                    }
                }
            }
            fails(statement, "SELECT * FROM nothing", "42P01");
            fails(statement, "INSERT INTO jdbc (id) VALUES (1)", "23505");
            List<String> found = new ArrayList<>();
            try (ResultSet tables = connection.getMetaData().getTables(null, "public", "jd%", null)) {
                while (tables.next()) {
                    found.add(tables.getString("TABLE_NAME") + " " + tables.getString("TABLE_TYPE"));
                }
            }
            check(found.equals(List.of("jdbc TABLE")), found);
            found.clear();
            try (ResultSet columns = connection.getMetaData().getColumns(null, "public", "jdbc", null)) {
                while (columns.next()) {
                    found.add(columns.getString("COLUMN_NAME"));
                }
            }
            check(found.equals(List.of("id", "name", "price", "day", "d")), found);
            try (ResultSet keys = connection.getMetaData().getPrimaryKeys(null, "public", "jdbc")) {
                check(keys.next() && keys.getString("COLUMN_NAME").equals("id") && !keys.next(), "key");
            }
            long sum = 0;
            try (ResultSet rows = statement.executeQuery("SELECT value FROM generate_series(1, 300000) AS g (value)")) {
                while (rows.next()) {
                    sum += rows.getLong(1);
                }
            }
            check(sum == 300000L * 300001 / 2, sum);
        }
        System.out.println("done");
        System.exit(0);
    }
}

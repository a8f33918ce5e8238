// The promises of seracdb.h, tested from C. The argument is a folder that is not there yet.

#include "seracdb.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);        \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

#define OK(call) check_ok((call), __LINE__)
#define FAILS(sqlstate, call) check_fails((sqlstate), (call), __LINE__)

static void check_ok(struct SeracError *error, int line) {
  if (error == NULL) return;
  fprintf(stderr, "line %d: %s %s\n", line, serac_error_sqlstate(error), serac_error_message(error));
  exit(1);
}

static void check_fails(const char *sqlstate, struct SeracError *error, int line) {
  if (error == NULL || strcmp(serac_error_sqlstate(error), sqlstate) != 0) {
    fprintf(stderr, "line %d: %s instead of %s\n", line, error ? serac_error_sqlstate(error) : "success", sqlstate);
    exit(1);
  }
  serac_error_free(error);
}

static struct SeracResult *query(struct SeracConnection *con, const char *sql) {
  struct SeracResult *result;
  OK(serac_execute(con, sql, &result));
  return result;
}

static bool next(struct SeracResult *result) {
  bool has_row;
  OK(serac_result_next(result, &has_row));
  return has_row;
}

// The integer that a query gives.
static int64_t number(struct SeracConnection *con, const char *sql) {
  struct SeracResult *result = query(con, sql);
  CHECK(next(result));
  int64_t value = serac_result_int64(result, 0);
  CHECK(!next(result));
  serac_result_close(result);
  return value;
}

static void errors(struct SeracConnection *con) {
  struct SeracError *error = serac_execute(con, "SELECT 1,\n       nothing", NULL);
  CHECK(error != NULL);
  CHECK(strcmp(serac_error_sqlstate(error), "42703") == 0);
  CHECK(strstr(serac_error_message(error), "nothing") != NULL);
  CHECK(serac_error_line(error) == 2 && serac_error_column(error) == 8);
  serac_error_free(error);
  FAILS("42601", serac_execute(con, "SELEC 1", NULL));
  FAILS("22012", serac_execute(con, "SELECT 1 / 0", NULL));
  FAILS("22021", serac_execute(con, "SELECT '\xff'", NULL));

  // NULL is refused where something is needed.
  struct SeracResult *result = (struct SeracResult *)1;
  FAILS("22004", serac_execute(NULL, "SELECT 1", &result));
  CHECK(result == NULL);
  FAILS("22004", serac_execute(con, NULL, NULL));
  FAILS("22004", serac_open(NULL, NULL, NULL));
  FAILS("22004", serac_connect(NULL, NULL));
  FAILS("22004", serac_prepare(con, "SELECT 1", NULL));
  FAILS("22004", serac_bind_null(NULL, 1));
  FAILS("22004", serac_statement_execute(NULL, NULL));
  FAILS("22004", serac_append(con, NULL, "t", SERAC_APPEND_EXISTING, NULL, NULL));
  FAILS("22004", serac_result_next(NULL, NULL));
  FAILS("22004", serac_result_stream(NULL, NULL));
  FAILS("22004", serac_begin(NULL));
  FAILS("22004", serac_cancel(NULL));
  FAILS("22004", serac_transaction(con, NULL));
  CHECK(serac_result_is_null(NULL, 0) && serac_result_text(NULL, 0, NULL) == NULL);
  CHECK(serac_error_message(NULL) == NULL && serac_error_line(NULL) == 0);
  serac_error_free(NULL);
  serac_result_close(NULL);
  serac_statement_close(NULL);
  OK(serac_connection_close(NULL));
  OK(serac_database_close(NULL));

  struct SeracDatabase *database;
  FAILS("22023", serac_open(NULL, "threads=0", &database));
  CHECK(database == NULL);
  FAILS("22023", serac_open(NULL, "colour=green", &database));
}

static void values(struct SeracConnection *con) {
  struct SeracResult *result = query(con,
      "SELECT 7 AS i, -9007199254740993 AS b, 1.5::DOUBLE PRECISION AS d, 12.50::NUMERIC(10, 2) AS n, "
      "1e30::NUMERIC AS m, 'gr\xc3\xbcn' AS t, '\\x00ff'::BYTEA AS y, DATE '1970-01-02' AS a, TRUE AS o, NULL AS z");
  CHECK(serac_result_has_rows(result) && serac_result_column_count(result) == 10);
  CHECK(strcmp(serac_result_column_name(result, 5), "t") == 0);
  CHECK(serac_result_column_name(result, 10) == NULL);
  CHECK(serac_result_is_null(result, 0));  // There is no row yet.
  CHECK(next(result));
  CHECK(serac_result_int64(result, 0) == 7 && strcmp(serac_result_text(result, 0, NULL), "7") == 0);
  CHECK(serac_result_int64(result, 1) == -9007199254740993);
  CHECK(serac_result_double(result, 2) == 1.5 && serac_result_double(result, 0) == 7);
  CHECK(strcmp(serac_result_text(result, 3, NULL), "12.50") == 0 && serac_result_double(result, 3) == 12.5);
  CHECK(serac_result_double(result, 4) == 1e30);
  size_t length;
  CHECK(strcmp(serac_result_text(result, 5, &length), "gr\xc3\xbcn") == 0 && length == 5);
  const uint8_t *bytes = serac_result_bytes(result, 6, &length);
  CHECK(length == 2 && bytes[0] == 0 && bytes[1] == 0xff);
  CHECK(serac_result_int64(result, 7) == 1 && strcmp(serac_result_text(result, 7, NULL), "1970-01-02") == 0);
  CHECK(serac_result_int64(result, 8) == 1);
  CHECK(serac_result_is_null(result, 9) && serac_result_text(result, 9, &length) == NULL && length == 0);
  CHECK(serac_result_is_null(result, 10) && !serac_result_is_null(result, 0));
  CHECK(!next(result) && !next(result));
  serac_result_close(result);

  result = query(con, "CREATE TABLE kinds (i INT, f DOUBLE PRECISION, t TEXT, y BYTEA, o BOOLEAN, d DATE, n NUMERIC(8, 3))");
  CHECK(!serac_result_has_rows(result) && serac_result_column_count(result) == 0);
  serac_result_close(result);
  struct SeracStatement *insert;
  OK(serac_prepare(con, "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7)", &insert));
  CHECK(serac_statement_parameter_count(insert) == 7);
  OK(serac_bind_int64(insert, 1, 42));
  OK(serac_bind_double(insert, 2, 0.25));
  OK(serac_bind_text(insert, 3, "a\0b", 1));
  OK(serac_bind_bytes(insert, 4, (const uint8_t *)"\0\1", 2));
  OK(serac_bind_bool(insert, 5, true));
  OK(serac_bind_text(insert, 6, "2024-02-29", 10));
  OK(serac_bind_text(insert, 7, "1.125", 5));
  FAILS("42P02", serac_bind_int64(insert, 8, 1));
  FAILS("42P02", serac_bind_int64(insert, 0, 1));
  FAILS("22021", serac_bind_text(insert, 3, "\xff", 1));
  FAILS("22004", serac_bind_text(insert, 3, NULL, 1));
  OK(serac_statement_execute(insert, &result));
  CHECK(serac_result_changed(result) == 1);
  serac_result_close(result);
  for (size_t parameter = 1; parameter <= 7; parameter++) OK(serac_bind_null(insert, parameter));
  OK(serac_statement_execute(insert, NULL));
  serac_statement_close(insert);
  CHECK(number(con, "SELECT count(*) FROM kinds WHERE i = 42 AND f = 0.25 AND t = 'a' AND y = '\\x0001' AND o "
                    "AND d = DATE '2024-02-29' AND n = 1.125") == 1);
  CHECK(number(con, "SELECT count(*) FROM kinds WHERE i IS NULL AND f IS NULL AND n IS NULL") == 1);
  OK(serac_execute(con, "DROP TABLE kinds", NULL));
}

// A statement on keys, which needs no planning, also in types other than its own.
static void points(struct SeracConnection *con) {
  OK(serac_execute(con, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)", NULL));
  struct SeracStatement *insert, *find;
  struct SeracResult *result;
  OK(serac_prepare(con, "INSERT INTO account VALUES (:id, :balance)", &insert));
  for (int64_t id = 0; id < 1000; id++) {
    OK(serac_bind_int64(insert, 1, id));
    OK(serac_bind_int64(insert, 2, id * 10));
    OK(serac_statement_execute(insert, NULL));
  }
  FAILS("23505", serac_statement_execute(insert, NULL));
  serac_statement_close(insert);
  OK(serac_prepare(con, "SELECT balance FROM account WHERE id = ?", &find));
  for (int64_t id = 0; id < 1000; id += 7) {
    OK(serac_bind_int64(find, 1, id));
    OK(serac_statement_execute(find, &result));
    CHECK(next(result) && serac_result_int64(result, 0) == id * 10 && !next(result));
    serac_result_close(result);
  }
  OK(serac_bind_text(find, 1, "12", 2));
  OK(serac_statement_execute(find, &result));
  CHECK(next(result) && serac_result_int64(result, 0) == 120);
  // The statement may end before its result.
  serac_statement_close(find);
  CHECK(!next(result));
  serac_result_close(result);
}

static void transactions(struct SeracDatabase *database, struct SeracConnection *con) {
  struct SeracConnection *other;
  OK(serac_connect(database, &other));
  enum SeracTransaction state;
  OK(serac_begin(con));
  FAILS("25001", serac_begin(con));
  OK(serac_execute(con, "UPDATE account SET balance = 1 WHERE id = 1", NULL));
  OK(serac_transaction(con, &state));
  CHECK(state == SERAC_TRANSACTION_OPEN);
  CHECK(number(other, "SELECT balance FROM account WHERE id = 1") == 10);
  OK(serac_commit(con));
  CHECK(number(other, "SELECT balance FROM account WHERE id = 1") == 1);
  OK(serac_begin(con));
  OK(serac_execute(con, "UPDATE account SET balance = 2 WHERE id = 1", NULL));
  FAILS("22012", serac_execute(con, "SELECT 1 / 0", NULL));
  OK(serac_transaction(con, &state));
  CHECK(state == SERAC_TRANSACTION_FAILED);
  FAILS("25P02", serac_commit(con));
  OK(serac_transaction(con, &state));
  CHECK(state == SERAC_TRANSACTION_IDLE);
  OK(serac_rollback(con));
  // What a closed connection has not committed is gone.
  OK(serac_begin(other));
  OK(serac_execute(other, "UPDATE account SET balance = 3 WHERE id = 1", NULL));
  OK(serac_connection_close(other));
  CHECK(number(con, "SELECT balance FROM account WHERE id = 1") == 1);
}

// The rows of a stream of Arrow.
static int64_t drain(struct ArrowArrayStream *stream) {
  int64_t rows = 0;
  for (;;) {
    struct ArrowArray array;
    CHECK(stream->get_next(stream, &array) == 0);
    if (array.release == NULL) break;
    rows += array.length;
    array.release(&array);
  }
  stream->release(stream);
  return rows;
}

// A stream whose rows are made by statements of the connection that reads them.
static int own_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
  struct ArrowArrayStream *inner = ((struct ArrowArrayStream **)stream->private_data)[0];
  return inner->get_schema(inner, out);
}

static int own_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
  struct SeracConnection *con = ((struct SeracConnection **)stream->private_data)[1];
  FAILS("55006", serac_execute(con, "SELECT 1", NULL));
  memset(out, 0, sizeof *out);
  return 0;
}

static const char *own_error(struct ArrowArrayStream *stream) { return stream ? NULL : ""; }
static void own_release(struct ArrowArrayStream *stream) { stream->release = NULL; }

static void streams_of_others(struct SeracDatabase *database, struct SeracConnection *con) {
  struct SeracConnection *other;
  struct ArrowArrayStream stream;
  uint64_t count;
  OK(serac_connect(database, &other));
  struct SeracResult *result = query(other, "SELECT i FROM generate_series(1, 300000) AS g (i)");
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  OK(serac_append(con, NULL, "others", SERAC_APPEND_CREATE, &stream, &count));
  CHECK(count == 300000);
  OK(serac_connection_close(other));

  result = query(con, "SELECT 1 AS i");
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  void *own[2] = {&stream, con};
  struct ArrowArrayStream reentrant = {own_schema, own_next, own_error, own_release, own};
  OK(serac_append(con, NULL, "others", SERAC_APPEND_EXISTING, &reentrant, &count));
  CHECK(count == 0 && reentrant.release == NULL);
  stream.release(&stream);
}

static void streams(struct SeracConnection *con) {
  const char *many = "SELECT i AS id, 'n' || i AS name FROM generate_series(1, 100000) AS g (i)";
  struct SeracResult *result = query(con, many);
  struct ArrowArrayStream stream, other;
  OK(serac_result_stream(result, &stream));
  FAILS("55000", serac_result_stream(result, &other));
  serac_result_close(result);
  struct ArrowSchema schema;
  CHECK(stream.get_schema(&stream, &schema) == 0);
  CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 2 && strcmp(schema.children[1]->name, "name") == 0);
  schema.release(&schema);
  // Other statements of the connection run while the stream is open.
  CHECK(number(con, "SELECT 1") == 1);
  CHECK(drain(&stream) == 100000);

  // Rows go from a result into a table, of the same connection as well.
  uint64_t count = 0;
  result = query(con, many);
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  FAILS("42P01", serac_append(con, NULL, "many", SERAC_APPEND_EXISTING, &stream, &count));
  CHECK(stream.release == NULL);
  for (int turn = 0; turn < 2; turn++) {
    result = query(con, many);
    OK(serac_result_stream(result, &stream));
    serac_result_close(result);
    OK(serac_append(con, "public", "many", SERAC_APPEND_CREATE_IF_MISSING, &stream, &count));
    CHECK(count == 100000 && stream.release == NULL);
  }
  CHECK(number(con, "SELECT count(*) FROM many") == 200000);
  result = query(con, many);
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  FAILS("42P07", serac_append(con, NULL, "many", SERAC_APPEND_CREATE, &stream, NULL));
  result = query(con, many);
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  FAILS("22023", serac_append(con, NULL, "many", 9, &stream, NULL));
  CHECK(stream.release == NULL);
  result = query(con, many);
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  OK(serac_append(con, NULL, "many", SERAC_APPEND_REPLACE, &stream, NULL));
  CHECK(number(con, "SELECT count(*) FROM many") == 100000);

  // An error in the middle of a query has its text.
  result = query(con, "SELECT 10 / (900000 - i) FROM generate_series(1, 1000000) AS g (i)");
  OK(serac_result_stream(result, &stream));
  serac_result_close(result);
  struct ArrowArray array;
  int code;
  while ((code = stream.get_next(&stream, &array)) == 0) array.release(&array);
  CHECK(strstr(stream.get_last_error(&stream), "22012") != NULL);
  stream.release(&stream);

  // Rows of which some were read one by one are not given as a stream.
  result = query(con, many);
  CHECK(next(result));
  FAILS("55000", serac_result_stream(result, &stream));
  serac_result_close(result);
}

struct cancelled {
  struct SeracConnection *con;
  atomic_bool ended;
};

static void *cancel(void *argument) {
  struct cancelled *own = argument;
  // Again and again: the first time the statement may not have begun.
  struct timespec pause = {0, 20000000};
  while (!atomic_load(&own->ended)) {
    OK(serac_cancel(own->con));
    nanosleep(&pause, NULL);
  }
  return NULL;
}

static void cancellation(struct SeracConnection *con) {
  struct cancelled own = {con, false};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cancel, &own) == 0);
  FAILS("57014", serac_execute(con, "SELECT sum(a.i * b.i % 7) FROM generate_series(1, 1000000) AS a (i), "
                                    "generate_series(1, 1000000) AS b (i)", NULL));
  atomic_store(&own.ended, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(number(con, "SELECT 5") == 5);
}

static void *add(void *argument) {
  for (int i = 0; i < 50; i++) {
    struct SeracError *error = serac_execute(argument, "UPDATE account SET balance = balance + 1 WHERE id = 2", NULL);
    OK(error);
  }
  return NULL;
}

// Several threads use one connection, one statement at a time.
static void threads(struct SeracConnection *con) {
  int64_t before = number(con, "SELECT balance FROM account WHERE id = 2");
  pthread_t running[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&running[i], NULL, add, con) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(running[i], NULL) == 0);
  CHECK(number(con, "SELECT balance FROM account WHERE id = 2") == before + 200);
}

// A folder may be opened several times, and keeps what was committed.
static void folders(const char *path) {
  struct SeracDatabase *database, *same;
  struct SeracConnection *con, *other;
  OK(serac_open(path, "durability=full threads=1", &database));
  OK(serac_connect(database, &con));
  OK(serac_execute(con, "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)", NULL));
  OK(serac_open(path, NULL, &same));
  FAILS("55006", serac_open(path, "durability=off", &(struct SeracDatabase *){NULL}));
  OK(serac_connect(same, &other));
  CHECK(number(other, "SELECT count(*) FROM t") == 2);
  struct SeracResult *left = query(other, "SELECT i FROM generate_series(1, 1000000) AS g (i)");
  CHECK(next(left));
  OK(serac_database_close(database));
  OK(serac_database_close(same));
  OK(serac_connection_close(con));
  OK(serac_connection_close(other));
  // The rest of the rows has ended with the connection.
  struct SeracError *error = NULL;
  bool has_row = true;
  while (error == NULL && has_row) error = serac_result_next(left, &has_row);
  CHECK(error != NULL && strcmp(serac_error_sqlstate(error), "08006") == 0);
  serac_error_free(error);
  serac_result_close(left);
  OK(serac_open(path, NULL, &database));
  OK(serac_connect(database, &con));
  CHECK(number(con, "SELECT sum(a) FROM t") == 3);
  OK(serac_connection_close(con));
  OK(serac_database_close(database));
}

// A child of the process cannot use its connections, and opens databases of its own.
static void forks(struct SeracConnection *con) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    FAILS("08P01", serac_execute(con, "SELECT 1", NULL));
    FAILS("08P01", serac_begin(con));
    struct SeracDatabase *database;
    struct SeracConnection *own;
    OK(serac_open(NULL, "threads=1", &database));
    OK(serac_connect(database, &own));
    CHECK(number(own, "SELECT 6") == 6);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(number(con, "SELECT 7") == 7);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  CHECK(strchr(serac_version(), '.') != NULL);
  struct SeracDatabase *database;
  struct SeracConnection *con;
  OK(serac_open(":memory:", "memory_limit=1000000000", &database));
  OK(serac_connect(database, &con));
  errors(con);
  values(con);
  points(con);
  transactions(database, con);
  streams(con);
  streams_of_others(database, con);
  cancellation(con);
  threads(con);
  forks(con);
  OK(serac_connection_close(con));
  OK(serac_database_close(database));
  folders(argv[1]);
  puts("all promises hold");
}

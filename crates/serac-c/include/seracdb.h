// libseracdb: SeracDB, an embedded database for transactions and analysis, in C.
//
// Ownership. What a function puts into an out-parameter belongs to the caller, who gives it back by
// the function of its kind that ends in `_close` or `_free`. These take NULL. Texts that a function
// returns belong to the object that they were asked of, and end with it or with its next row.
//
// Errors. A function that can fail returns NULL, or an error that the caller frees. Out-parameters
// are NULL then. A NULL where an object or a text is needed is an error (22004), not a crash.
//
// Threads. Databases and connections may be used from any thread. The statements of one connection
// run one after another; `serac_cancel` does not wait for them. A statement, a result, an error is
// used by one thread at a time. Calls block. After a fork the child opens databases of its own.
//
// Texts are UTF-8 and end with a zero byte; a text with a length may have zero bytes inside.

#ifndef SERACDB_H
#define SERACDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Arrow's C interface, as its specification defines it. Other headers may have defined it.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#endif

// The state of a connection's transaction.
enum SeracTransaction {
  // No transaction is open: each statement is one.
  SERAC_TRANSACTION_IDLE = 0,
  // A transaction is open.
  SERAC_TRANSACTION_OPEN = 1,
  // A statement of the open transaction has failed: it can only be rolled back.
  SERAC_TRANSACTION_FAILED = 2,
};

// How rows are appended to a table.
enum SeracAppend {
  // The rows are added to the table, which must be there.
  SERAC_APPEND_EXISTING = 0,
  // The table is made if it is not there.
  SERAC_APPEND_CREATE_IF_MISSING = 1,
  // The table is made, and must not be there.
  SERAC_APPEND_CREATE = 2,
  // The table is made anew.
  SERAC_APPEND_REPLACE = 3,
};

// A connection to a database.
struct SeracConnection;

// A database that is open.
struct SeracDatabase;

// The error of a function.
struct SeracError;

// The result of a statement.
struct SeracResult;

// A prepared statement, with the values of its parameters.
struct SeracStatement;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as `1.2.3`.
const char *serac_version(void);

// Opens the database in the folder `path`, or makes it. With NULL or `:memory:` it is a new one in
// memory, which ends with its last connection. A process may open a folder several times.
//
// `options`: NULL, or `name=value` with blanks between: `durability=full` (or `relaxed`, `off`),
// `memory_limit=BYTES`, `threads=NUMBER`.
struct SeracError *serac_open(const char *path,
                              const char *options,
                              struct SeracDatabase **database);

// Closes a database. Its connections stay, and with them the database. The last of them writes
// what the database owes to the disk; an error says that it could not. The pointer ends also then.
struct SeracError *serac_database_close(struct SeracDatabase *database);

// A new connection.
struct SeracError *serac_connect(const struct SeracDatabase *database,
                                 struct SeracConnection **connection);

// Closes a connection: its transaction is rolled back. Its statements and results must still be
// closed, and give errors until then. An error says that the database could not write what it owes
// to the disk. The pointer ends also then.
struct SeracError *serac_connection_close(struct SeracConnection *connection);

// Runs a text: one statement, or a script, of which the last result counts. `result` may be NULL
// if it is not wanted; then a query runs as far as its first rows.
struct SeracError *serac_execute(const struct SeracConnection *connection,
                                 const char *sql,
                                 struct SeracResult **result);

// Cancels the statement that another thread runs on the connection: it ends with an error (57014).
// Without one, nothing happens.
struct SeracError *serac_cancel(const struct SeracConnection *connection);

// Begins a transaction. In one it is an error (25001).
struct SeracError *serac_begin(const struct SeracConnection *connection);

// Commits the open transaction. Without one, nothing happens. If a statement of it has failed, it
// is rolled back, which is an error (25P02).
struct SeracError *serac_commit(const struct SeracConnection *connection);

// Rolls back the open transaction. Without one, nothing happens.
struct SeracError *serac_rollback(const struct SeracConnection *connection);

// Tells the state of the connection's transaction.
struct SeracError *serac_transaction(const struct SeracConnection *connection,
                                     enum SeracTransaction *transaction);

// Puts the rows of a stream of Arrow into a table, all of them or none. Columns are matched by
// their names. `schema` may be NULL: then the search path decides. `how` is a value of
// `SeracAppend`. `count`, which may be NULL, gets the number of rows.
//
// The stream is moved into the call, also if it fails: its `release` is NULL afterwards.
struct SeracError *serac_append(const struct SeracConnection *connection,
                                const char *schema,
                                const char *table,
                                uint32_t how,
                                struct ArrowArrayStream *rows,
                                uint64_t *count);

// The five characters of the error's SQLSTATE.
const char *serac_error_sqlstate(const struct SeracError *error);

// The error's message.
const char *serac_error_message(const struct SeracError *error);

// More about the error; NULL if there is no more.
const char *serac_error_detail(const struct SeracError *error);

// The line of the statement's text that the error is about, from 1; 0 if that is not known.
uint32_t serac_error_line(const struct SeracError *error);

// The column of that line, in characters from 1; 0 if that is not known.
uint32_t serac_error_column(const struct SeracError *error);

// Frees an error.
void serac_error_free(struct SeracError *error);

// The rows that a statement without rows has changed.
uint64_t serac_result_changed(const struct SeracResult *result);

// Whether the statement gives rows. There may be none of them.
bool serac_result_has_rows(const struct SeracResult *result);

// The number of columns; 0 without rows.
size_t serac_result_column_count(const struct SeracResult *result);

// The name of a column, from 0; NULL if there is no such column.
const char *serac_result_column_name(const struct SeracResult *result, size_t column);

// Takes all rows that are left as a stream of Arrow. The stream belongs to the caller, and stays
// when the result is closed. Rows that have not come when the connection is closed are an error.
// The values of NUMERIC without digits are texts.
struct SeracError *serac_result_stream(struct SeracResult *result, struct ArrowArrayStream *stream);

// Moves to the next row, at first to the first one. `has_row` tells whether there is one. The
// values of the row before, and their texts, end.
struct SeracError *serac_result_next(struct SeracResult *result, bool *has_row);

// Whether the value of a column, from 0, is NULL in the present row; true where there is none.
bool serac_result_is_null(const struct SeracResult *result, size_t column);

// The value of a column, from 0, as an integer: that of integers and truth values, days since
// 1970-01-01 of a date, microseconds of times; 0 for others.
int64_t serac_result_int64(const struct SeracResult *result, size_t column);

// The value of a column, from 0, as a floating-point number: that of numbers; 0 for others.
double serac_result_double(struct SeracResult *result, size_t column);

// The value of a column, from 0, as SQL writes it, whatever its type is; NULL for NULL, and where
// there is none. `length`, which may be NULL, gets its bytes without the zero byte at the end.
const char *serac_result_text(struct SeracResult *result, size_t column, size_t *length);

// The bytes of a column of BYTEA or of texts, from 0; NULL for NULL, and for other types. `length`
// gets their number.
const uint8_t *serac_result_bytes(const struct SeracResult *result, size_t column, size_t *length);

// Closes a result. A query of which rows are left ends.
void serac_result_close(struct SeracResult *result);

// Prepares one statement. Its parameters are written `$1`, `?` or `:name`. On keys it runs without
// planning.
struct SeracError *serac_prepare(const struct SeracConnection *connection,
                                 const char *sql,
                                 struct SeracStatement **statement);

// The number of a statement's parameters.
size_t serac_statement_parameter_count(const struct SeracStatement *statement);

// Binds NULL to a parameter, from 1. Before its first value a parameter is NULL.
struct SeracError *serac_bind_null(struct SeracStatement *statement, size_t parameter);

// Binds a truth value to a parameter, from 1.
struct SeracError *serac_bind_bool(struct SeracStatement *statement, size_t parameter, bool value);

// Binds an integer to a parameter, from 1. As a constant in a text it is of type INTEGER if it has
// room there, and of type BIGINT if not.
struct SeracError *serac_bind_int64(struct SeracStatement *statement,
                                    size_t parameter,
                                    int64_t value);

// Binds a floating-point number to a parameter, from 1.
struct SeracError *serac_bind_double(struct SeracStatement *statement,
                                     size_t parameter,
                                     double value);

// Binds a text of `length` bytes to a parameter, from 1. It becomes a value of the type that its
// place needs: numbers with decimals, dates, times, UUIDs, documents are bound as their texts.
struct SeracError *serac_bind_text(struct SeracStatement *statement,
                                   size_t parameter,
                                   const char *value,
                                   size_t length);

// Binds `length` bytes to a parameter, from 1.
struct SeracError *serac_bind_bytes(struct SeracStatement *statement,
                                    size_t parameter,
                                    const uint8_t *value,
                                    size_t length);

// Runs the statement with the values that its parameters have, which it keeps. `result` may be
// NULL.
struct SeracError *serac_statement_execute(struct SeracStatement *statement,
                                           struct SeracResult **result);

// Closes a statement. Its results stay.
void serac_statement_close(struct SeracStatement *statement);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SERACDB_H */

// SeracDB in C: a transaction by a prepared statement, and a query whose rows are read one by one.
//
//   cc sample.c -I../include -L../../../target/release -lseracdb -o sample

#include "seracdb.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ends the program if a call has failed.
static void check(struct SeracError *error) {
  if (error == NULL) return;
  fprintf(stderr, "%s at %u:%u: %s\n", serac_error_sqlstate(error), serac_error_line(error),
          serac_error_column(error), serac_error_message(error));
  serac_error_free(error);
  exit(1);
}

int main(int argc, char **argv) {
  struct SeracDatabase *database;
  struct SeracConnection *con;
  check(serac_open(argc > 1 ? argv[1] : NULL, NULL, &database));
  check(serac_connect(database, &con));
  check(serac_execute(con, "CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(10, 2))", NULL));

  const char *items[][2] = {{"pen", "1.20"}, {"book", "14.00"}, {"lamp", "39.90"}};
  struct SeracStatement *insert;
  check(serac_prepare(con, "INSERT INTO item VALUES ($1, $2, $3)", &insert));
  check(serac_begin(con));
  for (int i = 0; i < 3; i++) {
    check(serac_bind_int64(insert, 1, i + 1));
    check(serac_bind_text(insert, 2, items[i][0], strlen(items[i][0])));
    check(serac_bind_text(insert, 3, items[i][1], strlen(items[i][1])));
    check(serac_statement_execute(insert, NULL));
  }
  check(serac_commit(con));
  serac_statement_close(insert);

  struct SeracResult *result;
  bool has_row;
  check(serac_execute(con, "SELECT id, name, price FROM item WHERE price < 20 ORDER BY id", &result));
  for (check(serac_result_next(result, &has_row)); has_row; check(serac_result_next(result, &has_row)))
    printf("%lld %s %s\n", (long long)serac_result_int64(result, 0), serac_result_text(result, 1, NULL),
           serac_result_text(result, 2, NULL));
  serac_result_close(result);
  check(serac_connection_close(con));
  check(serac_database_close(database));
}

// SeracDB in Go, by cgo: a transaction by a prepared statement, and a query.
//
//	CGO_CFLAGS=-I../../include CGO_LDFLAGS="-L../../../../target/release -lseracdb" go run .
package main

/*
#include <stdlib.h>
#include "seracdb.h"
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// check ends the program if a call has failed.
func check(err *C.struct_SeracError) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, C.GoString(C.serac_error_sqlstate(err)), C.GoString(C.serac_error_message(err)))
	C.serac_error_free(err)
	os.Exit(1)
}

// text is a text of C, which lives until the program ends.
func text(value string) *C.char { return C.CString(value) }

func main() {
	var path *C.char
	if len(os.Args) > 1 {
		path = text(os.Args[1])
	}
	var database *C.struct_SeracDatabase
	var con *C.struct_SeracConnection
	check(C.serac_open(path, nil, &database))
	check(C.serac_connect(database, &con))
	check(C.serac_execute(con, text("CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(10, 2))"), nil))

	var insert *C.struct_SeracStatement
	check(C.serac_prepare(con, text("INSERT INTO item VALUES ($1, $2, $3)"), &insert))
	check(C.serac_begin(con))
	for i, item := range [][2]string{{"pen", "1.20"}, {"book", "14.00"}, {"lamp", "39.90"}} {
		check(C.serac_bind_int64(insert, 1, C.int64_t(i+1)))
		for column, value := range item {
			bytes := text(value)
			check(C.serac_bind_text(insert, C.size_t(column+2), bytes, C.size_t(len(value))))
			C.free(unsafe.Pointer(bytes))
		}
		check(C.serac_statement_execute(insert, nil))
	}
	check(C.serac_commit(con))
	C.serac_statement_close(insert)

	var result *C.struct_SeracResult
	var row C.bool
	check(C.serac_execute(con, text("SELECT id, name, price FROM item WHERE price < 20 ORDER BY id"), &result))
	for check(C.serac_result_next(result, &row)); bool(row); check(C.serac_result_next(result, &row)) {
		name, price := C.GoString(C.serac_result_text(result, 1, nil)), C.GoString(C.serac_result_text(result, 2, nil))
		fmt.Println(int64(C.serac_result_int64(result, 0)), name, price)
	}
	C.serac_result_close(result)
	check(C.serac_connection_close(con))
	check(C.serac_database_close(database))
}

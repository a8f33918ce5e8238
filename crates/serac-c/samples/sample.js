// SeracDB in Node, by koffi: a transaction by a prepared statement, and a query.
//
//   npm install koffi && SERACDB=target/release/libseracdb.so node sample.js

const koffi = require('koffi');
const lib = koffi.load(process.env.SERACDB || 'libseracdb.so');
for (const name of ['Error', 'Database', 'Connection', 'Statement', 'Result']) koffi.opaque(`Serac${name}`);
const made = (type) => `_Out_ Serac${type} **`;
const call = (name, ...parameters) => {
  const run = lib.func(name, 'SeracError *', parameters);
  return (...values) => check(run(...values));
};
const [sqlstate, message] = ['sqlstate', 'message'].map((part) =>
  lib.func(`serac_error_${part}`, 'const char *', ['SeracError *']));
const freeError = lib.func('serac_error_free', 'void', ['SeracError *']);

function check(error) {
  if (!error) return;
  const thrown = Object.assign(new Error(message(error)), { sqlstate: sqlstate(error) });
  freeError(error);
  throw thrown;
}

const open = call('serac_open', 'str', 'str', made('Database'));
const connect = call('serac_connect', 'SeracDatabase *', made('Connection'));
const execute = call('serac_execute', 'SeracConnection *', 'str', made('Result'));
const begin = call('serac_begin', 'SeracConnection *');
const commit = call('serac_commit', 'SeracConnection *');
const prepare = call('serac_prepare', 'SeracConnection *', 'str', made('Statement'));
const bindInt = call('serac_bind_int64', 'SeracStatement *', 'size_t', 'int64_t');
const bindText = call('serac_bind_text', 'SeracStatement *', 'size_t', 'str', 'size_t');
const run = call('serac_statement_execute', 'SeracStatement *', made('Result'));
const next = call('serac_result_next', 'SeracResult *', '_Out_ bool *');
const text = lib.func('serac_result_text', 'const char *', ['SeracResult *', 'size_t', 'size_t *']);
const width = lib.func('serac_result_column_count', 'size_t', ['SeracResult *']);
const end = (type) => lib.func(`serac_${type.toLowerCase()}_close`, 'void', [`Serac${type} *`]);
const close = (type) => call(`serac_${type.toLowerCase()}_close`, `Serac${type} *`);

// The object that a function puts into its last parameter.
const object = (run, ...values) => { const out = [null]; run(...values, out); return out[0]; };

const database = object(open, process.argv[2] || null, null);
const con = object(connect, database);
execute(con, 'CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(10, 2))', null);
const insert = object(prepare, con, 'INSERT INTO item VALUES ($1, $2, $3)');
begin(con);
[['pen', '1.20'], ['book', '14.00'], ['lamp', '39.90']].forEach((values, at) => {
  bindInt(insert, 1, at + 1);
  values.forEach((value, column) => bindText(insert, column + 2, value, Buffer.byteLength(value)));
  run(insert, null);
});
commit(con);
end('Statement')(insert);

const result = object(execute, con, 'SELECT id, name, price FROM item WHERE price < 20 ORDER BY id');
for (const row = [false]; next(result, row), row[0];) {
  console.log(Array.from({ length: width(result) }, (_, column) => text(result, column, null)).join(' '));
}
end('Result')(result);
try {
  execute(con, 'SELECT 1 / 0', null);
} catch (error) {
  console.log(error.sqlstate, error.message);
}
close('Connection')(con);
close('Database')(database);

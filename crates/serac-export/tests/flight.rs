//! Tables over Flight: the rows are those of SQL, all endpoints of a flight read one snapshot, and
//! a refused request gets its reason.

mod common;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_cast::cast;
use arrow_flight::error::FlightError;
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelStatus, FlightClient, FlightDescriptor, FlightEndpoint, FlightInfo,
    RenewFlightEndpointRequest, Ticket,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use common::*;
use futures::{StreamExt, TryStreamExt};
use serac_client::flight::{FlightEstimates, HOLD, HeldSnapshot};
use serac_export::flight::{FlightOptions, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::{Code, Status};

fn status(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => panic!("{other:?} is no status"),
    }
}

/// The batch with its columns in these types.
fn cast_to(batch: &RecordBatch, map: impl Fn(&DataType) -> DataType) -> RecordBatch {
    let schema = batch.schema();
    let fields: Vec<Field> =
        schema.fields().iter().map(|f| f.as_ref().clone().with_data_type(map(f.data_type()))).collect();
    let arrays: Vec<ArrayRef> =
        batch.columns().iter().zip(&fields).map(|(a, f)| cast(a, f.data_type()).unwrap()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_types_arrive_as_sql_sees_them_from_hot_and_frozen_blocks() {
    let db = database();
    execute(&db, EVERY).await;
    let served = serve(&db, FlightOptions { blocks_per_endpoint: 2, ..FlightOptions::default() }).await;
    let mut client = served.client().await;
    for step in [
        "empty",
        "hot",
        "frozen",
        "mixed",
        "frozen as utf8",
        "mixed again",
        "frozen as dictionary",
        "mixed once more",
        "frozen as compact",
        "mixed at last",
    ] {
        match step {
            "empty" => {}
            "hot" => {
                insert(&db, "every", &every(0..20_000));
                execute(&db, "UPDATE every SET x = 'changed to something long', n = 1.5 WHERE id % 10 = 3").await;
            }
            "frozen" => freeze(&db, "every"),
            "frozen as utf8" | "frozen as dictionary" | "frozen as compact" => {
                let format = step.rsplit(' ').next().unwrap();
                execute(&db, &format!("ALTER TABLE every SET (freeze_format = '{format}')")).await;
                freeze(&db, "every");
            }
            "mixed again" => {
                execute(&db, "UPDATE every SET w = 'a word that is not in the dictionary' WHERE id = 12000").await
            }
            "mixed once more" => execute(&db, "UPDATE every SET w = NULL WHERE id = 13000").await,
            "mixed at last" => execute(&db, "DELETE FROM every WHERE id % 1000 = 8 AND id > 20000").await,
            _ => {
                insert(&db, "every", &every(20_000..30_000));
                execute(&db, "DELETE FROM every WHERE id % 100 = 7; UPDATE every SET v = NULL WHERE id = 12000").await;
            }
        }
        let sql = query(&db, "SELECT * FROM every ORDER BY id").await;
        let info = client.get_flight_info(FlightDescriptor::new_path(vec!["every".into()])).await.unwrap();
        assert_eq!(info.endpoint.len() > 1, step != "empty");
        let batches = fetch(&mut client, &info).await;
        batches.iter().flat_map(RecordBatch::columns).for_each(|c| c.to_data().validate_full().unwrap());
        if step == "empty" {
            assert!(batches.is_empty());
            let schema = client.get_schema(FlightDescriptor::new_path(vec!["every".into()])).await.unwrap();
            // Any column of a query may be NULL, and tells from which column of a table it comes.
            let of_query = |schema: &Schema| -> Vec<Field> {
                let field = |field: &Arc<Field>| {
                    let mut field = field.as_ref().clone().with_nullable(true);
                    field.metadata_mut().remove("postgresql.column");
                    field
                };
                schema.fields().iter().map(field).collect()
            };
            assert_eq!(of_query(&schema), of_query(&sql.schema()));
            assert_eq!(of_query(&info.clone().try_decode_schema().unwrap()), of_query(&sql.schema()));
            release(&mut client, info).await;
            continue;
        }
        let received = sorted(&batches);
        assert_eq!(received.columns(), sql.columns(), "{step}");
        release(&mut client, info).await;
        // Only the bytes that the rows need are sent, no overwritten ones.
        for batch in &batches {
            let x = batch.column_by_name("x").unwrap().as_string_view();
            let needed: usize = x.iter().flatten().map(str::len).filter(|&len| len > 12).sum();
            assert_eq!(x.data_buffers().iter().map(|b| b.len()).sum::<usize>(), needed, "{step}");
        }
        // The other forms, for any form of the blocks.
        for strings in ["utf8", "dictionary"] {
            let request = format!(r#"{{"table": "every", "decimals": "decimal64", "strings": "{strings}"}}"#);
            let info = client.get_flight_info(command(&request)).await.unwrap();
            let received = sorted(&fetch(&mut client, &info).await);
            release(&mut client, info).await;
            let offsets = |data_type: &DataType| match data_type {
                DataType::Decimal128(p, s) if *p <= 18 => DataType::Decimal64(*p, *s),
                DataType::Utf8View => DataType::Utf8,
                DataType::BinaryView => DataType::Binary,
                other => other.clone(),
            };
            let dictionary = |words: DataType| DataType::Dictionary(Box::new(DataType::UInt16), Box::new(words));
            let field = received.schema().field_with_name("w").unwrap().data_type().clone();
            assert_eq!(field, if strings == "utf8" { DataType::Utf8 } else { dictionary(DataType::Utf8) });
            let received = cast_to(&received, |data_type| match data_type {
                DataType::Dictionary(_, words) => words.as_ref().clone(),
                other => other.clone(),
            });
            assert_eq!(received.columns(), cast_to(&sql, offsets).columns(), "{step}, {strings}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_and_filters_are_those_of_the_request() {
    let db = database();
    execute(&db, EVERY).await;
    insert(&db, "every", &every(0..20_000));
    freeze(&db, "every");
    insert(&db, "every", &every(20_000..25_000));
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    let path = FlightDescriptor::new_path(["public", "every", "x, id"].map(String::from).to_vec());
    let info = client.get_flight_info(path).await.unwrap();
    let batches = fetch(&mut client, &info).await;
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 25_000);
    assert_eq!(batches[0].schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["x", "id"]);
    for (filter, sql) in [
        (r#"["id", ">=", 19990]"#, "id >= 19990"),
        (r#"["id", "<", 100], ["b", "=", true]"#, "id < 100 AND b"),
        (r#"["x", "=", "a text that is long, of row 17001 ü"]"#, "x = 'a text that is long, of row 17001 ü'"),
        (r#"["n", "<=", "-4999.999"], ["i", "!=", -3]"#, "n <= -4999.999 AND i <> -3"),
        (r#"["dt", ">", "2010-01-01"]"#, "dt > '2010-01-01'"),
        (r#"["tz", "<", "1970-01-01T00:10:00Z"]"#, "tz < '1970-01-01T00:10:00Z'"),
        (r#"["big", ">", 400000000000000]"#, "big > 400000000000000"),
        (r#"["d", ">", 8000.25]"#, "d > 8000.25"),
        (r#"["id", "=", null]"#, "id = NULL"),
        (r#"["id", "in", [20001, null, 5, 17, 5]]"#, "id IN (5, 17, 20001)"),
        (r#"["id", "in", [30000, 40000]]"#, "id IN (30000, 40000)"),
        (r#"["id", "in", []], ["id", "in", [null]]"#, "false"),
        (r#"["id", "in", [7]]"#, "id = 7"),
        (r#"["s", "in", [-28999, 3]], ["b", "in", [false, null]]"#, "s IN (-28999, 3) AND NOT b"),
        (
            r#"["x", "in", ["a text that is long, of row 17001 ü", "none"]]"#,
            "x IN ('a text that is long, of row 17001 ü', 'none')",
        ),
        (r#"["n", "in", ["-4998.999", 1, "4.5"]]"#, "n IN (-4998.999, 1, 4.5)"),
        (r#"["dt", "in", ["2010-01-01", "2010-01-02"]]"#, "dt IN ('2010-01-01', '2010-01-02')"),
        (
            r#"["tz", "in", ["1970-01-01T00:10:00Z", "1970-01-01T00:00:01Z"]]"#,
            "tz IN ('1970-01-01T00:10:00Z', '1970-01-01T00:00:01Z')",
        ),
        (r#"["r", "in", [14, "0.14285715", 1e30]]"#, "r IN (14, 0.14285715, 1e30)"),
        (r#"["b", "in", [false, true]], ["id", "<", 50]"#, "b IS NOT NULL AND id < 50"),
        (
            r#"["d", "in", [8000.25, 1, 2.5]], ["big", "in", [400000000000000, 0]]"#,
            "d IN (8000.25, 1, 2.5) AND big IN (400000000000000, 0)",
        ),
    ] {
        let request = format!(r#"{{"table": "every", "columns": ["id"], "filter": [{filter}]}}"#);
        let info = client.get_flight_info(command(&request)).await.unwrap();
        let batches = fetch(&mut client, &info).await;
        let expected = query(&db, &format!("SELECT id FROM every WHERE {sql} ORDER BY id")).await;
        if expected.num_rows() == 0 {
            assert!(batches.is_empty(), "{filter}");
        } else {
            assert_eq!(sorted(&batches).columns(), expected.columns(), "{filter}");
        }
    }
    // No columns: rows all the same.
    let info = client.get_flight_info(command(r#"{"table": "every", "columns": []}"#)).await.unwrap();
    let batches = fetch(&mut client, &info).await;
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 25_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_endpoints_of_a_flight_read_one_snapshot_beside_writers() {
    let db = database();
    execute(&db, "CREATE TABLE account (id BIGINT NOT NULL, balance BIGINT NOT NULL, note TEXT)").await;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
    let balances: ArrayRef = Arc::new(Int64Array::from(vec![10; 100_000]));
    let notes: ArrayRef = Arc::new(StringViewArray::from(vec!["a note that is not inline"; 100_000]));
    insert(&db, "account", &RecordBatch::try_from_iter([("id", ids), ("balance", balances), ("note", notes)]).unwrap());
    freeze(&db, "account");
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (db, stop) = (db.clone(), stop.clone());
        tokio::spawn(async move {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                // Money goes from the first block to the last; rows come and go, in pairs that sum
                // to nothing.
                let (from, to) = (rounds * 37 % 1000, 99_000 + rounds * 41 % 1000);
                let new = 200_000 + 2 * rounds;
                execute(
                    &db,
                    &format!(
                        "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = {from};
                         UPDATE account SET balance = balance + 1 WHERE id = {to};
                         INSERT INTO account VALUES ({new}, -7, 'came later'), ({new} + 1, 7, 'came later'); COMMIT"
                    ),
                )
                .await;
                rounds += 1;
            }
            rounds
        })
    };
    let request = r#"{"table": "account", "columns": ["id", "balance"], "endpoints": 4}"#;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let info = client.get_flight_info(command(request)).await.unwrap();
        assert_eq!(info.endpoint.len(), 4);
        let mut rows = Vec::new();
        for endpoint in info.endpoint.iter().rev() {
            // Fetched in turn, while the writer goes on.
            tokio::time::sleep(Duration::from_millis(30)).await;
            let ticket = endpoint.ticket.clone().unwrap();
            rows.extend(client.do_get(ticket).await.unwrap().try_collect::<Vec<_>>().await.unwrap());
        }
        let all = sorted(&rows);
        let sum: i64 = all.column(1).as_primitive::<Int64Type>().values().iter().sum();
        assert_eq!(sum, 1_000_000);
        assert!(all.num_rows().is_multiple_of(2), "pairs come together");
        // The same tickets again: the same rows.
        assert_eq!(sorted(&fetch(&mut client, &info).await), all);
        seen.push(all.num_rows());
    }
    assert!(seen.is_sorted() && seen[0] < seen[4], "{seen:?}");
    // A stream without a held snapshot sees later changes.
    let latest = r#"{"table": "account", "columns": ["id"], "snapshot": "latest", "endpoints": 3}"#;
    let info = client.get_flight_info(command(latest)).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let rounds = writer.await.unwrap();
    assert!(rounds > 5);
    let rows: usize = fetch(&mut client, &info).await.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 100_000 + 2 * rounds as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_held_for_a_bounded_time_unless_they_are_renewed() {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)").await;
    let lease = Duration::from_millis(1500);
    let served = serve(&db, FlightOptions { lease, max_leases: 2, ..FlightOptions::default() }).await;
    let mut client = served.client().await;
    let path = || FlightDescriptor::new_path(vec!["t".into()]);
    let info = client.get_flight_info(path()).await.unwrap();
    let renewed = client.get_flight_info(path()).await.unwrap();
    let error = status(client.get_flight_info(path()).await.unwrap_err());
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("holds 2 snapshots"), "{error}");
    execute(&db, "UPDATE t SET id = 2").await;
    for _ in 0..6 {
        tokio::time::sleep(lease / 4).await;
        let request = RenewFlightEndpointRequest::new(renewed.endpoint[0].clone());
        let endpoint = client.renew_flight_endpoint(request).await.unwrap();
        assert!(endpoint.expiration_time.unwrap().seconds >= renewed.endpoint[0].expiration_time.unwrap().seconds);
    }
    let error = status(client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap_err());
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("not held any more") && error.message().contains("1.5 seconds"), "{error}");
    let batches = fetch(&mut client, &renewed).await;
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(db.database().storage().manager().active_count(), 1, "the renewed snapshot");
    let cancelled = client.cancel_flight_info(CancelFlightInfoRequest::new(renewed.clone())).await.unwrap();
    assert_eq!(cancelled.status(), CancelStatus::Cancelled);
    assert_eq!(db.database().storage().manager().active_count(), 0);
    let again = client.cancel_flight_info(CancelFlightInfoRequest::new(renewed)).await.unwrap();
    assert_eq!(again.status(), CancelStatus::NotCancellable);
    // The sweeper works without a request.
    client.get_flight_info(path()).await.unwrap();
    assert_eq!(db.database().storage().manager().active_count(), 1);
    tokio::time::sleep(lease * 2).await;
    assert_eq!(db.database().storage().manager().active_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_name_the_locations_that_the_server_was_given() {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)").await;
    let given = ["grpc://db.example:8815", "arrow-flight-reuse-connection://?"].map(str::to_owned);
    for locations in [Vec::new(), given.to_vec()] {
        let served = serve(&db, FlightOptions { locations: locations.clone(), ..FlightOptions::default() }).await;
        let mut client = served.client().await;
        for snapshot in ["held", "latest"] {
            let command = format!(r#"{{"table": "t", "snapshot": "{snapshot}"}}"#);
            let info = client.get_flight_info(FlightDescriptor::new_cmd(command)).await.unwrap();
            let named = info.endpoint[0].location.iter().map(|location| location.uri.clone());
            assert_eq!(named.collect::<Vec<_>>(), locations);
        }
    }
}

/// Holds a snapshot of all tables.
async fn hold(client: &mut FlightClient) -> HeldSnapshot {
    let results: Vec<_> = client.do_action(Action::new(HOLD, "")).await.unwrap().try_collect().await.unwrap();
    serde_json::from_slice(&results[0]).unwrap()
}

/// The endpoint of all that is held under a number.
fn of_lease(lease: u64) -> FlightEndpoint {
    FlightEndpoint::new().with_ticket(Ticket::new(format!(r#"{{"lease": {lease}}}"#)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_snapshot_is_that_of_all_tables() {
    let db = database();
    execute(&db, "CREATE TABLE one (n BIGINT); CREATE TABLE two (n BIGINT); CREATE TABLE gone (n BIGINT)").await;
    execute(&db, "INSERT INTO one VALUES (1); INSERT INTO two VALUES (2); INSERT INTO gone VALUES (3)").await;
    let lease = Duration::from_secs(2);
    let served = serve(&db, FlightOptions { lease, max_leases: 2, ..FlightOptions::default() }).await;
    let mut client = served.client().await;
    let held = hold(&mut client).await;
    assert_eq!(held.seconds, 2.0);
    execute(&db, "BEGIN; UPDATE one SET n = 10; UPDATE two SET n = 20; COMMIT; DROP TABLE gone").await;
    for _ in 0..4 {
        tokio::time::sleep(lease / 3).await;
        client.renew_flight_endpoint(RenewFlightEndpointRequest::new(of_lease(held.lease))).await.unwrap();
    }
    for (table, number) in [("one", 1), ("two", 2), ("gone", 3)] {
        let command = command(&format!(r#"{{"table": "{table}", "snapshot": {{"lease": {}}}}}"#, held.lease));
        client.get_schema(command.clone()).await.unwrap();
        let info = client.get_flight_info(command).await.unwrap();
        assert!(info.endpoint[0].expiration_time.is_some());
        let estimates: FlightEstimates = serde_json::from_slice(&info.app_metadata).unwrap();
        assert_eq!((estimates.rows, estimates.distinct.len()), (1, 1));
        let batches = fetch(&mut client, &info).await;
        assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), number);
        // A ticket of the lease renews it, too.
        client.renew_flight_endpoint(RenewFlightEndpointRequest::new(info.endpoint[0].clone())).await.unwrap();
    }
    // A number alone names no rows.
    let error = status(client.do_get(of_lease(held.lease).ticket.unwrap()).await.unwrap_err());
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("no table"), "{error}");
    let other = hold(&mut client).await;
    let error = status(client.do_action(Action::new(HOLD, "")).await.map(|_| ()).unwrap_err());
    assert_eq!(error.code(), Code::ResourceExhausted);
    for lease in [held.lease, other.lease] {
        release(&mut client, FlightInfo::new().with_endpoint(of_lease(lease))).await;
    }
    assert_eq!(db.database().storage().manager().active_count(), 0);
    let ticket = format!(r#"{{"request": {{"table": "one", "snapshot": {{"lease": {}}}}}}}"#, held.lease);
    let error = status(client.do_get(Ticket::new(ticket)).await.unwrap_err());
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_gives_its_rows_every_time_in_one_order() {
    let db = database();
    execute(&db, EVERY).await;
    insert(&db, "every", &every(0..30_000));
    execute(&db, "DELETE FROM every WHERE id % 3 = 1").await;
    db.database().storage().run_gc();
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    let held = hold(&mut client).await;
    let ticket = |more: &str| {
        Ticket::new(format!(
            r#"{{"request": {{"table": "every", "columns": ["id", "x"], "snapshot": {{"lease": {}}}{more}}}}}"#,
            held.lease
        ))
    };
    let mut rows = async |more: &str| {
        let stream = client.do_get(ticket(more)).await.unwrap();
        let batches: Vec<_> = stream.try_collect().await.unwrap();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    };
    let filter = r#", "filter": [["i", "<>", 4]]"#;
    let (all, some) = (rows("").await, rows(filter).await);
    assert!(all.num_rows() == 20_000 && some.num_rows() < 20_000);
    let data = table(&db, "every").data.clone();
    for step in ["moved", "frozen", "changed", "frozen again"] {
        match step {
            "changed" => {
                execute(
                    &db,
                    "UPDATE every SET x = 'other', i = 4 WHERE id % 7 = 0; DELETE FROM every WHERE id % 5 = 0",
                )
                .await;
                insert(&db, "every", &every(30_000..40_000));
            }
            "moved" => {
                let moved = db.database().storage().compact_table(&data).unwrap().moved;
                assert!(moved > 100, "{moved} rows are moved");
            }
            // As far as the snapshot lets blocks freeze.
            _ => {
                db.database().storage().freeze_table(&data, Duration::from_millis(200));
            }
        }
        assert_eq!(rows("").await, all, "{step}");
        assert_eq!(rows(filter).await, some, "{step}");
        for limit in [1, 7_000, 50_000] {
            let first = rows(&format!(r#", "limit": {limit}"#)).await;
            assert_eq!(first, all.slice(0, limit.min(all.num_rows())), "{step}");
        }
        let both = format!(r#"{filter}, "limit": 10"#);
        assert_eq!(rows(&both).await, some.slice(0, 10), "{step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_answered_says_why() {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT, note TEXT, n NUMERIC)").await;
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    let path = |names: &[&str]| FlightDescriptor::new_path(names.iter().map(|n| n.to_string()).collect());
    for (descriptor, code, message) in [
        (path(&["nothing"]), Code::NotFound, "relation \"nothing\" does not exist"),
        (path(&["other", "t"]), Code::NotFound, "schema \"other\" does not exist"),
        (path(&["public", "t", "id,nix"]), Code::NotFound, "column \"nix\" does not exist"),
        (path(&["public", "t", "id,note,id"]), Code::InvalidArgument, "column \"id\" is named twice"),
        (path(&[]), Code::InvalidArgument, "a flight is named by"),
        (path(&["a", "b", "c", "d"]), Code::InvalidArgument, "a flight is named by"),
        (command("{"), Code::InvalidArgument, "the command cannot be read"),
        (command(r#"{"table": "t", "colums": ["id"]}"#), Code::InvalidArgument, "unknown field `colums`"),
        (
            command(r#"{"table": "t", "filter": [["id", "~", 1]]}"#),
            Code::InvalidArgument,
            "\"~\" is none of the operators",
        ),
        (
            command(r#"{"table": "t", "filter": [["id", "in", 1]]}"#),
            Code::InvalidArgument,
            "\"in\" takes a list of constants",
        ),
        (
            command(&format!(r#"{{"table": "t", "filter": [["id", "in", {:?}]]}}"#, vec![1; 10_001])),
            Code::InvalidArgument,
            "takes at most 10000 constants, not 10001",
        ),
        (
            command(&format!(r#"{{"table": "t", "filter": {:?}}}"#, vec![["id", "=", "1"]; 1_001])),
            Code::InvalidArgument,
            "a request has at most 1000 conditions, not 1001",
        ),
        (command(r#"{"table": "t", "snapshot": {"lease": 5}}"#), Code::NotFound, "not held any more"),
        (command(r#"{"table": "t", "filter": [["id", "=", "x"]]}"#), Code::InvalidArgument, "column \"id\": "),
        (
            command(r#"{"table": "t", "filter": [["n", "<", 2.5]]}"#),
            Code::InvalidArgument,
            "no condition compares NUMERIC without a precision",
        ),
        (command(r#"{"table": "t", "filter": [["nix", "=", 1]]}"#), Code::NotFound, "column \"nix\" does not exist"),
    ] {
        let error = status(client.get_flight_info(descriptor.clone()).await.unwrap_err());
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(message), "{error}");
        assert_eq!(status(client.get_schema(descriptor).await.unwrap_err()).message(), error.message());
    }
    let error = status(client.do_get(Ticket::new("nonsense")).await.unwrap_err());
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("no ticket of this server"), "{error}");
    let error = status(client.do_get(Ticket::new(r#"{"lease": 5}"#)).await.unwrap_err());
    assert_eq!(error.code(), Code::NotFound);
    let error = status(client.handshake("me").await.unwrap_err());
    assert_eq!(error.code(), Code::Unimplemented);
    // A table that is dropped under its tickets: a held snapshot is still read, and otherwise the
    // table is gone.
    let held = client.get_flight_info(path(&["t"])).await.unwrap();
    let latest = client.get_flight_info(command(r#"{"table": "t", "snapshot": "latest"}"#)).await.unwrap();
    execute(&db, "DROP TABLE t").await;
    assert!(fetch(&mut client, &held).await.is_empty());
    let error = status(client.do_get(latest.endpoint[0].ticket.clone().unwrap()).await.unwrap_err());
    assert_eq!((error.code(), error.message()), (Code::NotFound, "relation \"t\" does not exist"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flights_are_listed_and_read_the_latest_state() {
    let db = database();
    execute(
        &db,
        "CREATE TABLE one (a INTEGER); CREATE TABLE two (b TEXT); CREATE SCHEMA s; CREATE TABLE s.three (c DATE)",
    )
    .await;
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    let mut listed = async |criteria: &'static str| -> Vec<_> {
        client.list_flights(criteria).await.unwrap().try_collect::<Vec<_>>().await.unwrap()
    };
    let names = |infos: &[arrow_flight::FlightInfo]| -> Vec<String> {
        infos.iter().map(|info| info.flight_descriptor.as_ref().unwrap().path.join(".")).collect()
    };
    let infos = listed("").await;
    assert_eq!(names(&infos), ["public.one", "public.two", "s.three"]);
    assert_eq!(names(&listed("public.t").await), ["public.two"]);
    assert_eq!(db.database().storage().manager().active_count(), 0, "a list holds nothing");
    execute(&db, "INSERT INTO two VALUES ('came after the list')").await;
    let batches = fetch(&mut client, &infos[1]).await;
    assert_eq!(batches[0].column(0).as_string_view().value(0), "came after the list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_given_up_or_stand_still_let_their_snapshots_go() {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT, note TEXT)").await;
    execute(&db, "INSERT INTO t SELECT value, repeat('long ', 20) FROM generate_series(1, 100000) AS s (value)").await;
    let options = FlightOptions { stall: Duration::from_secs(2), max_streams: 2, ..FlightOptions::default() };
    let served = serve(&db, options).await;
    let mut client = served.client().await;
    let latest = client.get_flight_info(command(r#"{"table": "t", "snapshot": "latest"}"#)).await.unwrap();
    let ticket = || latest.endpoint[0].ticket.clone().unwrap();
    let active = || db.database().storage().manager().active_count();

    let mut first = client.do_get(ticket()).await.unwrap();
    first.next().await.unwrap().unwrap();
    let second = client.do_get(ticket()).await.unwrap();
    assert_eq!(active(), 2);
    let error = status(client.do_get(ticket()).await.unwrap_err());
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("2 streams"), "{error}");
    let wait_for = async |count: usize, what: &str| {
        for _ in 0..2_000 {
            if active() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what}: {} snapshots are held, not {count}", active());
    };
    drop(second);
    wait_for(1, "a stream was cancelled").await;
    // Not read: the sweeper takes the snapshot, and the reader is told when it comes back.
    wait_for(0, "a stream stands still").await;
    let error = loop {
        match first.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break status(error),
            None => panic!("a stream that was given up looks complete"),
        }
    };
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    // And the server goes on.
    let rows: usize = fetch(&mut client, &latest).await.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 100_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_values_come_in_messages_that_every_client_takes() {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT, note TEXT)").await;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..40));
    let notes: Vec<String> =
        (0..40u8).map(|i| String::from_utf8(vec![b'a' + i % 26; 700_000 + i as usize]).unwrap()).collect();
    let batch = RecordBatch::try_from_iter([("id", ids), ("note", Arc::new(StringViewArray::from(notes)) as ArrayRef)])
        .unwrap();
    insert(&db, "t", &batch);
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    for strings in ["view", "utf8"] {
        for frozen in [false, true] {
            if frozen {
                freeze(&db, "t");
            }
            let request = format!(r#"{{"table": "t", "strings": "{strings}"}}"#);
            let info = client.get_flight_info(command(&request)).await.unwrap();
            let batches = fetch(&mut client, &info).await;
            release(&mut client, info).await;
            assert!(batches.len() > 8, "28 MB in messages of 3 MiB");
            let received = sorted(&batches);
            assert_eq!(cast(received.column(1), &DataType::Utf8View).unwrap().as_ref(), batch.column(1).as_ref());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_ends_its_streams_and_takes_no_more_calls() {
    let db = database();
    execute(&db, "CREATE TABLE t (id BIGINT)").await;
    execute(&db, "INSERT INTO t SELECT value FROM generate_series(1, 500000) AS s (value)").await;
    let served = serve(&db, FlightOptions::default()).await;
    let mut client = served.client().await;
    let info = client.get_flight_info(FlightDescriptor::new_path(vec!["t".into()])).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let mut rows = stream.next().await.unwrap().unwrap().num_rows();
    served.stop.send(()).unwrap();
    // A running stream may end.
    while let Some(batch) = stream.next().await {
        rows += batch.unwrap().num_rows();
    }
    assert_eq!(rows, 500_000);
    drop((stream, client));
    tokio::time::timeout(Duration::from_secs(10), served.ended).await.expect("the server ends").unwrap();
    assert!(tokio::net::TcpStream::connect(served.address).await.is_err(), "nobody listens any more");
    assert_eq!(db.database().storage().manager().active_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_know_the_token_is_not_answered() {
    let db = database();
    execute(&db, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2)").await;
    let token = Token::new("a-secret").unwrap();
    let served = serve(&db, FlightOptions { token: Some(token), ..FlightOptions::default() }).await;
    let path = || FlightDescriptor::new_path(vec!["t".into()]);
    let mut known = served.client().await;
    known.add_header("authorization", "Bearer a-secret").unwrap();
    let info = known.get_flight_info(path()).await.unwrap();
    let ticket = || info.endpoint[0].ticket.clone().unwrap();
    for wrong in [None, Some("Bearer another"), Some("Basic YTpi")] {
        let mut client = served.client().await;
        if let Some(header) = wrong {
            client.add_header("authorization", header).unwrap();
        }
        let codes = [
            status(client.get_flight_info(path()).await.unwrap_err()).code(),
            status(client.get_schema(path()).await.unwrap_err()).code(),
            status(client.do_get(ticket()).await.unwrap_err()).code(),
            status(client.list_flights("").await.err().unwrap()).code(),
            status(client.cancel_flight_info(CancelFlightInfoRequest::new(info.clone())).await.unwrap_err()).code(),
        ];
        assert_eq!(codes, [Code::Unauthenticated; 5], "{wrong:?}");
    }
    let rows: usize = fetch(&mut known, &info).await.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 2, "the flight is still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_above_the_limit_are_closed_until_others_end() {
    let db = database();
    execute(&db, "CREATE TABLE t (a INTEGER)").await;
    let served = serve(&db, FlightOptions { max_connections: 2, ..FlightOptions::default() }).await;
    // A connection is taken once it has answered.
    let call = async |client: &mut FlightClient| {
        client.get_flight_info(command(r#"{"table": "t", "snapshot": "latest"}"#)).await.map(drop)
    };
    let (mut one, mut two) = (served.client().await, served.client().await);
    call(&mut one).await.unwrap();
    call(&mut two).await.unwrap();
    let connect = async || {
        let channel = tonic::transport::Channel::from_shared(format!("http://{}", served.address)).unwrap();
        let mut client = FlightClient::new(channel.connect().await.map_err(|error| error.to_string())?);
        call(&mut client).await.map_err(|error| error.to_string())
    };
    connect().await.unwrap_err();
    call(&mut one).await.unwrap();
    drop(two);
    for attempt in 0.. {
        match connect().await {
            Ok(()) => break,
            Err(error) => assert!(attempt < 200, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_reads_what_it_may() {
    let db = database();
    execute(&db, "CREATE ROLE reader; CREATE TABLE open (n BIGINT, m BIGINT); CREATE TABLE closed (n BIGINT)").await;
    execute(&db, "INSERT INTO open VALUES (1, 2); INSERT INTO closed VALUES (3); GRANT SELECT (n) ON open TO reader")
        .await;
    let served = serve(&db, FlightOptions { role: Some("reader".into()), ..FlightOptions::default() }).await;
    let mut client = served.client().await;
    let denied = [
        FlightDescriptor::new_path(vec!["closed".into()]),
        FlightDescriptor::new_path(vec!["open".into()]),
        command(r#"{"table": "open", "columns": ["n"], "filter": [["m", "=", 2]]}"#),
        command(r#"{"table": "open", "columns": ["m"], "snapshot": "latest"}"#),
    ];
    for descriptor in denied {
        let error = client.get_flight_info(descriptor.clone()).await.unwrap_err();
        assert_eq!(status(error).code(), Code::PermissionDenied, "{descriptor}");
        let error = client.get_schema(descriptor.clone()).await.unwrap_err();
        assert_eq!(status(error).code(), Code::PermissionDenied, "{descriptor}");
    }
    for snapshot in ["held", "latest"] {
        let command = command(&format!(r#"{{"table": "open", "columns": ["n"], "snapshot": "{snapshot}"}}"#));
        let info = client.get_flight_info(command).await.unwrap();
        assert_eq!(fetch(&mut client, &info).await[0].num_rows(), 1);
        // The privileges at the time of the ticket count no more.
        execute(&db, "REVOKE SELECT ON open FROM reader").await;
        let error = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.map(|_| ()).unwrap_err();
        assert_eq!(status(error).code(), Code::PermissionDenied, "{snapshot}");
        let flights: Vec<_> = client.list_flights(vec![]).await.unwrap().try_collect().await.unwrap();
        assert!(flights.is_empty());
        execute(&db, "GRANT SELECT ON open TO reader").await;
        let flights: Vec<_> = client.list_flights(vec![]).await.unwrap().try_collect().await.unwrap();
        assert_eq!(flights.len(), 1);
    }
    // In a held snapshot, both the privileges then and those now count.
    let held = hold(&mut client).await;
    let scan = |table: &str, column: &str| {
        let lease = held.lease;
        command(&format!(r#"{{"table": "{table}", "columns": ["{column}"], "snapshot": {{"lease": {lease}}}}}"#))
    };
    let info = client.get_flight_info(scan("open", "n")).await.unwrap();
    execute(&db, "GRANT SELECT ON closed TO reader; REVOKE SELECT ON open FROM reader").await;
    for (table, column) in [("open", "n"), ("closed", "n")] {
        let error = client.get_flight_info(scan(table, column)).await.unwrap_err();
        assert_eq!(status(error).code(), Code::PermissionDenied, "{table}");
    }
    let error = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.map(|_| ()).unwrap_err();
    assert_eq!(status(error).code(), Code::PermissionDenied);
    client.get_flight_info(FlightDescriptor::new_path(vec!["closed".into()])).await.unwrap();
    // Once there is a password, no client is admitted without a credential.
    execute(&db, "ALTER ROLE reader PASSWORD 'secret'").await;
    let error = client.get_flight_info(FlightDescriptor::new_path(vec!["open".into()])).await.unwrap_err();
    assert_eq!(status(error).code(), Code::Unauthenticated);
}

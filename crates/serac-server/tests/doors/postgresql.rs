//! PostgreSQL's port.

use super::wire::{
    Client, Message, bind, bind_binary, describe, execute, field, framed, parse, query, startup, sync, told,
};
use super::{STRANGER, connect_from, database, postgresql_server};
use serac_server::{PgOptions, Verifier};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_whose_columns_ddl_has_changed_are_refused() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)").await;
    client.run("INSERT INTO t VALUES (1, 'x', 7), (2, 'y', 8)").await;
    let statements = [
        ("point", "SELECT * FROM t WHERE id = $1"),
        ("other", "SELECT * FROM t WHERE id = $1 OR b < 0 ORDER BY a"),
        ("change", "UPDATE t SET b = b + 1 WHERE id = $1 RETURNING *"),
        ("named", "SELECT a, b FROM t WHERE id = $1"),
        ("computed", "SELECT b * 2 AS c, upper(a) FROM t WHERE id = $1"),
    ];
    for (name, sql) in statements {
        let answer = client.told(&[parse(name, sql), describe(b'S', name), sync()]).await;
        assert_eq!(answer, ["1", "t", "T", "ZI"], "{sql}");
        let answer = client.told(&[bind("", name, &["2"]), execute("", 0), sync()]).await;
        assert_eq!(answer.len(), 4, "{sql}: {answer:?}");
    }
    // An index changes no columns.
    client.run("CREATE INDEX t_b ON t (b)").await;
    for (name, sql) in statements {
        let answer = client.told(&[bind("", name, &["2"]), execute("", 0), sync()]).await;
        assert_eq!((answer.len(), &answer[0][..]), (4, "2"), "{sql}: {answer:?}");
    }
    client.run("ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 5").await;
    for name in ["point", "other", "change"] {
        let answer = client.exchange(&[bind("", name, &["1"]), execute("", 0), sync()]).await;
        let error = answer.iter().find(|message| message.0 == b'E');
        let (_, error) = error.unwrap_or_else(|| panic!("{name}: {:?}", told(&answer)));
        let of = |kind| field(error, kind).unwrap();
        // Drivers know the error by the routine, and prepare again.
        let wanted = ("0A000", "cached plan must not change result type", "RevalidateCachedQuery");
        assert_eq!((&of(b'C')[..], &of(b'M')[..], &of(b'R')[..]), wanted, "{name}");
        let answer = client.told(&[describe(b'S', name), sync()]).await;
        assert!(answer.contains(&"0A000".to_owned()) && !answer.contains(&"T".to_owned()), "{name}: {answer:?}");
        let answer = client.told(&[bind("", name, &["1"]), describe(b'P', ""), sync()]).await;
        assert!(answer.contains(&"0A000".to_owned()), "{name}: {answer:?}");
    }
    assert_eq!(client.run("SELECT b FROM t WHERE id = 1").await[1], "7", "a refused statement has changed rows");
    let answer = client.told(&[bind("", "named", &["1"]), execute("", 0), sync()]).await;
    assert_eq!(answer, ["2", "x|7", "SELECT 1", "ZI"]);
    let answer = client.told(&[bind("", "computed", &["1"]), execute("", 0), sync()]).await;
    assert_eq!(answer, ["2", "14|X", "SELECT 1", "ZI"]);
    // Two columns swap places: values of one would stand under the other's name.
    client.run("ALTER TABLE t RENAME COLUMN a TO c; ALTER TABLE t RENAME COLUMN d TO a").await;
    let answer = client.told(&[bind("", "named", &["1"]), execute("", 0), sync()]).await;
    assert_eq!(answer.iter().find(|word| word.len() == 5).map(String::as_str), Some("0A000"), "{answer:?}");
    // In a transaction, too; and a statement that is prepared again is as good as new.
    client.run("BEGIN").await;
    client.told(&[parse("again", "SELECT * FROM t WHERE id = $1"), describe(b'S', "again"), sync()]).await;
    client.run("ALTER TABLE t DROP COLUMN b").await;
    let answer = client.told(&[bind("", "again", &["1"]), execute("", 0), sync()]).await;
    assert_eq!(answer.last().map(String::as_str), Some("ZE"), "{answer:?}");
    client.run("ROLLBACK").await;
    let answer = client.told(&[bind("", "again", &["1"]), execute("", 0), sync()]).await;
    assert_eq!(answer, ["2", "1|x|7|5", "SELECT 1", "ZI"]);
    // A parameter keeps the type that the client was told.
    client.run("CREATE TABLE n (k INTEGER PRIMARY KEY, v TEXT); INSERT INTO n VALUES (5, 'five')").await;
    client.told(&[parse("", "SELECT v FROM n WHERE k = $1"), describe(b'S', ""), sync()]).await;
    let mut other = Client::open(served.address).await;
    other.run("DROP TABLE n").await;
    other.run("CREATE TABLE n (k BIGINT PRIMARY KEY, v TEXT)").await;
    other.run("INSERT INTO n VALUES (5, 'five')").await;
    let answer = client.told(&[bind_binary(&5i32.to_be_bytes()), execute("", 0), sync()]).await;
    assert_eq!(answer, ["2", "five", "SELECT 1", "ZI"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_as_many_as_parameters() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)").await;
    let statements = [
        ("SELECT 1", 0),
        ("SELECT a FROM t WHERE id = $1", 1),
        ("SELECT count(*) FROM t WHERE id < $1 OR a = $2", 2),
        ("WITH x AS (DELETE FROM t WHERE id = $2 RETURNING id) SELECT id FROM x LIMIT $1", 2),
        ("INSERT INTO t VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET a = $3", 3),
    ];
    for (sql, wanted) in statements {
        for given in 0..4 {
            let answer = client.exchange(&[parse("", sql), bind("", "", &vec!["1"; given]), sync()]).await;
            let error = answer.iter().find(|message| message.0 == b'E').and_then(|(_, error)| field(error, b'M'));
            let message =
                format!("bind message supplies {given} parameters, but prepared statement \"\" requires {wanted}");
            assert_eq!(error, (given != wanted).then_some(message), "{sql}");
        }
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portals_live_as_postgresql_has_them() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)").await;
    client.run("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')").await;
    let twice = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0), execute("", 0), sync()];
    let cases: [(&str, &[&str]); 8] = [
        ("SELECT a FROM t WHERE id = 1", &["1", "2", "x", "SELECT 1", "SELECT 0", "ZI"]),
        ("SELECT count(*) FROM t", &["1", "2", "3", "SELECT 1", "SELECT 0", "ZI"]),
        ("INSERT INTO t VALUES (4, 'a')", &["1", "2", "INSERT 0 1", "55000", "ZI"]),
        ("SELECT count(*) FROM t", &["1", "2", "3", "SELECT 1", "SELECT 0", "ZI"]),
        ("INSERT INTO t VALUES (5, 'a') RETURNING id", &["1", "2", "5", "INSERT 0 1", "INSERT 0 0", "ZI"]),
        ("SET application_name TO 'twice'", &["1", "2", "SET", "55000", "ZI"]),
        ("CREATE TABLE u (a INTEGER)", &["1", "2", "CREATE TABLE", "55000", "ZI"]),
        ("BEGIN", &["1", "2", "BEGIN", "55000", "ZE"]),
    ];
    for (sql, wanted) in cases {
        let mut answer = client.told(&twice(sql)).await;
        answer.retain(|word| !word.starts_with("application_name="));
        assert_eq!(answer, wanted, "{sql}");
    }
    client.run("ROLLBACK").await;
    // Remaining rows are not for a failed transaction, nor for later ones.
    client.run("BEGIN").await;
    let some = [parse("s", "SELECT id FROM t ORDER BY id"), bind("p", "s", &[]), execute("p", 1), sync()];
    assert_eq!(client.told(&some).await, ["1", "2", "1", "s", "ZT"]);
    assert_eq!(client.told(&[bind("p", "s", &[]), sync()]).await, ["42P03", "ZE"]);
    for message in [execute("p", 1), bind("q", "s", &[]), describe(b'P', "p")] {
        assert_eq!(client.told(&[message, sync()]).await, ["25P02", "ZE"]);
    }
    client.run("ROLLBACK").await;
    assert_eq!(client.told(&[execute("p", 1), sync()]).await, ["34000", "ZI"]);
    client.run("BEGIN").await;
    assert_eq!(client.told(&[bind("", "s", &[]), execute("", 1), sync()]).await, ["2", "1", "s", "ZT"]);
    client.told(&[parse("c", "COMMIT"), bind("c", "c", &[]), execute("c", 0), sync()]).await;
    assert_eq!(client.told(&[execute("", 1), sync()]).await, ["34000", "ZI"]);
    let all = [
        parse("b", "BEGIN"),
        bind("b", "b", &[]),
        execute("b", 0),
        bind("p", "s", &[]),
        execute("p", 1),
        bind("c", "c", &[]),
        execute("c", 0),
        execute("p", 1),
        sync(),
    ];
    assert_eq!(client.told(&all).await, ["1", "2", "BEGIN", "2", "1", "s", "2", "COMMIT", "34000", "ZI"]);
    // Outside of a block, a portal ends with its Sync.
    client.told(&[bind("", "s", &[]), sync()]).await;
    assert_eq!(client.told(&[execute("", 0), sync()]).await, ["34000", "ZI"]);
    // A script replaces the unnamed statement.
    client.told(&[parse("", "SELECT 7"), sync()]).await;
    client.run("SELECT 8").await;
    assert_eq!(client.told(&[bind("", "", &[]), sync()]).await, ["26000", "ZI"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_times_and_dates_out_of_range_are_refused() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (id SERIAL, d DATE, m TIME, s TIMESTAMP, z TIMESTAMPTZ)").await;
    let day = |days: i32| days.to_be_bytes().to_vec();
    let long = |micros: i64| micros.to_be_bytes().to_vec();
    let bad = [
        ("d", vec![day(i32::MAX - 1), day(i32::MIN + 1), day(2_145_031_949), day(-2_451_546)]),
        ("m", vec![long(-1), long(86_400_000_001), long(i64::MAX), long(i64::MIN)]),
        (
            "s",
            vec![
                long(i64::MAX - 1),
                long(i64::MIN + 1),
                long(9_223_371_331_200_000_000),
                long(-211_813_488_000_000_001),
            ],
        ),
        (
            "z",
            vec![
                long(i64::MAX - 1),
                long(i64::MIN + 1),
                long(9_223_371_331_200_000_000),
                long(-211_813_488_000_000_001),
            ],
        ),
    ];
    for (column, values) in bad {
        for value in values {
            let insert = parse("", &format!("INSERT INTO t ({column}) VALUES ($1)"));
            let answer = client.told(&[insert, bind_binary(&value), execute("", 0), sync()]).await;
            assert!(answer.contains(&"22008".to_owned()), "{column} {value:?}: {answer:?}");
        }
    }
    // The extremes are the infinite times.
    let good = [
        ("d", day(0)),
        ("d", day(i32::MAX)),
        ("m", long(86_399_999_999)),
        ("s", long(0)),
        ("s", long(i64::MIN)),
        ("z", long(-1)),
        ("z", long(i64::MAX)),
    ];
    for (column, value) in good {
        let insert = parse("", &format!("INSERT INTO t ({column}) VALUES ($1)"));
        let answer = client.told(&[insert, bind_binary(&value), execute("", 0), sync()]).await;
        assert!(answer.contains(&"INSERT 0 1".to_owned()), "{column} {value:?}: {answer:?}");
    }
    let answer = client.run("SELECT count(*), max(d::text), max(m::text) FROM t").await;
    assert_eq!(answer[1], "7|infinity|23:59:59.999999");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_without_end_ends_its_copy() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    for options in ["", " WITH (FORMAT csv)", " WITH (FORMAT csv)"] {
        let mut client = Client::open(served.address).await;
        client.run("CREATE TABLE IF NOT EXISTS t (a TEXT)").await;
        client.raw(&framed(&query(&format!("COPY t FROM STDIN{options}")))).await;
        assert_eq!(client.next().await.map(|message| message.0), Some(b'G'));
        let (mut reader, mut writer) = client.socket.into_split();
        let sends = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            let piece = framed(&(b'd', vec![b'x'; 1 << 20]));
            // Twice as much as a line may have.
            for _ in 0..128 {
                if writer.write_all(&piece).await.is_err() {
                    return;
                }
            }
            let _ = writer.write_all(&framed(&(b'c', Vec::new()))).await;
            // A client that closes its half would have the statement cancelled.
            std::future::pending::<()>().await;
        });
        use tokio::io::AsyncReadExt;
        let mut answer = Vec::new();
        let reading = async {
            while !answer.windows(6).any(|part| part == b"Z\0\0\0\x05I") {
                if reader.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                    break;
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(120), reading).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("C54000"), "{options}: {answer}");
        sends.abort();
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_of_settings_that_they_follow() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    assert_eq!(client.run("SET application_name = 'hello'").await, ["SET", "application_name=hello", "ZI"]);
    assert_eq!(client.run("SELECT 1").await, ["T", "1", "SELECT 1", "ZI"]);
    client.run("BEGIN").await;
    let messages = [parse("", "SET application_name = 'inner'"), bind("", "", &[]), execute("", 0), sync()];
    assert_eq!(client.told(&messages).await, ["1", "2", "SET", "application_name=inner", "ZT"]);
    assert_eq!(client.run("ROLLBACK").await, ["ROLLBACK", "application_name=hello", "ZI"]);
    client.run("CREATE ROLE bob").await;
    let answer = client.run("SET SESSION AUTHORIZATION bob").await;
    assert_eq!(answer, ["SET", "is_superuser=off", "session_authorization=bob", "ZI"]);
    let answer = client.run("RESET SESSION AUTHORIZATION").await;
    assert_eq!(answer[1..], ["is_superuser=on", "session_authorization=serac", "ZI"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_times_follow_the_settings_of_the_session() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMPTZ, d DATE)").await;
    client.run("INSERT INTO t VALUES (1, '2020-07-01 10:00+00', '2020-07-01')").await;
    let answer = client.run("SET TIME ZONE 'america/new_york'; SET DateStyle = 'sql, dmy'").await;
    assert_eq!(answer, ["SET", "SET", "TimeZone=America/New_York", "DateStyle=SQL, DMY", "ZI"]);
    let answer = client.run("SET IntervalStyle = iso_8601").await;
    assert_eq!(answer, ["SET", "IntervalStyle=iso_8601", "ZI"]);
    let row = "01/07/2020 06:00:00 EDT|01/07/2020";
    // By the point path, and by planning.
    for query in ["SELECT a, d FROM t WHERE id = 1", "SELECT a, d FROM t ORDER BY a::text"] {
        assert_eq!(client.run(query).await, ["T", row, "SELECT 1", "ZI"], "{query}");
        let messages = [parse("", query), bind("", "", &[]), execute("", 0), sync()];
        assert_eq!(client.told(&messages).await, ["1", "2", row, "SELECT 1", "ZI"], "{query}");
    }
    // Parameters in texts are read so, too, and kept in UTC.
    for (id, query) in ["INSERT INTO t VALUES ($1, $2, $3)", "INSERT INTO t SELECT $1, $2, $3"].iter().enumerate() {
        let id = (id + 2).to_string();
        let given = [id.as_str(), "02/08/2020 12:00", "02/08/2020"];
        let messages = [parse("", query), bind("", "", &given), execute("", 0), sync()];
        assert_eq!(client.told(&messages).await, ["1", "2", "INSERT 0 1", "ZI"], "{query}");
    }
    let answer = client.run("SELECT INTERVAL '1 day 2 hours', ARRAY[a, a], ROW(d) FROM t WHERE id = 1").await;
    let array = "{\"01/07/2020 06:00:00 EDT\",\"01/07/2020 06:00:00 EDT\"}";
    assert_eq!(answer[1], format!("P1DT2H|{array}|(01/07/2020)"));
    let answer = client.run("RESET ALL; SELECT a, d FROM t WHERE id > 1 ORDER BY id").await;
    let row = "2020-08-02 16:00:00+00|2020-08-02";
    assert_eq!(answer[1..5], ["T", row, row, "SELECT 2"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_come_with_the_connection() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::new(TcpStream::connect(served.address).await.unwrap());
    let options = [("TimeZone", "Asia/Tokyo"), ("options", "-c IntervalStyle=sql_standard -c datestyle=german")];
    client.raw(&startup(196_608, &[&[("user", "serac")], &options[..]].concat())).await;
    client.until(b'Z').await;
    let query = "SELECT TIMESTAMPTZ '2020-07-01 10:00', INTERVAL '1 day 2 hours'";
    let row = "01.07.2020 10:00:00 JST|1 2:00:00";
    assert_eq!(client.run(query).await, ["T", row, "SELECT 1", "ZI"]);
    client.run("SET TimeZone = 'UTC'; SET DateStyle = iso").await;
    // RESET restores the values that the client has asked for.
    let answer = client.run("RESET TimeZone; RESET DateStyle").await;
    assert_eq!(answer, ["RESET", "RESET", "TimeZone=Asia/Tokyo", "DateStyle=German, DMY", "ZI"]);
    assert_eq!(client.run(query).await, ["T", row, "SELECT 1", "ZI"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_and_switches_come_with_the_connection() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    Client::open(served.address).await.run("CREATE ROLE r; CREATE ROLE q LOGIN; CREATE ROLE p LOGIN").await;
    let connect = async |user: &str, name: &str, value: &str| {
        let mut client = Client::new(TcpStream::connect(served.address).await.unwrap());
        client.raw(&startup(196_608, &[("user", user), (name, value)])).await;
        let greeting = told(&client.until(b'Z').await);
        (client, greeting)
    };
    let who = "SELECT current_user, session_user";
    for (name, value) in [("options", "-c role=r"), ("role", "r")] {
        let (mut client, greeting) = connect("serac", name, value).await;
        assert!(greeting.iter().any(|word| word == "is_superuser=off"), "{greeting:?}");
        // What RESET gives back is the role that the client has asked for.
        for change in ["SELECT 1", "SET ROLE q; RESET ROLE", "SET ROLE NONE; RESET SESSION AUTHORIZATION"] {
            client.run(change).await;
            assert_eq!(client.run(who).await[1], "r|serac", "{change}");
        }
        client.run("SET ROLE NONE").await;
        assert_eq!(client.run(who).await[1], "serac|serac");
        client.run("DISCARD ALL").await;
        assert_eq!(client.run(who).await[1], "r|serac");
        client.run("SET SESSION AUTHORIZATION q").await;
        assert_eq!(client.run(who).await[1], "q|q");
    }
    // Taken, and without effect, as in PostgreSQL.
    for authorization in ["-c session_authorization=q", "-c role=none", "-S 2048"] {
        let (mut client, _) = connect("serac", "options", authorization).await;
        assert_eq!(client.run(who).await[1], "serac|serac", "{authorization}");
    }
    let (mut client, _) = connect("serac", "options", "-S 2048").await;
    assert_eq!(client.run("SHOW work_mem").await[1], "2MB");
    for (user, options, sqlstate) in [
        ("q", "-c role=p", "42501"),
        ("q", "-c session_authorization=p", "42501"),
        ("serac", "-c role=nobody", "22023"),
        ("serac", "-c session_authorization=nobody", "22023"),
        ("serac", "-x", "42601"),
        ("serac", "-c work_mem", "42601"),
        ("serac", "-fs", "0A000"),
        ("serac", "-c transaction_isolation=serializable", "25001"),
        ("serac", "-c transaction_deferrable=on", "25001"),
    ] {
        let (_, greeting) = connect(user, "options", options).await;
        assert_eq!(greeting.last().map(String::as_str), Some(sqlstate), "{user} {options}: {greeting:?}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_versions_of_the_protocol_are_negotiated() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let answer_to = async |version: i32, more: &[(&str, &str)]| {
        let mut client = Client::new(TcpStream::connect(served.address).await.unwrap());
        client.raw(&startup(version, &[&[("user", "serac")], more].concat())).await;
        client.until(b'Z').await.remove(0)
    };
    let message = |options: &[&str]| -> Message {
        let mut body = 196_608i32.to_be_bytes().to_vec();
        body.extend_from_slice(&(options.len() as i32).to_be_bytes());
        options.iter().for_each(|option| body.extend_from_slice(format!("{option}\0").as_bytes()));
        (b'v', body)
    };
    let unknown = [("_pq_.foo", "1"), ("application_name", "x"), ("_pq_.bar", "2")];
    assert_eq!(answer_to(196_610, &unknown).await, message(&["_pq_.foo", "_pq_.bar"]));
    assert_eq!(answer_to(196_608, &unknown[..1]).await, message(&["_pq_.foo"]));
    assert_eq!(answer_to(196_608 + 9_999, &[]).await, message(&[]));
    assert_eq!(answer_to(196_608, &[]).await.0, b'R');
    served.end().await;
}

/// The server's answer to a user's first SCRAM message: the salt, and the iterations.
async fn challenge(address: std::net::SocketAddr, user: &str) -> (String, String) {
    let mut client = Client::new(TcpStream::connect(address).await.unwrap());
    client.raw(&startup(196_608, &[("user", user)])).await;
    assert_eq!(client.next().await.unwrap().0, b'R');
    let first = b"n,,n=,r=abcdefgh";
    let mut body = b"SCRAM-SHA-256\0".to_vec();
    body.extend_from_slice(&(first.len() as i32).to_be_bytes());
    body.extend_from_slice(first);
    client.raw(&framed(&(b'p', body))).await;
    let (tag, body) = client.next().await.unwrap();
    assert_eq!((tag, &body[..4]), (b'R', &[0, 0, 0, 11][..]), "{}", String::from_utf8_lossy(&body));
    let text = String::from_utf8(body[4..].to_vec()).unwrap();
    let mut parts = text.split(',').skip(1).map(str::to_owned);
    (parts.next().unwrap(), parts.next().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_nobody_has_look_like_others() {
    let users = [("ada".to_owned(), Verifier::new("secret"))].into();
    let served = postgresql_server(database(), PgOptions { users, ..PgOptions::default() }).await;
    let known = challenge(served.address, "ada").await;
    assert_eq!(challenge(served.address, "ada").await, known);
    let unknown = challenge(served.address, "nobody").await;
    assert_eq!(challenge(served.address, "nobody").await, unknown, "another salt each time tells of an unknown name");
    assert_ne!(challenge(served.address, "no-one").await.0, unknown.0);
    assert_eq!((known.1, known.0.len()), (unknown.1, unknown.0.len()));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_cannot_have_the_server_hash_for_ever() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    let key = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=";
    let verifier = |iterations: u64| format!("SCRAM-SHA-256${iterations}:W22ZaJ0SNY7soEsUEjb6gQ==${key}:{key}");
    for iterations in [4_294_967_295, 1_000_001] {
        let answer = client.run(&format!("CREATE ROLE r{iterations} PASSWORD '{}'", verifier(iterations))).await;
        assert_eq!(answer, ["22023", "ZI"], "{iterations}");
    }
    assert_eq!(client.run(&format!("CREATE ROLE r PASSWORD '{}'", verifier(1_000_000))).await[0], "CREATE ROLE");
    assert_eq!(client.run(&format!("ALTER ROLE r PASSWORD '{}'", verifier(4_294_967_295))).await[0], "22023");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_take_nobodys_place() {
    let served = postgresql_server(database(), PgOptions { max_connections: 8, ..PgOptions::default() }).await;
    let mut silent = Vec::new();
    for own in [STRANGER, [127, 0, 0, 1]] {
        for _ in 0..100 {
            silent.push(connect_from(own, served.address).await);
        }
        let mut client = Client::open(served.address).await;
        assert_eq!(client.run("SELECT 42").await[1], "42");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn averages_in_an_order_are_computed_or_refused() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (g INTEGER, f DOUBLE PRECISION, x INTEGER, y INTEGER)").await;
    client.run("INSERT INTO t SELECT v % 3, v, v % 7, v % 5 FROM generate_series(1, 100) AS s (v)").await;
    for aggregate in ["avg", "sum", "min", "count"] {
        for order in ["x", "x, y", "x DESC, y", "f"] {
            let sql = format!("SELECT g, {aggregate}(f ORDER BY {order}) FROM t GROUP BY g ORDER BY g");
            let answer = client.run(&sql).await;
            let plain = client.run(&sql.replace(&format!(" ORDER BY {order})"), ")")).await;
            assert_eq!(answer, plain, "{sql}");
        }
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_log_in_in_time_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let options = PgOptions {
        users: [("ada".to_owned(), Verifier::new("secret"))].into(),
        tls: Some(super::certificate(folder.path())),
        login_timeout: std::time::Duration::from_millis(500),
        ..PgOptions::default()
    };
    let served = postgresql_server(database(), options).await;
    let encrypt = [&8i32.to_be_bytes()[..], &80_877_103i32.to_be_bytes()].concat();
    let first = startup(196_608, &[("user", "ada")]);
    for said in [Vec::new(), encrypt.clone(), [encrypt, b"\x16\x03\x01".to_vec()].concat(), first[..9].to_vec(), first]
    {
        let mut client = Client::new(TcpStream::connect(served.address).await.unwrap());
        client.raw(&said).await;
        let closed = async {
            use tokio::io::AsyncReadExt;
            let mut answer = Vec::new();
            client.socket.read_to_end(&mut answer).await
        };
        let closed = tokio::time::timeout(std::time::Duration::from_secs(20), closed).await;
        assert!(closed.is_ok(), "a client that has said {said:?} is waited for");
    }
    served.end().await;
}

/// The columns of the description among the messages: name, type, size and modifier.
pub(crate) fn columns(messages: &[Message]) -> Vec<String> {
    let (_, body) = messages.iter().find(|message| message.0 == b'T').expect("the columns are described");
    let mut rest = &body[2..];
    let mut columns = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let (name, fields) = (String::from_utf8_lossy(&rest[..end]), &rest[end + 7..]);
        let number = |at: usize| i32::from_be_bytes(fields[at..at + 4].try_into().unwrap());
        let size = i16::from_be_bytes(fields[4..6].try_into().unwrap());
        columns.push(format!("{name} {} {size} {}", number(0), number(6)));
        rest = &fields[12..];
    }
    columns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_have_postgresqls_types_and_modifiers() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    let table = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5), w VARCHAR, c CHAR(3), n NUMERIC(10,2), m NUMERIC, s TIMESTAMP(3))";
    client.run(table).await;
    client.run("INSERT INTO t VALUES (1, 'ab', 'cd', 'a', 1.5, 4.25, '2020-01-01 10:00:00')").await;
    client.run("CREATE VIEW of_t AS SELECT * FROM t").await;
    let own =
        ["id 23 4 -1", "v 1043 -1 9", "w 1043 -1 -1", "c 1042 -1 7", "n 1700 -1 655366", "m 1700 -1 -1", "s 1114 8 3"];
    let computed =
        "SELECT v || 'x' AS a, v::varchar(2) AS b, n + 1 AS d, coalesce(v, w) AS e, 1.5 AS f, current_user AS g FROM t";
    let of_computed = ["a 25 -1 -1", "b 1043 -1 6", "d 1700 -1 -1", "e 1043 -1 -1", "f 1700 -1 -1", "g 19 64 -1"];
    let statements = [
        ("SELECT * FROM t", &own[..]),
        ("SELECT * FROM t WHERE id = 1", &own[..]),
        ("SELECT * FROM of_t", &own[..]),
        ("UPDATE t SET id = 1 WHERE id = 1 RETURNING *", &own[..]),
        ("SELECT * FROM t UNION ALL SELECT * FROM of_t", &own[..]),
        (computed, &of_computed[..]),
    ];
    for (sql, expected) in statements {
        assert_eq!(columns(&client.exchange(&[query(sql)]).await), expected, "{sql}");
        let described = client.exchange(&[parse("", sql), describe(b'S', ""), sync()]).await;
        assert_eq!(columns(&described), expected, "{sql}");
    }
    // A CHAR(n) has its blanks, on all ways to it.
    assert_eq!(client.run("SELECT c, v FROM t WHERE id = 1").await, ["T", "a  |ab", "SELECT 1", "ZI"]);
    let sent = [parse("", "SELECT v, c FROM t WHERE id = $1"), bind("", "", &["1"]), execute("", 0), sync()];
    assert_eq!(client.told(&sent).await, ["1", "2", "ab|a  ", "SELECT 1", "ZI"]);
    let answer = client.run("SELECT c, max(c) OVER () || '.', c || '.', octet_length(c) FROM t").await;
    assert_eq!(answer, ["T", "a  |a.|a.|3", "SELECT 1", "ZI"]);
    // Parameters have the types of the columns that they are assigned to.
    let insert = "INSERT INTO t (id, v, c) VALUES ($1, $2, $3)";
    let described = client.exchange(&[parse("i", insert), describe(b'S', "i"), sync()]).await;
    let (_, body) = described.iter().find(|message| message.0 == b't').expect("parameters are described");
    let types: Vec<i32> = body[2..].chunks(4).map(|oid| i32::from_be_bytes(oid.try_into().unwrap())).collect();
    assert_eq!(types, [23, 1043, 1042]);
    let answer = client.told(&[bind("", "i", &["2", "abcde  ", "x  "]), execute("", 0), sync()]).await;
    assert_eq!(answer, ["2", "INSERT 0 1", "ZI"]);
    assert_eq!(client.run("SELECT v || '.', c || '.' FROM t WHERE id = 2").await[1], "abcde.|x.");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_of_prepare_are_bound_by_the_protocol() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE t (a INT, b TEXT)").await;
    assert_eq!(client.run("PREPARE p AS SELECT $1::int + 1 AS x, 'k' AS y").await, ["PREPARE", "ZI"]);
    let described = client.exchange(&[describe(b'S', "p"), sync()]).await;
    let (_, parameters) = described.iter().find(|message| message.0 == b't').expect("parameters are described");
    assert_eq!(parameters[..], [0, 1, 0, 0, 0, 23]);
    assert_eq!(columns(&described), ["x 23 4 -1", "y 25 -1 -1"]);
    let bound = [bind("", "p", &["41"]), describe(b'P', ""), execute("", 0), sync()];
    for _ in 0..2 {
        assert_eq!(client.told(&bound).await, ["2", "T", "42|k", "SELECT 1", "ZI"]);
    }
    assert_eq!(client.told(&[bind("", "p", &[]), sync()]).await, ["08P01", "ZI"]);
    assert_eq!(client.told(&[parse("p", "SELECT 1"), sync()]).await, ["42P05", "ZI"]);
    assert_eq!(client.run("EXECUTE p (1)").await, ["T", "2|k", "SELECT 1", "ZI"]);
    // Of the point path.
    assert_eq!(client.run("PREPARE i (int, text) AS INSERT INTO t VALUES ($1, $2)").await, ["PREPARE", "ZI"]);
    for (value, tag) in [("1", "INSERT 0 1"), ("2", "INSERT 0 1")] {
        assert_eq!(client.told(&[bind("", "i", &[value, "x"]), execute("", 0), sync()]).await, ["2", tag, "ZI"]);
    }
    assert_eq!(client.run("SELECT * FROM t ORDER BY a").await, ["T", "1|x", "2|x", "SELECT 2", "ZI"]);
    // Whoever ends one ends it for both.
    let new = [bind("", "p", &[]), execute("", 0), sync()];
    for end in ["DEALLOCATE p", "DEALLOCATE ALL", "DISCARD ALL"] {
        assert_eq!(client.run(end).await, [end.trim_end_matches(" p"), "ZI"]);
        assert_eq!(client.told(&new).await, ["26000", "ZI"], "{end}");
        assert_eq!(client.run("PREPARE p AS SELECT 'new'").await, ["PREPARE", "ZI"]);
        assert_eq!(client.told(&new).await, ["2", "new", "SELECT 1", "ZI"], "{end}");
    }
    assert_eq!(client.told(&[(b'C', b"Sp\0".to_vec()), sync()]).await, ["3", "ZI"]);
    assert_eq!(client.run("EXECUTE p").await, ["26000", "ZI"]);
    // Not all that PREPARE makes has been bound before.
    assert_eq!(client.run("PREPARE p AS SELECT 1").await, ["PREPARE", "ZI"]);
    assert_eq!(client.told(&[(b'C', b"Sp\0".to_vec()), sync()]).await, ["3", "ZI"]);
    assert_eq!(client.told(&new).await, ["26000", "ZI"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursors_of_declare_are_executed_by_the_protocol() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    let declare = "BEGIN; DECLARE c CURSOR FOR SELECT g, 'v' || g FROM generate_series(1, 5) AS s (g)";
    assert_eq!(client.run(declare).await, ["BEGIN", "DECLARE CURSOR", "ZT"]);
    let two = [describe(b'P', "c"), execute("c", 2), sync()];
    assert_eq!(client.told(&two).await, ["T", "1|v1", "2|v2", "s", "ZT"]);
    assert_eq!(client.run("FETCH 1 FROM c").await, ["T", "3|v3", "FETCH 1", "ZT"]);
    let rest = [execute("c", 0), sync()];
    assert_eq!(client.told(&rest).await, ["4|v4", "5|v5", "SELECT 2", "ZT"]);
    assert_eq!(client.told(&rest).await, ["SELECT 0", "ZT"]);
    assert_eq!(client.told(&[(b'C', b"Pc\0".to_vec()), sync()]).await, ["3", "ZT"]);
    assert_eq!(client.told(&rest).await, ["34000", "ZE"]);
    client.run("ROLLBACK").await;
    assert_eq!(client.run("DECLARE h CURSOR WITH HOLD FOR SELECT 7").await, ["DECLARE CURSOR", "ZI"]);
    assert_eq!(client.told(&[execute("h", 0), sync()]).await, ["7", "SELECT 1", "ZI"]);
    assert_eq!(client.run("CLOSE h").await, ["CLOSE CURSOR", "ZI"]);
    assert_eq!(client.told(&[execute("h", 0), sync()]).await, ["34000", "ZI"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_in_binary_form_are_of_the_types_that_were_told() {
    let served = postgresql_server(database(), PgOptions::default()).await;
    let mut client = Client::open(served.address).await;
    client.run("CREATE TABLE j (a JSONB)").await;
    let insert = || parse("", "INSERT INTO j VALUES ($1)");
    // JSONB has the number of its form's version before it.
    for (bytes, sqlstate) in [(&b"{}"[..], "XX000"), (b"\x02{}", "XX000"), (b"", "08P01")] {
        let answer = client.told(&[insert(), bind_binary(bytes), execute("", 0), sync()]).await;
        assert!(answer.iter().any(|word| word == sqlstate), "{bytes:?}: {answer:?}");
    }
    let answer = client.told(&[insert(), bind_binary(b"\x01{}"), execute("", 0), sync()]).await;
    assert_eq!(answer, ["1", "2", "INSERT 0 1", "ZI"]);
    let array = |numbers: &[i32]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_be_bytes()).collect() };
    // The parameter is an array of int.
    let select = || (b'P', b"\0SELECT $1::text\0\0\x01\0\0\x03\xef".to_vec());
    for (numbers, sqlstate) in
        [(&[1, 0, 23, 1, 5, 4, 7][..], "0A000"), (&[1, 0, 25, 1, 1, 4, 7], "42804"), (&[1, 2, 23, 1, 1, 4, 7], "22P03")]
    {
        let sent = [select(), bind_binary(&array(numbers)), execute("", 0), sync()];
        let answer = client.told(&sent).await;
        assert!(answer.iter().any(|word| word == sqlstate), "{numbers:?}: {answer:?}");
    }
    let sent = [select(), bind_binary(&array(&[1, 0, 23, 1, 1, 4, 7])), execute("", 0), sync()];
    assert_eq!(client.told(&sent).await, ["1", "2", "{7}", "SELECT 1", "ZI"]);
    served.end().await;
}

//! Documents in blocks of every state and format, through the log and through checkpoints;
//! materialized views through both.

use crate::support::{open, text};
use datafusion::arrow::util::pretty::pretty_format_batches;
use serac_engine::{DecimalForm, VarlenForm};
use serac_sql::Session;

const FORMATS: [&str; 5] = ["view", "utf8", "dictionary", "compact", "never"];

/// The questions asked of every table.
async fn answers(session: &mut Session, table: &str) -> [String; 4] {
    [
        text(session, &format!("SELECT id, doc FROM {table} WHERE id % 500 = 7 ORDER BY id")).await,
        text(
            session,
            &format!(
                "SELECT doc -> 'kind' AS kind, count(*) AS n, min(id) AS least FROM {table} GROUP BY 1 ORDER BY 1"
            ),
        )
        .await,
        text(session, &format!("SELECT count(*) AS n FROM {table} WHERE doc @> '{{\"tags\": [\"t3\"]}}'")).await,
        text(
            session,
            &format!("SELECT id FROM {table} WHERE doc = '{{\"tags\":[],\"kind\":  1}}' AND id < 500 ORDER BY id"),
        )
        .await,
    ]
}

#[tokio::test]
async fn documents_survive_freezing_and_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let mut expected = None;
    {
        let (db, mut session) = open(&path);
        for format in FORMATS {
            let fill = format!(
                "CREATE TABLE {format}_t (id INT PRIMARY KEY, doc JSONB) WITH (freeze_format = {format});
                 INSERT INTO {format}_t SELECT i, CASE WHEN i % 50 = 0 THEN NULL WHEN i % 9 = 0 THEN '{{\"kind\":1,\"tags\":[]}}' \
                   ELSE jsonb_build_object('kind', i % 4, 'tags', ARRAY['t' || i % 7]) END FROM generate_series(1, 20000) AS g (i);
                 DELETE FROM {format}_t WHERE id % 11 = 3;
                 UPDATE {format}_t SET doc = doc || '{{\"more\": true}}' WHERE id % 13 = 5"
            );
            session.execute(&fill).await.unwrap();
            if format != "never" {
                session.execute(&format!("FREEZE TABLE {format}_t")).await.unwrap();
            }
            let answers = answers(&mut session, &format!("{format}_t")).await;
            assert_eq!(expected.get_or_insert_with(|| answers.clone()), &answers, "{format}");
            // As Arrow, in each form that a client may ask for.
            let table = db.database().catalog().table("public", &format!("{format}_t")).unwrap().clone();
            let mut first = None;
            for form in [VarlenForm::View, VarlenForm::Offsets, VarlenForm::Dictionary] {
                let scan = db.database().begin().scan_arrow(&table, &[0, 1], &[]).unwrap();
                let scan = scan.with_varlen(form).with_decimals(DecimalForm::default());
                assert_eq!(arrow_name(&scan), Some("arrow.json".into()));
                let batches: Vec<_> = scan.map(Result::unwrap).collect();
                let shown = pretty_format_batches(&batches).unwrap().to_string();
                assert_eq!(first.get_or_insert_with(|| shown.clone()), &shown, "{format}");
            }
        }
        session
            .execute(
                "CREATE MATERIALIZED VIEW kinds AS SELECT doc -> 'kind' AS kind, count(*) AS n FROM view_t GROUP BY 1",
            )
            .await
            .unwrap();
        session.execute("CREATE MATERIALIZED VIEW later AS SELECT 1 AS n WITH NO DATA").await.unwrap();
        // Without a checkpoint: all of it comes from the log.
        drop(session);
        db.database().close().unwrap();
    }
    for checkpoint in [true, false] {
        let (db, mut session) = open(&path);
        for format in FORMATS {
            assert_eq!(expected.as_ref(), Some(&answers(&mut session, &format!("{format}_t")).await), "{format}");
        }
        let kinds = text(&mut session, "SELECT * FROM kinds ORDER BY kind").await;
        assert_eq!(
            kinds,
            text(&mut session, "SELECT doc -> 'kind' AS kind, count(*) AS n FROM view_t GROUP BY 1 ORDER BY 1").await
        );
        assert_eq!(session.execute("SELECT * FROM later").await.unwrap_err().sqlstate, "55000");
        if checkpoint {
            session.execute("FREEZE TABLE dictionary_t; CHECKPOINT").await.unwrap();
        }
        drop(session);
        db.database().close().unwrap();
    }
    let (_db, mut session) = open(&path);
    session.execute("REFRESH MATERIALIZED VIEW later").await.unwrap();
    assert!(text(&mut session, "SELECT * FROM later").await.contains("| 1 |"));
}

/// The extension type of the last column.
fn arrow_name(scan: &impl datafusion::arrow::array::RecordBatchReader) -> Option<String> {
    scan.schema().field(1).extension_type_name().map(str::to_owned)
}

/// Facts about the JSON of a table.
async fn kept(session: &mut Session, table: &str) -> [String; 3] {
    [
        text(session, &format!("SELECT id, doc::text AS t, pg_typeof(doc) AS of FROM {table} ORDER BY id")).await,
        // The point path.
        text(session, &format!("SELECT doc FROM {table} WHERE id = 2")).await,
        text(session, &format!("SELECT doc -> 'b' AS b, doc::jsonb AS d FROM {table} WHERE doc ->> 'a' = '3'")).await,
    ]
}

#[tokio::test]
async fn json_keeps_its_text_through_freezing_recovery_and_copies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let first = r#" {"b" : [1,  2e3],"a":1, "a" :3, "long \u0041 enough for a heap": null} "#;
    let mut expected = None;
    {
        let (db, mut session) = open(&path);
        for format in FORMATS {
            let fill = format!(
                "CREATE TABLE {format}_j (id INT PRIMARY KEY, doc JSON) WITH (freeze_format = {format});
                 INSERT INTO {format}_j VALUES (1, '{first}'), (2, '[ ]'), (3, NULL);
                 PREPARE put_{format}(json) AS INSERT INTO {format}_j VALUES (4, $1);
                 EXECUTE put_{format}('  7.0e1');
                 INSERT INTO {format}_j SELECT i, '{{\"x\" :1}}' FROM generate_series(5, 3000) g(i);
                 UPDATE {format}_j SET doc = '\"\\u0041\"' WHERE id = 2"
            );
            session.execute(&fill).await.unwrap();
            if format != "never" {
                session.execute(&format!("FREEZE TABLE {format}_j")).await.unwrap();
            }
            let kept = kept(&mut session, &format!("{format}_j")).await;
            assert!(kept[0].contains(first) && kept[0].contains("|   7.0e1"), "{}", kept[0]);
            assert!(kept[1].contains(r#"| "\u0041" |"#), "{}", kept[1]);
            assert!(kept[2].contains(r#"[1,  2e3]"#) && kept[2].contains(r#""b": [1, 2000]"#), "{}", kept[2]);
            assert_eq!(expected.get_or_insert_with(|| kept.clone()), &kept, "{format}");
            for options in ["text", "csv", "binary", "arrow", "parquet"] {
                let file = folder.path().join(options);
                let file = file.display();
                let copies = format!(
                    "CREATE TABLE copied (id INT PRIMARY KEY, doc JSON);
                     COPY {format}_j TO '{file}' (FORMAT {options}); COPY copied FROM '{file}' (FORMAT {options})"
                );
                session.execute(&copies).await.unwrap();
                assert_eq!(expected.as_ref(), Some(&self::kept(&mut session, "copied").await), "{format} {options}");
                session.execute("DROP TABLE copied").await.unwrap();
            }
        }
        // Without a checkpoint: all of it comes from the log.
        drop(session);
        db.database().close().unwrap();
    }
    for checkpoint in [true, false] {
        let (db, mut session) = open(&path);
        for format in FORMATS {
            assert_eq!(expected.as_ref(), Some(&kept(&mut session, &format!("{format}_j")).await), "{format}");
        }
        if checkpoint {
            session.execute("FREEZE TABLE dictionary_j; CHECKPOINT").await.unwrap();
        }
        drop(session);
        db.database().close().unwrap();
    }
}

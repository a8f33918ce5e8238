//! The rows of `pg_type`.

use super::image::CATALOG_NAMESPACE;
use super::layout::Rows;
use crate::pg_catalog::scope::SUPERUSER;
use serac_values::type_names::{PgType, TYPES, short_name};

/// The rows of `pg_type`.
pub(super) fn fill(rows: &mut Rows) {
    let mut add = |t: &PgType, name: &str| {
        rows.add([
            ("oid", t.oid.into()),
            ("typname", name.into()),
            ("typnamespace", CATALOG_NAMESPACE.into()),
            ("typowner", SUPERUSER.into()),
            ("typlen", t.length.into()),
            ("typbyval", t.by_value.into()),
            ("typtype", t.kind.into()),
            ("typcategory", t.category.into()),
            ("typispreferred", t.preferred.into()),
            ("typisdefined", true.into()),
            ("typdelim", ",".into()),
            ("typelem", t.element.into()),
            ("typarray", t.array.into()),
            ("typinput", t.input.into()),
            ("typoutput", t.output.into()),
            ("typreceive", t.receive.into()),
            ("typsend", t.send.into()),
            ("typmodin", t.modifier_input.into()),
            ("typmodout", t.modifier_output.into()),
            ("typalign", t.alignment.into()),
            ("typstorage", t.storage.into()),
            ("typtypmod", (-1).into()),
            ("typcollation", t.collation.into()),
        ]);
    };
    for t in TYPES.iter() {
        add(t, t.name);
        if t.array > 0 {
            let array = PgType {
                oid: t.array,
                length: -1,
                by_value: false,
                kind: if t.kind == "p" { "p" } else { "b" },
                category: if t.kind == "p" { "P" } else { "A" },
                preferred: false,
                array: 0,
                element: t.oid,
                input: "array_in",
                output: "array_out",
                receive: "array_recv",
                send: "array_send",
                alignment: if t.alignment == "d" { "d" } else { "i" },
                storage: "x",
                ..*t
            };
            add(&array, &short_name(t.array));
        }
    }
}

# Short names for what is run often: `just` lists them. Each recipe is one command.

# Lists the recipes.
list:
    @just --list

# Runs all tests.
test:
    scripts/test

# Runs the SQL scripts of crates/serac-sql/tests/slt with this in their names; `--complete` behind it
# writes what statements give into them.
slt +NAME:
    RUST_MIN_STACK=8388608 cargo test --package serac-sql --test sqllogictest -- {{NAME}}

# Builds the Python package and runs its tests; arguments are pytest's.
python *ARGS:
    scripts/python {{ARGS}}

# Checks what the compiler does not.
tidy:
    cargo xtask tidy

# Checks spelling, dependencies and doc comments.
lint:
    scripts/lint

# Lints everything.
clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# Measures: `just bench --help` lists what there is.
bench *ARGS:
    cargo run --release --package serac-bench -- {{ARGS}}

# Builds the book into docs/book/book.
book:
    scripts/book

# Fuzzes what reads bytes from outside: `just fuzz sql --seconds 600`.
fuzz *ARGS:
    scripts/fuzz {{ARGS}}

# Simulates schedules, failing disks and crashes: `just simulate --seconds 60`.
simulate *ARGS:
    scripts/simulate {{ARGS}}

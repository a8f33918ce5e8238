# Short names for what is run often: `just` lists them. Each recipe is one command.

# Lists the recipes.
list:
    @just --list

# Runs all tests.
test:
    scripts/test

# Runs one SQL script of crates/serac-sql/tests/slt, named without `.slt`.
slt NAME:
    RUST_MIN_STACK=8388608 SERAC_SLT={{NAME}} cargo test --package serac-sql --test sqllogictest

# Checks what the compiler does not.
tidy:
    cargo xtask tidy

# Lints everything.
clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# Measures: `just bench --help` lists what there is.
bench *ARGS:
    cargo run --release --package serac-bench -- {{ARGS}}

# Builds the book into docs/book/book (needs mdbook).
book:
    mdbook build docs/book

# Simulates schedules, failing disks and crashes: `just simulate --seconds 60`.
simulate *ARGS:
    scripts/simulate {{ARGS}}

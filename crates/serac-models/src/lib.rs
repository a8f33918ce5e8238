//! Models of the storage's lock-free protocols, small enough for loom to try every interleaving. They restate the steps that
//! `serac-storage` describes at the top of `data_table`, `transaction` and `gc`, with the same orderings; see `tests/`.
//! `scripts/test` runs them: `RUSTFLAGS="--cfg loom" cargo test --release -p serac-models`.

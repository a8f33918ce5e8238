//! Deterministic simulation of the storage and the engine.
//!
//! One seed decides everything: the schedule of all threads (`serac_sync::simulation`), the limits
//! that are made small (`serac_sync::limit`), the files that tear, fill up and fail (`disk.rs`),
//! the transactions (`client.rs`), the moments at which the process dies or the power goes
//! (`episode.rs`). The oracle is a history of committed rows (`model.rs`): what each transaction
//! reads must be what the history had at its snapshot, and for a serializable one that writes also
//! what it has at the commit; constraints hold after each commit; a row is refused only for what
//! the history has; and what a crash or a clean end leaves must be a state of the history that has
//! all that was acknowledged.
//!
//! ```text
//! serac-simulator --seconds 60             fresh seeds, one process for each
//! serac-simulator --seed 17                a seed again
//! serac-simulator --seed 17 --shrink       and the smallest of its kin that fails, too
//! ```

#[cfg(shuttle)]
mod client;
#[cfg(shuttle)]
mod definition;
#[cfg(shuttle)]
mod disk;
#[cfg(shuttle)]
mod episode;
#[cfg(shuttle)]
mod model;
#[cfg(shuttle)]
mod plan;
#[cfg(shuttle)]
mod run;
#[cfg(shuttle)]
mod upkeep;

#[cfg(shuttle)]
fn main() {
    run::main();
}

#[cfg(not(shuttle))]
fn main() {
    eprintln!(
        "The simulator needs the simulation's threads and locks: run scripts/simulate, which builds with --cfg shuttle."
    );
    std::process::exit(2);
}

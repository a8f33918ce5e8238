//! The seeds of every target, and the inputs that found errors once (`corpus/TARGET/`), without a
//! fuzzer.

use serac_fuzz::TARGETS;
use std::path::Path;

/// A fuzzer's thread has a stack of this size, or more.
const STACK_BYTES: usize = 64 << 20;

fn run(name: &str) {
    let target = TARGETS.into_iter().find(|target| target.name == name).expect("there is such a target");
    let inputs = move || {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            println!("seed {number}");
            (target.run)(seed);
        }
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        for entry in std::fs::read_dir(corpus).into_iter().flatten() {
            let path = entry.expect("the folder can be read").path();
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).expect("an input can be read"));
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(inputs).expect("a thread starts");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A test for each target.
macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
        #[test]
        fn every_target_has_a_test() {
            assert_eq!([$(stringify!($name)),*], TARGETS.map(|target| target.name));
        }
    };
}
tests!(wire sql log data_file tickets keys delta_log);

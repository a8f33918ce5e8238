//! Work that is shared by all threads that need its outcome.

use serac_sync::OnceLock;
use serac_sync::atomic::{AtomicUsize, Ordering};

/// Parts of a whole that its users make together: a thread waits only for parts that another is
/// making.
#[derive(Debug)]
pub struct Shared<T> {
    next: AtomicUsize,
    parts: Box<[OnceLock<T>]>,
}

impl<T> Shared<T> {
    /// For `parts` parts, all of them open.
    pub fn new(parts: usize) -> Self {
        Self { next: AtomicUsize::new(0), parts: (0..parts).map(|_| OnceLock::new()).collect() }
    }

    /// All parts; the open ones are made here.
    pub fn all(&self, make: impl Fn(usize) -> T) -> impl Iterator<Item = &T> {
        let part = move |at: usize| self.parts[at].get_or_init(|| make(at));
        // Relaxed: only divides the work.
        while self.next.load(Ordering::Relaxed) < self.parts.len() {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at < self.parts.len() {
                part(at);
            }
        }
        (0..self.parts.len()).map(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_made_once() {
        let (shared, made) = (Shared::new(100), AtomicUsize::new(0));
        serac_sync::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let all = shared.all(|at| {
                        made.fetch_add(1, Ordering::Relaxed);
                        at * 2
                    });
                    assert!(all.copied().eq((0..100).map(|at| at * 2)));
                });
            }
        });
        assert_eq!(made.into_inner(), 100);
    }
}

//! Functions of a row's place in its partition: numbers, ranks, shares and tiles.

use super::chunk::Chunk;
use std::ops::Range;

/// The last row of the chunk before, if its partition goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastPlace {
    /// Rows of the partition so far.
    rows: i64,
    rank: i64,
    dense_rank: i64,
}

/// The number of each row in its partition, from 1.
pub(super) fn row_numbers(chunk: &Chunk, last: &mut LastPlace) -> Vec<i64> {
    let mut numbers = Vec::with_capacity(chunk.rows);
    let mut before = if chunk.continues { last.rows } else { 0 };
    for partition in chunk.partitions() {
        let rows = partition.len() as i64;
        numbers.extend(before + 1..=before + rows);
        last.rows = before + rows;
        before = 0;
    }
    numbers
}

/// The rank of each row, without gaps if it `is_dense`.
pub(super) fn ranks(chunk: &Chunk, last: &mut LastPlace, is_dense: bool) -> Vec<i64> {
    let mut ranks: Vec<i64> = Vec::with_capacity(chunk.rows);
    let mut peers = chunk.peers().peekable();
    let mut place = if chunk.continues { *last } else { LastPlace::default() };
    let mut peers_continue = chunk.peers_continue;
    for partition in chunk.partitions() {
        while let Some(Range { start, end }) = peers.next_if(|peers| peers.start < partition.end) {
            if !peers_continue {
                place.rank = place.rows + 1;
                place.dense_rank += 1;
            }
            peers_continue = false;
            ranks.resize(end, if is_dense { place.dense_rank } else { place.rank });
            place.rows += (end - start) as i64;
        }
        *last = place;
        place = LastPlace::default();
    }
    ranks
}

/// The share of each row's partition that comes before its peers; of other rows than itself.
pub(super) fn percent_ranks(chunk: &Chunk) -> Vec<f64> {
    by_peers(chunk, |partition, peers| match partition.len() {
        1 => 0.0,
        rows => (peers.start - partition.start) as f64 / (rows - 1) as f64,
    })
}

/// The share of each row's partition that comes up to the last of its peers.
pub(super) fn cumulative_shares(chunk: &Chunk) -> Vec<f64> {
    by_peers(chunk, |partition, peers| (peers.end - partition.start) as f64 / partition.len() as f64)
}

fn by_peers(chunk: &Chunk, value: impl Fn(&Range<usize>, &Range<usize>) -> f64) -> Vec<f64> {
    let mut values = Vec::with_capacity(chunk.rows);
    let mut peers = chunk.peers().peekable();
    for partition in chunk.partitions() {
        while let Some(of_row) = peers.next_if(|peers| peers.start < partition.end) {
            values.resize(of_row.end, value(&partition, &of_row));
        }
    }
    values
}

/// The tile of each row, from 1. The first tiles have one row more than the others if the rows
/// cannot be divided evenly.
pub(super) fn tiles(chunk: &Chunk, tiles: u64) -> Vec<i64> {
    let mut numbers = Vec::with_capacity(chunk.rows);
    for partition in chunk.partitions() {
        let rows = partition.len() as u64;
        let (size, larger) = (rows / tiles, rows % tiles);
        let end = partition.end;
        let mut tile = 0;
        while numbers.len() < end {
            let rows = size + u64::from(tile < larger);
            tile += 1;
            numbers.resize(numbers.len() + rows as usize, tile as i64);
        }
    }
    numbers
}

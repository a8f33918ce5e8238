//! md5 of texts, as hexadecimal digits, and sha224, sha256, sha384 and sha512 of bytes.

use super::definition::{Definition, Types};
use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use md5::{Digest, Md5};
use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
use serac_storage::ColumnType;
use serac_values::SqlError;
use serac_values::assignment::assign;
use serac_values::text_types::is_text_or_null;
use std::sync::Arc;

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Texts are bytes as they are written in SQL, as a constant is in PostgreSQL.
fn bytes(given: &[DataType]) -> Option<Types> {
    match given {
        [argument] if is_bytes(argument) => Some((vec![DataType::BinaryView], DataType::BinaryView)),
        [argument] if is_text_or_null(argument) => Some((vec![DataType::Utf8View], DataType::BinaryView)),
        _ => None,
    }
}

fn each(args: &[ArrayRef], digest: impl Fn(&[u8]) -> Vec<u8>) -> Result<ArrayRef, SqlError> {
    let given = assign(&args[0], ColumnType::Binary.into(), "?")?;
    let given = cast(&given, &DataType::BinaryView)?;
    let digests = given.as_binary_view().iter().map(|bytes| bytes.map(&digest));
    Ok(Arc::new(digests.collect::<BinaryViewArray>()))
}
fn sha(args: &[ArrayRef], algorithm: &'static Algorithm) -> Result<ArrayRef, SqlError> {
    each(args, |bytes| digest(algorithm, bytes).as_ref().to_vec())
}

/// The digits behind the points of the cube roots of the first 64 primes.
const ROUND: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
];
/// The initial words of SHA-224; otherwise it is the first 28 bytes of SHA-256 (FIPS 180-4).
const START_OF_224: [u32; 8] =
    [0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939, 0xffc00b31, 0x68581511, 0x64f98fa7, 0xbefa4fa4];

fn sha224(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    let end = (padded.len() + 8).next_multiple_of(64) - 8;
    padded.resize(end, 0);
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    let mut state = START_OF_224;
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..64 {
            let (early, late) = (words[i - 15], words[i - 2]);
            let early = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
            let late = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
            words[i] = words[i - 16].wrapping_add(early).wrapping_add(words[i - 7]).wrapping_add(late);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (round, word) in ROUND.iter().zip(words) {
            let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let first = h.wrapping_add(sum).wrapping_add((e & f) ^ (!e & g)).wrapping_add(*round).wrapping_add(word);
            let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let second = sum.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(second));
        }
        for (word, change) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(change);
        }
    }
    state[..7].iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn md5_of(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) static DEFINITIONS: &[Definition] = &[
    Definition {
        name: "md5",
        types: |given| match given {
            [argument] if is_bytes(argument) => Some((vec![DataType::BinaryView], DataType::Utf8)),
            [argument] if is_text_or_null(argument) => Some((vec![DataType::Utf8View], DataType::Utf8)),
            _ => None,
        },
        body: |args| {
            let digests: StringArray = match args[0].data_type() {
                DataType::BinaryView => args[0].as_binary_view().iter().map(|bytes| bytes.map(md5_of)).collect(),
                _ => args[0].as_string_view().iter().map(|text| text.map(|text| md5_of(text.as_bytes()))).collect(),
            };
            Ok(Arc::new(digests))
        },
    },
    Definition { name: "sha224", types: bytes, body: |args| each(args, sha224) },
    Definition { name: "sha256", types: bytes, body: |args| sha(args, &SHA256) },
    Definition { name: "sha384", types: bytes, body: |args| sha(args, &SHA384) },
    Definition { name: "sha512", types: bytes, body: |args| sha(args, &SHA512) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha224_of_the_standard() {
        let hex = |bytes: &[u8]| sha224(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(b"abc"), "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "75388b16512776cc5dba5da1fd890150b0c6455cb4f58b1952522525");
        assert_eq!(hex(b""), "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f");
    }
}

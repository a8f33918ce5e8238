//! What is kept of a password: a SCRAM-SHA-256 verifier (RFC 5802, RFC 7677), from which the password cannot be had.
//!
//! SHA-256 (FIPS 180-4) is written out here, because SQL on an embedded database shall be able to set a password, and nothing else here needs a library of ciphers.

const ITERATIONS: u32 = 4096;
const PREFIX: &str = "SCRAM-SHA-256$";

type Key = [u8; 32];
type State = [u32; 8];

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
const ROUNDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];
/// The same of the square roots of the first eight.
const START: State =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Takes a block of 64 bytes in.
fn compress(state: &mut State, block: &[u8]) {
    let mut words = [0u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    }
    for i in 16..64 {
        let (a, b) = (words[i - 15], words[i - 2]);
        let a = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let b = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        words[i] = words[i - 16].wrapping_add(a).wrapping_add(words[i - 7]).wrapping_add(b);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in words.iter().zip(ROUNDS) {
        let s = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h.wrapping_add(s).wrapping_add(choice).wrapping_add(round).wrapping_add(*word);
        let s = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e, d, c, b, a) =
            (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(s.wrapping_add(majority)));
    }
    for (own, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *own = own.wrapping_add(new);
    }
}

/// The digest of what `state` has taken in, `taken` bytes in whole blocks, and of `rest`.
fn finish(mut state: State, taken: usize, rest: &[u8]) -> Key {
    let mut padded = rest.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&((taken + rest.len()) as u64 * 8).to_be_bytes());
    padded.chunks_exact(64).for_each(|block| compress(&mut state, block));
    let mut key = [0; 32];
    key.chunks_exact_mut(4).zip(state).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    key
}

fn sha256(bytes: &[u8]) -> Key {
    finish(START, 0, bytes)
}

/// HMAC (RFC 2104) with one key, whose blocks are taken in once.
struct Hmac {
    inner: State,
    outer: State,
}

impl Hmac {
    fn new(key: &[u8]) -> Self {
        let mut block = [0; 64];
        if key.len() > 64 {
            block[..32].copy_from_slice(&sha256(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let keyed = |pad: u8| {
            let mut state = START;
            compress(&mut state, &block.map(|byte| byte ^ pad));
            state
        };
        Self { inner: keyed(0x36), outer: keyed(0x5c) }
    }
    fn of(&self, bytes: &[u8]) -> Key {
        finish(self.outer, 64, &finish(self.inner, 64, bytes))
    }
}

/// Hi(password, salt, iterations) of RFC 5802: PBKDF2's only block.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let hmac = Hmac::new(password);
    let mut last = hmac.of(&[salt, &[0, 0, 0, 1]].concat());
    let mut all = last;
    for _ in 1..iterations {
        last = hmac.of(&last);
        all.iter_mut().zip(last).for_each(|(all, last)| *all ^= last);
    }
    all
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = chunk.iter().enumerate().fold(0u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
        let digit = move |i: usize| match i <= chunk.len() {
            true => DIGITS[(bits >> (18 - 6 * i)) as usize & 63] as char,
            false => '=',
        };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    bytes.chunks(3).flat_map(group).collect()
}

fn verifier_with(password: &str, salt: &[u8], iterations: u32) -> String {
    let hmac = Hmac::new(&salted(password.as_bytes(), salt, iterations));
    let (stored, server) = (sha256(&hmac.of(b"Client Key")), hmac.of(b"Server Key"));
    format!("{PREFIX}{iterations}:{}${}:{}", base64(salt), base64(&stored), base64(&server))
}

/// The verifier of a password, with a salt that no other has; what is a verifier already is taken as it is, as PostgreSQL does.
pub(super) fn verifier(password: &str) -> String {
    if is_verifier(password) {
        return password.to_owned();
    }
    // A salt must be new, not secret: hashes under keys that the system's random numbers make.
    let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), password.len()).to_le_bytes();
    verifier_with(password, &[random(), random()].concat(), ITERATIONS)
}

fn is_verifier(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(PREFIX) else { return false };
    let Some((head, keys)) = rest.split_once('$') else { return false };
    let (Some((iterations, salt)), Some((stored, server))) = (head.split_once(':'), keys.split_once(':')) else {
        return false;
    };
    let is_base64 = |text: &str| {
        let body = text.trim_end_matches('=');
        text.len().is_multiple_of(4)
            && text.len() - body.len() <= 2
            && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
    };
    let is_key = |text: &str| text.len() == 44 && text.ends_with('=') && is_base64(text);
    iterations.parse::<u32>().is_ok_and(|n| n > 0)
        && !salt.is_empty()
        && is_base64(salt)
        && is_key(stored)
        && is_key(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        assert_eq!(hex(&sha256(b"")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex(&sha256(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(&sha256(long)), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        assert_eq!(
            hex(&sha256(&[b'a'; 1_000_000])),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        );
        // RFC 4231, the second and the sixth case.
        let tag = Hmac::new(b"Jefe").of(b"what do ya want for nothing?");
        assert_eq!(hex(&tag), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let tag = Hmac::new(&[0xaa; 131]).of(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&tag), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
        // RFC 7914 §11.
        let key = salted(b"passwd", b"salt", 1);
        assert_eq!(hex(&key), "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc");
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn a_verifier_is_made_once() {
        let first = verifier("secret");
        assert!(is_verifier(&first) && first.starts_with("SCRAM-SHA-256$4096:"), "{first}");
        assert_ne!(first, verifier("secret"), "each has a salt of its own");
        assert_eq!(verifier(&first), first);
        for other in
            ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:c2FsdA==$x:y", &first.replace("4096", "0"), &first[..80]]
        {
            assert!(!is_verifier(other), "{other}");
        }
    }
}

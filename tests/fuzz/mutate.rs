//! Changes bytes as transmission, carelessness and malice do.

use super::driver::Random;

/// Bytes that end, begin, escape or overflow something.
const ODD: [u8; 16] = [0, 1, 0x7f, 0x80, 0xff, 0xfe, b'\r', b'\n', b'/', b'.', b'%', b':', b'*', b'$', b'{', b'"'];
/// No input grows beyond it.
const MOST: usize = 64 * 1024;

/// One of `seeds` after one to eight changes, mostly few; words of `dictionary` may come in.
pub fn mutated(random: &mut Random, seeds: &[Vec<u8>], dictionary: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.one_of(seeds).clone();
    let most = 1 + random.below(8);
    for _ in 0..=random.below(most) {
        change(random, &mut bytes, seeds, dictionary);
        bytes.truncate(MOST);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], dictionary: &[&[u8]]) {
    let at = random.below(bytes.len() + 1);
    let end = (at + 1 + random.below(16)).min(bytes.len());
    match random.below(9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.byte(),
        2 if at < bytes.len() => bytes[at] = *random.one_of(&ODD),
        3 if at < end => drop(bytes.drain(at..end)),
        4 => bytes.truncate(at),
        5 if at < end => {
            let piece = bytes[at..end].to_vec();
            // Now and then so often that something must give.
            let times = if random.below(20) == 0 { 2000 } else { 1 + random.below(4) };
            insert(bytes, at, &piece.repeat(times));
        }
        6 => {
            let other = random.one_of(seeds);
            let from = random.below(other.len() + 1);
            let length = random.below(64).min(other.len() - from);
            insert(bytes, at, &other[from..from + length]);
        }
        7 if !dictionary.is_empty() => {
            let word: &[u8] = random.one_of::<&[u8]>(dictionary);
            insert(bytes, at, word);
        }
        _ => {
            let noise: Vec<u8> = (0..=random.below(8)).map(|_| random.byte()).collect();
            insert(bytes, at, &noise);
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

//! SHA-256 that can be left and resumed in 40 bytes.
//!
//! A clone of `sha2::Sha256` is 112 bytes, most of them the input not yet compressed. That input is the end of a
//! text that the tree holds anyway, so a node saves only the chaining value and the length and gives the rest
//! again. The compression itself is `sha2`'s; FIPS 180-4 defines the start and the padding around it.

use std::fmt::Write;

use sha2::block_api::compress256;

use crate::encoding::Sink;

const BLOCK: usize = 64;

const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The state after some input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub(crate) chain: [u32; 8],
    /// How many bytes have been hashed.
    pub(crate) length: u64,
}

impl Saved {
    /// How many of the last bytes [`Hasher::resume`] needs again.
    #[allow(clippy::cast_possible_truncation, reason = "a remainder below 64")]
    pub(crate) fn pending(self) -> usize {
        (self.length % BLOCK as u64) as usize
    }
}

pub(crate) struct Hasher {
    chain: [u32; 8],
    length: u64,
    block: [u8; BLOCK],
}

impl Hasher {
    pub(crate) fn new() -> Self {
        Self { chain: START, length: 0, block: [0; BLOCK] }
    }

    /// Continues after `saved`, whose last [`Saved::pending`] bytes of input are `tail`.
    pub(crate) fn resume(saved: Saved, tail: &[u8]) -> Self {
        let mut hasher =
            Self { chain: saved.chain, length: saved.length - tail.len() as u64, block: [0; BLOCK] };
        hasher.put(tail);
        hasher
    }

    pub(crate) fn save(&self) -> Saved {
        Saved { chain: self.chain, length: self.length }
    }

    /// `sha256:` and 64 hexadecimal digits.
    pub(crate) fn finish(mut self) -> String {
        let bits = self.length * 8;
        self.put(&[0x80]);
        let zeros = (2 * BLOCK - 8 - self.save().pending()) % BLOCK;
        self.put(&[0; BLOCK][..zeros]);
        self.put(&bits.to_be_bytes());
        self.chain.iter().fold(String::from("sha256:"), |mut text, word| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{word:08x}");
            text
        })
    }
}

impl Sink for Hasher {
    fn put(&mut self, mut bytes: &[u8]) {
        let held = self.save().pending();
        self.length += bytes.len() as u64;
        if held > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - held));
            self.block[held..held + now.len()].copy_from_slice(now);
            if held + now.len() < BLOCK {
                return;
            }
            compress256(&mut self.chain, &[self.block]);
            bytes = later;
        }
        let (blocks, rest) = bytes.as_chunks();
        compress256(&mut self.chain, blocks);
        self.block[..rest.len()].copy_from_slice(rest);
    }
}

/// Keeps the last bytes of its input, at most as many as asked for.
pub(crate) struct Last {
    wanted: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Last {
    pub(crate) fn new(wanted: usize) -> Self {
        Self { wanted, bytes: Vec::with_capacity(wanted) }
    }
}

impl Sink for Last {
    fn put(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(self.wanted)..];
        let old = self.bytes.len().min(self.wanted - new.len());
        self.bytes.drain(..self.bytes.len() - old);
        self.bytes.extend_from_slice(new);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;

    fn reference(input: &[u8]) -> String {
        Sha256::digest(input).iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
    }

    proptest! {
        #[test]
        fn saving_and_resuming_anywhere_changes_no_digest(pieces: Vec<Vec<u8>>, wide in 0_usize..300) {
            let mut input = Vec::new();
            let mut hasher = Hasher::new();
            for piece in pieces.into_iter().chain([vec![7; wide]]) {
                hasher.put(&piece);
                input.extend_from_slice(&piece);
                let saved = hasher.save();
                hasher = Hasher::resume(saved, &input[input.len() - saved.pending()..]);
            }
            prop_assert_eq!(hasher.finish(), reference(&input));
        }

        #[test]
        fn the_last_bytes_do_not_depend_on_the_pieces(pieces: Vec<Vec<u8>>, wanted in 0_usize..64) {
            let mut last = Last::new(wanted);
            for piece in &pieces {
                last.put(piece);
            }
            let input = pieces.concat();
            prop_assert_eq!(&last.bytes, &input[input.len().saturating_sub(wanted)..]);
        }
    }

    #[test]
    fn every_length_around_a_block_is_padded_right() {
        for length in 0..260 {
            let input = vec![0x61; length];
            let mut hasher = Hasher::new();
            hasher.put(&input);
            assert_eq!(hasher.finish(), reference(&input), "length {length}");
        }
    }
}

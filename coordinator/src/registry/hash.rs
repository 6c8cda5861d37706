//! The rolling hash by which coordinators notice that they have drifted apart (REPLICATION R8).

/// FNV-1a, 64 bits: the same on every machine and version, and a pure function of the bytes fed.
///
/// Guards against bugs, not against forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHash(pub u64);

impl Default for StateHash {
    fn default() -> StateHash {
        StateHash(0xCBF2_9CE4_8422_2325)
    }
}

impl StateHash {
    /// Continues with `bytes`, and with their length so that pieces do not run together.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_be_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_between_pieces_counts() {
        let hash = |pieces: &[&[u8]]| {
            let mut hash = StateHash::default();
            pieces.iter().for_each(|piece| hash.feed(piece));
            hash
        };
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[b"ab", b"c"]), hash(&[b"ab", b"c"]));
    }
}

//! Which partition a record goes to.

/// Kafka's default hash of keys: MurmurHash2, 32 bit, seed 0x9747b28c. All its clients agree on it.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    for (i, byte) in rest.iter().enumerate().rev() {
        hash ^= u32::from(*byte) << (8 * i);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

/// The partition of a key, as the Java producer chooses it. `partition_count` is over 0.
pub fn partition_of_key(key: &[u8], partition_count: i32) -> i32 {
    let positive = murmur2(key) & 0x7fff_ffff;
    i32::try_from(positive % partition_count.max(1).unsigned_abs()).unwrap_or(0)
}

/// Sends records without a key to one partition until it has taken a batch's worth, then to another (KIP-794).
#[derive(Debug, Default)]
pub(crate) struct StickyPartitioner {
    current: Option<i32>,
    bytes_left: usize,
}

impl StickyPartitioner {
    /// `candidates` are the partitions that have a leader, or all if none has; `random` picks among them.
    ///
    /// `None` only if there are no candidates.
    pub(crate) fn pick(
        &mut self,
        candidates: &[i32],
        record_bytes: usize,
        batch_bytes: usize,
        random: impl FnOnce() -> u32,
    ) -> Option<i32> {
        if let Some(partition) = self.current
            && self.bytes_left >= record_bytes
            && candidates.contains(&partition)
        {
            self.bytes_left -= record_bytes;
            return Some(partition);
        }
        let others: Vec<i32> = candidates.iter().copied().filter(|p| Some(*p) != self.current).collect();
        let pool = if others.is_empty() { candidates } else { &others };
        let index = random() as usize % pool.len().max(1);
        self.current = pool.get(index).copied();
        self.bytes_left = batch_bytes.saturating_sub(record_bytes);
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of Kafka's own test of its hash (UtilsTest).
    #[test]
    fn murmur2_is_kafkas() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn a_partition_is_kept_for_a_batchs_worth_and_then_left() {
        let mut sticky = StickyPartitioner::default();
        let first = sticky.pick(&[0, 1], 40, 100, || 0).unwrap();
        assert_eq!(sticky.pick(&[0, 1], 40, 100, || panic!("kept")), Some(first));
        let second = sticky.pick(&[0, 1], 40, 100, || 0).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_partition_that_lost_its_leader_is_left_at_once() {
        let mut sticky = StickyPartitioner::default();
        sticky.pick(&[0], 1, 100, || 0);
        assert_eq!(sticky.pick(&[1], 1, 100, || 0), Some(1));
        assert_eq!(sticky.pick(&[], 1, 100, || 0), None);
    }
}

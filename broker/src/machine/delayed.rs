//! A fetch that waits for enough records (Kafka's delayed fetch).
//!
//! ```text
//! Waiting --enough bytes, or a partition that cannot be read--> Ready
//!         --max_wait passed--> answered as it is, by whoever keeps the time
//! ```

/// How much of a fetch is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    min_bytes: u64,
    /// By the fetch's own number of the partition.
    available: Vec<u64>,
    total: u64,
}

impl Delayed {
    /// `available`: what each partition could give when the fetch was parked.
    pub fn new(min_bytes: u64, available: Vec<u64>) -> Delayed {
        let total = available.iter().sum();
        Delayed { min_bytes, available, total }
    }

    /// Takes a new look at one partition; `None`: it cannot be read, and the client must hear of it.
    /// Returns whether the fetch is to be answered now.
    pub fn looked(&mut self, index: usize, bytes: Option<u64>) -> bool {
        let Some(bytes) = bytes else { return true };
        if let Some(available) = self.available.get_mut(index) {
            self.total = self.total - *available + bytes;
            *available = bytes;
        }
        self.is_ready()
    }

    pub fn is_ready(&self) -> bool {
        self.total >= self.min_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_all_partitions_count_together() {
        let mut delayed = Delayed::new(100, vec![0, 30]);
        assert!(!delayed.looked(0, Some(60)));
        assert!(!delayed.looked(0, Some(69)), "a second look replaces the first");
        assert!(delayed.looked(0, Some(70)));
    }

    #[test]
    fn a_partition_that_cannot_be_read_ends_the_wait() {
        assert!(Delayed::new(100, vec![0]).looked(0, None));
    }
}

//! Decides which batches get index entries: a pure function of the segment's bytes, so that an index
//! made while appending and one made by recovery are equal.

use thalweg_model::Timestamp;

use crate::offset_index::OffsetPosition;
use crate::time_index::TimeOffset;

/// Where the indexes of a growing segment stand. Entries fall where Kafka's `LogSegment` puts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexBuilder {
    /// Position of the last indexed batch; 0 before one.
    last_position: u32,
    /// The largest timestamp so far, and the batch that has it.
    max: TimeOffset,
    /// The largest timestamp that has an entry.
    last_timestamp: Timestamp,
    pub offset_entries: Vec<OffsetPosition>,
    pub time_entries: Vec<TimeOffset>,
}

impl IndexBuilder {
    /// For an empty segment.
    pub fn new() -> IndexBuilder {
        IndexBuilder {
            last_position: 0,
            max: TimeOffset { timestamp: Timestamp::NONE, relative_offset: 0 },
            last_timestamp: Timestamp::NONE,
            offset_entries: Vec::new(),
            time_entries: Vec::new(),
        }
    }

    /// For a segment whose last entries are these.
    pub fn resume(last: OffsetPosition, last_time: Option<TimeOffset>) -> IndexBuilder {
        let mut builder = IndexBuilder::new();
        builder.last_position = last.position;
        if let Some(time) = last_time {
            builder.max = time;
            builder.last_timestamp = time.timestamp;
        }
        builder
    }

    /// Takes in the batch at `position`, which ends at `relative_offset`.
    pub fn add(&mut self, position: u32, relative_offset: u32, max_timestamp: Timestamp, interval: u32) {
        if max_timestamp > self.max.timestamp {
            self.max = TimeOffset { timestamp: max_timestamp, relative_offset };
        }
        if position - self.last_position > interval {
            self.offset_entries.push(OffsetPosition { relative_offset, position });
            self.last_position = position;
            self.add_time();
        }
    }

    /// The segment is closed: its largest timestamp gets an entry.
    pub fn seal(&mut self) {
        self.add_time();
    }

    pub fn take_entries(&mut self) -> (Vec<OffsetPosition>, Vec<TimeOffset>) {
        (std::mem::take(&mut self.offset_entries), std::mem::take(&mut self.time_entries))
    }

    fn add_time(&mut self) {
        if self.max.timestamp > self.last_timestamp {
            self.time_entries.push(self.max);
            self.last_timestamp = self.max.timestamp;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gets_an_entry_once_the_interval_has_passed() {
        let mut builder = IndexBuilder::new();
        for (i, time) in [5, 3, 9, 1, 9, 20].into_iter().enumerate() {
            builder.add(40 * i as u32, 10 * i as u32 + 9, Timestamp(time), 60);
        }
        let positions: Vec<u32> = builder.offset_entries.iter().map(|entry| entry.position).collect();
        assert_eq!(positions, [80, 160]);
        let time = |timestamp, relative_offset| TimeOffset { timestamp: Timestamp(timestamp), relative_offset };
        assert_eq!(builder.time_entries, [time(9, 29)]);
        builder.seal();
        assert_eq!(builder.time_entries, [time(9, 29), time(20, 59)]);
    }
}

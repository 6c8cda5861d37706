//! Offsets of many partitions, as one checkpoint file holds them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use thalweg_model::{Offset, PartitionIndex, TopicName, TopicPartition};

use crate::checkpoint::{CheckpointError, number, parse_lines};

/// Offsets by partition. What was read stays the text that it was: a line may have 6 bytes, and a map entry for it
/// 16 times as long.
#[derive(Clone, Default)]
pub struct OffsetCheckpoint {
    text: String,
    /// Where each line of `text` begins. Invariant: in the order of topic and partition, each of which is there once.
    lines: Vec<u32>,
    /// What was changed since; `None`: removed.
    changes: BTreeMap<TopicPartition, Option<Offset>>,
}

/// A line of a checkpoint file: the topic's name, the partition, the offset.
pub type OffsetLine<'a> = (&'a str, PartitionIndex, Offset);

impl OffsetCheckpoint {
    pub fn new() -> OffsetCheckpoint {
        OffsetCheckpoint::default()
    }

    /// Reads the text of a file. The same partition twice is an error, as is any line that Kafka would not write.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] names the line.
    pub fn parse(bytes: Vec<u8>) -> Result<OffsetCheckpoint, CheckpointError> {
        let mut count = 0;
        parse_lines(&bytes, |line| {
            count += 1;
            read_line(line).map(drop)
        })?;
        let malformed = |line| CheckpointError::Malformed { line };
        let text = String::from_utf8(bytes).map_err(|_| malformed(0))?;
        let mut lines = Vec::with_capacity(count + 2);
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            lines.push(u32::try_from(start).map_err(|_| malformed(0))?);
            start += line.len();
        }
        // The version and the count of lines.
        lines.drain(..2);
        let mut read = OffsetCheckpoint { text, lines, changes: BTreeMap::new() };
        read.sort().map_err(malformed)?;
        Ok(read)
    }

    pub fn get(&self, tp: &TopicPartition) -> Option<Offset> {
        match self.changes.get(tp) {
            Some(change) => *change,
            None => self.find(tp).map(|(_, _, offset)| offset),
        }
    }

    pub fn insert(&mut self, tp: TopicPartition, offset: Offset) {
        self.changes.insert(tp, Some(offset));
    }

    /// Whether it was there.
    pub fn remove(&mut self, tp: &TopicPartition) -> bool {
        let was_there = self.get(tp).is_some();
        if self.find(tp).is_some() {
            self.changes.insert(tp.clone(), None);
        } else {
            // Nothing of it stays: partitions come and go for as long as a broker lives.
            self.changes.remove(tp);
        }
        was_there
    }

    /// In the order of topic and partition.
    pub fn iter(&self) -> impl Iterator<Item = OffsetLine<'_>> {
        Merged {
            lines: self.lines.iter().map(|start| line_at(&self.text, *start)).peekable(),
            changes: self.changes.iter().peekable(),
        }
    }

    fn find(&self, tp: &TopicPartition) -> Option<OffsetLine<'_>> {
        let wanted = (tp.topic.as_str(), tp.partition);
        let found = self.lines.binary_search_by(|start| key(line_at(&self.text, *start)).cmp(&wanted));
        found.ok().map(|at| line_at(&self.text, self.lines[at]))
    }

    /// Establishes the order; the number of a line whose partition is there before, if one is.
    fn sort(&mut self) -> Result<(), usize> {
        let OffsetCheckpoint { text, lines, .. } = self;
        let of = |start: &u32| key(line_at(text, *start));
        // As nearly every file is that anybody wrote.
        if lines.is_sorted_by(|a, b| of(a) < of(b)) {
            return Ok(());
        }
        // By place where the key is the same, so that the later one is named.
        lines.sort_unstable_by(|a, b| of(a).cmp(&of(b)).then(a.cmp(b)));
        let repeated = lines.windows(2).filter(|pair| of(&pair[0]) == of(&pair[1])).map(|pair| pair[1]).min();
        match repeated {
            Some(start) => Err(text[..start as usize].matches('\n').count() + 1),
            None => Ok(()),
        }
    }
}

impl FromIterator<(TopicPartition, Offset)> for OffsetCheckpoint {
    fn from_iter<I: IntoIterator<Item = (TopicPartition, Offset)>>(offsets: I) -> OffsetCheckpoint {
        let changes = offsets.into_iter().map(|(tp, offset)| (tp, Some(offset))).collect();
        OffsetCheckpoint { changes, ..OffsetCheckpoint::default() }
    }
}

impl PartialEq for OffsetCheckpoint {
    fn eq(&self, other: &OffsetCheckpoint) -> bool {
        self.iter().eq(other.iter())
    }
}

impl std::fmt::Debug for OffsetCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The lines that were read, with what was changed in their place.
struct Merged<'a, L: Iterator<Item = OffsetLine<'a>>> {
    lines: Peekable<L>,
    changes: Peekable<btree_map::Iter<'a, TopicPartition, Option<Offset>>>,
}

impl<'a, L: Iterator<Item = OffsetLine<'a>>> Iterator for Merged<'a, L> {
    type Item = OffsetLine<'a>;

    fn next(&mut self) -> Option<OffsetLine<'a>> {
        loop {
            let order = match (self.lines.peek(), self.changes.peek()) {
                (Some(line), Some((tp, _))) => key(*line).cmp(&(tp.topic.as_str(), tp.partition)),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            if order == Ordering::Less {
                return self.lines.next();
            }
            if order == Ordering::Equal {
                self.lines.next();
            }
            let (tp, change) = self.changes.next()?;
            if let Some(offset) = change {
                return Some((tp.topic.as_str(), tp.partition, *offset));
            }
        }
    }
}

fn key(line: OffsetLine<'_>) -> (&str, PartitionIndex) {
    (line.0, line.1)
}

fn line_at(text: &str, start: u32) -> OffsetLine<'_> {
    let line = text[start as usize..].lines().next().unwrap_or_default();
    read_line(line).expect("every line was read once before it was kept")
}

fn read_line(line: &str) -> Option<OffsetLine<'_>> {
    let mut words = line.split(' ');
    let topic = words.next()?;
    TopicName::check(topic).ok()?;
    let partition = PartitionIndex(number(words.next()?)?);
    let offset = Offset(number(words.next()?)?);
    words.next().is_none().then_some((topic, partition, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(partition))
    }

    fn lines(checkpoint: &OffsetCheckpoint) -> Vec<(&str, i32, i64)> {
        checkpoint.iter().map(|(topic, partition, offset)| (topic, partition.0, offset.0)).collect()
    }

    #[test]
    fn changes_take_the_place_of_what_was_read_whatever_its_order() {
        let mut read = OffsetCheckpoint::parse(b"0\n4\nb 10 5\nb 9 6\na 3 1\nc 0 7\n".to_vec()).unwrap();
        assert_eq!(lines(&read), [("a", 3, 1), ("b", 9, 6), ("b", 10, 5), ("c", 0, 7)]);
        read.insert(tp("b", 9), Offset(60));
        read.insert(tp("aa", 0), Offset(2));
        read.insert(tp("d", 0), Offset(8));
        assert!(read.remove(&tp("a", 3)) && !read.remove(&tp("a", 3)) && !read.remove(&tp("x", 0)));
        assert_eq!(lines(&read), [("aa", 0, 2), ("b", 9, 60), ("b", 10, 5), ("c", 0, 7), ("d", 0, 8)]);
        let get = |topic, partition| read.get(&tp(topic, partition)).map(|offset| offset.0);
        assert_eq!([get("a", 3), get("b", 9), get("b", 10), get("d", 0)], [None, Some(60), Some(5), Some(8)]);
    }

    #[test]
    fn partitions_that_came_and_went_leave_nothing_behind() {
        let mut checkpoint = OffsetCheckpoint::parse(b"0\n1\na 0 1\n".to_vec()).unwrap();
        for partition in 0..3 {
            checkpoint.insert(tp("b", partition), Offset(5));
            assert!(checkpoint.remove(&tp("b", partition)));
        }
        assert!(checkpoint.changes.is_empty());
        assert!(checkpoint.remove(&tp("a", 0)) && checkpoint.get(&tp("a", 0)).is_none());
    }

    #[test]
    fn a_partition_that_is_there_twice_is_named_where_it_comes_again() {
        let parse = |text: &str| OffsetCheckpoint::parse(text.as_bytes().to_vec());
        for (text, line) in [("0\n3\nb 0 1\na 0 1\nb 0 2\n", 5), ("0\n2\na 0 5\na 0 6\n", 4)] {
            assert!(
                matches!(parse(text), Err(CheckpointError::Malformed { line: named }) if named == line),
                "{text:?}"
            );
        }
    }
}

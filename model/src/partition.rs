//! Which partition.

use std::fmt;

use crate::TopicName;

/// A partition's number within its topic, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionIndex(pub i32);

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A partition by its topic's name, as logs, directories and people write it: `topic-3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: TopicName,
    pub partition: PartitionIndex,
}

impl TopicPartition {
    pub fn new(topic: TopicName, partition: PartitionIndex) -> TopicPartition {
        TopicPartition { topic, partition }
    }

    /// Reads a log directory's name; `None` if it is not `topic-number`.
    pub fn from_dir_name(name: &str) -> Option<TopicPartition> {
        let (topic, number) = name.rsplit_once('-')?;
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let partition = PartitionIndex(number.parse().ok()?);
        let found = TopicPartition::new(TopicName::new(topic).ok()?, partition);
        (found.to_string() == name).then_some(found)
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_name_reads_back_as_its_partition() {
        let found = TopicPartition::from_dir_name("a-b.c_d-12").expect("valid");
        assert_eq!((found.topic.as_str(), found.partition.0), ("a-b.c_d", 12));
        assert_eq!(found.to_string(), "a-b.c_d-12");
    }

    #[test]
    fn other_directory_names_are_no_partitions() {
        for name in ["", "-", "topic", "topic-", "-1", "..-1", "t-01", "t-+1", "t-99999999999", "t-1.abc-delete"] {
            assert_eq!(TopicPartition::from_dir_name(name), None, "{name}");
        }
    }
}

//! Which partitions of which topics a verb is about.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use thalweg_client::ClientError;
use thalweg_client::admin::Admin;
use thalweg_client::consumer::topic_partition;
use thalweg_model::TopicPartition;

use crate::cli::failure::Failure;

/// `topic`, or `topic:0,3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    topic: String,
    /// Empty for all.
    partitions: BTreeSet<i32>,
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let wrong = || format!("'{text}' is neither a topic nor topic:partition,partition");
        // Topics have no colon in their names.
        let (topic, partitions) = text.split_once(':').map_or((text, None), |(topic, rest)| (topic, Some(rest)));
        if topic.is_empty() {
            return Err(wrong());
        }
        let number = |word: &str| word.parse::<i32>().ok().filter(|index| *index >= 0).ok_or_else(wrong);
        let partitions = partitions.map(|rest| rest.split(',').map(number).collect()).transpose()?;
        Ok(Selection { topic: topic.to_owned(), partitions: partitions.unwrap_or_default() })
    }
}

/// The partitions of these selections, as the cluster has them.
///
/// # Errors
/// A topic or a partition that does not exist.
pub async fn existing(admin: &Admin, selections: &[Selection]) -> Result<BTreeSet<TopicPartition>, Failure> {
    let mut found = BTreeSet::new();
    for selection in selections {
        let count = admin.topic(&selection.topic).await?.partition_count();
        if let Some(partition) = selection.partitions.iter().find(|index| **index >= count) {
            let topic = selection.topic.clone();
            return Err(ClientError::UnknownPartition { topic, partition: *partition, partition_count: count }.into());
        }
        let all: BTreeSet<i32> = (0..count).collect();
        for index in if selection.partitions.is_empty() { &all } else { &selection.partitions } {
            found.insert(topic_partition(&selection.topic, *index)?);
        }
    }
    Ok(found)
}

/// Those of `known` that are selected; topics that are gone may be named too.
///
/// # Errors
/// A selection that matches nothing.
pub fn among<T>(
    known: &BTreeMap<TopicPartition, T>,
    selections: &[Selection],
) -> Result<BTreeSet<TopicPartition>, String> {
    let mut found = BTreeSet::new();
    for selection in selections {
        let is_selected = |tp: &&TopicPartition| {
            tp.topic.as_str() == selection.topic
                && (selection.partitions.is_empty() || selection.partitions.contains(&tp.partition.0))
        };
        let before = found.len();
        found.extend(known.keys().filter(is_selected).cloned());
        if found.len() == before {
            return Err(selection.topic.clone());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_may_be_followed_by_partitions() {
        let selection = |topic: &str, partitions: &[i32]| Selection {
            topic: topic.to_owned(),
            partitions: partitions.iter().copied().collect(),
        };
        assert_eq!("orders".parse(), Ok(selection("orders", &[])));
        assert_eq!("orders:0,3".parse(), Ok(selection("orders", &[0, 3])));
        for text in ["", ":1", "orders:", "orders:x", "orders:-1", "orders:1,"] {
            assert!(text.parse::<Selection>().is_err(), "{text}");
        }
    }
}

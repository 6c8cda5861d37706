//! What members of a classic group tell each other through the coordinator: subscription and assignment.
//!
//! Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. Readers
//! accept later versions and ignore what follows the fields they know.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Partitions by topic; both sorted.
pub type TopicPartitions = BTreeMap<String, Vec<i32>>;

/// What a member wants and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Sorted.
    pub topics: Vec<String>,
    pub user_data: Option<Bytes>,
    /// Version 1 on; empty when the member holds nothing, or speaks version 0.
    pub owned: TopicPartitions,
    /// Version 2 on; the generation in which `owned` was true, or -1.
    pub generation_id: i32,
    /// Version 3 on.
    pub rack_id: Option<String>,
}

/// What a member held last, as it tells the leader of a group with the assignor `sticky` in its user data, because it has given
/// everything up by then.
///
/// Source: KIP-54 (topics and partitions), KIP-341 (generation). It has no version: the generation is there or is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub partitions: TopicPartitions,
    /// -1 when unknown.
    pub generation_id: i32,
}

/// What the leader gives a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub partitions: TopicPartitions,
    pub user_data: Option<Bytes>,
}

/// Bytes of another member, or of a coordinator, that do not read as the protocol. Theirs is the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group member data is cut short or malformed at {field}")]
pub struct ProtocolError {
    pub field: &'static str,
}

impl Subscription {
    /// Version 3, which every reader of versions 0 to 2 reads too.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(SUBSCRIPTION_VERSION);
        out.put_i32(count(self.topics.len()));
        for topic in &self.topics {
            put_string(&mut out, topic);
        }
        put_bytes(&mut out, self.user_data.as_ref());
        put_partitions(&mut out, &self.owned);
        out.put_i32(self.generation_id);
        match &self.rack_id {
            Some(rack) => put_string(&mut out, rack),
            None => out.put_i16(-1),
        }
        out.freeze()
    }

    /// # Errors
    /// The bytes are not a subscription.
    pub fn decode(mut data: Bytes) -> Result<Subscription, ProtocolError> {
        let version = get_i16(&mut data, "version")?;
        if version < 0 {
            return Err(ProtocolError { field: "version" });
        }
        let topic_count = get_count(&mut data, 2, "topics")?;
        let mut topics = Vec::with_capacity(topic_count);
        for _ in 0..topic_count {
            topics.push(get_string(&mut data, "topic")?.ok_or(ProtocolError { field: "topic" })?);
        }
        topics.sort();
        topics.dedup();
        let user_data = get_bytes(&mut data, "user_data")?;
        let owned = if version >= 1 { get_partitions(&mut data)? } else { TopicPartitions::new() };
        let generation_id = if version >= 2 { get_i32(&mut data, "generation_id")? } else { -1 };
        let rack_id = if version >= 3 { get_string(&mut data, "rack_id")? } else { None };
        Ok(Subscription { topics, user_data, owned, generation_id, rack_id })
    }
}

impl Held {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_partitions(&mut out, &self.partitions);
        out.put_i32(self.generation_id);
        out.freeze()
    }

    /// # Errors
    /// The bytes are not user data of the assignor `sticky`.
    pub fn decode(mut data: Bytes) -> Result<Held, ProtocolError> {
        let partitions = get_partitions(&mut data)?;
        let generation_id = if data.is_empty() { -1 } else { get_i32(&mut data, "generation_id")? };
        Ok(Held { partitions, generation_id })
    }
}

impl Assignment {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(ASSIGNMENT_VERSION);
        put_partitions(&mut out, &self.partitions);
        put_bytes(&mut out, self.user_data.as_ref());
        out.freeze()
    }

    /// No bytes at all is what a member gets that the leader left out: nothing.
    ///
    /// # Errors
    /// The bytes are not an assignment.
    pub fn decode(mut data: Bytes) -> Result<Assignment, ProtocolError> {
        if data.is_empty() {
            return Ok(Assignment::default());
        }
        if get_i16(&mut data, "version")? < 0 {
            return Err(ProtocolError { field: "version" });
        }
        let partitions = get_partitions(&mut data)?;
        let user_data = get_bytes(&mut data, "user_data")?;
        Ok(Assignment { partitions, user_data })
    }
}

fn put_string(out: &mut BytesMut, text: &str) {
    // Topic names and racks are far below the limit; one that is not could not be sent in any request.
    let text = &text.as_bytes()[..text.len().min(i16::MAX as usize)];
    out.put_i16(text.len() as i16);
    out.put_slice(text);
}

fn put_bytes(out: &mut BytesMut, data: Option<&Bytes>) {
    match data {
        Some(data) => {
            out.put_i32(count(data.len()));
            out.put_slice(data);
        }
        None => out.put_i32(-1),
    }
}

fn put_partitions(out: &mut BytesMut, partitions: &TopicPartitions) {
    out.put_i32(count(partitions.len()));
    for (topic, indexes) in partitions {
        put_string(out, topic);
        out.put_i32(count(indexes.len()));
        for index in indexes {
            out.put_i32(*index);
        }
    }
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn get_i16(data: &mut Bytes, field: &'static str) -> Result<i16, ProtocolError> {
    data.try_get_i16().map_err(|_| ProtocolError { field })
}

fn get_i32(data: &mut Bytes, field: &'static str) -> Result<i32, ProtocolError> {
    data.try_get_i32().map_err(|_| ProtocolError { field })
}

/// A count whose elements, of at least `element_bytes` each, fit what is left.
fn get_count(data: &mut Bytes, element_bytes: usize, field: &'static str) -> Result<usize, ProtocolError> {
    let count = usize::try_from(get_i32(data, field)?).map_err(|_| ProtocolError { field })?;
    if count > data.len() / element_bytes {
        return Err(ProtocolError { field });
    }
    Ok(count)
}

fn get_string(data: &mut Bytes, field: &'static str) -> Result<Option<String>, ProtocolError> {
    let length = get_i16(data, field)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| ProtocolError { field })?;
    if length > data.len() {
        return Err(ProtocolError { field });
    }
    let text = data.split_to(length);
    String::from_utf8(text.to_vec()).map(Some).map_err(|_| ProtocolError { field })
}

fn get_bytes(data: &mut Bytes, field: &'static str) -> Result<Option<Bytes>, ProtocolError> {
    let length = get_i32(data, field)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| ProtocolError { field })?;
    if length > data.len() {
        return Err(ProtocolError { field });
    }
    Ok(Some(data.split_to(length)))
}

fn get_partitions(data: &mut Bytes) -> Result<TopicPartitions, ProtocolError> {
    let topic_count = get_count(data, 6, "partitions")?;
    let mut partitions = TopicPartitions::new();
    for _ in 0..topic_count {
        let topic = get_string(data, "topic")?.ok_or(ProtocolError { field: "topic" })?;
        let index_count = get_count(data, 4, "indexes")?;
        let indexes: &mut Vec<i32> = partitions.entry(topic).or_default();
        for _ in 0..index_count {
            indexes.push(get_i32(data, "index")?);
        }
        indexes.sort_unstable();
        indexes.dedup();
    }
    Ok(partitions)
}

const SUBSCRIPTION_VERSION: i16 = 3;
const ASSIGNMENT_VERSION: i16 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subscription() -> Subscription {
        Subscription {
            topics: vec!["a".into(), "b".into()],
            user_data: Some(Bytes::from_static(b"x")),
            owned: [("a".to_owned(), vec![0, 2])].into(),
            generation_id: 7,
            rack_id: Some("r1".into()),
        }
    }

    #[test]
    fn a_subscription_reads_back() {
        assert_eq!(Subscription::decode(subscription().encode()), Ok(subscription()));
        assert_eq!(Subscription::decode(Subscription::default().encode()).unwrap().topics, Vec::<String>::new());
    }

    /// What kcat 1.7 and kafka-python send: version 0, and version 1 without the later fields.
    #[test]
    fn older_subscriptions_read() {
        let v0 = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff";
        let read = Subscription::decode(Bytes::from_static(v0)).unwrap();
        assert_eq!((read.topics, read.owned.len(), read.generation_id), (vec!["t".to_owned()], 0, -1));
        let v1 = b"\0\x01\0\0\0\x01\0\x01t\0\0\0\0\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03";
        let read = Subscription::decode(Bytes::from_static(v1)).unwrap();
        assert_eq!(read.owned, [("t".to_owned(), vec![3])].into());
    }

    #[test]
    fn an_assignment_reads_back_and_nothing_is_nothing() {
        let assignment = Assignment { partitions: [("t".to_owned(), vec![1, 2])].into(), user_data: None };
        assert_eq!(Assignment::decode(assignment.encode()), Ok(assignment));
        assert_eq!(Assignment::decode(Bytes::new()), Ok(Assignment::default()));
    }

    #[test]
    fn what_a_member_held_reads_back_and_without_a_generation_too() {
        let held = Held { partitions: [("t".to_owned(), vec![0, 3])].into(), generation_id: 4 };
        let bytes = held.encode();
        assert_eq!(Held::decode(bytes.clone()), Ok(held.clone()));
        assert_eq!(Held::decode(bytes.slice(..bytes.len() - 4)), Ok(Held { generation_id: -1, ..held }));
    }

    #[test]
    fn counts_beyond_the_data_are_refused_before_memory_is_taken() {
        assert!(Assignment::decode(Bytes::from_static(b"\0\0\x7f\xff\xff\xff")).is_err());
        assert!(Subscription::decode(Bytes::from_static(b"\0\0\x7f\xff\xff\xff")).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic(data in proptest::collection::vec(any::<u8>(), 0..64)) {
            let data = Bytes::from(data);
            let _ = Subscription::decode(data.clone());
            let _ = Held::decode(data.clone());
            let _ = Assignment::decode(data);
        }

        #[test]
        fn every_cut_of_a_subscription_is_an_error_and_not_another_one(cut in 0usize..40) {
            let whole = subscription().encode();
            prop_assume!(cut < whole.len());
            prop_assert!(Subscription::decode(whole.slice(..cut)).is_err());
        }
    }
}

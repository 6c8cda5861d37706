//! What the handlers of groups share: which broker fronts a group, and the coordinator's errors as Kafka's fields.

use thalweg_model::{ErrorCode, NodeId};
use thalweg_proto::v1;

use super::metadata::kafka_code;
use crate::machine::image::{BrokerImage, Image};

/// The broker that clients are sent to for a group; `None` if none is live and `reachable`.
///
/// Any broker can front any group, so this only spreads them and lets every broker list its own. The highest of a hash
/// over group and broker wins: when a broker comes or goes, only its groups move. Brokers that are shutting down come last.
pub fn front_of(image: &Image, group_id: &str, reachable: impl Fn(NodeId, &BrokerImage) -> bool) -> Option<NodeId> {
    let live = image.live_brokers().filter(|(id, broker)| reachable(*id, broker));
    let ranked = live.map(|(id, broker)| (!broker.shutting_down, weight(group_id, id), id));
    ranked.max().map(|(_, _, id)| id)
}

/// Code and sentence of a coordinator's answer; the sentence is null on success.
pub fn code_and_message(error: Option<&v1::KafkaError>) -> (ErrorCode, Option<String>) {
    let code = kafka_code(error);
    let message = error.filter(|_| code.is_error()).map(|error| error.message.as_str());
    (
        code,
        message.filter(|_| code.is_error()).map(|text| if text.is_empty() { code.message() } else { text }.to_owned()),
    )
}

/// Wraps consecutive parts of one topic into that topic: answers list partitions below their topics.
pub fn by_topic<P>(parts: impl IntoIterator<Item = (String, P)>) -> Vec<(String, Vec<P>)> {
    let mut topics: Vec<(String, Vec<P>)> = Vec::new();
    for (name, part) in parts {
        match topics.last_mut() {
            Some((last, parts)) if *last == name => parts.push(part),
            Some(_) | None => topics.push((name, vec![part])),
        }
    }
    topics
}

/// FNV-1a over both, then mixed so that near inputs do not give near outputs (the finalizer of SplitMix64).
fn weight(group_id: &str, id: NodeId) -> u64 {
    let bytes = group_id.bytes().chain([0]).chain(id.0.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::api::testing;
    use thalweg_model::BrokerEpoch;

    fn brokers(ids: impl IntoIterator<Item = i32>) -> Image {
        let broker = BrokerImage {
            epoch: BrokerEpoch(1),
            endpoints: vec![],
            rack: None,
            fenced: false,
            shutting_down: false,
            cordoned: false,
            draining: false,
        };
        let brokers: BTreeMap<_, _> = ids.into_iter().map(|id| (NodeId(id), broker.clone())).collect();
        let mut image = testing::image(&[]);
        image.brokers = Arc::new(brokers);
        image
    }

    fn fronts(image: &Image) -> Vec<i32> {
        (0..300).map(|n| front_of(image, &format!("group-{n}"), |_, _| true).unwrap().0).collect()
    }

    #[test]
    fn groups_spread_over_brokers_and_only_those_of_a_lost_one_move() {
        let before = fronts(&brokers([0, 1, 2]));
        let after = fronts(&brokers([0, 2]));
        for id in 0..3 {
            let count = before.iter().filter(|front| **front == id).count();
            assert!((60..=140).contains(&count), "broker {id} fronts {count} of 300");
        }
        assert!(before.iter().zip(&after).all(|(before, after)| *before == 1 || before == after));
    }

    #[test]
    fn fenced_brokers_front_nothing_and_those_that_stop_only_if_they_are_alone() {
        let mut image = brokers([0, 1]);
        let all = Arc::make_mut(&mut image.brokers);
        all.get_mut(&NodeId(0)).unwrap().shutting_down = true;
        assert!(fronts(&image).iter().all(|front| *front == 1));
        Arc::make_mut(&mut image.brokers).get_mut(&NodeId(1)).unwrap().fenced = true;
        assert!(fronts(&image).iter().all(|front| *front == 0));
        Arc::make_mut(&mut image.brokers).get_mut(&NodeId(0)).unwrap().fenced = true;
        assert_eq!(front_of(&image, "g", |_, _| true), None);
        assert_eq!(front_of(&brokers([0]), "g", |_, _| false), None);
    }
}

//! One join: from "wants in" to an assignment, over all the errors on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_model::{ErrorCode, TopicPartition};
use thalweg_wire::messages::join_group::{JoinGroupRequestProtocol, JoinGroupResponseMember};
use thalweg_wire::messages::sync_group::SyncGroupRequestAssignment;
use thalweg_wire::messages::{JoinGroupRequest, JoinGroupResponse, SyncGroupRequest};
use tracing::{debug, warn};

use super::assignor::Member;
use super::group::{Joined, Shared};
use super::membership::Next;
use super::protocol::{Assignment, Held, Subscription, TopicPartitions};
use super::{Assignor, ConsumerConfig};
use crate::client::Lane;
use crate::error::{ClientError, Result};
use crate::metadata::Metadata;

/// Joins until the member is in a generation.
///
/// # Errors
/// What no further try heals: fenced, no common assignor, group full, not authorized.
pub(super) async fn join(
    shared: Arc<Shared>,
    config: ConsumerConfig,
    topics: BTreeSet<String>,
    owned: BTreeSet<TopicPartition>,
) -> Result<Joined> {
    let mut backoff = shared.client.backoff();
    loop {
        let next = match try_join(&shared, &config, &topics, &owned).await {
            Ok(Step::Done(joined)) => {
                shared.joined();
                return Ok(joined);
            }
            Ok(Step::Next(next, code)) => {
                debug!(group = shared.group_id, code = code.name(), "not in the group yet");
                if next == Next::Fail {
                    return Err(shared.error(code));
                }
                next
            }
            Err(error) if error.is_retriable() => {
                debug!(group = shared.group_id, %error, "joining failed, trying again");
                Next::FindCoordinator
            }
            Err(error) => return Err(error),
        };
        match next {
            Next::Proceed | Next::JoinAgain | Next::Fail => backoff.reset(),
            Next::JoinLater => tokio::time::sleep(backoff.next(rand::random())).await,
            Next::FindCoordinator => {
                shared.forget_coordinator();
                tokio::time::sleep(backoff.next(rand::random())).await;
            }
        }
    }
}

enum Step {
    Done(Joined),
    Next(Next, ErrorCode),
}

async fn try_join(
    shared: &Shared,
    config: &ConsumerConfig,
    topics: &BTreeSet<String>,
    owned: &BTreeSet<TopicPartition>,
) -> Result<Step> {
    let generation = {
        let mut membership = shared.membership();
        membership.begin_join();
        membership.generation()
    };
    let protocol = |assignor: &Assignor| {
        let subscription = Subscription {
            topics: topics.iter().cloned().collect(),
            user_data: (*assignor == Assignor::Sticky).then(|| shared.held().encode()),
            owned: by_topic(owned),
            generation_id: generation.generation_id,
            rack_id: None,
        };
        JoinGroupRequestProtocol { name: assignor.name().to_owned(), metadata: subscription.encode() }
    };
    let request = JoinGroupRequest {
        group_id: shared.group_id.clone(),
        session_timeout_ms: millis(config.session_timeout),
        rebalance_timeout_ms: millis(config.max_poll_interval),
        member_id: generation.member_id.clone(),
        group_instance_id: shared.instance_id.clone(),
        protocol_type: PROTOCOL_TYPE.to_owned(),
        protocols: config.assignors.iter().map(protocol).collect(),
        reason: None,
    };
    let answer = shared.call(Lane::Join(shared.owner), &request, i16::MAX, config.max_poll_interval).await?;
    let code = code_of(answer.error_code);
    let next = shared.membership().on_join_answer(code, &answer.member_id, answer.generation_id);
    if next != Next::Proceed {
        return Ok(Step::Next(next, code));
    }
    sync(shared, config, answer).await
}

/// The second half of a join: the leader brings the assignment, everyone takes theirs.
async fn sync(shared: &Shared, config: &ConsumerConfig, answer: JoinGroupResponse) -> Result<Step> {
    let name = answer.protocol_name.clone().unwrap_or_default();
    let Some(assignor) = Assignor::from_name(&name) else {
        return Err(ClientError::InvalidUse {
            what: format!("group {} chose the assignor {name:?}, which is not known here", shared.group_id),
            remedy: "let all members use range, roundrobin, sticky or cooperative-sticky".to_owned(),
        });
    };
    let is_leader = answer.leader == answer.member_id;
    let (assignments, counts) = match is_leader && !answer.skip_assignment {
        true => {
            let (assignments, counts) = assign(shared, assignor, &answer.members).await?;
            (assignments, Some(counts))
        }
        false => (Vec::new(), None),
    };
    let generation = shared.membership().generation();
    let request = SyncGroupRequest {
        group_id: shared.group_id.clone(),
        generation_id: generation.generation_id,
        member_id: generation.member_id,
        group_instance_id: shared.instance_id.clone(),
        protocol_type: Some(PROTOCOL_TYPE.to_owned()),
        protocol_name: answer.protocol_name,
        assignments,
    };
    let answer = shared.call(Lane::Join(shared.owner), &request, i16::MAX, config.max_poll_interval).await?;
    let code = code_of(answer.error_code);
    // Read before the membership changes: a member with an assignment that it cannot read is in no generation.
    let assignment = match code {
        ErrorCode::None => Assignment::decode(answer.assignment).map_err(|error| ClientError::Malformed {
            what: "SyncGroup",
            address: format!("the leader of group {}", shared.group_id),
            detail: error.to_string(),
        })?,
        _ => Assignment::default(),
    };
    let next = shared.membership().on_sync_answer(code, shared.client.clock().mono());
    if next != Next::Proceed {
        return Ok(Step::Next(next, code));
    }
    Ok(Step::Done(Joined { partitions: assignment.partitions, assignor, counts }))
}

/// Divides the partitions among the members, as their leader.
async fn assign(
    shared: &Shared,
    assignor: Assignor,
    members: &[JoinGroupResponseMember],
) -> Result<(Vec<SyncGroupRequestAssignment>, BTreeMap<String, i32>)> {
    let mut known = BTreeMap::new();
    for member in members {
        let mut subscription = Subscription::decode(member.metadata.clone()).unwrap_or_else(|error| {
            warn!(group = shared.group_id, member = member.member_id, %error, "member gets nothing");
            Subscription::default()
        });
        if assignor == Assignor::Sticky {
            let told = subscription.user_data.take().map(Held::decode).and_then(Result::ok).unwrap_or_default();
            (subscription.owned, subscription.generation_id) = (told.partitions, told.generation_id);
        }
        let group_instance_id = member.group_instance_id.clone();
        known.insert(member.member_id.clone(), Member { group_instance_id, subscription });
    }
    let topics: BTreeSet<String> = known.values().flat_map(|member| member.subscription.topics.clone()).collect();
    let metadata = shared.client.ask_topics(topics.iter().cloned().collect()).await?;
    let counts = partition_counts(&metadata, topics.iter());
    let plan = assignor.assign(&known, &counts);
    let encode = |(member_id, partitions): (String, TopicPartitions)| SyncGroupRequestAssignment {
        member_id,
        assignment: encode_assignment(partitions),
    };
    Ok((plan.into_iter().map(encode).collect(), counts))
}

fn encode_assignment(partitions: TopicPartitions) -> Bytes {
    Assignment { partitions, user_data: None }.encode()
}

/// How many partitions each topic has; 0 for one that does not exist.
pub(super) fn partition_counts<'a>(
    metadata: &Metadata,
    topics: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, i32> {
    let count = |topic: &String| {
        metadata
            .topic(topic)
            .filter(|topic| topic.error.is_none())
            .map_or(0, crate::metadata::TopicInfo::partition_count)
    };
    topics.map(|topic| (topic.clone(), count(topic))).collect()
}

fn by_topic(partitions: &BTreeSet<TopicPartition>) -> TopicPartitions {
    let mut topics = TopicPartitions::new();
    for tp in partitions {
        topics.entry(tp.topic.as_str().to_owned()).or_default().push(tp.partition.0);
    }
    topics
}

fn code_of(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}

fn millis(duration: std::time::Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

const PROTOCOL_TYPE: &str = "consumer";

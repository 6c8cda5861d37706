//! Fetch (key 1, versions 15-18) as other brokers send it: reads record batches up to the log's end, for followers.
//!
//! - Who says that it is a broker is one only if the cluster's image has it in the life that it names (KIP-903); there is no
//!   other proof of identity yet, so the listener must not be open to strangers (FAILURES row 59).
//! - What a request names goes to the owner of the log, which checks and notes it (REPLICATION L3); the rest of the session is
//!   looked at only when something happened to it.
//! - The answer names a partition only if there is something to say: records, an error, where the logs diverge, or a higher
//!   watermark or log start. Those marks alone wait a moment for records to go with.
//! - The wait ends early when the follower has sent its next request: it has something to report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_model::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId};
use thalweg_wire::fetch_response::{FetchAnswer, FetchAnswerPartition, FetchAnswerTopic, RecordSlice};
use thalweg_wire::messages::FetchRequest;
use thalweg_wire::messages::fetch::{EpochEndOffset, FetchPartition, PartitionData};
use thalweg_world::send::FileSlice;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::{CloseReason, Reply, RequestContext};
use super::{error_map, fetch};
use crate::machine::follower::{EpochEnd, FetchPosition};
use crate::machine::follower_session::{Asked, FollowerRequest, FollowerSession, Looked, Slot};
use crate::machine::leader::{FetchVerdict, FollowerId};
use crate::services::Services;
use crate::shell::fetch_wait::Parked;
use crate::shell::interest::Interest;
use crate::shell::partitions::Partition;
use crate::shell::reader;

/// What a connection remembers of the follower at its other end.
#[derive(Debug, Default)]
pub struct FollowerConnection {
    session: FollowerSession,
    places: BTreeMap<Slot, Place>,
    parked: Parked,
}

/// A partition of the session, if it is here.
#[derive(Debug)]
struct Place {
    partition: Result<Arc<Partition>, ErrorCode>,
    interest: Option<Interest>,
}

/// What one partition's share of the answer is.
#[derive(Debug)]
enum Share {
    Records(Vec<FileSlice>),
    Error(ErrorCode),
    Diverging(EpochEnd),
    Marks,
}

/// What a look at one partition shows.
#[derive(Debug)]
enum Look {
    Quiet,
    /// Records for which this answer has no room.
    NoRoom,
    News(Share),
}

/// One look at everything that may have news.
#[derive(Debug, Default)]
struct Found {
    shares: Vec<(Slot, Share)>,
    /// Whether anything but marks is among them.
    is_urgent: bool,
}

/// The follower that a request says it is from; `None` for consumers.
pub fn follower(request: &FetchRequest) -> Option<FollowerId> {
    let state = &request.replica_state;
    (state.replica_id >= 0)
        .then_some(FollowerId { id: NodeId(state.replica_id), broker_epoch: BrokerEpoch(state.replica_epoch) })
}

/// # Errors
/// The answer cannot be written.
pub async fn handle(
    services: &Services,
    cx: &RequestContext,
    connection: &mut FollowerConnection,
    follower: FollowerId,
    request: FetchRequest,
    arrived: &Notify,
) -> Result<Reply, CloseReason> {
    let started = Instant::now();
    let refuse = |error| fetch::encode(cx, fetch::refused(error));
    let is_known =
        services.image().brokers.get(&follower.id).is_some_and(|broker| broker.epoch == follower.broker_epoch);
    if !is_known || follower.id == services.node_id() {
        return refuse(ErrorCode::StaleBrokerEpoch);
    }
    let deadline = started + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let bytes_max = services.config.properties.size("fetch.max.bytes");
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(bytes_max);
    let begun = match connection.session.begin(follower_request(follower, request)) {
        Ok(begun) => begun,
        Err(error) => return refuse(error),
    };
    for slot in &begun.gone {
        connection.places.remove(slot);
    }
    let verdicts = connection.note(services, follower, &begun.named).await;
    let mut until = deadline;
    let found = loop {
        let found = connection.look(&verdicts, bytes_max);
        if found.is_urgent || Instant::now() >= until {
            break found;
        }
        if !found.shares.is_empty() {
            until = until.min(Instant::now() + MARKS_LINGER);
        }
        tokio::select! {
            biased;
            told = connection.parked.told() => {
                told.into_iter().for_each(|slot| connection.session.told(Slot(slot)));
            }
            () = arrived.notified() => until = Instant::now(),
            () = tokio::time::sleep_until(until) => {}
        }
    };
    let answer = connection.answer(found);
    let slices = answer.topics.iter().flat_map(|topic| &topic.partitions).flat_map(|partition| &partition.records);
    services.metrics.replica_bytes_sent.inc_by(slices.clone().map(|slice| u64::from(slice.bytes)).sum());
    services.warmer.warm(slices.map(|slice| &slice.source)).await;
    fetch::encode(cx, answer)
}

impl FollowerConnection {
    pub fn follower(&self) -> Option<FollowerId> {
        self.session.follower()
    }

    /// Lets the owners of the named partitions check and note the positions.
    async fn note(
        &mut self,
        services: &Services,
        follower: FollowerId,
        named: &[Slot],
    ) -> BTreeMap<Slot, Result<FetchVerdict, ErrorCode>> {
        let mut verdicts = BTreeMap::new();
        let (mut slots, mut asked) = (Vec::new(), Vec::new());
        for slot in named {
            let Some(position) = self.session.asked(*slot).copied() else { continue };
            match self.find(services, *slot, &position) {
                Ok(partition) => {
                    slots.push(*slot);
                    asked.push((partition, position.position));
                }
                Err(error) => drop(verdicts.insert(*slot, Err(error))),
            }
        }
        let now = services.clock.mono();
        let answers = services
            .workers()
            .ask_each(asked, move |owner, position: FetchPosition| owner.follower_fetched(now, follower, &position));
        for (slot, answer) in slots.into_iter().zip(answers.await) {
            verdicts.insert(slot, answer.unwrap_or(Err(ErrorCode::NotLeaderOrFollower)));
        }
        verdicts
    }

    /// The partition behind a slot, looked up once; the interest in it stands from then on.
    fn find(&mut self, services: &Services, slot: Slot, asked: &Asked) -> Result<Arc<Partition>, ErrorCode> {
        let local = services.partitions.topic_by_id(asked.topic_id);
        let now = local.and_then(|topic| topic.partition(asked.partition).map(Arc::clone));
        let known = self.places.get(&slot).and_then(|place| place.partition.as_ref().ok());
        if let (Some(known), Some(now)) = (known, &now)
            && Arc::ptr_eq(known, now)
        {
            return Ok(Arc::clone(now));
        }
        let partition = now.ok_or_else(|| match services.image().topic_by_id(asked.topic_id) {
            None => ErrorCode::UnknownTopicId,
            Some(topic) => services.absent(topic.name.as_str(), asked.partition),
        });
        let interest = partition.as_ref().ok().map(|partition| partition.followers.add(slot, self.parked.wait()));
        self.places.insert(slot, Place { partition: partition.clone(), interest });
        partition
    }

    fn look(&mut self, verdicts: &BTreeMap<Slot, Result<FetchVerdict, ErrorCode>>, bytes_max: usize) -> Found {
        let mut found = Found::default();
        let mut left = bytes_max;
        let mut any = false;
        for slot in self.session.to_look_at() {
            if any && left == 0 {
                break;
            }
            let (Some(asked), Some(place)) = (self.session.asked(slot), self.places.get(&slot)) else { continue };
            let look = match verdicts.get(&slot) {
                Some(Err(error)) => Look::News(Share::Error(*error)),
                Some(Ok(FetchVerdict::Diverging(end))) => Look::News(Share::Diverging(*end)),
                Some(Ok(FetchVerdict::Accepted)) | None => place.look(asked, left, !any),
            };
            let share = match look {
                Look::News(share) => share,
                Look::NoRoom => continue,
                Look::Quiet => {
                    self.session.looked(slot, Looked::Quiet);
                    continue;
                }
            };
            if let Share::Records(slices) = &share {
                let bytes: u64 = slices.iter().map(|slice| slice.length).sum();
                left = left.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
                any = true;
            }
            found.is_urgent |= !matches!(share, Share::Marks);
            found.shares.push((slot, share));
        }
        found
    }

    fn answer(&mut self, found: Found) -> FetchAnswer<FileSlice> {
        let mut topics: BTreeMap<[u8; 16], Vec<FetchAnswerPartition<FileSlice>>> = BTreeMap::new();
        for (slot, share) in found.shares {
            let (Some(asked), Some(place)) = (self.session.asked(slot).copied(), self.places.get(&slot)) else {
                continue;
            };
            let (answered, outcome) = place.answer(&asked, share);
            self.session.looked(slot, outcome);
            topics.entry(asked.topic_id.0).or_default().push(answered);
        }
        let topic = |(id, partitions)| FetchAnswerTopic { topic: String::new(), topic_id: TopicId(id), partitions };
        FetchAnswer {
            throttle_time_ms: 0,
            error_code: 0,
            session_id: SESSION_ID,
            topics: topics.into_iter().map(topic).collect(),
            node_endpoints: Vec::new(),
        }
    }
}

impl Place {
    fn look(&self, asked: &Asked, bytes_left: usize, at_least_one: bool) -> Look {
        let error = |error| Look::News(Share::Error(error));
        let partition = match &self.partition {
            Ok(partition) => partition,
            Err(code) => return error(*code),
        };
        if let Some(interest) = &self.interest {
            interest.looking();
        }
        let position = &asked.position;
        if let Err(code) = partition.check_leader(position.leader_epoch) {
            return error(code);
        }
        if position.fetch_offset < partition.view().log_end_offset() {
            let bytes_max = usize::try_from(asked.bytes_max).unwrap_or(0).min(bytes_left);
            return match reader::slices(partition, position.fetch_offset, Offset::MAX, bytes_max, at_least_one) {
                Ok(slices) if slices.is_empty() => Look::NoRoom,
                Ok(slices) => Look::News(Share::Records(slices.into_iter().map(reader::file_slice).collect())),
                Err(cause) => error(error_map::read(&cause)),
            };
        }
        let visible = partition.visible();
        let knows_more =
            visible.high_watermark > position.high_watermark || visible.log_start_offset > position.log_start_offset;
        if knows_more { Look::News(Share::Marks) } else { Look::Quiet }
    }

    fn answer(&self, asked: &Asked, share: Share) -> (FetchAnswerPartition<FileSlice>, Looked) {
        let mut data = PartitionData {
            partition_index: asked.partition.0,
            high_watermark: -1,
            aborted_transactions: None,
            ..Default::default()
        };
        if let Ok(partition) = &self.partition {
            let visible = partition.visible();
            data.high_watermark = visible.high_watermark.0;
            data.log_start_offset = visible.log_start_offset.0;
        }
        let mut records = Vec::new();
        let outcome = match share {
            Share::Records(slices) => {
                let slice = |source: FileSlice| Some(RecordSlice { bytes: u32::try_from(source.length).ok()?, source });
                records.extend(slices.into_iter().filter_map(slice));
                Looked::Answered
            }
            Share::Error(error) => {
                data.error_code = error.code();
                Looked::Answered
            }
            Share::Diverging(EpochEnd { epoch, end_offset }) => {
                data.diverging_epoch = EpochEndOffset { epoch: epoch.0, end_offset: end_offset.0 };
                Looked::Answered
            }
            Share::Marks => Looked::Marks {
                high_watermark: Offset(data.high_watermark),
                log_start_offset: Offset(data.log_start_offset),
            },
        };
        (FetchAnswerPartition { data, records }, outcome)
    }
}

fn follower_request(follower: FollowerId, request: FetchRequest) -> FollowerRequest {
    let asked = request.topics.iter().flat_map(|topic| {
        let asked = |asked: &FetchPartition| {
            let partition = PartitionIndex(asked.partition);
            (topic.topic_id, partition, position(asked), asked.partition_max_bytes)
        };
        topic.partitions.iter().map(asked)
    });
    let forgotten = request
        .forgotten_topics_data
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, PartitionIndex(*partition))));
    let (asked, forgotten) = (asked.collect(), forgotten.collect());
    FollowerRequest { follower, session_epoch: request.session_epoch, asked, forgotten }
}

fn position(asked: &FetchPartition) -> FetchPosition {
    let fetch_offset = Offset(asked.fetch_offset);
    FetchPosition {
        leader_epoch: LeaderEpoch(asked.current_leader_epoch),
        fetch_offset,
        last_fetched_epoch: LeaderEpoch(asked.last_fetched_epoch),
        counted: if asked.counted_offset < 0 { fetch_offset } else { Offset(asked.counted_offset) },
        log_start_offset: Offset(asked.log_start_offset),
        high_watermark: Offset(asked.high_watermark),
    }
}

/// A session is its connection's: there is never another.
const SESSION_ID: i32 = 1;
/// How long marks alone wait for records.
const MARKS_LINGER: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_secs(60);

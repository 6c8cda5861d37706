//! The replication rules, one by one, and short histories of several replicas.

use std::time::Duration;

use thalweg_model::BrokerEpoch;
use thalweg_storage::LeaderEpochs;

use super::super::follower::EpochEnd;
use super::super::isr::IsrMember;
use super::*;

const LAG_MAX_MS: u64 = 10_000;

fn at(ms: u64) -> MonoTime {
    MonoTime::ZERO.plus_ms(ms)
}

fn settings(durability: Durability, min_insync_replicas: usize) -> ReplicaSettings {
    ReplicaSettings { durability, min_insync_replicas, lag_max: Duration::from_millis(LAG_MAX_MS) }
}

fn nodes(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

fn registration(leader: i32, epoch: i32, partition_epoch: i32, isr: &[i32]) -> PartitionImage {
    PartitionImage {
        replicas: nodes(&[1, 2, 3]),
        isr: nodes(isr),
        elr: Vec::new(),
        lost: Vec::new(),
        leader: (leader > 0).then_some(NodeId(leader)),
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        adding: Vec::new(),
        removing: Vec::new(),
        recovering: false,
    }
}

fn broker(epoch: i64) -> BrokerImage {
    BrokerImage {
        epoch: BrokerEpoch(epoch),
        endpoints: Vec::new(),
        rack: None,
        fenced: false,
        shutting_down: false,
        cordoned: false,
        draining: false,
    }
}

/// Brokers 1, 2 and 3 in their lives 11, 12 and 13.
fn brokers() -> BTreeMap<NodeId, BrokerImage> {
    (1..=3).map(|id| (NodeId(id), broker(i64::from(id) + 10))).collect()
}

fn life(id: i32) -> FollowerId {
    FollowerId { id: NodeId(id), broker_epoch: BrokerEpoch(i64::from(id) + 10) }
}

fn members(ids: &[i32]) -> Vec<IsrMember> {
    ids.iter().map(|id| IsrMember { id: NodeId(*id), broker_epoch: life(*id).broker_epoch }).collect()
}

/// A replica with a log of epochs, one per record.
struct Node {
    replica: Replica,
    records: Vec<LeaderEpoch>,
    epochs: LeaderEpochs,
}

impl Node {
    fn new(id: i32, min_isr: usize) -> Node {
        Node::with(id, settings(Durability::Replicated, min_isr), &[])
    }

    /// `records`: the epoch of each.
    fn with(id: i32, settings: ReplicaSettings, records: &[i32]) -> Node {
        let end = Offset(records.len() as i64);
        let ends = LogEnds { log_start_offset: Offset::ZERO, log_end_offset: end, flushed_offset: end };
        let mut epochs = LeaderEpochs::default();
        for (offset, epoch) in records.iter().enumerate() {
            epochs.assign(LeaderEpoch(*epoch), Offset(offset as i64));
        }
        let records = records.iter().copied().map(LeaderEpoch).collect();
        Node { replica: Replica::new(NodeId(id), settings, ends, Offset::ZERO), records, epochs }
    }

    fn end(&self) -> Offset {
        Offset(self.records.len() as i64)
    }

    fn registered(&mut self, registration: &PartitionImage) -> Change {
        self.registered_at(0, registration)
    }

    fn registered_at(&mut self, ms: u64, registration: &PartitionImage) -> Change {
        let change = self.replica.registered(at(ms), registration);
        match change {
            Change::Leads { epoch, .. } => drop(self.epochs.assign(epoch, self.end())),
            Change::Follows { .. } => drop(self.epochs.truncate_from_end(self.end())),
            Change::Nothing | Change::News | Change::Idle => {}
        }
        change
    }

    fn append(&mut self, ms: u64, count: usize) {
        let epoch = self.replica.admit(true, false).unwrap();
        self.records.extend(std::iter::repeat_n(epoch, count));
        self.replica.appended(at(ms), self.end());
        self.replica.advance_high_watermark();
    }

    /// One fetch of `follower`, carried out on both sides; what the follower did.
    fn fetch_from(&mut self, ms: u64, leader: &mut Node) -> FollowerAction {
        let last = self.records.last().copied();
        let (id, position) = self.replica.next_fetch(Offset::ZERO, last).unwrap();
        let who = life(self.replica.node.0);
        let answer = leader.answer(ms, who, &position);
        let own_end = self.end();
        let epochs = self.epochs.clone();
        let action = self.replica.fetch_answered(id, answer, Offset::ZERO, |epoch| epochs.end_offset(epoch, own_end));
        match action {
            FollowerAction::Append { high_watermark, .. } => {
                for (offset, epoch) in leader.records.iter().enumerate().skip(self.records.len()) {
                    self.epochs.assign(*epoch, Offset(offset as i64));
                }
                self.records.extend_from_slice(&leader.records[self.records.len()..]);
                self.replica.copied(self.end(), high_watermark);
            }
            FollowerAction::TruncateTo(to) | FollowerAction::StartAt(to) => {
                self.records.truncate(to.0 as usize);
                self.epochs.truncate_from_end(to);
                self.replica.truncated(LogEnds {
                    log_start_offset: Offset::ZERO,
                    log_end_offset: to,
                    flushed_offset: to,
                });
            }
            FollowerAction::Ignore | FollowerAction::Wait(_) => {}
        }
        action
    }

    fn answer(&mut self, ms: u64, who: FollowerId, position: &FetchPosition) -> FetchAnswer {
        let (end, epochs) = (self.end(), self.epochs.clone());
        let lookup = |epoch| epochs.end_offset(epoch, end);
        let verdict = self.replica.follower_fetched(at(ms), who, position, Offset::ZERO, lookup);
        self.replica.advance_high_watermark();
        let log_start_offset = Offset::ZERO;
        match verdict {
            Ok(FetchVerdict::Accepted) => {
                FetchAnswer::Records { high_watermark: self.replica.high_watermark(), log_start_offset }
            }
            Ok(FetchVerdict::Diverging(end)) => FetchAnswer::Diverging { end, log_start_offset },
            Err(error) => FetchAnswer::Error { error, log_start_offset },
        }
    }

    /// A fetch at `offset` that counts `counted`, with the epoch that our own record there has.
    fn fetched(&mut self, ms: u64, who: FollowerId, offset: i64, counted: i64) -> FetchAnswer {
        let before = usize::try_from(offset - 1).ok().and_then(|index| self.records.get(index));
        let position = FetchPosition {
            leader_epoch: self.replica.known_epoch().unwrap(),
            fetch_offset: Offset(offset),
            last_fetched_epoch: before.copied().unwrap_or(LeaderEpoch::NONE),
            counted: Offset(counted),
            log_start_offset: Offset::ZERO,
            high_watermark: Offset::ZERO,
        };
        self.answer(ms, who, &position)
    }

    fn high_watermark(&self) -> i64 {
        self.replica.high_watermark().0
    }

    fn proposal(&mut self, ms: u64) -> Option<IsrProposal> {
        self.replica.proposal(at(ms), BrokerEpoch(11), &brokers())
    }
}

/// Node 1 leads in epoch 1 with this ISR and `records` records of that epoch.
fn leading(isr: &[i32], min_isr: usize, records: usize) -> Node {
    let mut node = Node::new(1, min_isr);
    assert_eq!(node.registered(&registration(1, 1, 1, isr)), Change::Leads { epoch: LeaderEpoch(1), goes_on: false });
    node.append(0, records);
    node
}

fn error_of(answer: FetchAnswer) -> Option<ErrorCode> {
    match answer {
        FetchAnswer::Error { error, .. } => Some(error),
        FetchAnswer::Records { .. } | FetchAnswer::Diverging { .. } => None,
    }
}

// Watermark.

#[test]
fn flushed_topics_commit_what_every_member_has_on_disk_and_no_more() {
    let mut node = Node::with(1, settings(Durability::Flushed, 1), &[]);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    node.append(0, 5);
    node.fetched(0, life(2), 5, 4);
    assert_eq!(node.high_watermark(), 0, "our own disk has nothing yet");
    node.replica.flushed(Offset(5));
    assert_eq!(node.replica.advance_high_watermark(), Some(Offset(4)));
    assert_eq!(node.replica.advance_high_watermark(), None);
}

#[test]
fn a_member_that_was_not_heard_of_in_this_epoch_holds_the_watermark() {
    let mut node = leading(&[1, 2, 3], 2, 5);
    node.fetched(0, life(2), 5, 5);
    assert_eq!(node.high_watermark(), 0);
    node.fetched(0, life(3), 3, 3);
    assert_eq!(node.high_watermark(), 3);
}

#[test]
fn below_min_isr_the_watermark_stands_and_only_acks_all_is_refused() {
    let mut node = leading(&[1], 2, 5);
    assert_eq!(node.high_watermark(), 0);
    assert_eq!(node.replica.admit(true, true), Err(ErrorCode::NotEnoughReplicas));
    assert_eq!(node.replica.admit(true, false), Ok(LeaderEpoch(1)));
    node.registered(&registration(1, 1, 2, &[1, 2]));
    node.fetched(0, life(2), 5, 5);
    assert_eq!(node.high_watermark(), 5);
    assert_eq!(node.replica.admit(true, true), Ok(LeaderEpoch(1)));
}

#[test]
fn min_insync_replicas_beyond_the_replicas_counts_as_their_number() {
    let mut node = leading(&[1, 2, 3], 5, 1);
    assert_eq!(node.replica.admit(true, true), Ok(LeaderEpoch(1)));
    node.registered(&registration(1, 1, 2, &[1, 2]));
    assert_eq!(node.replica.admit(true, true), Err(ErrorCode::NotEnoughReplicas));
}

/// FAILURES row 19. A member that is only proposed counts at once, one that leaves until metadata says that it is gone.
#[test]
fn the_watermark_waits_for_the_maximal_isr() {
    let mut node = leading(&[1], 1, 5);
    node.fetched(0, life(2), 5, 5);
    assert_eq!(node.high_watermark(), 5);
    assert_eq!(node.proposal(1).unwrap().isr, members(&[1, 2]));
    node.append(2, 4);
    assert_eq!(node.high_watermark(), 5, "broker 2 may be in the ISR already");
    node.fetched(3, life(2), 9, 9);
    assert_eq!(node.high_watermark(), 9);
}

#[test]
fn a_follower_counts_no_more_than_it_says_it_has() {
    let mut node = leading(&[1, 2], 1, 5);
    node.fetched(0, life(2), 3, 99);
    assert_eq!(node.high_watermark(), 3);
}

#[test]
fn a_checkpointed_watermark_is_put_within_the_log() {
    let ends = LogEnds { log_start_offset: Offset(4), log_end_offset: Offset(9), flushed_offset: Offset(9) };
    let found = |high_watermark| {
        let settings = settings(Durability::Flushed, 1);
        Replica::new(NodeId(1), settings, ends, Offset(high_watermark)).high_watermark().0
    };
    assert_eq!((found(0), found(6), found(99)), (4, 6, 9));
}

#[test]
fn a_log_start_above_the_watermark_takes_it_along() {
    let mut node = leading(&[1, 2], 1, 5);
    node.replica.log_started(Offset(4));
    assert_eq!(node.high_watermark(), 4);
}

// Roles.

#[test]
fn old_news_changes_nothing_and_no_news_of_an_epoch_changes_the_role() {
    let mut node = leading(&[1, 2], 1, 1);
    assert_eq!(node.registered(&registration(2, 0, 9, &[2])), Change::Nothing, "an older leader epoch");
    assert_eq!(node.registered(&registration(1, 1, 1, &[1])), Change::Nothing, "the same partition epoch");
    assert_eq!(node.registered(&registration(1, 1, 2, &[1])), Change::News);
    let follows = Change::Follows { leader: NodeId(2), epoch: LeaderEpoch(2) };
    assert_eq!(node.registered(&registration(2, 2, 3, &[2])), follows);
    assert_eq!(node.registered(&registration(0, 3, 4, &[])), Change::Idle);
    let elsewhere = PartitionImage { replicas: nodes(&[2, 3]), ..registration(2, 4, 5, &[2]) };
    assert_eq!(node.registered(&elsewhere), Change::Idle);
    assert_eq!(node.replica.admit(true, false), Err(ErrorCode::NotLeaderOrFollower));
}

#[test]
fn without_a_lease_a_leader_admits_nothing() {
    assert_eq!(leading(&[1], 1, 1).replica.admit(false, false), Err(ErrorCode::NotLeaderOrFollower));
}

#[test]
fn an_offline_replica_stays_so_whatever_it_is_told() {
    let mut node = leading(&[1], 1, 1);
    node.replica.failed();
    assert_eq!(node.registered(&registration(1, 2, 2, &[1])), Change::Nothing);
    assert_eq!(node.replica.admit(true, false), Err(ErrorCode::KafkaStorageError));
    assert_eq!(error_of(node.fetched(0, life(2), 1, 1)), Some(ErrorCode::KafkaStorageError));
    assert_eq!(node.replica.next_fetch(Offset::ZERO, None), None);
}

/// FAILURES row 48: until the watermark has reached the start of its epoch, a leader does not know what was committed.
#[test]
fn a_new_leader_does_not_know_the_latest_offset_before_its_watermark_reaches_the_epochs_start() {
    let mut node = Node::with(1, settings(Durability::Replicated, 1), &[0, 0, 0]);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    assert!(!node.replica.knows_latest());
    node.fetched(0, life(2), 2, 2);
    assert!(!node.replica.knows_latest());
    node.fetched(0, life(2), 3, 3);
    assert!(node.replica.knows_latest());
}

#[test]
fn a_new_epoch_of_the_same_leader_forgets_what_followers_had() {
    let mut node = leading(&[1, 2], 1, 5);
    node.fetched(0, life(2), 5, 5);
    node.registered(&registration(1, 2, 2, &[1, 2]));
    node.append(0, 1);
    assert_eq!(node.high_watermark(), 5);
    node.fetched(0, life(2), 4, 4);
    assert_eq!(node.high_watermark(), 5, "never falls, and broker 2 has to catch up first");
    node.fetched(0, life(2), 6, 6);
    assert_eq!(node.high_watermark(), 6);
}

// Followers' fetches (L3).

/// FAILURES rows 17 and 21: neither another epoch nor an earlier life of the follower is taken note of.
#[test]
fn a_fetch_of_another_epoch_or_an_ended_life_is_refused_and_counts_nothing() {
    let mut node = leading(&[1, 2], 1, 5);
    let position = |epoch: i32| FetchPosition {
        leader_epoch: LeaderEpoch(epoch),
        fetch_offset: Offset(5),
        last_fetched_epoch: LeaderEpoch(1),
        counted: Offset(5),
        log_start_offset: Offset::ZERO,
        high_watermark: Offset::ZERO,
    };
    assert_eq!(error_of(node.answer(0, life(2), &position(0))), Some(ErrorCode::FencedLeaderEpoch));
    assert_eq!(error_of(node.answer(0, life(2), &position(2))), Some(ErrorCode::UnknownLeaderEpoch));
    assert_eq!(error_of(node.answer(0, life(4), &position(1))), Some(ErrorCode::NotLeaderOrFollower));
    assert_eq!(node.high_watermark(), 0);
    let next = FollowerId { broker_epoch: BrokerEpoch(40), ..life(2) };
    assert_eq!(error_of(node.answer(0, next, &FetchPosition { fetch_offset: Offset(2), ..position(1) })), None);
    assert_eq!(error_of(node.answer(0, life(2), &position(1))), Some(ErrorCode::StaleBrokerEpoch));
    assert_eq!(node.high_watermark(), 2);
}

/// FAILURES row 27.
#[test]
fn a_diverging_fetch_is_answered_with_the_epochs_end_and_counts_nothing() {
    let mut node = Node::with(1, settings(Durability::Replicated, 1), &[0, 0, 0, 2, 2]);
    node.registered(&registration(1, 5, 1, &[1, 2]));
    let fetch = |offset: i64, last: i32| FetchPosition {
        leader_epoch: LeaderEpoch(5),
        fetch_offset: Offset(offset),
        last_fetched_epoch: LeaderEpoch(last),
        counted: Offset(offset),
        log_start_offset: Offset::ZERO,
        high_watermark: Offset::ZERO,
    };
    let cases = [
        (fetch(4, 1), (0, 3), "an epoch that we do not have"),
        (fetch(4, 0), (0, 3), "more of an epoch than we have"),
        (fetch(9, 2), (2, 5), "beyond our end"),
        (fetch(6, 4), (2, 5), "an epoch of another leader"),
    ];
    for (position, (epoch, end), why) in cases {
        let end = EpochEnd { epoch: LeaderEpoch(epoch), end_offset: Offset(end) };
        let answer = node.answer(0, life(2), &position);
        assert_eq!(answer, FetchAnswer::Diverging { end, log_start_offset: Offset::ZERO }, "{why}");
    }
    assert_eq!(node.high_watermark(), 0);
    assert!(matches!(node.answer(0, life(2), &fetch(3, 0)), FetchAnswer::Records { .. }));
    assert_eq!(node.high_watermark(), 3);
}

// The ISR (L5-L7).

#[test]
fn a_follower_joins_once_it_has_all_that_is_committed_and_all_from_before_this_epoch() {
    let mut node = Node::with(1, settings(Durability::Replicated, 1), &[0, 0, 0, 0]);
    node.registered(&registration(1, 1, 1, &[1, 3]));
    node.fetched(0, life(3), 2, 2);
    node.fetched(0, life(2), 3, 3);
    assert_eq!(node.high_watermark(), 2);
    // FAILURES row 18: above the watermark, but below where this epoch began.
    assert_eq!(node.proposal(0), None);
    node.fetched(0, life(2), 4, 4);
    assert_eq!(node.proposal(0).unwrap().isr, members(&[1, 2, 3]));
}

#[test]
fn who_is_fenced_leaving_or_in_another_life_does_not_join() {
    let mut node = leading(&[1], 1, 1);
    node.fetched(0, life(2), 1, 1);
    let mut changed = |change: fn(&mut BrokerImage)| {
        let mut brokers = brokers();
        change(brokers.get_mut(&NodeId(2)).unwrap());
        node.replica.proposal(at(0), BrokerEpoch(11), &brokers)
    };
    assert_eq!(changed(|broker| broker.fenced = true), None);
    assert_eq!(changed(|broker| broker.shutting_down = true), None);
    assert_eq!(changed(|broker| broker.epoch = BrokerEpoch(40)), None);
    assert!(changed(|_| ()).is_some());
}

#[test]
fn a_member_that_falls_behind_for_too_long_leaves_and_one_that_keeps_up_under_load_stays() {
    let mut node = leading(&[1, 2, 3], 1, 1);
    // Broker 2 always lacks the newest record, but has what was newest a second ago. Broker 3 stands still.
    node.fetched(0, life(3), 1, 1);
    for second in 1..=10 {
        node.append(second * 1_000, 1);
        node.fetched(second * 1_000 + 500, life(2), second as i64, second as i64);
        assert_eq!(node.proposal(second * 1_000 + 500), None, "{second}");
    }
    node.append(11_000, 1);
    node.fetched(11_001, life(2), 11, 11);
    assert_eq!(node.proposal(11_001).unwrap().isr, members(&[1, 2]));
}

#[test]
fn a_member_with_everything_stays_however_long_nothing_is_written_and_then_gets_its_time() {
    let mut node = leading(&[1, 2], 1, 1);
    node.fetched(0, life(2), 1, 1);
    assert_eq!(node.proposal(3_600_000), None);
    node.append(3_600_000, 1);
    assert_eq!(node.proposal(3_600_000 + LAG_MAX_MS), None);
    assert_eq!(node.proposal(3_600_000 + LAG_MAX_MS + 1).unwrap().isr, members(&[1]));
}

#[test]
fn a_fenced_member_leaves_at_once_and_a_silent_one_after_its_time() {
    let mut node = leading(&[1, 2], 1, 1);
    assert_eq!(node.proposal(LAG_MAX_MS), None);
    let mut fenced = brokers();
    fenced.get_mut(&NodeId(2)).unwrap().fenced = true;
    let proposal = node.replica.proposal(at(1), BrokerEpoch(11), &fenced).unwrap();
    assert_eq!(proposal.isr, members(&[1]));
}

/// FAILURES rows 22 and 23: a repeated proposal is the same one, and only metadata closes it.
#[test]
fn a_lost_proposal_is_repeated_unchanged_though_the_follower_has_been_replaced() {
    let mut node = leading(&[1], 1, 1);
    node.fetched(0, life(2), 1, 1);
    let proposal = node.proposal(0).unwrap();
    assert_eq!(node.proposal(1), None, "it is under way");
    let next = FollowerId { broker_epoch: BrokerEpoch(40), ..life(2) };
    node.fetched(2, next, 0, 0);
    node.replica.proposal_answered(&proposal, ProposalAnswer::Retry);
    assert_eq!(node.proposal(3), Some(proposal.clone()));
    node.replica.proposal_answered(&proposal, ProposalAnswer::Decided);
    node.append(4, 1);
    assert_eq!(
        (node.proposal(5), node.high_watermark()),
        (None, 1),
        "broker 2 may be in the ISR until we hear otherwise"
    );
    node.registered(&registration(1, 1, 2, &[1]));
    node.replica.advance_high_watermark();
    assert_eq!(node.high_watermark(), 2);
}

#[test]
fn a_recovering_leader_first_claims_the_partition_alone() {
    let mut node = Node::new(1, 1);
    node.registered(&PartitionImage { recovering: true, ..registration(1, 1, 1, &[1]) });
    node.fetched(0, life(2), 0, 0);
    let proposal = node.proposal(0).unwrap();
    assert_eq!((proposal.isr, proposal.recovered), (members(&[1]), true));
    node.registered(&registration(1, 1, 2, &[1]));
    assert_eq!(node.proposal(1).unwrap().isr, members(&[1, 2]));
}

// Following.

#[test]
fn only_the_answer_to_the_standing_fetch_is_acted_upon() {
    let mut leader = leading(&[1, 2], 1, 3);
    let mut node = Node::new(2, 1);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    let (old, position) = node.replica.next_fetch(Offset::ZERO, None).unwrap();
    let end = EpochEnd { epoch: LeaderEpoch(0), end_offset: Offset::ZERO };
    let delayed = FetchAnswer::Diverging { end, log_start_offset: Offset::ZERO };
    assert!(matches!(node.fetch_from(0, &mut leader), FollowerAction::Append { .. }));
    // The same place in the log, as far as anyone can tell: it was asked before.
    assert_eq!(position.leader_epoch, LeaderEpoch(1));
    let no_lookup = |_| None;
    assert_eq!(node.replica.fetch_answered(old, delayed, Offset::ZERO, no_lookup), FollowerAction::Ignore);
    let (asked, _) = node.replica.next_fetch(Offset::ZERO, Some(LeaderEpoch(1))).unwrap();
    node.registered(&registration(3, 2, 2, &[2, 3]));
    assert_eq!(node.replica.fetch_answered(asked, delayed, Offset::ZERO, no_lookup), FollowerAction::Ignore);
    assert_eq!(node.records.len(), 3);
}

#[test]
fn a_flushed_follower_reports_what_its_disk_has_also_for_a_fetch_that_stands() {
    let mut node = Node::with(2, settings(Durability::Flushed, 1), &[]);
    let mut leader = leading(&[1, 2], 1, 3);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    node.fetch_from(0, &mut leader);
    let (id, position) = node.replica.next_fetch(Offset::ZERO, Some(LeaderEpoch(1))).unwrap();
    assert_eq!((position.fetch_offset, position.counted), (Offset(3), Offset(0)));
    node.replica.flushed(Offset(3));
    let (standing, position) = node.replica.follower().unwrap().asked().unwrap();
    assert_eq!((standing, position.counted), (id, Offset(3)));
}

#[test]
fn a_followers_watermark_is_the_leaders_within_its_own_log_and_never_falls() {
    let mut node = Node::with(2, settings(Durability::Replicated, 1), &[0, 0]);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    assert_eq!(node.replica.copied(Offset(3), Offset(99)), Some(Offset(3)));
    assert_eq!(node.replica.copied(Offset(4), Offset(1)), None);
    assert_eq!(node.high_watermark(), 3);
}

#[test]
fn a_follower_below_the_leaders_start_begins_anew_there() {
    let mut node = Node::with(2, settings(Durability::Replicated, 1), &[0, 0]);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    let (id, _) = node.replica.next_fetch(Offset::ZERO, Some(LeaderEpoch(0))).unwrap();
    let answer = FetchAnswer::Error { error: ErrorCode::OffsetOutOfRange, log_start_offset: Offset(7) };
    let action = node.replica.fetch_answered(id, answer, Offset::ZERO, |_| None);
    assert_eq!(action, FollowerAction::StartAt(Offset(7)));
    let ends = LogEnds { log_start_offset: Offset(7), log_end_offset: Offset(7), flushed_offset: Offset(7) };
    node.replica.truncated(ends);
    assert_eq!(node.high_watermark(), 7);
    let (_, position) = node.replica.next_fetch(Offset(7), None).unwrap();
    assert_eq!((position.fetch_offset, position.last_fetched_epoch), (Offset(7), LeaderEpoch::NONE));
}

/// Goal: what nobody can vouch for does not stay in a log whose own start a crash may bring back (simulator seed 29444). Method:
/// everything that the follower holds lies below the leader's start; once the leader says where it parts, once it has nothing
/// to compare with. A follower that knows it to be committed keeps it.
#[test]
fn a_log_that_lies_wholly_below_the_leaders_start_is_given_up_unless_it_is_committed() {
    let end = EpochEnd { epoch: LeaderEpoch(0), end_offset: Offset(4) };
    let records = FetchAnswer::Records { high_watermark: Offset(9), log_start_offset: Offset(4) };
    let keeps = FollowerAction::Append { high_watermark: Offset(9), log_start_offset: Offset(4) };
    let gives_up = FollowerAction::StartAt(Offset(4));
    let cases = [
        (6, 0, FetchAnswer::Diverging { end, log_start_offset: Offset(4) }, gives_up),
        (4, 0, records, gives_up),
        (4, 4, records, keeps),
        (5, 0, records, keeps),
    ];
    for (count, committed, answer, action) in cases {
        let ends =
            LogEnds { log_start_offset: Offset(0), log_end_offset: Offset(count), flushed_offset: Offset(count) };
        let mut replica = Replica::new(NodeId(2), settings(Durability::Replicated, 1), ends, Offset(committed));
        replica.registered(at(0), &registration(1, 1, 1, &[1, 2]));
        let (id, _) = replica.next_fetch(Offset(0), Some(LeaderEpoch(0))).unwrap();
        let found = replica.fetch_answered(id, answer, Offset(0), |epoch| Some((epoch, Offset(count))));
        assert_eq!(found, action, "{count} records, {committed} committed, {answer:?}");
    }
}

/// Goal: offsets of records that were committed and deleted are never given away again. Method: the leader has not heard
/// that they are deleted, and has nothing of what the follower holds above them (simulator seed 607).
#[test]
fn a_log_whose_every_record_diverges_stays_empty_above_what_was_deleted() {
    let mut node = Node::with(2, settings(Durability::Replicated, 1), &[0; 9]);
    node.registered(&registration(1, 1, 1, &[1, 2]));
    node.replica.log_started(Offset(5));
    let (id, _) = node.replica.next_fetch(Offset(5), Some(LeaderEpoch(0))).unwrap();
    let end = EpochEnd { epoch: LeaderEpoch(0), end_offset: Offset(5) };
    let answer = FetchAnswer::Diverging { end, log_start_offset: Offset::ZERO };
    let action = node.replica.fetch_answered(id, answer, Offset(5), |epoch| Some((epoch, Offset(9))));
    assert_eq!(action, FollowerAction::TruncateTo(Offset(5)));
}

/// Goal: a follower that lost everything is never left with a hole. Method: its empty log begins beyond the leader's end.
#[test]
fn an_empty_log_beyond_the_leaders_end_begins_at_the_leaders_start() {
    let mut leader = leading(&[1, 2], 1, 3);
    let position = FetchPosition {
        leader_epoch: LeaderEpoch(1),
        fetch_offset: Offset(9),
        last_fetched_epoch: LeaderEpoch::NONE,
        counted: Offset(9),
        log_start_offset: Offset(9),
        high_watermark: Offset(9),
    };
    let end = EpochEnd { epoch: LeaderEpoch::NONE, end_offset: Offset::ZERO };
    let answer = leader.answer(0, life(2), &position);
    assert_eq!(answer, FetchAnswer::Diverging { end, log_start_offset: Offset::ZERO });
    let ends = LogEnds { log_start_offset: Offset(9), log_end_offset: Offset(9), flushed_offset: Offset(9) };
    let mut replica = Replica::new(NodeId(2), settings(Durability::Replicated, 1), ends, Offset(9));
    replica.registered(at(0), &registration(1, 1, 1, &[1]));
    let (id, _) = replica.next_fetch(Offset(9), None).unwrap();
    assert_eq!(replica.fetch_answered(id, answer, Offset(9), |_| None), FollowerAction::StartAt(Offset::ZERO));
}

// Histories.

/// Catches up until nothing changes any more.
fn catch_up(follower: &mut Node, leader: &mut Node) {
    for _ in 0..10 {
        let action = follower.fetch_from(0, leader);
        assert_ne!(action, FollowerAction::Ignore);
        if matches!(action, FollowerAction::Append { .. }) {
            assert!(follower.records == leader.records, "{:?} {:?}", follower.records, leader.records);
            return;
        }
    }
    panic!("no end: {:?} against {:?}", follower.records, leader.records);
}

/// FAILURES rows 15 and 16: two elections without writes in between, and logs that part more than once.
#[test]
fn logs_that_parted_more_than_once_become_one_by_epochs() {
    for (ours, theirs) in [
        (&[0, 0, 1, 1][..], &[0, 0, 2, 2, 2][..]),
        (&[0, 1, 1, 3, 3, 3], &[0, 1, 2, 2, 4]),
        (&[0, 0, 0], &[]),
        (&[5], &[0, 1, 2, 3]),
        (&[], &[0, 1]),
        (&[0, 0, 0, 0], &[0, 0]),
    ] {
        let mut follower = Node::with(2, settings(Durability::Replicated, 1), ours);
        let mut leader = Node::with(1, settings(Durability::Replicated, 1), theirs);
        for node in [&mut follower, &mut leader] {
            node.registered(&registration(1, 9, 1, &[1]));
        }
        catch_up(&mut follower, &mut leader);
    }
}

/// Goal: an epoch in which a replica led without writing does not keep it from copying older records. Method: it leads
/// epoch 2 with one record of epoch 0; the next leader has more of epoch 0.
#[test]
fn an_epoch_without_records_does_not_keep_a_follower_apart() {
    let mut follower = Node::with(2, settings(Durability::Replicated, 1), &[0]);
    follower.registered(&registration(2, 2, 1, &[2]));
    let mut leader = Node::with(1, settings(Durability::Replicated, 1), &[0, 0, 0]);
    for node in [&mut follower, &mut leader] {
        node.registered(&registration(1, 3, 2, &[1]));
    }
    catch_up(&mut follower, &mut leader);
    assert_eq!(follower.epochs.latest().map(|entry| entry.epoch), Some(LeaderEpoch(0)));
}

/// FAILURES row 25: with a diverging answer nothing else is believed.
#[test]
fn the_watermark_is_not_taken_from_a_leader_whose_log_differs() {
    let mut leader = Node::with(1, settings(Durability::Replicated, 1), &[0, 2, 2, 2]);
    leader.registered(&registration(1, 3, 1, &[1]));
    leader.append(0, 1);
    assert_eq!(leader.high_watermark(), 5);
    let mut follower = Node::with(2, settings(Durability::Replicated, 1), &[0, 1, 1]);
    follower.registered(&registration(1, 3, 1, &[1]));
    assert_eq!(follower.fetch_from(0, &mut leader), FollowerAction::TruncateTo(Offset(1)));
    assert_eq!(follower.high_watermark(), 0);
    catch_up(&mut follower, &mut leader);
    assert_eq!(follower.high_watermark(), 5);
}

//! Fetch sessions: what a consumer asked for last time, so that it need not ask again (KIP-227).
//!
//! Transitions of a session, by the epoch of the request:
//! - `-1`: the session named ends; the fetch stands alone.
//! - `0`: the session named ends; a new one begins if there is room, with every partition of the request.
//! - as expected: partitions are added, changed and forgotten; the epoch moves on. A session left without partitions ends.
//! - anything else: an error, the session stays as it is.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_model::{ErrorCode, LeaderEpoch, MonoTime, Offset, PartitionIndex, TopicId, TopicName};

/// Every session of this broker, at most `slots` of them.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    sessions: BTreeMap<i32, Session>,
    /// Invariant: holds `(last_used, id)` of each session.
    by_last_use: BTreeSet<(MonoTime, i32)>,
}

/// Which topic a fetch means: by name up to version 12, by id from version 13.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey {
    Name(TopicName),
    Id(TopicId),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionKey {
    pub topic: TopicKey,
    pub partition: PartitionIndex,
}

/// One partition of a fetch, as the client asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: PartitionKey,
    /// The life of the topic when the client first asked by name; zero if unknown. A later life is an error, not more data.
    pub topic_id: TopicId,
    pub current_leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub last_fetched_epoch: LeaderEpoch,
    pub max_bytes: i32,
}

/// The session part of a fetch request.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    pub session_id: i32,
    pub session_epoch: i32,
    pub by_topic_id: bool,
    pub wanted: Vec<Wanted>,
    pub forgotten: Vec<PartitionKey>,
}

/// What to fetch and how to answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPlan {
    /// What the answer carries; 0 is "no session".
    pub session_id: i32,
    /// Whether unchanged partitions are left out of the answer.
    pub incremental: bool,
    /// In the order in which they are served.
    pub wanted: Vec<Wanted>,
}

/// What an answer would say of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    pub records_bytes: usize,
    /// Something else that the client must hear: another replica to read from, where its epoch ended.
    pub is_told_more: bool,
}

#[derive(Debug)]
struct Session {
    /// The epoch that the next request must carry; from 1, wraps to 1.
    epoch: i32,
    by_topic_id: bool,
    created: MonoTime,
    last_used: MonoTime,
    /// By turn: whoever was given records goes to the end, so that a hot partition cannot starve the others.
    turns: BTreeMap<u64, Cached>,
    turn_of: BTreeMap<PartitionKey, u64>,
    next_turn: u64,
}

#[derive(Debug)]
struct Cached {
    wanted: Wanted,
    /// As last answered; `None` forces an answer.
    answered: Option<(Offset, Offset)>,
}

impl FetchSessions {
    pub fn new(slots: usize) -> FetchSessions {
        FetchSessions { slots, sessions: BTreeMap::new(), by_last_use: BTreeSet::new() }
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Merges a request into its session. `fresh_id` is positive and random; it names a new session if one begins.
    ///
    /// # Errors
    /// `FETCH_SESSION_ID_NOT_FOUND`, `INVALID_FETCH_SESSION_EPOCH`, `FETCH_SESSION_TOPIC_ID_ERROR`; the client starts over.
    pub fn begin(
        &mut self,
        now: MonoTime,
        request: SessionRequest,
        mut fresh_id: impl FnMut() -> i32,
    ) -> Result<FetchPlan, ErrorCode> {
        if request.session_epoch == EPOCH_FINAL || request.session_epoch == EPOCH_INITIAL {
            self.end(request.session_id);
            let wanted = last_of_each(request.wanted);
            let session_id = if request.session_epoch == EPOCH_INITIAL && !wanted.is_empty() {
                self.open(now, request.by_topic_id, &wanted, &mut fresh_id)
            } else {
                NO_SESSION
            };
            return Ok(FetchPlan { session_id, incremental: false, wanted });
        }
        let id = request.session_id;
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_topic_id != request.by_topic_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        self.by_last_use.remove(&(session.last_used, id));
        session.last_used = now;
        self.by_last_use.insert((now, id));
        session.update(request.wanted, &request.forgotten);
        session.epoch = next_epoch(session.epoch);
        let wanted: Vec<Wanted> = session.turns.values().map(|cached| cached.wanted.clone()).collect();
        if wanted.is_empty() {
            self.end(id);
            return Ok(FetchPlan { session_id: NO_SESSION, incremental: false, wanted });
        }
        Ok(FetchPlan { session_id: id, incremental: true, wanted })
    }

    /// Takes note of what is answered. For an incremental fetch the result says, in the plan's order, what the answer must
    /// name; for any other fetch that is everything.
    pub fn finish(&mut self, plan: &FetchPlan, answers: &[Answered]) -> Vec<bool> {
        let mut named = vec![!plan.incremental; plan.wanted.len()];
        let Some(session) = self.sessions.get_mut(&plan.session_id) else { return vec![true; plan.wanted.len()] };
        for ((wanted, answer), named) in plan.wanted.iter().zip(answers).zip(&mut named) {
            *named |= session.answered(&wanted.key, *answer);
        }
        named
    }

    fn open(&mut self, now: MonoTime, by_topic_id: bool, wanted: &[Wanted], fresh_id: &mut impl FnMut() -> i32) -> i32 {
        if self.sessions.len() >= self.slots && !self.evict(now, wanted.len()) {
            return NO_SESSION;
        }
        // Ids are random, so a few tries find a free one; without one the fetch simply stands alone.
        let free = (0..ID_TRIES).map(|_| fresh_id()).find(|id| *id > 0 && !self.sessions.contains_key(id));
        let Some(id) = free else { return NO_SESSION };
        let mut session = Session {
            epoch: next_epoch(EPOCH_INITIAL),
            by_topic_id,
            created: now,
            last_used: now,
            turns: BTreeMap::new(),
            turn_of: BTreeMap::new(),
            next_turn: 0,
        };
        session.update(wanted.to_vec(), &[]);
        self.sessions.insert(id, session);
        self.by_last_use.insert((now, id));
        id
    }

    fn end(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.by_last_use.remove(&(session.last_used, id));
        }
    }

    /// Makes room: the session idle for longest if that is long enough, else an old one that saves less than the new one.
    fn evict(&mut self, now: MonoTime, size: usize) -> bool {
        let Some((last_used, idlest)) = self.by_last_use.first().copied() else { return false };
        if now.since(last_used).as_millis() >= EVICTION_MS {
            self.end(idlest);
            return true;
        }
        let old = self.by_last_use.iter().filter(|(_, id)| {
            self.sessions.get(id).is_some_and(|session| now.since(session.created).as_millis() >= EVICTION_MS)
        });
        let size_of = |id: i32| self.sessions.get(&id).map_or(0, |session| session.turns.len());
        match old.map(|(_, id)| (size_of(*id), *id)).min() {
            Some((smallest, id)) if smallest < size => {
                self.end(id);
                true
            }
            Some(_) | None => false,
        }
    }
}

impl Session {
    fn update(&mut self, wanted: Vec<Wanted>, forgotten: &[PartitionKey]) {
        for wanted in wanted {
            match self.turn_of.get(&wanted.key).and_then(|turn| self.turns.get_mut(turn)) {
                Some(cached) => {
                    // The life that the client began with stays; only an explicit re-add after a forget starts another.
                    let topic_id = cached.wanted.topic_id;
                    cached.wanted = Wanted { topic_id, ..wanted };
                }
                None => {
                    self.turn_of.insert(wanted.key.clone(), self.next_turn);
                    self.turns.insert(self.next_turn, Cached { wanted, answered: None });
                    self.next_turn += 1;
                }
            }
        }
        for key in forgotten {
            if let Some(turn) = self.turn_of.remove(key) {
                self.turns.remove(&turn);
            }
        }
    }

    /// Whether the answer must name this partition.
    fn answered(&mut self, key: &PartitionKey, answer: Answered) -> bool {
        let Some(turn) = self.turn_of.get_mut(key) else { return true };
        let Some(cached) = self.turns.get_mut(turn) else { return true };
        let marks = (answer.high_watermark, answer.log_start_offset);
        let failed = answer.error.is_error();
        let changed = cached.answered != Some(marks);
        // After an error the next answer names the partition whatever it says: the client must hear that it is over.
        cached.answered = (!failed).then_some(marks);
        if answer.records_bytes > 0 {
            let cached = self.turns.remove(turn);
            self.turns.extend(cached.map(|cached| (self.next_turn, cached)));
            *turn = self.next_turn;
            self.next_turn += 1;
        }
        failed || changed || answer.is_told_more || answer.records_bytes > 0
    }
}

/// A partition named twice in one fetch is answered once, for the last mention.
fn last_of_each(wanted: Vec<Wanted>) -> Vec<Wanted> {
    let mut last = BTreeMap::new();
    for (index, wanted) in wanted.iter().enumerate() {
        last.insert(wanted.key.clone(), index);
    }
    if last.len() == wanted.len() {
        return wanted;
    }
    let kept = wanted.into_iter().enumerate().filter(|(index, wanted)| last.get(&wanted.key) == Some(index));
    kept.map(|(_, wanted)| wanted).collect()
}

fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).filter(|next| *next > 0).unwrap_or(1)
}

const NO_SESSION: i32 = 0;
const EPOCH_INITIAL: i32 = 0;
const EPOCH_FINAL: i32 = -1;
/// Kafka's `min.incremental.fetch.session.eviction.ms`.
const EVICTION_MS: u128 = 120_000;
const ID_TRIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(topic: &str, partition: i32) -> PartitionKey {
        PartitionKey { topic: TopicKey::Name(TopicName::new(topic).unwrap()), partition: PartitionIndex(partition) }
    }

    fn wanted(topic: &str, partition: i32, offset: i64) -> Wanted {
        Wanted {
            key: key(topic, partition),
            topic_id: TopicId([1; 16]),
            current_leader_epoch: LeaderEpoch::NONE,
            fetch_offset: Offset(offset),
            last_fetched_epoch: LeaderEpoch::NONE,
            max_bytes: 1 << 20,
        }
    }

    fn request(session_id: i32, session_epoch: i32, wanted: Vec<Wanted>) -> SessionRequest {
        SessionRequest { session_id, session_epoch, by_topic_id: false, wanted, forgotten: vec![] }
    }

    fn answer(high_watermark: i64, records_bytes: usize) -> Answered {
        Answered {
            error: ErrorCode::None,
            high_watermark: Offset(high_watermark),
            log_start_offset: Offset::ZERO,
            records_bytes,
            is_told_more: false,
        }
    }

    fn at(ms: u64) -> MonoTime {
        MonoTime::ZERO.plus_ms(ms)
    }

    fn opened(sessions: &mut FetchSessions, count: i32) -> FetchPlan {
        let all = (0..count).map(|partition| wanted("t", partition, 0)).collect();
        sessions.begin(at(0), request(0, 0, all), || 7).unwrap()
    }

    #[test]
    fn an_incremental_answer_names_only_what_changed() {
        let mut sessions = FetchSessions::new(10);
        let full = opened(&mut sessions, 3);
        assert_eq!((full.session_id, full.incremental), (7, false));
        assert_eq!(sessions.finish(&full, &[answer(5, 0), answer(0, 0), answer(0, 0)]), [true, true, true]);
        let plan = sessions.begin(at(1), request(7, 1, vec![]), || 8).unwrap();
        assert!(plan.incremental && plan.wanted.len() == 3);
        assert_eq!(sessions.finish(&plan, &[answer(5, 0), answer(1, 0), answer(0, 9)]), [false, true, true]);
    }

    #[test]
    fn what_the_client_must_hear_is_named_though_no_mark_moved() {
        let mut sessions = FetchSessions::new(10);
        let plan = opened(&mut sessions, 1);
        sessions.finish(&plan, &[answer(5, 0)]);
        let plan = sessions.begin(at(1), request(7, 1, vec![]), || 8).unwrap();
        assert_eq!(sessions.finish(&plan, &[Answered { is_told_more: true, ..answer(5, 0) }]), [true]);
    }

    #[test]
    fn after_an_error_the_next_answer_names_the_partition_again() {
        let mut sessions = FetchSessions::new(10);
        let plan = opened(&mut sessions, 1);
        sessions.finish(&plan, &[answer(5, 0)]);
        let plan = sessions.begin(at(1), request(7, 1, vec![]), || 8).unwrap();
        let failed = Answered { error: ErrorCode::NotLeaderOrFollower, ..answer(5, 0) };
        assert_eq!(sessions.finish(&plan, &[failed]), [true]);
        let plan = sessions.begin(at(2), request(7, 2, vec![]), || 8).unwrap();
        assert_eq!(sessions.finish(&plan, &[answer(5, 0)]), [true]);
        let plan = sessions.begin(at(3), request(7, 3, vec![]), || 8).unwrap();
        assert_eq!(sessions.finish(&plan, &[answer(5, 0)]), [false]);
    }

    #[test]
    fn a_partition_that_was_given_records_waits_for_the_others() {
        let mut sessions = FetchSessions::new(10);
        let plan = opened(&mut sessions, 3);
        sessions.finish(&plan, &[answer(9, 100), answer(9, 0), answer(9, 0)]);
        let plan = sessions.begin(at(1), request(7, 1, vec![]), || 8).unwrap();
        let order: Vec<i32> = plan.wanted.iter().map(|wanted| wanted.key.partition.0).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn a_wrong_id_epoch_or_naming_is_refused_and_changes_nothing() {
        let mut sessions = FetchSessions::new(10);
        opened(&mut sessions, 1);
        let begin =
            |sessions: &mut FetchSessions, request| sessions.begin(at(1), request, || 8).map(|plan| plan.session_id);
        assert_eq!(begin(&mut sessions, request(9, 1, vec![])), Err(ErrorCode::FetchSessionIdNotFound));
        assert_eq!(begin(&mut sessions, request(7, 2, vec![])), Err(ErrorCode::InvalidFetchSessionEpoch));
        let by_id = SessionRequest { by_topic_id: true, ..request(7, 1, vec![]) };
        assert_eq!(begin(&mut sessions, by_id), Err(ErrorCode::FetchSessionTopicIdError));
        assert_eq!(begin(&mut sessions, request(7, 1, vec![])), Ok(7));
    }

    #[test]
    fn forgotten_partitions_leave_and_an_empty_session_ends() {
        let mut sessions = FetchSessions::new(10);
        opened(&mut sessions, 2);
        let forget =
            |epoch, partition| SessionRequest { forgotten: vec![key("t", partition)], ..request(7, epoch, vec![]) };
        let plan = sessions.begin(at(1), forget(1, 0), || 8).unwrap();
        assert_eq!(plan.wanted.iter().map(|wanted| wanted.key.clone()).collect::<Vec<_>>(), [key("t", 1)]);
        let plan = sessions.begin(at(2), forget(2, 1), || 8).unwrap();
        assert_eq!((plan.session_id, sessions.session_count()), (0, 0));
    }

    #[test]
    fn a_full_fetch_of_a_known_session_replaces_it_and_a_final_one_ends_it() {
        let mut sessions = FetchSessions::new(10);
        opened(&mut sessions, 2);
        let plan = sessions.begin(at(1), request(7, 0, vec![wanted("t", 0, 4)]), || 8).unwrap();
        assert_eq!((plan.session_id, sessions.session_count()), (8, 1));
        let plan = sessions.begin(at(2), request(8, -1, vec![wanted("t", 0, 4)]), || 9).unwrap();
        assert_eq!((plan.session_id, plan.wanted.len(), sessions.session_count()), (0, 1, 0));
    }

    #[test]
    fn a_full_cache_gives_no_session_until_one_is_old_and_smaller_or_idle() {
        let mut sessions = FetchSessions::new(1);
        opened(&mut sessions, 1);
        let two = || vec![wanted("u", 0, 0), wanted("u", 1, 0)];
        assert_eq!(sessions.begin(at(1), request(0, 0, two()), || 8).unwrap().session_id, 0);
        // In use all along, but old and smaller than the newcomer.
        sessions.begin(at(119_999), request(7, 1, vec![]), || 8).unwrap();
        assert_eq!(sessions.begin(at(120_000), request(0, 0, two()), || 8).unwrap().session_id, 8);
        // Larger than the newcomer: stays until it is idle.
        let one = || vec![wanted("v", 0, 0)];
        sessions.begin(at(239_000), request(8, 1, vec![]), || 9).unwrap();
        assert_eq!(sessions.begin(at(240_001), request(0, 0, one()), || 9).unwrap().session_id, 0);
        assert_eq!(sessions.begin(at(359_000), request(0, 0, one()), || 9).unwrap().session_id, 9);
    }

    #[test]
    fn a_partition_named_twice_counts_once_for_the_last_mention() {
        let mut sessions = FetchSessions::new(0);
        let plan = sessions.begin(at(0), request(0, 0, vec![wanted("t", 0, 1), wanted("t", 0, 2)]), || 7).unwrap();
        assert_eq!(plan.wanted, [wanted("t", 0, 2)]);
    }

    #[test]
    fn epochs_wrap_to_one() {
        assert_eq!((next_epoch(0), next_epoch(i32::MAX)), (1, 1));
    }
}

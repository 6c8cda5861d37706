//! One member's side of a classic group, without I/O.

use std::time::Duration;

use thalweg_model::{ErrorCode, MonoTime};

/// Where a member stands and what it does next.
///
/// ```text
/// Unjoined --begin_join--> Joining --join ok--> Syncing --sync ok--> Stable
///     ^                      | 79: Joining with the given id           |
///     |                      | 25: Joining with no id                  | heartbeat, commit: 27 -> Unjoined
///     +----------------------+------ any error that a new join heals --+ 22, 25: Unjoined, partitions lost
/// Fenced: from everywhere, on 82; for good.
/// ```
/// An answer that belongs to an older generation than the current one changes nothing.
///
/// Source: Kafka's classic group protocol, KIP-345 (static members), KIP-394 (member id required).
#[derive(Debug)]
pub(crate) struct Membership {
    state: State,
    member_id: String,
    /// -1 when no generation is held.
    generation_id: i32,
    /// Partitions were taken away without a chance to commit; cleared by [`Membership::take_lost`].
    lost: bool,
    session_timeout: Duration,
    heartbeat_interval: Duration,
    max_poll_interval: Duration,
    next_heartbeat: MonoTime,
    last_heard: MonoTime,
    last_poll: MonoTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unjoined,
    Joining,
    Syncing,
    Stable,
    Fenced,
}

/// What to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing special: go on to the next step of the state.
    Proceed,
    /// Send the join again at once.
    JoinAgain,
    /// Wait a little, then join again.
    JoinLater,
    /// Ask who coordinates, then join again.
    FindCoordinator,
    /// Nothing that the client can do heals this.
    Fail,
}

/// Identifies a member within one generation, for heartbeats and commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) member_id: String,
    pub(crate) generation_id: i32,
}

impl Membership {
    pub(crate) fn new(
        session_timeout: Duration,
        heartbeat_interval: Duration,
        max_poll_interval: Duration,
        now: MonoTime,
    ) -> Membership {
        Membership {
            state: State::Unjoined,
            member_id: String::new(),
            generation_id: -1,
            lost: false,
            session_timeout,
            heartbeat_interval,
            max_poll_interval,
            next_heartbeat: now,
            last_heard: now,
            last_poll: now,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn is_stable(&self) -> bool {
        self.state == State::Stable
    }

    pub(crate) fn member_id(&self) -> &str {
        &self.member_id
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation { member_id: self.member_id.clone(), generation_id: self.generation_id }
    }

    /// Whether partitions were lost since the last call: they may belong to others already, so do not commit them.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// The application asks for records: it is alive.
    pub(crate) fn note_poll(&mut self, now: MonoTime) {
        self.last_poll = now;
    }

    pub(crate) fn begin_join(&mut self) {
        if self.state != State::Fenced {
            self.state = State::Joining;
        }
    }

    /// Asks for a new round because what this member wants or holds changed. Keeps the generation for commits.
    pub(crate) fn request_rejoin(&mut self) {
        if self.state != State::Fenced {
            self.state = State::Unjoined;
        }
    }

    pub(crate) fn on_join_answer(&mut self, code: ErrorCode, member_id: &str, generation_id: i32) -> Next {
        match code {
            ErrorCode::None => {
                member_id.clone_into(&mut self.member_id);
                self.generation_id = generation_id;
                self.state = State::Syncing;
                Next::Proceed
            }
            ErrorCode::MemberIdRequired => {
                member_id.clone_into(&mut self.member_id);
                Next::JoinAgain
            }
            ErrorCode::UnknownMemberId => {
                self.forget(true);
                Next::JoinAgain
            }
            ErrorCode::IllegalGeneration => {
                self.forget(false);
                Next::JoinAgain
            }
            _ => self.common(code),
        }
    }

    /// `now` starts the session.
    pub(crate) fn on_sync_answer(&mut self, code: ErrorCode, now: MonoTime) -> Next {
        match code {
            ErrorCode::None => {
                self.state = State::Stable;
                self.last_heard = now;
                self.next_heartbeat = now.plus(self.heartbeat_interval);
                Next::Proceed
            }
            ErrorCode::RebalanceInProgress => {
                self.state = State::Unjoined;
                Next::JoinAgain
            }
            ErrorCode::UnknownMemberId => {
                self.forget(true);
                Next::JoinAgain
            }
            ErrorCode::IllegalGeneration => {
                self.forget(false);
                Next::JoinAgain
            }
            _ => self.common(code),
        }
    }

    /// `of` is the generation that the heartbeat was sent for.
    pub(crate) fn on_heartbeat_answer(&mut self, code: ErrorCode, of: &Generation, now: MonoTime) -> Next {
        if of.generation_id != self.generation_id || of.member_id != self.member_id {
            return Next::Proceed;
        }
        match code {
            ErrorCode::None => {
                self.last_heard = now;
                Next::Proceed
            }
            _ => self.on_generation_error(code),
        }
    }

    /// `code` answers a commit of generation `of`.
    pub(crate) fn on_commit_answer(&mut self, code: ErrorCode, of: &Generation) -> Next {
        if code == ErrorCode::None || of.generation_id != self.generation_id || of.member_id != self.member_id {
            return Next::Proceed;
        }
        self.on_generation_error(code)
    }

    /// When the next heartbeat is due; `None` outside a generation.
    pub(crate) fn heartbeat_due(&self) -> Option<MonoTime> {
        self.is_stable().then_some(self.next_heartbeat)
    }

    /// Notes that a heartbeat leaves now.
    pub(crate) fn note_heartbeat_sent(&mut self, now: MonoTime) {
        self.next_heartbeat = now.plus(self.heartbeat_interval);
    }

    /// Whether the coordinator was silent so long that it has expelled us, or is gone.
    pub(crate) fn is_session_expired(&self, now: MonoTime) -> bool {
        self.is_stable() && now.since(self.last_heard) > self.session_timeout
    }

    /// Whether the application has not asked for records for so long that others should get its partitions.
    pub(crate) fn is_poll_overdue(&self, now: MonoTime) -> bool {
        self.is_stable() && now.since(self.last_poll) > self.max_poll_interval
    }

    /// Gives up the membership: after leaving, or when the poll was overdue. Partitions count as lost if `lost`.
    pub(crate) fn reset(&mut self, lost: bool) {
        let had = self.generation_id >= 0;
        self.member_id.clear();
        self.generation_id = -1;
        self.lost |= lost && had;
        if self.state != State::Fenced {
            self.state = State::Unjoined;
        }
    }

    fn on_generation_error(&mut self, code: ErrorCode) -> Next {
        match code {
            ErrorCode::RebalanceInProgress => {
                self.request_rejoin();
                Next::JoinAgain
            }
            ErrorCode::IllegalGeneration => {
                self.forget(false);
                Next::JoinAgain
            }
            ErrorCode::UnknownMemberId => {
                self.forget(true);
                Next::JoinAgain
            }
            // The generation still holds: only who coordinates it has changed.
            ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator => Next::FindCoordinator,
            ErrorCode::CoordinatorLoadInProgress => Next::Proceed,
            ErrorCode::FencedInstanceId => self.common(code),
            code if code.is_retriable() => Next::Proceed,
            _ => Next::Fail,
        }
    }

    fn common(&mut self, code: ErrorCode) -> Next {
        match code {
            ErrorCode::FencedInstanceId => {
                self.lost |= self.generation_id >= 0;
                self.generation_id = -1;
                self.state = State::Fenced;
                Next::Fail
            }
            ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator => {
                self.state = State::Unjoined;
                Next::FindCoordinator
            }
            ErrorCode::CoordinatorLoadInProgress | ErrorCode::RebalanceInProgress => {
                self.state = State::Unjoined;
                Next::JoinLater
            }
            code if code.is_retriable() => {
                self.state = State::Unjoined;
                Next::JoinLater
            }
            _ => {
                self.state = State::Unjoined;
                Next::Fail
            }
        }
    }

    /// The coordinator does not count us in any more.
    fn forget(&mut self, member_id_too: bool) {
        self.lost |= self.generation_id >= 0;
        self.generation_id = -1;
        if member_id_too {
            self.member_id.clear();
        }
        if self.state != State::Joining {
            self.state = State::Unjoined;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stable() -> Membership {
        let second = Duration::from_secs(1);
        let mut member = Membership::new(10 * second, 3 * second, 300 * second, MonoTime::ZERO);
        member.begin_join();
        assert_eq!(member.on_join_answer(ErrorCode::MemberIdRequired, "m-1", -1), Next::JoinAgain);
        assert_eq!(member.on_join_answer(ErrorCode::None, "m-1", 4), Next::Proceed);
        assert_eq!(member.on_sync_answer(ErrorCode::None, MonoTime::ZERO), Next::Proceed);
        assert!(member.is_stable());
        member
    }

    #[test]
    fn a_rebalance_keeps_the_generation_so_that_offsets_can_be_committed_before_the_join() {
        let mut member = stable();
        let of = member.generation();
        assert_eq!(member.on_heartbeat_answer(ErrorCode::RebalanceInProgress, &of, MonoTime::ZERO), Next::JoinAgain);
        assert_eq!((member.state(), member.generation(), member.take_lost()), (State::Unjoined, of, false));
    }

    #[test]
    fn an_expelled_member_has_lost_its_partitions_and_its_id() {
        let mut member = stable();
        let of = member.generation();
        member.on_heartbeat_answer(ErrorCode::UnknownMemberId, &of, MonoTime::ZERO);
        assert_eq!((member.member_id(), member.generation().generation_id), ("", -1));
        assert!(member.take_lost() && !member.take_lost());
    }

    #[test]
    fn an_old_generation_keeps_the_id() {
        let mut member = stable();
        let of = member.generation();
        assert_eq!(member.on_commit_answer(ErrorCode::IllegalGeneration, &of), Next::JoinAgain);
        assert!(member.take_lost());
        assert_eq!((member.member_id(), member.state()), ("m-1", State::Unjoined));
    }

    /// Goal: a late answer of a past life does not expel the member of the new one.
    #[test]
    fn answers_for_an_older_generation_change_nothing() {
        let mut member = stable();
        let old = member.generation();
        member.begin_join();
        member.on_join_answer(ErrorCode::None, "m-1", 5);
        member.on_sync_answer(ErrorCode::None, MonoTime::ZERO);
        assert_eq!(member.on_heartbeat_answer(ErrorCode::IllegalGeneration, &old, MonoTime::ZERO), Next::Proceed);
        assert_eq!(member.on_commit_answer(ErrorCode::UnknownMemberId, &old), Next::Proceed);
        assert!(member.is_stable() && !member.take_lost());
    }

    #[test]
    fn a_fenced_static_member_never_comes_back() {
        let mut member = stable();
        let of = member.generation();
        assert_eq!(member.on_heartbeat_answer(ErrorCode::FencedInstanceId, &of, MonoTime::ZERO), Next::Fail);
        member.begin_join();
        member.request_rejoin();
        member.reset(false);
        assert_eq!(member.state(), State::Fenced);
    }

    #[test]
    fn a_moved_coordinator_does_not_end_the_generation() {
        let mut member = stable();
        let of = member.generation();
        assert_eq!(member.on_heartbeat_answer(ErrorCode::NotCoordinator, &of, MonoTime::ZERO), Next::FindCoordinator);
        assert!(member.is_stable());
    }

    #[test]
    fn silence_of_the_coordinator_and_of_the_application_are_told_apart() {
        let mut member = stable();
        let late = MonoTime::ZERO.plus_ms(10_001);
        assert!(member.is_session_expired(late) && !member.is_poll_overdue(late));
        let of = member.generation();
        member.on_heartbeat_answer(ErrorCode::None, &of, MonoTime::ZERO.plus_ms(299_000));
        let later = MonoTime::ZERO.plus_ms(300_001);
        assert!(!member.is_session_expired(later) && member.is_poll_overdue(later));
        member.note_poll(later);
        assert!(!member.is_poll_overdue(later));
    }
}

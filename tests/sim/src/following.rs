//! Copying between replicas: fetches of followers, what their leaders answer, and what they make of it.

use thalweg_broker::machine::follower::{FetchAnswer, FetchId, FetchPosition, FollowerAction};
use thalweg_broker::machine::leader::{FetchVerdict, FollowerId};
use thalweg_model::{BrokerEpoch, ErrorCode, Offset};

use crate::hosting::{Parked, ends};
use crate::log::SimRecord;
use crate::message::{Body, Node, Timer};
use crate::plan::MS;
use crate::world::World;

impl World {
    /// Asks the leader, unless a fetch stands.
    pub fn fetch(&mut self, broker: usize, partition: usize) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        if hosted.replica.follower().is_none_or(|follower| follower.asked().is_some()) {
            return;
        }
        let Some((id, position)) = hosted.replica.next_fetch(log.start(), log.last_epoch()) else { return };
        self.send_fetch(broker, partition, id, position);
        let patience = self.plan.fetch_timeout + self.plan.fetch_wait;
        self.timer(broker, patience, Timer::FetchTimeout { partition, id });
    }

    pub fn fetch_unanswered(&mut self, broker: usize, partition: usize, id: FetchId) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        if hosted.replica.follower().and_then(|follower| follower.asked()).is_none_or(|(asked, _)| asked != id) {
            return;
        }
        let Some((id, position)) = hosted.replica.next_fetch(log.start(), log.last_epoch()) else { return };
        self.send_fetch(broker, partition, id, position);
        let patience = self.plan.fetch_timeout + self.plan.fetch_wait;
        self.timer(broker, patience, Timer::FetchTimeout { partition, id });
    }

    pub fn send_fetch(&mut self, broker: usize, partition: usize, id: FetchId, position: FetchPosition) {
        let this = &self.brokers[broker];
        let Some(process) = &this.process else { return };
        let Some(leader) = process.hosted[partition].as_ref().and_then(|hosted| hosted.replica.follower()) else {
            return;
        };
        let broker_epoch = process.lease.epoch().unwrap_or(BrokerEpoch::NONE);
        let follower = FollowerId { id: this.id, broker_epoch };
        let (life, to) = (process.life, Node(leader.leader().0 as usize));
        let Some(hosting) = self.hosting(broker, partition) else { return };
        self.send(Node(broker + 1), to, Body::Fetch { life, partition, hosting, follower, id, position });
    }

    /// A follower's fetch has come.
    pub fn follower_fetched(&mut self, broker: usize, partition: usize, fetch: Parked) {
        let now = self.local(broker);
        let Parked { follower, id, position, .. } = fetch;
        let Some((hosted, log)) = self.hosted(broker, partition) else {
            let error = ErrorCode::UnknownTopicOrPartition;
            let answer = FetchAnswer::Error { error, log_start_offset: Offset::ZERO };
            return self.answer_fetch(broker, partition, &fetch, answer);
        };
        let log_start_offset = log.start();
        let lookup = |epoch| log.end_of_epoch(epoch);
        match hosted.replica.follower_fetched(now, follower, &position, log_start_offset, lookup) {
            Ok(FetchVerdict::Accepted) => {
                hosted.parked.retain(|parked| parked.follower.id != follower.id);
                hosted.parked.push(fetch);
                let wait = self.plan.fetch_wait;
                let follower = follower.id.0 as usize;
                self.timer(broker, wait, Timer::FetchWait { partition, follower, id });
            }
            Ok(FetchVerdict::Diverging(end)) => {
                self.answer_fetch(broker, partition, &fetch, FetchAnswer::Diverging { end, log_start_offset });
            }
            Err(error) => {
                self.answer_fetch(broker, partition, &fetch, FetchAnswer::Error { error, log_start_offset });
            }
        }
        self.settle(broker, partition);
    }

    pub fn fetch_waited(&mut self, broker: usize, partition: usize, follower: usize, id: FetchId) {
        let Some((hosted, _)) = self.hosted(broker, partition) else { return };
        let is_it = |parked: &Parked| parked.follower.id.0 as usize == follower && parked.id == id;
        if let Some(at) = hosted.parked.iter().position(is_it) {
            let fetch = hosted.parked.swap_remove(at);
            self.answer_records(broker, partition, &fetch);
        }
    }

    pub fn answer_records(&mut self, broker: usize, partition: usize, fetch: &Parked) {
        let count = self.rng.between(1, 60) as usize;
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        let high_watermark = hosted.replica.high_watermark();
        let answer = FetchAnswer::Records { high_watermark, log_start_offset: log.start() };
        let records = log.read(fetch.position.fetch_offset, count);
        self.send_answer(broker, partition, fetch, answer, records);
    }

    pub fn answer_fetch(&mut self, broker: usize, partition: usize, fetch: &Parked, answer: FetchAnswer) {
        self.send_answer(broker, partition, fetch, answer, Vec::new());
    }

    fn send_answer(
        &mut self,
        broker: usize,
        partition: usize,
        fetch: &Parked,
        answer: FetchAnswer,
        records: Vec<SimRecord>,
    ) {
        let high_watermark =
            self.hosted(broker, partition).map_or(Offset::ZERO, |(hosted, _)| hosted.replica.high_watermark());
        let to = Node(fetch.follower.id.0 as usize);
        let (life, hosting, id) = (fetch.life, fetch.hosting, fetch.id);
        let body = Body::FetchAnswer { life, partition, hosting, id, answer, records, high_watermark };
        self.send(Node(broker + 1), to, body);
    }

    /// The leader has answered a fetch of ours.
    pub fn fetch_answered(
        &mut self,
        broker: usize,
        partition: usize,
        id: FetchId,
        answer: FetchAnswer,
        records: &[SimRecord],
        leaders_high_watermark: Offset,
    ) {
        let Some((hosted, log)) = self.hosted(broker, partition) else { return };
        let is_asked =
            hosted.replica.follower().and_then(|follower| follower.asked()).is_some_and(|(asked, _)| asked == id);
        if thalweg_model::mutant!("watermark-before-truncation")
            && is_asked
            && matches!(answer, FetchAnswer::Diverging { .. })
        {
            hosted.replica.copied(log.end(), leaders_high_watermark);
        }
        let before = log.end();
        let lookup = |epoch| log.end_of_epoch(epoch);
        let action = hosted.replica.fetch_answered(id, answer, log.start(), lookup);
        let mut pause = 0;
        match action {
            // The fetch may have been used up all the same; this asks anew only if none stands.
            FollowerAction::Ignore => return self.timer(broker, 0, Timer::Fetch { partition }),
            FollowerAction::Append { high_watermark, log_start_offset } => {
                log.copy(records);
                hosted.replica.copied(log.end(), high_watermark);
                if log_start_offset <= hosted.replica.high_watermark() && log.advance_start(log_start_offset) {
                    hosted.replica.log_started(log_start_offset);
                }
                self.check_appended(broker, partition, before);
            }
            FollowerAction::TruncateTo(to) => {
                log.truncate_to(to);
                hosted.replica.truncated(ends(log));
                self.tell(|_| {
                    format!("broker {}: partition {partition}: cuts its log from {before} to {to}", broker + 1)
                });
            }
            FollowerAction::StartAt(start) => {
                log.start_at(start);
                hosted.replica.truncated(ends(log));
                self.tell(|_| format!("broker {}: partition {partition}: begins anew at {start}", broker + 1));
            }
            FollowerAction::Wait(_) => pause = self.rng.between(20, 150) * MS,
        }
        self.settle(broker, partition);
        self.timer(broker, pause, Timer::Fetch { partition });
    }
}

//! What a replica does for clients: it takes batches and hands out records.

use thalweg_model::{ErrorCode, LeaderEpoch, Offset};
use thalweg_storage::Verdict;

use crate::hosting::Waiting;
use crate::log::{Sequence, SimRecord};
use crate::message::{Body, Node};
use crate::plan::Acks;
use crate::world::World;

impl World {
    /// A producer's batch; `waiting` gets its place here.
    pub fn produced(
        &mut self,
        broker: usize,
        partition: usize,
        mut waiting: Waiting,
        values: &[u64],
        sequence: Option<Sequence>,
    ) {
        let may_lead = self.may_lead(broker);
        let now = self.local(broker);
        let Waiting { client, request, acks, .. } = waiting;
        let Some((hosted, log)) = self.hosted(broker, partition) else {
            return self.answer_produce(broker, client, request, Err(ErrorCode::UnknownTopicOrPartition));
        };
        let epoch = match hosted.replica.admit(may_lead, acks == Acks::All) {
            Ok(epoch) => epoch,
            Err(error) => return self.answer_produce(broker, client, request, Err(error)),
        };
        let before = log.end();
        match sequence.map_or(Ok(Verdict::Append), |first| log.judge(first, values.len())) {
            Ok(Verdict::Append) => {
                waiting.base = log.append(epoch, values, sequence);
                waiting.end = log.end();
                hosted.replica.appended(now, waiting.end);
            }
            // Acknowledged by the same rule as the original (P2).
            Ok(Verdict::Duplicate(stored)) => {
                waiting.base = stored.base_offset();
                waiting.end = stored.last_offset.plus(1);
                let is_same = log.record(waiting.base).is_some_and(|record| Some(&record.value) == values.first());
                if !is_same {
                    let what = format!("a repetition is said to lie at {}", waiting.base);
                    return self.checker.fail(15, format!("partition {partition}, broker {}: {what}", broker + 1));
                }
            }
            Err(error) => {
                self.tell(|_| {
                    let who = format!("broker {}: partition {partition}, epoch {epoch}", broker + 1);
                    format!("{who}, log up to {before}: refuses request {request} of {client:?}: {error}")
                });
                return self.answer_produce(broker, client, request, Err(ErrorCode::OutOfOrderSequenceNumber));
            }
        }
        let end = waiting.end;
        match acks {
            Acks::None => {}
            Acks::Leader => hosted.waits_for_leader.park(end, waiting),
            Acks::All if thalweg_model::mutant!("acks-all-waits") => hosted.waits_for_leader.park(end, waiting),
            Acks::All => hosted.waits_for_all.park(end, waiting),
        }
        self.check_appended(broker, partition, before);
        self.settle(broker, partition);
    }

    pub fn answer_produce(&mut self, broker: usize, client: Node, request: u64, result: Result<Offset, ErrorCode>) {
        self.send(Node(broker + 1), client, Body::ProduceAnswer { request, result });
    }

    /// A consumer's fetch (L9).
    pub fn consumed(
        &mut self,
        broker: usize,
        partition: usize,
        position: Offset,
        leader_epoch: LeaderEpoch,
        read_epoch: LeaderEpoch,
    ) -> Result<Vec<SimRecord>, ErrorCode> {
        let may_lead = self.may_lead(broker);
        let (hosted, log) = self.hosted(broker, partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if let Some(follower) = hosted.replica.follower() {
            // F6. What is out of its range the leader will judge.
            let high_watermark = hosted.replica.high_watermark();
            let is_here = follower.epoch() == leader_epoch && (log.start()..=high_watermark).contains(&position);
            let here = || log.slice(position, high_watermark).to_vec();
            return is_here.then(here).ok_or(ErrorCode::NotLeaderOrFollower);
        }
        let epoch = hosted.replica.leader().filter(|_| may_lead).ok_or(ErrorCode::NotLeaderOrFollower)?.epoch();
        if leader_epoch != epoch {
            let is_old = leader_epoch < epoch;
            return Err(if is_old { ErrorCode::FencedLeaderEpoch } else { ErrorCode::UnknownLeaderEpoch });
        }
        if position < log.start() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        // KIP-320: what was read in an epoch that ends earlier here was never committed.
        let read = Some(read_epoch).filter(|epoch| *epoch != LeaderEpoch::NONE && log.start() < position);
        let cut = read
            .and_then(|epoch| log.end_of_epoch(epoch))
            .filter(|(found, end)| *found < read_epoch || *end < position);
        if position > log.end() || cut.is_some() {
            let end = log.end();
            let what = format!(
                "broker {} leads in epoch {epoch} up to {end}; a consumer has read to {position} in {read_epoch}",
                broker + 1
            );
            self.checker.fail(13, format!("partition {partition}: {what}"));
            return Err(ErrorCode::OffsetOutOfRange);
        }
        Ok(log.slice(position, hosted.replica.high_watermark()).to_vec())
    }
}

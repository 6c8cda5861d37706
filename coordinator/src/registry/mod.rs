//! The registries: a pure, replicated state machine.
//!
//! A *command* is what coordinators agree on. Applying it decides, and derives *records*; only records change the state.
//! The same commands give the same records and the same state on every node, whatever its clock, memory layout or luck.

pub mod brokers;
pub mod configs;
pub mod context;
pub mod coordinators;
pub mod election;
pub mod features;
pub mod groups;
pub mod hash;
pub mod isr;
pub mod keys;
pub mod leaders;
pub mod marks;
pub mod min_isr;
pub mod offline;
pub mod offsets;
pub mod placement;
pub mod plans;
pub mod producer_ids;
pub mod reassignment;
pub mod state;
pub mod tokens;
pub mod topics;

use prost::Message;
use thalweg_model::invariant::InvariantId;
use thalweg_model::{ErrorCode, NodeId, check};
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    AllocateProducerIdsResponse, AlterIsrResponse, AlteredConfig, Command, CreatedTopic, DeleteOffsetsResponse,
    DeletedTopic, ElectedPartition, GroupCommitResult, GrownTopic, KafkaError, ReassignedPartition, Record,
    RegisterBrokerResponse,
};

use context::Context;
use hash::StateHash;
use state::{ReplayError, State};

/// The state, and the hash by which nodes compare theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    state: State,
    progress: Progress,
    feed_index: u64,
}

/// How far a machine has come. Stored in one batch with the records (REPLICATION R2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// One past the last entry applied. Raft counts entries from 0.
    pub next_index: u64,
    /// Over every record in order.
    pub hash: StateHash,
    /// The last index that is a multiple of [`HASH_INTERVAL`], and the hash after it; 0 for none.
    pub checked_index: u64,
    pub checked_hash: StateHash,
}

/// What a command came to. Not stored; the node that proposed the command answers with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done, or there was nothing to do.
    Done,
    /// Nothing happened, for this reason.
    Refused(KafkaError),
    Registered(RegisterBrokerResponse),
    CreatedTopics(Vec<CreatedTopic>),
    DeletedTopics(Vec<DeletedTopic>),
    GrownTopics(Vec<GrownTopic>),
    AlteredConfigs(Vec<AlteredConfig>),
    ProducerIds(AllocateProducerIdsResponse),
    AlteredIsr(AlterIsrResponse),
    Committed(GroupCommitResult),
    DeletedOffsets(DeleteOffsetsResponse),
    ElectedLeaders(Vec<ElectedPartition>),
    Reassigned(Vec<ReassignedPartition>),
    Admitted(tokens::Admitted),
}

/// Why a node cannot go on applying. It must stop: going on would make its copy differ from the others'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error(
        "entry {index} holds a command for level {level} of thalweg.version that this program does not know; \
         it is older than the cluster, start the newer version"
    )]
    UnknownCommand { index: u64, level: u32 },
    #[error(
        "this node's state differs from the leader's at entry {index} (hash {ours:016x}, the leader has {leaders:016x}); \
         remove its data directory and let it join again"
    )]
    Diverged { index: u64, ours: u64, leaders: u64 },
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

impl Machine {
    /// A machine that goes on from stored records and the progress stored with them.
    pub fn restored(state: State, progress: Progress) -> Machine {
        Machine { state, progress, feed_index: progress.next_index.saturating_sub(1) }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// A broker that has the feed up to here has the whole state: the last entry with records for brokers, or, before the
    /// first since the start, the last entry.
    pub fn feed_index(&self) -> u64 {
        self.feed_index
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Applies one command of the entry at `context.index`.
    ///
    /// Returns what to answer, and the records that have changed the state.
    ///
    /// # Errors
    /// The node must stop; see [`ApplyError`].
    pub fn apply(&mut self, context: &Context, command: &Command) -> Result<(Outcome, Vec<Record>), ApplyError> {
        check!(InvariantId::Raft1, context.index >= self.progress.next_index);
        let level = self.state.feature_level(features::VERSION);
        let Some(kind) = &command.kind else {
            if command.level > level {
                return Ok((above_level(command.level, level), Vec::new()));
            }
            return Err(ApplyError::UnknownCommand { index: context.index, level: command.level });
        };
        if command.level.max(features::level_of(kind)) > level && !features::is_first(kind) {
            return Ok((above_level(command.level, level), Vec::new()));
        }
        if let Kind::VerifyHash(verify) = kind {
            self.verify(verify.index, StateHash(verify.hash))?;
        }
        let (outcome, records) = decide(&self.state, context, kind);
        for record in &records {
            self.state.replay(record)?;
            self.progress.hash.feed(&record.encode_to_vec());
        }
        if records.iter().any(state::is_fed) {
            self.feed_index = context.index;
        }
        Ok((outcome, records))
    }

    /// Ends the entry at `index`: each entry ends once, in order, also one without commands.
    pub fn end_entry(&mut self, index: u64) {
        let next = self.progress.next_index;
        check!(InvariantId::Raft1, index >= next, "entry {index} came where {next} was next");
        self.progress.next_index = index + 1;
        if index > 0 && index.is_multiple_of(HASH_INTERVAL) {
            self.progress.checked_index = index;
            self.progress.checked_hash = self.progress.hash;
        }
    }

    fn verify(&self, index: u64, leaders: StateHash) -> Result<(), ApplyError> {
        let ours = self.progress.checked_hash;
        if index > 0 && self.progress.checked_index == index && ours != leaders {
            return Err(ApplyError::Diverged { index, ours: ours.0, leaders: leaders.0 });
        }
        Ok(())
    }
}

/// What a command comes to in this state. Changes nothing, so that "validate only" is the same code.
pub fn decide(state: &State, context: &Context, kind: &Kind) -> (Outcome, Vec<Record>) {
    match kind {
        Kind::InitCluster(command) => features::init(state, command),
        Kind::RaiseLevel(command) => features::raise(state, command),
        Kind::CreateToken(command) => tokens::create(state, context, command),
        Kind::RevokeToken(command) => tokens::revoke(state, command),
        Kind::AdmitNode(command) => tokens::admit(state, context, command),
        Kind::OfferCoordinator(command) => coordinators::offer(state, command),
        Kind::VerifyHash(_) => (Outcome::Done, Vec::new()),
        Kind::RegisterBroker(command) => match &command.request {
            Some(request) => brokers::register(state, context, request),
            None => (Outcome::Refused(error(ErrorCode::InvalidRequest, "no request")), Vec::new()),
        },
        Kind::FenceBroker(command) => brokers::fence(state, context, NodeId(command.broker_id), command.broker_epoch),
        Kind::UnfenceBroker(command) => {
            brokers::unfence(state, context, NodeId(command.broker_id), command.broker_epoch)
        }
        Kind::BeginShutdown(command) => {
            brokers::begin_shutdown(state, context, NodeId(command.broker_id), command.broker_epoch)
        }
        Kind::CreateTopics(command) => {
            let (results, records) = topics::create(state, context, &command.topics, command.partitions_max);
            (Outcome::CreatedTopics(results), records)
        }
        Kind::DeleteTopics(command) => {
            let (results, records) = topics::delete(state, &command.topics);
            (Outcome::DeletedTopics(results), records)
        }
        Kind::CreatePartitions(command) => {
            let (results, records) = topics::grow(state, context, &command.topics, command.partitions_max);
            (Outcome::GrownTopics(results), records)
        }
        Kind::AlterConfigs(command) => {
            let (results, records) = configs::alter(state, context, &command.resources);
            (Outcome::AlteredConfigs(results), records)
        }
        Kind::AdmitCoordinator(command) => coordinators::admit(state, command.id, &command.identity),
        Kind::RetireCoordinator(command) => coordinators::retire(state, command.id),
        Kind::ElectLeaders(request) => leaders::elect(state, context, request),
        Kind::AlterReassignments(request) => reassignment::alter(state, context, request),
        Kind::StartPlan(command) => plans::start(state, context, command),
        Kind::EndPlan(command) => plans::end(state, context, command),
        Kind::MarkBroker(command) => marks::mark(state, command),
        Kind::UnregisterBroker(command) => marks::unregister(state, command),
        Kind::TakeOffline(command) => offline::take(state, context, command),
        Kind::AlterIsr(request) => isr::alter(state, context, request),
        Kind::AllocateProducerIds(command) => producer_ids::allocate(state, command),
        Kind::SaveGeneration(command) => groups::save_generation(state, context, command),
        Kind::SaveAssignment(command) => groups::save_assignment(state, command),
        Kind::ReplaceMember(command) => groups::replace_member(state, command),
        Kind::CommitOffsets(command) => offsets::commit(state, context, command),
        Kind::DeleteGroup(command) => groups::delete(state, &command.group_id),
        Kind::DeleteOffsets(command) => offsets::delete(state, command),
        Kind::ExpireOffsets(command) => offsets::expire(state, context, command),
    }
}

/// Success, as contracts say it.
pub fn ok() -> KafkaError {
    KafkaError::default()
}

/// An error, as contracts say it.
pub fn error(code: ErrorCode, message: impl Into<String>) -> KafkaError {
    KafkaError { code: i32::from(code.code()), message: message.into() }
}

fn above_level(wanted: u32, level: u32) -> Outcome {
    let message = format!(
        "this needs level {wanted} of thalweg.version, and the cluster is at {level}; upgrade it first: thalweg cluster upgrade status"
    );
    Outcome::Refused(error(ErrorCode::UnsupportedVersion, message))
}

/// Every so many entries nodes compare their state (REPLICATION R8).
pub const HASH_INTERVAL: u64 = 1_000;

//! What travels between nodes, and what time brings.

use thalweg_broker::machine::follower::{FetchAnswer, FetchId, FetchPosition};
use thalweg_broker::machine::isr::IsrProposal;
use thalweg_broker::machine::leader::FollowerId;
use thalweg_coordinator::session;
use thalweg_model::{ErrorCode, LeaderEpoch, MonoTime, Offset};
use thalweg_proto::v1;

use crate::groups::{GroupAnswer, GroupCall};
use crate::log::{Sequence, SimRecord};
use crate::nemesis::Remedy;
use crate::plan::Acks;

/// A node of the network: the coordinators are one, brokers are numbered from 1, clients come after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub usize);

impl Node {
    pub const COORDINATOR: Node = Node(0);
}

/// One start of a broker's process. Answers belong to one, as those on a connection do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life(pub u64);

#[derive(Clone, Debug)]
pub struct Message {
    pub from: Node,
    pub to: Node,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub enum Body {
    Register {
        life: Life,
        request: v1::RegisterBrokerRequest,
    },
    Registered {
        life: Life,
        answer: v1::RegisterBrokerResponse,
    },
    Heartbeat {
        life: Life,
        sent: MonoTime,
        request: v1::BrokerHeartbeatRequest,
    },
    HeartbeatAnswer {
        life: Life,
        sent: MonoTime,
        broker_epoch: i64,
        answer: v1::BrokerHeartbeatResponse,
    },
    AlterIsr {
        life: Life,
        partition: usize,
        asked: IsrProposal,
        request: v1::AlterIsrRequest,
    },
    AlterIsrAnswer {
        life: Life,
        partition: usize,
        asked: IsrProposal,
        answer: v1::AlterIsrResponse,
    },
    Fetch {
        life: Life,
        partition: usize,
        /// Which of the follower's replicas asks: one may be given up and made anew.
        hosting: u64,
        follower: FollowerId,
        id: FetchId,
        position: FetchPosition,
    },
    FetchAnswer {
        life: Life,
        partition: usize,
        hosting: u64,
        id: FetchId,
        answer: FetchAnswer,
        records: Vec<SimRecord>,
        /// Of the leader, whatever the answer.
        high_watermark: Offset,
    },
    Produce {
        request: u64,
        partition: usize,
        acks: Acks,
        values: Vec<u64>,
        /// Of the first, if the producer is idempotent.
        sequence: Option<Sequence>,
    },
    ProduceAnswer {
        request: u64,
        result: Result<Offset, ErrorCode>,
    },
    Consume {
        partition: usize,
        /// Of this consumer, for this partition.
        request: u64,
        position: Offset,
        leader_epoch: LeaderEpoch,
        /// Of the last record that was read.
        read_epoch: LeaderEpoch,
    },
    ConsumeAnswer {
        partition: usize,
        request: u64,
        result: Result<Vec<SimRecord>, ErrorCode>,
    },
    /// `call`: of this member.
    Group {
        call: u64,
        request: GroupCall,
    },
    GroupAnswer {
        call: u64,
        answer: GroupAnswer,
    },
    /// The member does not wait any more: its broker drops the call.
    GroupWithdrawn {
        call: u64,
    },
}

#[derive(Clone, Debug)]
pub enum Event {
    Deliver(Box<Message>),
    /// Something that a broker's process has set itself.
    Broker {
        broker: usize,
        life: Life,
        timer: Timer,
    },
    /// The coordinators' log has grown.
    Commit,
    /// The session's deadline.
    SessionTick {
        leadership: u64,
    },
    /// A new leader of the coordinators is there.
    Elected,
    /// The coordinators see that their connection to a broker's process has ended.
    ConnectionLost {
        life: session::Life,
    },
    /// The coordinators knock at a broker's listener.
    Probe {
        life: session::Life,
    },
    /// Feed items reach a broker.
    Feed {
        broker: usize,
        stream: u64,
    },
    Produce {
        producer: usize,
    },
    ProduceTimeout {
        producer: usize,
        request: u64,
    },
    Consume {
        consumer: usize,
    },
    Start {
        broker: usize,
    },
    Member {
        member: usize,
    },
    Fault,
    Remedy(Remedy),
    /// An administrator looks after the topic.
    Administer,
    /// A topic that was deleted is wanted again.
    WantTopic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Register if that is not done, else send a heartbeat; both again and again.
    Lease,
    /// See that the feed flows.
    Feed,
    /// Write the high watermarks down.
    Checkpoint,
    /// Look for members of the ISR that lag.
    Isr,
    IsrTimeout {
        partition: usize,
    },
    Flush {
        partition: usize,
    },
    Flushed {
        partition: usize,
        up_to: Offset,
        generation: u64,
    },
    Fetch {
        partition: usize,
    },
    FetchTimeout {
        partition: usize,
        id: FetchId,
    },
    /// A parked fetch has waited enough.
    FetchWait {
        partition: usize,
        follower: usize,
        id: FetchId,
    },
    /// The disk failed: the process ends.
    Exit,
    /// A clean stop has been waited for long enough.
    StopAnyway,
}

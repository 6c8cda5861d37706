//! What operators and admin clients change.

use openraft::async_runtime::WatchReceiver;
use thalweg_model::{ErrorCode, Timestamp};
use thalweg_proto::v1;
use thalweg_proto::v1::admin_server::Admin;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::{
    AddCoordinatorRequest, AddCoordinatorResponse, AlterConfigsRequest, AlterConfigsResponse,
    AlterReassignmentsRequest, AlterReassignmentsResponse, AlteredConfig, CoordinatorNode, CreatePartitionsRequest,
    CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, CreatedTopic, DeleteTopicsRequest,
    DeleteTopicsResponse, DeletedTopic, DescribeCoordinatorsRequest, DescribeCoordinatorsResponse,
    DescribeLevelsRequest, DescribeLevelsResponse, ElectLeadersRequest, ElectLeadersResponse, GrownTopic, KafkaError,
    Levels, NewTopic, NodeLevels, OperateRequest, OperateResponse, RaiseLevelRequest, RaiseLevelResponse,
    RemoveCoordinatorRequest, RemoveCoordinatorResponse, TransferLeaderRequest, TransferLeaderResponse,
    operate_request,
};
use tonic::{Request, Response, Status};

use super::{Services, mismatch, refusal};
use crate::registry::context::{Context, Seed};
use crate::registry::{Outcome, decide, error, ok, topics};
use crate::session::{Call, Reply};
use crate::shell::members::MembersError;

#[tonic::async_trait]
impl Admin for Services {
    async fn create_topics(
        &self,
        request: Request<CreateTopicsRequest>,
    ) -> Result<Response<CreateTopicsResponse>, Status> {
        let CreateTopicsRequest { topics, validate_only, timeout_ms: _ } = request.into_inner();
        let topics: Vec<NewTopic> = topics.into_iter().map(|topic| self.resolved(topic)).collect();
        let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        let command = v1::CreateTopics { topics, partitions_max: self.settings.partitions_per_topic_max };
        let (outcome, index) = self.decided(Kind::CreateTopics(command), validate_only).await?;
        let topics = match outcome {
            Outcome::CreatedTopics(topics) => topics,
            other => {
                let error = refusal(other);
                let failed = |name| CreatedTopic { name, error: Some(error.clone()), ..CreatedTopic::default() };
                names.into_iter().map(failed).collect()
            }
        };
        Ok(Response::new(CreateTopicsResponse { topics, index }))
    }

    async fn delete_topics(
        &self,
        request: Request<DeleteTopicsRequest>,
    ) -> Result<Response<DeleteTopicsResponse>, Status> {
        let DeleteTopicsRequest { topics } = request.into_inner();
        let named = topics.clone();
        let (outcome, index) = self.decided(Kind::DeleteTopics(v1::DeleteTopics { topics }), false).await?;
        let topics = match outcome {
            Outcome::DeletedTopics(topics) => topics,
            other => {
                let error = refusal(other);
                let failed = |topic: v1::TopicRef| DeletedTopic {
                    name: topic.name,
                    topic_id: topic.topic_id,
                    error: Some(error.clone()),
                };
                named.into_iter().map(failed).collect()
            }
        };
        Ok(Response::new(DeleteTopicsResponse { topics, index }))
    }

    async fn create_partitions(
        &self,
        request: Request<CreatePartitionsRequest>,
    ) -> Result<Response<CreatePartitionsResponse>, Status> {
        let CreatePartitionsRequest { topics, validate_only } = request.into_inner();
        let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        let command = v1::CreatePartitions { topics, partitions_max: self.settings.partitions_per_topic_max };
        let (outcome, index) = self.decided(Kind::CreatePartitions(command), validate_only).await?;
        let topics = match outcome {
            Outcome::GrownTopics(topics) => topics,
            other => {
                let error = refusal(other);
                names.into_iter().map(|name| GrownTopic { name, error: Some(error.clone()) }).collect()
            }
        };
        Ok(Response::new(CreatePartitionsResponse { topics, index }))
    }

    async fn alter_configs(
        &self,
        request: Request<AlterConfigsRequest>,
    ) -> Result<Response<AlterConfigsResponse>, Status> {
        let AlterConfigsRequest { resources, validate_only } = request.into_inner();
        let named: Vec<(i32, String)> = resources.iter().map(|one| (one.kind, one.name.clone())).collect();
        let (outcome, index) = self.decided(Kind::AlterConfigs(v1::AlterConfigs { resources }), validate_only).await?;
        let resources = match outcome {
            Outcome::AlteredConfigs(resources) => resources,
            other => {
                let error = refusal(other);
                let failed = |(kind, name)| AlteredConfig { kind, name, error: Some(error.clone()) };
                named.into_iter().map(failed).collect()
            }
        };
        Ok(Response::new(AlterConfigsResponse { resources, index }))
    }

    async fn elect_leaders(
        &self,
        request: Request<ElectLeadersRequest>,
    ) -> Result<Response<ElectLeadersResponse>, Status> {
        let (outcome, index) = self.decided(Kind::ElectLeaders(request.into_inner()), false).await?;
        Ok(Response::new(match outcome {
            Outcome::ElectedLeaders(partitions) => ElectLeadersResponse { error: Some(ok()), partitions, index },
            other => ElectLeadersResponse { error: Some(refusal(other)), index, ..ElectLeadersResponse::default() },
        }))
    }

    async fn alter_reassignments(
        &self,
        request: Request<AlterReassignmentsRequest>,
    ) -> Result<Response<AlterReassignmentsResponse>, Status> {
        let (outcome, index) = self.decided(Kind::AlterReassignments(request.into_inner()), false).await?;
        Ok(Response::new(match outcome {
            Outcome::Reassigned(partitions) => AlterReassignmentsResponse { error: Some(ok()), partitions, index },
            other => AlterReassignmentsResponse {
                error: Some(refusal(other)),
                index,
                ..AlterReassignmentsResponse::default()
            },
        }))
    }

    async fn operate(&self, request: Request<OperateRequest>) -> Result<Response<OperateResponse>, Status> {
        let kind = match request.into_inner().kind {
            Some(operate_request::Kind::StartPlan(command)) => Kind::StartPlan(command),
            Some(operate_request::Kind::EndPlan(command)) => Kind::EndPlan(command),
            Some(operate_request::Kind::MarkBroker(command)) => Kind::MarkBroker(command),
            Some(operate_request::Kind::UnregisterBroker(command)) => Kind::UnregisterBroker(command),
            None => return Err(Status::invalid_argument("nothing is ordered")),
        };
        let (outcome, index) = self.decided(kind, false).await?;
        let error = match outcome {
            Outcome::Done => ok(),
            other => refusal(other),
        };
        Ok(Response::new(OperateResponse { error: Some(error), index }))
    }

    async fn describe_coordinators(
        &self,
        _request: Request<DescribeCoordinatorsRequest>,
    ) -> Result<Response<DescribeCoordinatorsResponse>, Status> {
        let (cluster_id, spares) = {
            let machine = self.shared.machine();
            let offered = machine.state().coordinators().filter(|node| !node.removed && !node.address.is_empty());
            let spare = |node: &v1::CoordinatorRecord| CoordinatorNode {
                id: node.id,
                address: node.address.clone(),
                spare: true,
                ..CoordinatorNode::default()
            };
            let spares: Vec<_> = offered.map(spare).collect();
            (machine.state().cluster_id().unwrap_or_default().to_owned(), spares)
        };
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        let membership = now.membership_config.membership();
        // The leader knows how far each has come; another node only how far it has come itself.
        let log_end = |id| {
            let matched = now.replication.as_ref().and_then(|nodes| nodes.get(&id)).copied().flatten();
            let last = if id == self.node_id { now.last_log_index } else { matched.map(|matched| matched.index) };
            last.map(|index| index + 1)
        };
        let nodes = membership.nodes().map(|(id, node)| CoordinatorNode {
            id: *id,
            address: node.address.clone(),
            voter: membership.voter_ids().any(|voter| voter == *id),
            leader: now.current_leader == Some(*id),
            log_end_offset: log_end(*id),
            spare: false,
        });
        let mut nodes: Vec<CoordinatorNode> = nodes.collect();
        let offered = spares.into_iter().filter(|spare| membership.get_node(&spare.id).is_none());
        nodes.extend(offered);
        Ok(Response::new(DescribeCoordinatorsResponse {
            nodes,
            cluster_id,
            term: now.current_term,
            last_applied: now.last_applied.map_or(0, |id| id.index),
        }))
    }

    async fn add_coordinator(
        &self,
        request: Request<AddCoordinatorRequest>,
    ) -> Result<Response<AddCoordinatorResponse>, Status> {
        let AddCoordinatorRequest { id, address } = request.into_inner();
        self.barrier().await?;
        let error = self.told(self.members.add(id, address).await)?;
        Ok(Response::new(AddCoordinatorResponse { error: Some(error.unwrap_or_else(ok)) }))
    }

    async fn remove_coordinator(
        &self,
        request: Request<RemoveCoordinatorRequest>,
    ) -> Result<Response<RemoveCoordinatorResponse>, Status> {
        self.barrier().await?;
        let error = self.told(self.members.remove(request.into_inner().id).await)?;
        Ok(Response::new(RemoveCoordinatorResponse { error: Some(error.unwrap_or_else(ok)) }))
    }

    async fn describe_levels(
        &self,
        _request: Request<DescribeLevelsRequest>,
    ) -> Result<Response<DescribeLevelsResponse>, Status> {
        let brokers = match self.ask(Call::DescribeLevels).await? {
            Reply::DescribeLevels(brokers) => brokers,
            _ => return Err(mismatch("DescribeLevels")),
        };
        let mut nodes = self.members.describe_levels().await;
        nodes.extend(brokers);
        let (level, leader) = (self.members.level(), Some(self.members.levels));
        Ok(Response::new(DescribeLevelsResponse { level, leader, nodes }))
    }

    async fn raise_level(&self, request: Request<RaiseLevelRequest>) -> Result<Response<RaiseLevelResponse>, Status> {
        let RaiseLevelRequest { level, validate_only } = request.into_inner();
        let described = self.describe_levels(Request::new(DescribeLevelsRequest {})).await?.into_inner();
        let level = if level == 0 { highest(&described) } else { level };
        if let Some(reason) = incapable(&described, self.members.levels, level) {
            let error = Some(error(ErrorCode::InvalidUpdateVersion, reason));
            return Ok(Response::new(RaiseLevelResponse { error, level: described.level, index: 0 }));
        }
        match self.ask(Call::RaiseLevel { level, validate_only }).await? {
            Reply::RaiseLevel(answer) => Ok(Response::new(answer)),
            _ => Err(mismatch("RaiseLevel")),
        }
    }

    async fn transfer_leader(
        &self,
        request: Request<TransferLeaderRequest>,
    ) -> Result<Response<TransferLeaderResponse>, Status> {
        self.barrier().await?;
        let to = Some(request.into_inner().to).filter(|to| *to != 0);
        let moved = self.members.transfer_leader(to).await;
        let leader = moved.as_ref().copied().unwrap_or(self.node_id);
        let error = self.told(moved.map(drop))?;
        Ok(Response::new(TransferLeaderResponse { error: Some(error.unwrap_or_else(ok)), leader }))
    }
}

impl Services {
    /// What to answer about a change of the coordinators, if this node could carry it out or refuse it.
    pub(super) fn told(&self, result: Result<(), MembersError>) -> Result<Option<KafkaError>, Status> {
        match result {
            Ok(()) => Ok(None),
            Err(MembersError::Refused(refused)) => Ok(Some(refused)),
            Err(MembersError::Propose(cause)) => Err(self.status(cause)),
        }
    }

    /// The outcome of a command: applied, or only thought through.
    async fn decided(&self, kind: Kind, validate_only: bool) -> Result<(Outcome, u64), Status> {
        if !validate_only {
            let settled = self.propose(kind).await?;
            return Ok((settled.outcome, settled.feed_index));
        }
        self.barrier().await?;
        let machine = self.shared.machine();
        let context = Context {
            index: machine.progress().next_index,
            time: Timestamp(0),
            seed: Seed::new(0, 0),
            default_min_isr: self.settings.default_min_isr,
        };
        let (outcome, _) = decide(machine.state(), &context, &kind);
        Ok((outcome, machine.feed_index()))
    }

    /// With this cluster's defaults where the caller left counts open.
    fn resolved(&self, mut topic: NewTopic) -> NewTopic {
        topic.default_factor = false;
        if topic.assignments.is_empty() {
            if topic.partitions == -1 {
                topic.partitions = self.settings.default_partitions;
            }
            if topic.replication_factor == -1 {
                topic.replication_factor = self.settings.default_replication_factor;
                topic.default_factor = true;
                let machine = self.shared.machine();
                if self.settings.default_factor_bends && !topics::grows(machine.state(), &topic) {
                    topic.replication_factor = topic.replication_factor.min(topics::factor_max(machine.state())).max(1);
                }
            }
        }
        topic
    }
}

/// The highest level that every node is known to do; the present one if some node is not known to do more.
fn highest(described: &DescribeLevelsResponse) -> u32 {
    let most = |node: &NodeLevels| node.levels.map_or(described.level, |levels| levels.max);
    described.nodes.iter().map(most).min().unwrap_or(described.level).max(described.level)
}

/// Why the coordinators cannot go to a level. Brokers are judged where the command is applied.
fn incapable(described: &DescribeLevelsResponse, ours: Levels, level: u32) -> Option<String> {
    if level > ours.max {
        return Some(format!(
            "this version knows levels {ours} of thalweg.version, not {level}; start a newer version on every node first"
        ));
    }
    let coordinators = described.nodes.iter().filter(|node| node.coordinator);
    let unfit = coordinators.into_iter().find(|node| !node.levels.is_some_and(|levels| levels.contains(level)))?;
    let (id, version) = (unfit.id, &unfit.version);
    let why = match unfit.levels {
        Some(levels) => format!("(version {version}) can do levels {levels} of thalweg.version, not {level}"),
        None => format!("may not be able to do level {level} of thalweg.version: {}", unfit.unknown),
    };
    (level > described.level).then(|| {
        format!(
            "coordinator {id} {why}; start it as the newer version, or, if it is gone for good, remove it: thalweg \
             coordinator remove {id}"
        )
    })
}

//! `thalweg coordinator`: who decides in the cluster, over the coordinators' own gRPC.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_coordinator::CoordinatorPeer;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::{
    AddCoordinatorRequest, CoordinatorNode, DescribeCoordinatorsRequest, KafkaError, RemoveCoordinatorRequest,
    TransferLeaderRequest,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::failure::Failure;
use super::output::{self, Output, Table};

#[derive(Debug, Subcommand)]
pub enum CoordinatorCommand {
    /// List the coordinators: who votes, who leads
    List(List),
    /// Make a running node part of the cluster (nodes with `peers` do so by themselves), or change a member's address
    Add(Add),
    /// Take a node out of the cluster, whether it runs or not; its id is never used again
    Remove(Remove),
    /// Hand the lead over
    Transfer(Transfer),
}

#[derive(Debug, Args)]
struct Connect {
    /// Coordinators to ask first, host:port with commas between
    #[arg(long, env = "THALWEG_COORDINATORS", value_delimiter = ',', default_value = "127.0.0.1:9093")]
    coordinators: Vec<String>,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Add {
    /// id@host:port, such as 4@d.example:9093
    coordinator: CoordinatorPeer,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Args)]
pub struct Remove {
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    id: u64,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Debug, Args)]
pub struct Transfer {
    /// Who is to lead; by default whoever has caught up furthest
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    id: Option<u64>,
    #[command(flatten)]
    connect: Connect,
}

pub async fn run(command: CoordinatorCommand) -> Result<(), Failure> {
    match command {
        CoordinatorCommand::List(verb) => verb.run().await,
        CoordinatorCommand::Add(verb) => verb.run().await,
        CoordinatorCommand::Remove(verb) => verb.run().await,
        CoordinatorCommand::Transfer(verb) => verb.run().await,
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let describe = |channel| async move {
            AdminClient::new(channel).describe_coordinators(in_time(DescribeCoordinatorsRequest {})).await
        };
        let answer = self.connect.call(describe).await?;
        if self.output.format.is_data() {
            let nodes = answer.nodes.iter().map(
                |node| json!({"id": node.id, "address": node.address, "voter": node.voter, "leader": node.leader}),
            );
            let nodes: Vec<_> = nodes.collect();
            let value = json!({"cluster_id": answer.cluster_id, "term": answer.term, "coordinators": nodes});
            return output::print_value(self.output.format, &value);
        }
        let mut table = Table::new(&["ID", "ADDRESS", "ROLE"]);
        for node in &answer.nodes {
            table.row(vec![node.id.to_string(), node.address.clone(), role(node).to_owned()]);
        }
        table.print()
    }
}

impl Add {
    async fn run(self) -> Result<(), Failure> {
        let CoordinatorPeer { id, address } = self.coordinator;
        let add = |channel| {
            let request = AddCoordinatorRequest { id, address: address.clone() };
            async move { AdminClient::new(channel).add_coordinator(in_time(request)).await }
        };
        told(self.connect.call(add).await?.error)?;
        output::note(&format!("coordinator {id} at {address} votes"));
        Ok(())
    }
}

impl Remove {
    async fn run(self) -> Result<(), Failure> {
        let id = self.id;
        let remove = |channel| async move {
            AdminClient::new(channel).remove_coordinator(in_time(RemoveCoordinatorRequest { id })).await
        };
        told(self.connect.call(remove).await?.error)?;
        output::note(&format!("coordinator {id} is removed; its id is not used again"));
        Ok(())
    }
}

impl Transfer {
    async fn run(self) -> Result<(), Failure> {
        let to = self.id.unwrap_or(0);
        let transfer = |channel| async move {
            AdminClient::new(channel).transfer_leader(in_time(TransferLeaderRequest { to })).await
        };
        let answer = self.connect.call(transfer).await?;
        told(answer.error)?;
        output::note(&format!("coordinator {} leads", answer.leader));
        Ok(())
    }
}

impl Connect {
    /// Asks the coordinators named in turn, and whom they name as their leader, until one has an answer.
    async fn call<T, Fut>(&self, call: impl Fn(Channel) -> Fut) -> Result<T, Failure>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut left: VecDeque<String> = self.coordinators.iter().cloned().collect();
        let (mut asked, mut last) = (Vec::new(), String::new());
        while let Some(address) = left.pop_front() {
            if asked.contains(&address) {
                continue;
            }
            asked.push(address.clone());
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .map_err(|_| Failure::usage(format!("'{address}' is not host:port")))?;
            let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy();
            let status = match call(channel).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let leader = status.metadata().get("thalweg-leader").and_then(|leader| leader.to_str().ok());
            if let Some((_, leader)) = leader.and_then(|leader| leader.split_once('@')) {
                left.push_front(leader.to_owned());
            }
            last = status.message().to_owned();
        }
        let named = self.coordinators.join(",");
        let message = format!(
            "no coordinator that leads answers at {named}: {last}; name others with --coordinators, or wait for an election"
        );
        Err(Failure::no_cluster(message))
    }
}

fn role(node: &CoordinatorNode) -> &'static str {
    match (node.leader, node.voter) {
        (true, _) => "leader",
        (false, true) => "voter",
        (false, false) => "learner",
    }
}

fn told(error: Option<KafkaError>) -> Result<(), Failure> {
    match error {
        Some(error) if error.code != 0 => Err(Failure::failed(error.message)),
        Some(_) | None => Ok(()),
    }
}

fn in_time<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A node that is to be added may have much to catch up with.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

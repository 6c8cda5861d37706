//! `thalweg coordinator`: who decides in the cluster, over the coordinators' own gRPC.

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_coordinator::CoordinatorPeer;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::{
    AddCoordinatorRequest, CoordinatorNode, DescribeCoordinatorsRequest, RemoveCoordinatorRequest,
    TransferLeaderRequest,
};

use super::coordinators::{Connect, in_time, told};
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
        let answer = self.connect.find().await?.call(describe).await?;
        if self.output.format.is_data() {
            let nodes = answer.nodes.iter().map(
                |node| json!({"id": node.id, "address": node.address, "voter": node.voter, "leader": node.leader, "spare": node.spare}),
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
        told(self.connect.find().await?.call(add).await?.error)?;
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
        told(self.connect.find().await?.call(remove).await?.error)?;
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
        let answer = self.connect.find().await?.call(transfer).await?;
        told(answer.error)?;
        output::note(&format!("coordinator {} leads", answer.leader));
        Ok(())
    }
}

fn role(node: &CoordinatorNode) -> &'static str {
    match (node.leader, node.voter, node.spare) {
        (true, _, _) => "leader",
        (false, true, _) => "voter",
        (false, false, true) => "spare",
        (false, false, false) => "learner",
    }
}

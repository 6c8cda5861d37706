//! `thalweg broker drain|undrain|cordon|uncordon|remove`: what a broker is given, and that it is emptied.

use clap::Args;
use thalweg_client::admin::Admin;
use thalweg_client::admin::placement::{Order, PlacementReport};
use thalweg_coordinator::planner::Goals;
use thalweg_model::NodeId;

use super::connect::Connection;
use super::failure::Failure;
use super::output::note;
use super::rebalance::{Situation, made, watch};

#[derive(Debug, Args)]
pub struct Drain {
    #[arg(value_name = "BROKER")]
    id: i32,
    /// Return once the moves are under way
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A broker by its number.
#[derive(Debug, Args)]
pub struct OneBroker {
    #[arg(value_name = "BROKER")]
    id: i32,
    #[command(flatten)]
    connection: Connection,
}

impl Drain {
    pub async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        known(&admin.placement().await?, self.id)?;
        admin.order(&Order::Mark { broker: self.id, cordoned: None, draining: Some(true) }).await?;
        note(&format!("broker {} is given no replicas any more", self.id));
        let situation = Situation::look(&admin, false).await?;
        let made = made(&situation, Goals::NONE, 0);
        if !made.steps.is_empty() {
            admin.order(&Order::Start { steps: made.steps.clone() }).await?;
            note(&format!("{} moves are under way; they go on without this command", made.steps.len()));
            if self.no_wait {
                return Ok(());
            }
            watch(&admin, &made.steps).await?;
        }
        made.stuck.iter().for_each(|stuck| note(stuck));
        self.conclude(&admin).await
    }

    /// Done only if nothing is left; says what is.
    async fn conclude(&self, admin: &Admin) -> Result<(), Failure> {
        let report = admin.placement().await?;
        let (mut left, mut last) = (Vec::new(), Vec::new());
        for topic in &report.topics {
            for (index, partition) in (0..).zip(&topic.partitions) {
                if partition.isr == [self.id] {
                    last.push(format!("{}-{index}", topic.name));
                } else if partition.replicas.contains(&self.id) {
                    left.push(format!("{}-{index}", topic.name));
                }
            }
        }
        if last.is_empty() && left.is_empty() {
            note(&format!(
                "broker {id} holds nothing; stop it when you like, and `thalweg broker remove {id}` forgets it",
                id = self.id
            ));
            return Ok(());
        }
        if !last.is_empty() {
            note(&format!("broker {} holds the last in-sync copy of {}; do not stop it", self.id, some(&last)));
        }
        if !left.is_empty() {
            note(&format!("broker {} still holds {}", self.id, some(&left)));
        }
        Err(Failure::failed(format!(
            "broker {id} is not empty; start or uncordon brokers that can take the rest and type `thalweg broker drain {id}` again, or \
             `thalweg broker undrain {id}`",
            id = self.id
        )))
    }
}

impl OneBroker {
    pub async fn undrain(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let report = admin.placement().await?;
        known(&report, self.id)?;
        let is_leaving = |from: &[i32], to: &[i32]| from.contains(&self.id) && !to.contains(&self.id);
        if let Some(plan) = report.plan.filter(|plan| plan.steps.iter().any(|step| is_leaving(&step.from, &step.to))) {
            admin.order(&Order::End { id: plan.id, cancel: true }).await?;
            note("the moves away from it are called off; what has gone stays where it is");
        }
        admin.order(&Order::Mark { broker: self.id, cordoned: None, draining: Some(false) }).await?;
        note(&format!("broker {} is given replicas again; `thalweg rebalance plan` gives it its share", self.id));
        Ok(())
    }

    pub async fn cordon(self, cordoned: bool) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        known(&admin.placement().await?, self.id)?;
        admin.order(&Order::Mark { broker: self.id, cordoned: Some(cordoned), draining: None }).await?;
        let given = if cordoned { "no replicas any more; it keeps those that it has" } else { "replicas again" };
        note(&format!("broker {} is given {given}", self.id));
        Ok(())
    }

    pub async fn remove(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        known(&admin.placement().await?, self.id)?;
        admin.unregister_broker(NodeId(self.id)).await?;
        note(&format!("broker {} is forgotten", self.id));
        Ok(())
    }
}

/// The first few names.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 10 { format!("{shown} and {} more", names.len() - 10) } else { shown }
}

fn known(report: &PlacementReport, id: i32) -> Result<(), Failure> {
    if report.brokers.iter().any(|broker| broker.id == id) {
        return Ok(());
    }
    let ids: Vec<String> = report.brokers.iter().map(|broker| broker.id.to_string()).collect();
    Err(Failure::not_found(format!("there is no broker {id}; the cluster has {}", ids.join(", "))))
}

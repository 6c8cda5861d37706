//! `thalweg rebalance`: what should lie elsewhere, shown first, then carried out by the coordinators.

mod plan;
mod situation;
mod watch;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::admin::placement::Order;

use super::connect::Connection;
use super::failure::Failure;
use super::output::{Output, Table, bytes, list, note, print_line, print_value};
use plan::PlanFile;
pub use plan::made;
pub use situation::Situation;
pub use watch::{Show, progress_of, watch};

#[derive(Debug, Subcommand)]
pub enum RebalanceCommand {
    /// Show what should move and why, and write it to a file; nothing is changed
    Plan(Plan),
    /// Carry out a plan from a file
    Apply(Apply),
    /// Show how far the plan under way has come
    Status(Status),
    /// Call off the plan under way, and its moves
    Cancel(Cancel),
}

#[derive(Debug, Args)]
pub struct Plan {
    /// What is to be equal, or apart
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["racks", "replicas", "bytes", "leaders"])]
    goals: Vec<plan::Goal>,
    /// Give topics with fewer replicas than this more of them, as far as there are brokers
    #[arg(long, value_name = "REPLICAS", value_parser = clap::value_parser!(u16).range(1..=100))]
    grow_to: Option<u16>,
    /// Where to write the plan
    #[arg(long, value_name = "FILE", default_value = "thalweg-plan.json")]
    out: PathBuf,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Apply {
    /// What `rebalance plan` has written
    #[arg(value_name = "FILE", default_value = "thalweg-plan.json")]
    file: PathBuf,
    /// Return at once; the plan goes on
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Go on until the plan has ended
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Cancel {
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(command: RebalanceCommand) -> Result<(), Failure> {
    match command {
        RebalanceCommand::Plan(verb) => verb.run().await,
        RebalanceCommand::Apply(verb) => verb.run().await,
        RebalanceCommand::Status(verb) => verb.run().await,
        RebalanceCommand::Cancel(verb) => verb.run().await,
    }
}

impl Plan {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let situation = Situation::look(&admin, self.goals.contains(&plan::Goal::Traffic)).await?;
        if let Some(plan) = &situation.report.plan {
            return Err(Failure::failed(format!(
                "plan {} is under way; wait for its end (`thalweg rebalance status --watch`), or `thalweg rebalance cancel`",
                plan.id
            )));
        }
        let grow_to = self.grow_to.map_or(0, usize::from);
        let made = plan::made(&situation, plan::goals(&self.goals), grow_to);
        let file = PlanFile::new(&situation, made.steps.clone());
        let text = serde_json::to_string_pretty(&file)?;
        fs::write(&self.out, text + "\n")
            .map_err(|error| Failure::failed(format!("{}: {error}", self.out.display())))?;
        if self.output.format.is_data() {
            return print_value(self.output.format, &serde_json::to_value(&file)?);
        }
        for stuck in &made.stuck {
            note(stuck);
        }
        if made.steps.is_empty() {
            note("nothing is to be moved: the cluster is as the goals want it");
            return Ok(());
        }
        plan::show(&situation, &made.steps)?;
        print_line("")?;
        print_line(&format!(
            "written to {file}; carry it out with: thalweg rebalance apply {file}",
            file = self.out.display()
        ))
    }
}

impl Apply {
    async fn run(self) -> Result<(), Failure> {
        let text = fs::read_to_string(&self.file).map_err(|error| {
            Failure::usage(format!("{}: {error}; make it with `thalweg rebalance plan`", self.file.display()))
        })?;
        let file: PlanFile = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{} is no plan: {error}", self.file.display())))?;
        let admin = self.connection.open().await?.admin();
        let report = admin.placement().await?;
        file.check(&report.cluster_id)?;
        let steps = file.steps;
        if steps.is_empty() {
            note("the plan moves nothing");
            return Ok(());
        }
        admin.order(&Order::Start { steps: steps.clone() }).await?;
        note(&format!("{} moves are under way; they go on without this command", steps.len()));
        if self.no_wait { Ok(()) } else { watch(&admin, &steps).await }
    }
}

impl Status {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        let report = admin.placement().await?;
        let Some(plan) = &report.plan else {
            if self.output.format.is_data() {
                return print_value(self.output.format, &json!({"plan": null}));
            }
            note("no plan is under way");
            return Ok(());
        };
        if self.watch {
            return watch(&admin, &plan.steps).await;
        }
        let come = progress_of(&admin, &report, &plan.steps).await;
        if self.output.format.is_data() {
            let value = json!({
                "plan": plan.id, "age_ms": plan.age_ms, "moves": plan.steps.len(), "done": come.done, "moving": come.moving,
                "waiting": come.waiting, "left_out": come.left_out, "bytes": come.bytes, "copied_bytes": come.copied,
                "steps": plan.steps,
            });
            return print_value(self.output.format, &value);
        }
        print_line(&format!("plan {}: {}", plan.id, come.line(Show::default())))?;
        for broker in come.waits_for {
            note(&format!("broker {broker} is not alive; its moves go on when it is back"));
        }
        if self.output.format.is_wide() {
            let mut table = Table::new(&["PARTITION", "FROM", "TO", "BYTES", "PROGRESS", "WHY"]);
            for step in &plan.steps {
                table.row(vec![
                    format!("{}-{}", step.topic, step.partition),
                    list(&step.from),
                    list(&step.to),
                    bytes(step.bytes),
                    step.progress.map_or("-".to_owned(), |progress| format!("{progress:?}").to_lowercase()),
                    step.reason.clone(),
                ]);
            }
            table.print()?;
        }
        Ok(())
    }
}

impl Cancel {
    async fn run(self) -> Result<(), Failure> {
        let admin = self.connection.open().await?.admin();
        admin.order(&Order::End { id: 0, cancel: true }).await?;
        let left = admin.reassignments().await?.len();
        note("the plan is called off; what it has moved stays moved");
        if left > 0 {
            note(&format!("{left} moves go on to their end: too few of their old replicas are in sync to go back"));
        }
        Ok(())
    }
}

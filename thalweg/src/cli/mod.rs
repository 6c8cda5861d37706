//! The verbs: what people and scripts type at a cluster, and at files on disk.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found,
//! 4 no cluster there, 130 interrupted before the end.

mod broker;
mod cluster;
mod completion;
mod configs;
mod connect;
mod coordinator;
mod coordinators;
mod doctor;
mod drain;
mod export;
mod failure;
mod generate;
mod group;
mod health;
mod log;
mod output;
mod partition;
mod perf;
mod place;
mod profile;
mod rebalance;
mod safe_to_restart;
mod select;
mod stop;
mod time;
mod top;
mod topic;
mod traffic;
mod yaml;

use std::process::ExitCode;

use clap::Subcommand;

use failure::Failure;

/// The first word.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, look at, delete, write and read topics
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Look at, move and delete consumer groups
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Look at the cluster as a whole: what it is, whether it is well, how it is configured
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Look at brokers, empty them, say which are given replicas
    #[command(subcommand)]
    Broker(broker::BrokerCommand),
    /// See where partitions lie, move them, choose who leads
    #[command(subcommand)]
    Partition(partition::PartitionCommand),
    /// Spread replicas, bytes and leaders over the brokers: plan first, then carry out
    #[command(subcommand)]
    Rebalance(rebalance::RebalanceCommand),
    /// Write a topic's range to JSON or Parquet files, each record exactly once over crashes and restarts
    Export(export::Export),
    /// Measure how fast the cluster is from here
    #[command(subcommand)]
    Perf(perf::PerfCommand),
    /// Find what is wrong with listeners, disks, limits, clocks, topics and clients
    Doctor(doctor::Doctor),
    /// Say whether the node on this machine serves: exit code 0 if so (for containers and service managers)
    Health(health::Health),
    /// Watch topics, groups, lag, throughput and health on one screen
    Top(top::Top),
    /// Look at coordinators, add and remove them
    #[command(subcommand)]
    Coordinator(coordinator::CoordinatorCommand),
    /// Look at log files on disk, of Thalweg or Apache Kafka; no node needed
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Print a dashboard and alerts for this version's metrics
    #[command(subcommand)]
    Generate(generate::GenerateCommand),
    /// Name clusters, and choose the one that verbs talk to
    #[command(subcommand)]
    Profile(profile::ProfileCommand),
    /// Print what a shell needs to complete command lines
    Completion(completion::Completion),
}

/// Carries out a verb to its end. `whole` is the command line's grammar.
pub fn run(command: Command, whole: impl FnOnce() -> clap::Command) -> ExitCode {
    match carry_out(command, whole) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.complain();
            ExitCode::from(failure.code())
        }
    }
}

fn carry_out(command: Command, whole: impl FnOnce() -> clap::Command) -> Result<(), Failure> {
    match command {
        Command::Topic(command) => in_runtime(topic::run(command)),
        Command::Group(command) => in_runtime(group::run(command)),
        Command::Cluster(command) => in_runtime(cluster::run(command)),
        Command::Broker(command) => in_runtime(broker::run(command)),
        Command::Partition(command) => in_runtime(partition::run(command)),
        Command::Rebalance(command) => in_runtime(rebalance::run(command)),
        Command::Export(verb) => in_runtime(verb.run()),
        Command::Perf(command) => in_runtime(perf::run(command)),
        Command::Doctor(verb) => in_runtime(verb.run()),
        Command::Generate(command) => generate::run(&command),
        Command::Health(verb) => verb.run(),
        Command::Top(verb) => in_runtime(verb.run()),
        Command::Coordinator(command) => in_runtime(coordinator::run(command)),
        Command::Log(command) => log::run(command),
        Command::Profile(command) => profile::run(command),
        Command::Completion(verb) => verb.run(whole()),
    }
}

fn in_runtime(verb: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(verb);
    // A read of stdin that is still blocked must not keep the process.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// What people know from kcat, rpk and Kafka's scripts is understood.
    #[test]
    fn familiar_lines_are_read() {
        for line in [
            "topic produce t -K: -H a=1 -H b=2 -p 0 -z zstd --acks all -Z",
            "topic produce t --acks 1 -b a:1,b:2",
            "topic produce t --acks=-1 -K \\t",
            "topic consume t -o beginning -e -c 5 -f %k%s",
            "topic consume t -o -10 -p 0 -p 1 -J",
            "topic consume t -o @2026-01-31T12:00",
            "topic consume -G group a b",
            "topic create t -p 6 -r 1 -c retention.ms=1 --bootstrap-server a:1",
            "topic list --format json",
            "topic describe t --format wide",
            "group describe g -b a:1",
            "coordinator list --format json --coordinators a:1,b:1",
            "coordinator add 4@d.example:9093",
            "coordinator transfer",
            "group describe g --format yaml",
            "group seek g --to -10 -n",
            "group seek g --to 2026-01-31T12:00 -t a:0,1 -t b --live",
            "group offset-delete g -t a",
            "topic alter t -c retention.ms=1 --unset segment.bytes --append cleanup.policy=compact",
            "topic add-partitions t --num 2",
            "topic trim t:0 --before @0",
            "cluster config set --set log.retention.ms=5 --broker 1",
            "broker describe 1 2",
            "profile create home --bootstrap-server a:1",
            "completion zsh",
            "topic why-kept t --format wide",
            "group explain g -n 3",
            "perf produce t --num-records 5 --record-size 10 --throughput 3",
            "perf e2e t -r 10",
            "export t:0,1 u -G g --dir d --from -10 --to 2026-01-31T12:00 --format json --max-file-bytes 5 --parallel 2",
            "top -i 5 --once",
            "generate grafana-dashboard",
            "broker safe-to-restart 1",
            "cluster restart --rolling -b a:1",
            "health --live --http [::]:9644",
            "doctor --format json",
            "doctor listeners -b a:1",
            "rebalance plan --goals racks,traffic --out p.json --grow-to 3",
            "rebalance apply p.json --no-wait",
            "rebalance status --watch",
            "rebalance cancel",
            "broker drain 3",
            "broker remove 3",
            "partition list a:0,1 --moving --format wide",
            "partition move a:0 b --to 1,2,3 --no-wait",
            "partition move a --cancel",
            "partition transfer-leader a:0 --to 2",
            "log dump /d/t-0 --print-data-log -n 3",
            "log verify /d --format json",
        ] {
            let words = ["thalweg"].into_iter().chain(line.split(' '));
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn wrong_usage_is_refused_before_anything_is_done() {
        for line in [
            "topic",
            "topic produce",
            "topic produce t -H a",
            "coordinator add d.example:9093",
            "coordinator remove",
            "coordinator remove 0",
            "topic produce t -z brotli",
            "topic produce t -p -1",
            "topic consume t -o sometime",
            "topic consume t -c 0",
            "topic consume t -G g -p 0",
            "topic create t -p 0",
            "topic alter t",
            "topic add-partitions t",
            "topic add-partitions t --by 1 --to 2",
            "topic trim t",
            "topic trim t --to soon",
            "group seek g",
            "group seek g --to x",
            "group offset-delete g",
            "cluster config set",
            "broker describe one",
            "profile create home",
            "topic list -b a:1 --profile home",
            "log verify",
            "partition move a",
            "rebalance plan --goals everything",
            "broker drain",
            "broker cordon one",
            "partition move a --to 1 --cancel",
            "partition move --to 1",
            "export t --dir d",
            "export t --group g",
            "export t --group g --dir d --max-file-bytes 0",
            "export t --group g --dir d --from sometime",
        ] {
            let words = ["thalweg"].into_iter().chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_err(), "{line}");
        }
    }
}

//! The Kafka paper's experiment (Kreps, Narkhede, Rao, NetDB 2011, section 5): one producer, then one consumer, of
//! messages of 200 bytes, in batches of 1 and of 50, flushed asynchronously.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use thalweg_model::Durability;

use super::Bench;
use crate::aims::Aim;
use crate::load::client::{self, Messages};
use crate::load::{Batch, Target, Topic, Wanted};
use crate::machine;
use crate::plot::{Bar, Bars, Group};
use crate::process::Processes;
use crate::report::{Report, Table, progress, times};
use crate::servers::{ActiveMq, Nats, RabbitMq};
use crate::stats::Series;

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    report.section("paper", "The Kafka paper's experiment");
    report.paragraph(ABOUT);
    let mut sides = sides(bench);
    for side in &mut sides {
        side.choose_count(bench)?;
    }
    for run in 0..bench.runs {
        for side in &mut sides {
            side.measure(run)?;
        }
    }
    tables(&sides, report);
    judge(&sides, report);
    report.plot(plot(&sides));
    sides.into_iter().try_for_each(Side::stop)
}

/// One row of the table: a system as it is used in one way.
struct Side {
    name: String,
    is_batched: bool,
    /// Why it does not run.
    system: Result<System, String>,
    message_count: u64,
    produce: Figures,
    consume: Figures,
}

#[derive(Default)]
struct Figures {
    k_per_s: Series,
    server_us: Series,
    client_us: Series,
    flushes: Series,
}

/// One way's outcome.
struct Once {
    elapsed: Duration,
    server_cpu: Duration,
    client_cpu: Duration,
    flushes: u64,
}

enum System {
    KafkaProtocol { target: Target, durability: Durability },
    Other(Box<Foreign>),
}

/// A system with a client of its own, in a process of its own.
struct Foreign {
    server: Running,
    processes: Processes,
    /// The client's command line up to `produce` or `consume`.
    client: Vec<String>,
    /// What stands between the way and the count.
    address: String,
}

enum Running {
    RabbitMq(RabbitMq),
    Nats(Nats),
    ActiveMq(ActiveMq),
}

fn sides(bench: &Bench) -> Vec<Side> {
    let mut sides = Vec::new();
    for is_batched in [false, true] {
        for target in &bench.targets {
            let durabilities: &[Durability] = if target.is_thalweg {
                &[Durability::Replicated, Durability::Flushed]
            } else {
                &[Durability::Replicated]
            };
            for durability in durabilities {
                let name = if target.is_thalweg { format!("Thalweg `{durability}`") } else { target.name.clone() };
                let system = System::KafkaProtocol { target: target.clone(), durability: *durability };
                sides.push(Side::new(name, is_batched, Ok(system)));
            }
        }
        if !bench.targets.iter().any(|target| !target.is_thalweg) {
            let reason = bench.software.get("kafka").err().unwrap_or_default();
            sides.push(Side::new("Kafka".to_owned(), is_batched, Err(reason)));
        }
    }
    for (name, start) in [("rabbitmq", rabbitmq as Start), ("activemq", activemq), ("nats", nats)] {
        let system = start(bench).map(|foreign| System::Other(Box::new(foreign)));
        let shown = match name {
            "rabbitmq" => "RabbitMQ",
            "activemq" => "ActiveMQ",
            _ => "NATS JetStream",
        };
        let version = bench.software.get(name).map(|found| format!(" {}", found.version)).unwrap_or_default();
        sides.push(Side::new(format!("{shown}{version}"), false, system));
    }
    sides
}

type Start = fn(&Bench) -> Result<Foreign, String>;

fn rabbitmq(bench: &Bench) -> Result<Foreign, String> {
    let (software, load) = (bench.software.get("rabbitmq")?, bench.software.get("load")?);
    let server = RabbitMq::start(software, &bench.dir.join("rabbitmq")).map_err(|error| format!("{error:#}"))?;
    Ok(Foreign {
        processes: server.processes(),
        client: vec![load.place.clone(), "rabbitmq".to_owned()],
        address: server.address.to_string(),
        server: Running::RabbitMq(server),
    })
}

fn nats(bench: &Bench) -> Result<Foreign, String> {
    let (software, load) = (bench.software.get("nats")?, bench.software.get("load")?);
    let server = Nats::start(software, &bench.dir.join("nats")).map_err(|error| format!("{error:#}"))?;
    Ok(Foreign {
        processes: server.processes(),
        client: vec![load.place.clone(), "nats".to_owned()],
        address: server.address.to_string(),
        server: Running::Nats(server),
    })
}

fn activemq(bench: &Bench) -> Result<Foreign, String> {
    let software = bench.software.get("activemq")?;
    let server = ActiveMq::start(software, &bench.dir.join("activemq")).map_err(|error| format!("{error:#}"))?;
    let client = ["java", "-Xmx1g", "-cp", &software.place, "ActiveMqBench"];
    Ok(Foreign {
        processes: server.processes(),
        client: client.map(str::to_owned).to_vec(),
        address: server.address.port().to_string(),
        server: Running::ActiveMq(server),
    })
}

impl Side {
    fn new(name: String, is_batched: bool, system: Result<System, String>) -> Side {
        let (produce, consume) = (Figures::default(), Figures::default());
        Side { name, is_batched, system, message_count: 0, produce, consume }
    }

    /// As many messages as it takes within the time for one way, ten million at most; warms it by the way.
    fn choose_count(&mut self, bench: &Bench) -> Result<()> {
        let (most, seconds) = if bench.quick { (1_000_000, 3.0) } else { (10_000_000, 10.0) };
        self.message_count = TRIAL_MESSAGES;
        for _ in 0..2 {
            let Some((produced, consumed)) = self.once("trial")? else { return Ok(()) };
            let slower = produced.elapsed.max(consumed.elapsed).as_secs_f64();
            let fitting = self.message_count as f64 * seconds / slower;
            // Two digits, so that the table can be read.
            let rounding = 10_f64.powf((fitting.log10() - 1.0).floor());
            self.message_count = ((fitting / rounding).floor() * rounding) as u64;
            self.message_count = self.message_count.clamp(TRIAL_MESSAGES, most);
        }
        Ok(())
    }

    fn measure(&mut self, run: usize) -> Result<()> {
        if let Some((produced, consumed)) = self.once(&format!("run {}", run + 1))? {
            self.produce.add(&produced, self.message_count);
            self.consume.add(&consumed, self.message_count);
        }
        Ok(())
    }

    /// Produces and consumes once; nothing when the system does not run.
    fn once(&self, which: &str) -> Result<Option<(Once, Once)>> {
        let Ok(system) = &self.system else { return Ok(None) };
        let way = if self.is_batched { "batched" } else { "one by one" };
        progress(&format!("the paper's, {}, {way}, {} messages, {which}", self.name, self.message_count));
        let outcome = match system {
            System::KafkaProtocol { target, durability } => {
                kafka_protocol(target, *durability, self.message_count, if self.is_batched { 50 } else { 1 })
            }
            System::Other(foreign) => foreign
                .once("produce", self.message_count)
                .and_then(|produced| Ok((produced, foreign.once("consume", self.message_count)?))),
        };
        outcome.map(Some).with_context(|| self.name.clone())
    }

    fn stop(self) -> Result<()> {
        match self.system {
            Ok(System::Other(foreign)) => match foreign.server {
                Running::RabbitMq(server) => server.stop(),
                Running::Nats(server) => server.stop(),
                Running::ActiveMq(server) => server.stop(),
            },
            Ok(System::KafkaProtocol { .. }) | Err(_) => Ok(()),
        }
    }
}

fn kafka_protocol(target: &Target, durability: Durability, count: u64, per_batch: u64) -> Result<(Once, Once)> {
    let batch = Batch::of(VALUE_BYTES, 0)?;
    let topic = Topic::create(target, "bench-paper", Wanted::single(durability), &batch)?;
    let begin = topic.end_offset()?;
    let messages =
        Messages { count, value_bytes: VALUE_BYTES, per_batch, window: WINDOW, prefetch_bytes: PREFETCH_BYTES };
    let produced =
        measured(&target.processes, || client::send(&topic, &messages).map(|took| (took.elapsed, took.client_cpu)))?;
    let consumed = measured(&target.processes, || {
        client::receive(&topic, begin, &messages).map(|took| (took.elapsed, took.client_cpu))
    })?;
    topic.delete(target)?;
    Ok((produced, consumed))
}

impl Foreign {
    fn once(&self, way: &str, count: u64) -> Result<Once> {
        measured(&self.processes, || {
            let mut command = Command::new(&self.client[0]);
            command.args(&self.client[1..]).args([way, &self.address, &count.to_string()]);
            command.args([VALUE_BYTES.to_string(), WINDOW.to_string()]);
            let output = command.stdin(Stdio::null()).output().context("the client cannot be run")?;
            let text = String::from_utf8_lossy(&output.stdout);
            ensure!(output.status.success(), "the client failed: {text}{}", String::from_utf8_lossy(&output.stderr));
            let value = |key: &str| -> Result<f64> {
                let word = text.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
                word.with_context(|| format!("the client gave no {key}: {text}"))?.parse().context("no number")
            };
            ensure!(value("messages")? == count as f64, "the client counted other messages: {text}");
            Ok((Duration::from_secs_f64(value("seconds")?), Duration::from_secs_f64(value("cpu_seconds")?)))
        })
    }
}

/// `load` gives its wall and its own processor time.
fn measured(processes: &Processes, load: impl FnOnce() -> Result<(Duration, Duration)>) -> Result<Once> {
    let (cpu, flushes) = (processes.cpu()?, machine::disk_flushes());
    let (elapsed, client_cpu) = load()?;
    let server_cpu = processes.cpu()?.since(cpu);
    Ok(Once { elapsed, server_cpu, client_cpu, flushes: machine::disk_flushes() - flushes })
}

impl Figures {
    fn add(&mut self, once: &Once, count: u64) {
        let per_message = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        self.k_per_s.push(count as f64 / 1e3 / once.elapsed.as_secs_f64());
        self.server_us.push(per_message(once.server_cpu));
        self.client_us.push(per_message(once.client_cpu));
        self.flushes.push(once.flushes as f64);
    }

    fn cells(&self) -> [String; 4] {
        [self.k_per_s.show(), self.server_us.show(), self.client_us.show(), format!("{:.0}", self.flushes.median())]
    }
}

fn tables(sides: &[Side], report: &mut Report) {
    for (way, figures) in [("Producing", Side::produced as fn(&Side) -> &Figures), ("Consuming", Side::consumed)] {
        let mut table = Table::new(&HEADER);
        for is_batched in [false, true] {
            for side in sides.iter().filter(|side| side.is_batched == is_batched) {
                let batch = if is_batched { "50" } else { "1" }.to_owned();
                let cells = match &side.system {
                    Ok(_) => figures(side).cells(),
                    Err(reason) => [format!("not run: {reason}"), String::new(), String::new(), String::new()],
                };
                let count =
                    if side.system.is_ok() { format!("{:.2}", side.message_count as f64 / 1e6) } else { String::new() };
                table.row([batch, side.name.clone(), count].into_iter().chain(cells).collect());
            }
        }
        report.paragraph(&format!("**{way}**"));
        report.table(&table);
    }
}

impl Side {
    fn produced(&self) -> &Figures {
        &self.produce
    }

    fn consumed(&self) -> &Figures {
        &self.consume
    }

    fn is_of(&self, system: &str) -> bool {
        self.name.starts_with(system)
    }
}

/// Thalweg `replicated`, which like the peers does not wait for the disk, against each of them.
fn judge(sides: &[Side], report: &mut Report) {
    let mut table = Table::new(&["", "batch", "times as many messages a second, producing", "consuming"]);
    for is_batched in [false, true] {
        let Some(ours) = sides.iter().find(|side| side.is_of("Thalweg `replicated`") && side.is_batched == is_batched)
        else {
            continue;
        };
        let peers = sides.iter().filter(|side| {
            !side.is_of("Thalweg") && side.system.is_ok() && (side.is_batched == is_batched || !side.is_of("Kafka"))
        });
        for peer in peers {
            let ratios = [Side::produced, Side::consumed]
                .map(|figures: fn(&Side) -> &Figures| figures(ours).k_per_s.median() / figures(peer).k_per_s.median());
            let (produce, consume) = match (peer.is_of("Kafka") || peer.is_of("NATS"), is_batched) {
                (true, _) => (&Aim::PAPER_ABOVE, &Aim::PAPER_ABOVE),
                (false, true) => (&Aim::PAPER_BATCHED_PRODUCE, &Aim::PAPER_BATCHED_CONSUME),
                (false, false) => (&Aim::PAPER_UNBATCHED, &Aim::PAPER_UNBATCHED),
            };
            let batch = if is_batched { "50" } else { "1" };
            let mut cells = vec![format!("Thalweg `replicated` against {}", peer.name), batch.to_owned()];
            for ((aim, ratio), way) in [produce, consume].into_iter().zip(ratios).zip(["producing", "consuming"]) {
                let verdict = report.judge(aim, &format!("{way}, batches of {batch}, {}", peer.name), ratio);
                cells.push(format!("{} {verdict}", times(ratio)));
            }
            table.row(cells);
        }
    }
    report.table(&table);
}

fn plot(sides: &[Side]) -> Bars {
    let mut groups = Vec::new();
    for (way, figures) in [("producing", Side::produced as fn(&Side) -> &Figures), ("consuming", Side::consumed)] {
        for is_batched in [false, true] {
            let bars = sides.iter().filter(|side| side.is_batched == is_batched);
            let bars = bars.map(|side| Bar::of(&side.name.replace('`', ""), &figures(side).k_per_s)).collect();
            let batch = if is_batched { "batches of 50" } else { "one by one" };
            groups.push(Group { name: format!("{way}, {batch}"), bars });
        }
    }
    Bars {
        title: "One producer, then one consumer, messages of 200 bytes".to_owned(),
        unit: "1000 messages a second".to_owned(),
        is_logarithmic: true,
        groups,
    }
}

const ABOUT: &str = "One producer, then one consumer, messages of 200 bytes, one queue, stream or partition; no system but Thalweg \
    `flushed` waits for the disk. A producer may have 500 messages unacknowledged (RabbitMQ and ActiveMQ, as in the paper: sent \
    without an answer for each, and the time ends when the broker has all of them); a consumer prefetches 200 KB or 1,000 \
    messages and acknowledges automatically. In batches of 50 only where the protocol has batches: the others are compared with \
    as they are. Ten million messages, or as many as a system takes in some ten seconds (3 in the short form), which the table \
    says. The client for Thalweg and Kafka is this program, the same for both: it encodes every record anew, takes its CRC, \
    checks each answer, and unpacks every record that it reads. RabbitMQ by lapin, NATS by async-nats, ActiveMQ by its own Java \
    client. Processor time in microseconds a message, of all processes of the server and of the client. *Disk flushes* are those \
    of the whole machine meanwhile.";
const HEADER: [&str; 7] = [
    "batch",
    "system",
    "million messages",
    "1000 messages/s",
    "server CPU, µs a message",
    "client CPU, µs a message",
    "disk flushes",
];
const VALUE_BYTES: usize = 200;
const WINDOW: u64 = 500;
const PREFETCH_BYTES: i32 = 200_000;
const TRIAL_MESSAGES: u64 = 50_000;

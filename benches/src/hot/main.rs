//! The functions that most of a broker's own time goes into, each to be run so many times: `thalweg-hot NAME TIMES`, or no words
//! for the names. Nothing is measured here; `benches/instructions` counts what a run executes.

mod log;
mod protocol;
mod records;

use anyhow::{Result, bail};

/// One repetition.
type Step = Box<dyn FnMut() -> Result<()>>;

/// Makes what a function needs, before anything is counted.
type Prepare = fn() -> Result<Step>;

const FUNCTIONS: [(&str, Prepare); 11] = [
    ("check a batch of 16 KiB, 200 B records", records::check_many),
    ("check a batch of one record of 200 B", records::check_one),
    ("read the records of a batch of 16 KiB", records::read),
    ("build a batch of 16 KiB, 200 B records", records::build),
    ("decode a produce request", protocol::decode_produce),
    ("encode a produce response", protocol::encode_produce),
    ("decode a fetch request, 10 partitions", protocol::decode_fetch),
    ("encode a fetch response, 10 partitions", protocol::encode_fetch),
    ("merge a fetch into a session, 100 idle partitions", protocol::fetch_session),
    ("append an idempotent batch of one record", log::append),
    ("find an offset in a log of 1,000 batches", log::find),
];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, times] = words.as_slice() else {
        let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        let mut out = std::io::stdout().lock();
        return Ok(std::io::Write::write_all(&mut out, format!("{}\n", names.join("\n")).as_bytes())?);
    };
    let Some((_, prepare)) = FUNCTIONS.iter().find(|(known, _)| known == name) else {
        bail!("no function {name:?}; without words, the names are listed");
    };
    let mut step = prepare()?;
    for _ in 0..times.parse::<u64>()? {
        step()?;
    }
    Ok(())
}

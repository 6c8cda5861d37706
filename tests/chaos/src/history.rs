//! What clients did and what they were told, as text: a file for each client, a line for each event.
//!
//! ```text
//! client NAME [GROUP]               first line; GROUP if it reads and commits as one of a group
//! send AT VALUE PARTITION           a record is handed over; values are unique numbers
//! ok AT VALUE PARTITION OFFSET|-    it was acknowledged (- when an earlier try had written it and nobody says where)
//! fail AT VALUE                     it was certainly not written
//! info AT VALUE                     nobody knows
//! from PARTITION OFFSET|-           the position is set: by hand, or by an assignment (- when only the client knows where)
//! poll AT                           a poll answers with the `got` lines that follow
//! got PARTITION OFFSET VALUE|?      a record; ? when its value is none of ours
//! reset AT PARTITION                the client was told that its position does not exist
//! join AT GENERATION P,P,...|-      a member's assignment in a generation
//! commit AT PARTITION OFFSET [GENERATION]     asked for; then one of
//! committed AT PARTITION OFFSET
//! uncommitted AT PARTITION OFFSET   refused or unanswered: it may count or not
//! found ASKED AT PARTITION OFFSET|- what the group has committed, asked and answered at these times
//! end ASKED AT PARTITION OFFSET     the end of the partition as consumers see it, exclusive
//! whole PARTITION OFFSET            after healing, this client has read the partition from 0 to its end OFFSET
//! ```
//!
//! Times are microseconds of one machine's clock.

use std::str::{FromStr, SplitAsciiWhitespace};

/// All that one client did, in the order in which it did it.
#[derive(Clone, Debug, Default)]
pub struct ClientHistory {
    pub name: String,
    pub group: Option<String>,
    /// With the number of its line, from 1.
    pub events: Vec<(u32, Event)>,
}

/// Microseconds of the machine's clock.
pub type Micros = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Send { at: Micros, value: u64, partition: u32 },
    Ok { at: Micros, value: u64, partition: u32, offset: Option<u64> },
    Fail { at: Micros, value: u64 },
    Info { at: Micros, value: u64 },
    From { partition: u32, offset: Option<u64> },
    Poll { at: Micros },
    Got { partition: u32, offset: u64, value: Option<u64> },
    Reset { at: Micros, partition: u32 },
    Join { at: Micros, generation: u32, partitions: Vec<u32> },
    Commit { at: Micros, partition: u32, offset: u64, generation: Option<u32> },
    Committed { at: Micros, partition: u32, offset: u64 },
    Uncommitted { at: Micros, partition: u32, offset: u64 },
    Found { asked: Micros, at: Micros, partition: u32, offset: Option<u64> },
    End { asked: Micros, at: Micros, partition: u32, offset: u64 },
    Whole { partition: u32, offset: u64 },
}

impl ClientHistory {
    /// Reads a file's text.
    ///
    /// A last line without its newline is left out: its writer was killed while it wrote.
    ///
    /// # Errors
    /// The line that cannot be read, and why: whoever wrote the file.
    pub fn parse(text: &str) -> Result<ClientHistory, String> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        let mut words = first.split_ascii_whitespace();
        let (Some("client"), Some(name)) = (words.next(), words.next()) else {
            return Err(format!("line 1: `client NAME` expected, not {first:?}"));
        };
        let mut history =
            ClientHistory { name: name.to_owned(), group: words.next().map(str::to_owned), events: Vec::new() };
        for (index, line) in lines {
            let number = u32::try_from(index + 1).map_err(|_| "too many lines".to_owned())?;
            let event = Event::parse(line).ok_or_else(|| format!("line {number}: {line:?} is no event"))?;
            history.events.push((number, event));
        }
        Ok(history)
    }
}

impl Event {
    fn parse(line: &str) -> Option<Event> {
        let mut words = line.split_ascii_whitespace();
        let event = match words.next()? {
            "send" => Event::Send { at: next(&mut words)?, value: next(&mut words)?, partition: next(&mut words)? },
            "ok" => Event::Ok {
                at: next(&mut words)?,
                value: next(&mut words)?,
                partition: next(&mut words)?,
                offset: unless(&mut words, "-")?,
            },
            "fail" => Event::Fail { at: next(&mut words)?, value: next(&mut words)? },
            "info" => Event::Info { at: next(&mut words)?, value: next(&mut words)? },
            "from" => Event::From { partition: next(&mut words)?, offset: unless(&mut words, "-")? },
            "poll" => Event::Poll { at: next(&mut words)? },
            "got" => {
                Event::Got { partition: next(&mut words)?, offset: next(&mut words)?, value: unless(&mut words, "?")? }
            }
            "reset" => Event::Reset { at: next(&mut words)?, partition: next(&mut words)? },
            "join" => Event::Join {
                at: next(&mut words)?,
                generation: next(&mut words)?,
                partitions: match words.next()? {
                    "-" => Vec::new(),
                    list => list.split(',').map(|partition| partition.parse().ok()).collect::<Option<_>>()?,
                },
            },
            "commit" => Event::Commit {
                at: next(&mut words)?,
                partition: next(&mut words)?,
                offset: next(&mut words)?,
                generation: match words.next() {
                    Some(word) => Some(word.parse().ok()?),
                    None => None,
                },
            },
            "committed" => {
                Event::Committed { at: next(&mut words)?, partition: next(&mut words)?, offset: next(&mut words)? }
            }
            "uncommitted" => {
                Event::Uncommitted { at: next(&mut words)?, partition: next(&mut words)?, offset: next(&mut words)? }
            }
            "found" => Event::Found {
                asked: next(&mut words)?,
                at: next(&mut words)?,
                partition: next(&mut words)?,
                offset: unless(&mut words, "-")?,
            },
            "end" => Event::End {
                asked: next(&mut words)?,
                at: next(&mut words)?,
                partition: next(&mut words)?,
                offset: next(&mut words)?,
            },
            "whole" => Event::Whole { partition: next(&mut words)?, offset: next(&mut words)? },
            _ => return None,
        };
        words.next().is_none().then_some(event)
    }
}

fn next<T: FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

/// `Some(None)` for the word `none`.
fn unless(words: &mut SplitAsciiWhitespace<'_>, none: &str) -> Option<Option<u64>> {
    match words.next()? {
        word if word == none => Some(None),
        word => Some(Some(word.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_being_written_when_its_client_was_killed_is_left_out() {
        let history = ClientHistory::parse("client a g\nsend 1 2 3\nok 4 2 3").unwrap();
        assert_eq!(history.group.as_deref(), Some("g"));
        assert_eq!(history.events, [(2, Event::Send { at: 1, value: 2, partition: 3 })]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for bad in ["sent 1 2 3", "send 1 2", "send 1 2 3 4", "got 0 -1 5", "join 1 2 x"] {
            let error = ClientHistory::parse(&format!("client a\npoll 1\n{bad}\n")).unwrap_err();
            assert!(error.contains("line 3") && error.contains(bad), "{error}");
        }
    }
}

//! What an export has to do in one partition: decided from what the group stored and which files are there, without I/O.

use serde::{Deserialize, Serialize};
use thalweg_model::Offset;

use super::files::Covered;

/// What one export of a partition was begun for. The group stores it with each offset, so that whoever goes on after a
/// crash takes the same range to the same end, even if `--to` means another offset by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Inclusive.
    pub from: i64,
    /// Exclusive.
    pub to: i64,
    /// Of the topic; zero from brokers that have none.
    pub topic_id: String,
    /// Where the files lie.
    pub dir: String,
    /// `json` or `parquet`.
    pub format: String,
}

/// What is known of a partition before an export.
#[derive(Debug)]
pub struct Known<'a> {
    /// First readable record.
    pub log_start: Offset,
    /// Exclusive.
    pub log_end: Offset,
    /// The group's offset and its text.
    pub stored: Option<(Offset, &'a str)>,
    /// Finished files of this partition in this folder and format, in any order.
    pub files: &'a [Covered],
}

/// What is wanted now.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Where a group begins that has stored nothing.
    pub from: Offset,
    /// Where a range ends that is begun now, exclusive.
    pub to: Offset,
    pub topic_id: &'a str,
    pub dir: &'a str,
    pub format: &'a str,
}

/// What is left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub begun: Begun,
    /// The first offset that no finished file has. `begun.to` if nothing is left.
    pub at: Offset,
    /// Finished files whose commit was lost, in order.
    pub found: Vec<Covered>,
    /// The range was not begun before.
    pub is_new: bool,
}

impl Begun {
    pub const KEY: &'static str = "thalweg-export";

    /// As it is stored beside an offset.
    pub fn to_text(&self) -> String {
        serde_json::json!({ Begun::KEY: self }).to_string()
    }

    /// `None` for what is not ours: a consumer's text, or none.
    fn from_text(text: &str) -> Option<Begun> {
        let mut value: serde_json::Value = serde_json::from_str(text).ok()?;
        serde_json::from_value(value.get_mut(Begun::KEY)?.take()).ok()
    }
}

/// Finds what is left: the rest of a range that was begun, or a new one from where the group is.
///
/// Files count as done only in a range that was begun: before its first file a range is stored, so whatever lies
/// there without one is of somebody else.
///
/// # Errors
/// Why going on would leave out records or write some twice, and the way out.
pub fn task(known: &Known, wanted: &Wanted) -> Result<Task, String> {
    let begun = known.stored.and_then(|(_, text)| Begun::from_text(text));
    if let Some(begun) = begun.as_ref().filter(|begun| begun.topic_id != wanted.topic_id) {
        return Err(format!(
            "the topic was deleted and made anew since it was exported to {}; `thalweg group offset-delete GROUP -t TOPIC` forgets the old one",
            begun.dir
        ));
    }
    let stored = known.stored.map(|(offset, _)| offset);
    let is_new = stored.zip(begun.as_ref()).is_none_or(|(offset, begun)| offset.0 >= begun.to);
    let task = match (begun, stored) {
        (Some(begun), Some(offset)) if !is_new => go_on(begun, offset, known, wanted)?,
        (_, stored) => {
            let from = stored.unwrap_or(wanted.from);
            let to = wanted.to.max(from).0;
            let (topic_id, dir) = (wanted.topic_id.to_owned(), wanted.dir.to_owned());
            let begun = Begun { from: from.0, to, topic_id, dir, format: wanted.format.to_owned() };
            Task { begun, at: from, found: Vec::new(), is_new: true }
        }
    };
    check_log(&task, known)?;
    let end = Offset(task.begun.to);
    if let Some(file) = known.files.iter().find(|file| file.first < end && file.last >= task.at) {
        return Err(format!(
            "{} holds {} to {} already, by {}: move the file away, or give another --dir",
            wanted.dir,
            file.first,
            file.last,
            if is_new { "another export" } else { "an export that went further than the group knows" }
        ));
    }
    Ok(task)
}

fn go_on(begun: Begun, stored: Offset, known: &Known, wanted: &Wanted) -> Result<Task, String> {
    if begun.dir != wanted.dir || begun.format != wanted.format {
        return Err(format!(
            "the group is at {stored} of a range up to {}, written to {} as {}: end that first, or give another --group",
            begun.to, begun.dir, begun.format
        ));
    }
    let mut task = Task { at: stored, found: Vec::new(), is_new: false, begun };
    while let Some(next) = known.files.iter().find(|file| file.first == task.at && file.last.0 < task.begun.to) {
        task.at = next.last.plus(1);
        task.found.push(*next);
    }
    Ok(task)
}

/// Whether the log still has what is left, and has it yet.
fn check_log(task: &Task, known: &Known) -> Result<(), String> {
    let end = Offset(task.begun.to);
    if task.at < end && task.at < known.log_start {
        return Err(format!(
            "records {} to {} were deleted before they were exported; `thalweg group seek GROUP -t TOPIC:PARTITION --to earliest` leaves them out",
            task.at,
            known.log_start.plus(-1).min(end.plus(-1))
        ));
    }
    if task.at > known.log_end || end > known.log_end {
        return Err(format!(
            "the log ends at {}, before {}, where the group is or has to go: records were lost, or the topic was made anew",
            known.log_end,
            end.max(task.at)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted { from: Offset(0), to: Offset(100), topic_id: "id", dir: "/d", format: "json" };

    fn begun(from: i64, to: i64) -> Begun {
        let owned = |text: &str| text.to_owned();
        Begun { from, to, topic_id: owned("id"), dir: owned("/d"), format: owned("json") }
    }

    fn covered(first: i64, last: i64) -> Covered {
        Covered { first: Offset(first), last: Offset(last) }
    }

    fn plan(stored: Option<(i64, &str)>, files: &[Covered]) -> Result<Task, String> {
        let stored = stored.map(|(offset, text)| (Offset(offset), text));
        task(&Known { log_start: Offset(0), log_end: Offset(200), stored, files }, &WANTED)
    }

    #[test]
    fn a_range_is_new_without_a_stored_one_and_after_it_has_ended() {
        let new = |from, to| Task { begun: begun(from, to), at: Offset(from), found: vec![], is_new: true };
        assert_eq!(plan(None, &[]), Ok(new(0, 100)));
        assert_eq!(plan(Some((7, "")), &[]), Ok(new(7, 100)), "a consumer's or a sought offset");
        assert_eq!(plan(Some((40, &begun(0, 40).to_text())), &[covered(0, 39)]), Ok(new(40, 100)));
        assert_eq!(plan(Some((150, &begun(0, 150).to_text())), &[]), Ok(new(150, 150)), "never backwards");
    }

    /// Goal: a crash between rename and commit makes no duplicate. Method: two files beyond the stored offset.
    #[test]
    fn files_whose_commit_was_lost_are_taken_up_in_their_order() {
        let files = [covered(20, 29), covered(0, 9), covered(10, 19)];
        let task = plan(Some((10, &begun(0, 40).to_text())), &files).unwrap();
        assert_eq!((task.at, task.is_new), (Offset(30), false));
        assert_eq!(task.found, [covered(10, 19), covered(20, 29)]);
        assert_eq!(task.begun.to, 40, "the end is the one that was begun for");
    }

    #[test]
    fn what_would_be_written_twice_is_refused() {
        let fresh = plan(None, &[covered(50, 60)]).unwrap_err();
        assert!(fresh.contains("50 to 60") && fresh.contains("--dir"), "{fresh}");
        let text = begun(0, 40).to_text();
        for file in [covered(12, 20), covered(5, 15), covered(10, 40)] {
            assert!(plan(Some((10, &text)), &[file]).is_err(), "{file:?}");
        }
        assert!(plan(Some((10, &text)), &[covered(0, 9), covered(40, 50)]).is_ok(), "beside the range");
    }

    #[test]
    fn a_begun_range_ends_where_and_how_it_was_begun() {
        let elsewhere = Begun { dir: "/other".to_owned(), ..begun(0, 40) };
        assert!(plan(Some((10, &elsewhere.to_text())), &[]).unwrap_err().contains("/other as json"));
        let otherwise = Begun { format: "parquet".to_owned(), ..begun(0, 40) };
        assert!(plan(Some((10, &otherwise.to_text())), &[]).unwrap_err().contains("/d as parquet"));
        let anew = Begun { topic_id: "old".to_owned(), ..begun(0, 40) };
        assert!(plan(Some((10, &anew.to_text())), &[]).unwrap_err().contains("made anew"));
    }

    #[test]
    fn records_that_are_gone_are_told_of_and_not_skipped() {
        let at = |start, end, stored: Option<(Offset, &str)>| {
            task(&Known { log_start: Offset(start), log_end: Offset(end), stored, files: &[] }, &WANTED)
        };
        let text = begun(0, 40).to_text();
        let gone = at(15, 200, Some((Offset(10), &text))).unwrap_err();
        assert!(gone.contains("10 to 14") && gone.contains("group seek"), "{gone}");
        assert!(at(15, 200, Some((Offset(10), ""))).is_err());
        assert!(at(15, 30, Some((Offset(20), &text))).unwrap_err().contains("ends at 30, before 40"));
        assert!(at(500, 500, Some((Offset(40), &text))).is_err(), "between two ranges");
    }
}

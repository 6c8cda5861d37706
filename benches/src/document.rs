//! docs/BENCHMARKS.md: each section stands between two marks and is replaced by the run that measured it again; what is
//! written by hand around them stays.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::report::{Report, Section};

/// Replaces the sections that `report` has and the list of all aims; draws their pictures beside the document.
///
/// `about` says when and how the run was made; it stands below each section's title.
pub fn rewrite(path: &Path, report: &Report, about: &str) -> Result<()> {
    let mut text = fs::read_to_string(path).unwrap_or_default();
    let pictures = path.parent().unwrap_or(Path::new(".")).join("pictures");
    for section in &report.sections {
        if let Some(plot) = &section.plot {
            fs::create_dir_all(&pictures)?;
            fs::write(pictures.join(picture(section.id)), plot.svg())?;
        }
        text = replaced(&text, section.id, &body(section, about))?;
    }
    let aims = aims(&text);
    text = replaced(&text, AIMS, &aims)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn body(section: &Section, about: &str) -> String {
    let mut text = format!("## {}\n\n*{about}*\n\n{}", section.title, section.text.trim_end());
    if let Some(plot) = &section.plot {
        text += &format!("\n\n![{}](pictures/{})", plot.title, picture(section.id));
    }
    let rows = section.judged.rows();
    if !rows.is_empty() {
        text += &format!("\n\n{AIMS_BEGIN}\n{AIMS_HEADER}{rows}{AIMS_END}");
    }
    text
}

/// The aims of every section in the document, this run's or an earlier one's.
fn aims(text: &str) -> String {
    let mut rows = String::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(AIMS_BEGIN) {
        let (inner, after) = after.split_once(AIMS_END).unwrap_or((after, ""));
        for row in inner.trim().lines().skip(AIMS_HEADER.lines().count()) {
            rows += &format!("{row}\n");
        }
        rest = after;
    }
    let met = rows.lines().filter(|row| row.ends_with("| met |")).count();
    let heading = format!("## Aims\n\n{met} of {} met.\n\n", rows.lines().count());
    (heading + AIMS_HEADER + &rows).trim_end().to_owned()
}

/// `text` with `body` between the marks of `id`; at its end if it has none.
fn replaced(text: &str, id: &str, body: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- bench:{id} -->"), format!("<!-- /bench:{id} -->"));
    let Some((before, after)) = text.split_once(&begin) else {
        return Ok(format!("{}\n\n{begin}\n{body}\n{end}\n", text.trim_end()));
    };
    let Some((_, after)) = after.split_once(&end) else { bail!("{begin} has no {end} after it") };
    Ok(format!("{before}{begin}\n{body}\n{end}{after}"))
}

fn picture(id: &str) -> String {
    format!("bench-{id}.svg")
}

const AIMS: &str = "aims";
// A comment ends a Markdown table, so none stands between its lines.
const AIMS_HEADER: &str = "| aim | figure | |\n|---|---|---|\n";
const AIMS_BEGIN: &str = "<!-- aims of this section -->";
const AIMS_END: &str = "<!-- end of its aims -->";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims::Aim;

    #[test]
    fn a_section_is_replaced_and_all_others_and_their_aims_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("B.md");
        fs::write(&path, "# By hand\n\n<!-- bench:aims -->\n<!-- /bench:aims -->\n\nAlso by hand.\n").expect("a file");
        let run = |id, share, about| {
            let mut report = Report::default();
            report.section(id, "A title");
            report.judge(&Aim::PRODUCE, id, share);
            rewrite(&path, &report, about).expect("a document");
        };
        run("first", 0.7, "run 1");
        run("second", 0.5, "run 2");
        run("first", 0.8, "run 3");
        let text = fs::read_to_string(&path).expect("the document");
        assert!(text.starts_with("# By hand\n\n<!-- bench:aims -->\n## Aims\n\n1 of 2 met."), "{text}");
        assert!(text.contains("Also by hand.") && text.contains("*run 2*") && !text.contains("*run 1*"), "{text}");
        assert!(text.matches("80 % (first)").count() == 2 && !text.contains("70 %"), "{text}");
        fs::write(&path, "<!-- bench:first -->").expect("a file");
        assert!(rewrite(&path, &Report::default(), "").is_ok());
    }
}

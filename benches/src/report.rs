//! What the run prints: Markdown on standard output, progress on standard error.

use std::io::Write;

/// Collects the report's lines and shows progress.
#[derive(Debug, Default)]
pub struct Report {
    text: String,
    judged_count: usize,
    missed: Vec<String>,
}

impl Report {
    pub fn heading(&mut self, text: &str) {
        self.line(&format!("\n## {text}\n"));
    }

    pub fn paragraph(&mut self, text: &str) {
        self.line(&format!("{text}\n"));
    }

    pub fn table(&mut self, table: &Table) {
        self.line(&table.to_string());
    }

    /// Judges one figure against its aim and notes a miss for the summary.
    pub fn judge(&mut self, aim: &Aim, what: &str, value: f64) -> String {
        let reached = aim.reached(value);
        self.judged_count += 1;
        if !reached {
            self.missed.push(format!("{what}: {} ({})", aim.show(value), aim.statement));
        }
        if reached { "reached".to_owned() } else { "**missed**".to_owned() }
    }

    /// Every miss again, in one place.
    pub fn summary(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        self.heading("Aims");
        self.paragraph(&format!("{} of {} reached.", self.judged_count - missed.len(), self.judged_count));
        for line in &missed {
            self.line(&format!("- missed: {line}"));
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        // A reader who closed the pipe early still gets the file asked for with --write.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Says on standard error what is being measured.
pub fn progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "# {text}");
}

/// What a figure should reach.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    pub statement: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    /// A share of a bare loop, 0.35 for 35 %.
    ShareAtLeast(f64),
    Below(f64, &'static str),
}

impl Aim {
    pub const CONSUME: Aim =
        Aim { statement: "aim: at least 50 % of the bare sendfile loop", bound: Bound::ShareAtLeast(0.50) };
    pub const PRODUCE: Aim =
        Aim { statement: "aim: at least 35 % of the bare receive loop", bound: Bound::ShareAtLeast(0.35) };
    pub const START: Aim = Aim { statement: "aim: under 300 ms", bound: Bound::Below(300.0, "ms") };
    pub const IDLE_MEMORY: Aim = Aim { statement: "aim: under 40 MB", bound: Bound::Below(40.0, "MB") };

    fn reached(&self, value: f64) -> bool {
        match self.bound {
            Bound::ShareAtLeast(share) => value >= share,
            Bound::Below(limit, _) => value < limit,
        }
    }

    fn show(&self, value: f64) -> String {
        match self.bound {
            Bound::ShareAtLeast(_) => percent(value),
            Bound::Below(_, unit) => format!("{} {unit}", crate::stats::number(value)),
        }
    }
}

pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "-".to_owned() }
}

/// A Markdown table whose columns line up as plain text too.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len(), "a row has as many cells as the header");
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.rows[0].len()).map(|column| width(column).unwrap_or(0)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                for width in &widths {
                    write!(f, "|{}", "-".repeat(width + 2))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_named_in_the_row_and_again_in_the_summary() {
        let mut report = Report::default();
        assert_eq!(report.judge(&Aim::PRODUCE, "produce 1 KiB", 0.34), "**missed**");
        assert_eq!(report.judge(&Aim::START, "start", 299.0), "reached");
        report.summary();
        assert!(report.text().contains("- missed: produce 1 KiB: 34 % (aim: at least 35 % of the bare receive loop)"));
        assert!(report.text().contains("1 of 2 reached.") && !report.text().contains("missed: start"));
    }

    #[test]
    fn a_figure_that_was_not_measured_is_a_miss() {
        let mut report = Report::default();
        assert_eq!(report.judge(&Aim::CONSUME, "consume", f64::NAN), "**missed**");
        assert_eq!(report.judge(&Aim::IDLE_MEMORY, "memory", f64::NAN), "**missed**");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["a", "bb"]);
        table.row(vec!["longer".to_owned(), "ü".to_owned()]);
        assert_eq!(table.to_string(), "| a      | bb |\n|--------|----|\n| longer | ü  |\n");
    }
}

//! What a run comes to: sections of Markdown with their tables, plots and judged aims; progress on standard error.

use std::io::Write;

use crate::aims::{Aim, Judged};
use crate::plot::Bars;

/// The sections that this run measured.
#[derive(Debug, Default)]
pub struct Report {
    pub sections: Vec<Section>,
}

/// One experiment's part of the document.
#[derive(Debug)]
pub struct Section {
    /// By which the document knows it; also the picture's name.
    pub id: &'static str,
    pub title: &'static str,
    pub text: String,
    pub judged: Judged,
    pub plot: Option<Bars>,
}

impl Report {
    pub fn section(&mut self, id: &'static str, title: &'static str) {
        self.sections.push(Section { id, title, text: String::new(), judged: Judged::default(), plot: None });
    }

    pub fn paragraph(&mut self, text: &str) {
        self.line(&format!("{text}\n"));
    }

    pub fn table(&mut self, table: &Table) {
        self.line(&table.to_string());
    }

    /// Judges one figure against its aim and keeps it for the list of aims; the word for the figure's row.
    pub fn judge(&mut self, aim: &'static Aim, what: &str, value: f64) -> String {
        if let Some(section) = self.sections.last_mut() {
            section.judged.add(aim, what, value);
        }
        if aim.reached(value) { "met".to_owned() } else { "**missed**".to_owned() }
    }

    pub fn plot(&mut self, plot: Bars) {
        if let Some(section) = self.sections.last_mut() {
            section.plot = Some(plot);
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(section) = self.sections.last_mut() {
            section.text.push_str(line);
            section.text.push('\n');
        }
        // A reader who closed the pipe early still gets the document.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Says on standard error what is being measured.
pub fn progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "# {text}");
}

pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "-".to_owned() }
}

pub fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}x", crate::stats::number(ratio)) } else { "-".to_owned() }
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
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["a", "bb"]);
        table.row(vec!["longer".to_owned(), "ü".to_owned()]);
        assert_eq!(table.to_string(), "| a      | bb |\n|--------|----|\n| longer | ü  |\n");
    }
}

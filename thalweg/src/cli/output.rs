//! Tables for people, JSON and YAML for programs.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::failure::Failure;
use super::yaml;

/// Options of every verb that shows a list.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// For programs
    Json,
    /// For programs, and for people who read them
    Yaml,
}

impl Format {
    /// Whether the output is a value rather than a table.
    pub fn is_data(self) -> bool {
        matches!(self, Format::Json | Format::Yaml)
    }

    /// Whether all columns are wanted.
    pub fn is_wide(self) -> bool {
        self == Format::Wide
    }
}

/// Rows of text in aligned columns.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The rows of text, each ending in a newline; two spaces between columns, none at the end of a line.
    fn render(&self) -> String {
        let column_count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..column_count).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    pub fn print(&self) -> Result<(), Failure> {
        Ok(io::stdout().lock().write_all(self.render().as_bytes())?)
    }
}

/// A value: JSON on one line, or YAML.
pub fn print_value(format: Format, value: &Value) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if format == Format::Yaml {
        return Ok(out.write_all(yaml::render(value).as_bytes())?);
    }
    serde_json::to_writer(&mut out, value)?;
    Ok(out.write_all(b"\n")?)
}

/// A line of data.
pub fn print_line(line: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

/// A line for people, on stderr.
pub fn note(line: &str) {
    // Without a stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Items with commas between, or a dash if there are none.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

/// Thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `950 B`, `1.5 KiB`, `12 GiB`.
pub fn bytes(count: u64) -> String {
    let mut unit = 0;
    let mut value = count as f64;
    while value >= 1_024.0 && unit + 1 < BYTE_UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    format!("{value:.digits$} {}", BYTE_UNITS[unit])
}

const BYTE_UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() {
        let mut table = Table::new(&["NAME", "N"]);
        table.row(vec!["a-long-name".into(), "1".into()]);
        table.row(vec!["b".into(), String::new()]);
        assert_eq!(table.render(), "NAME         N\na-long-name  1\nb\n");
    }

    #[test]
    fn bytes_have_the_largest_unit_that_leaves_a_number() {
        assert_eq!([0, 1_023, 1_536, 10 << 20, 3 << 40].map(bytes), ["0 B", "1023 B", "1.5 KiB", "10 MiB", "3.0 TiB"]);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}

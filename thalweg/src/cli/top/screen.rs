//! The picture on a terminal.

use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

use super::state::{GroupRow, Pane, TopicRow, View};
use crate::cli::failure::Failure;
use crate::cli::output::{bytes, grouped};
use crate::cli::time;

/// Draws everything.
pub fn draw(frame: &mut Frame, view: &View) {
    let trouble_rows = u16::try_from(view.picture.troubles.len().min(TROUBLES_MAX)).unwrap_or(0);
    let [head, troubles, topics, groups, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(trouble_rows),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(view), head);
    let lines = view.picture.troubles.iter().take(TROUBLES_MAX);
    let lines: Vec<Line> = lines.map(|trouble| Line::styled(printable(trouble), bad())).collect();
    frame.render_widget(Paragraph::new(lines), troubles);
    draw_topics(frame, view, topics);
    draw_groups(frame, view, groups);
    frame.render_widget(Line::styled(HELP, Style::new().add_modifier(Modifier::DIM)), foot);
}

/// The same as text, for whoever has no terminal.
///
/// # Errors
/// Never for a buffer in memory.
pub fn as_text(view: &View, columns: u16, rows: u16) -> Result<String, Failure> {
    let mut terminal =
        Terminal::new(TestBackend::new(columns, rows)).map_err(|error| Failure::failed(error.to_string()))?;
    terminal.draw(|frame| draw(frame, view)).map_err(|error| Failure::failed(error.to_string()))?;
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        let cells = (0..columns).filter_map(|column| buffer.cell((column, row)));
        let line: String = cells.map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    Ok((0..rows).map(line).collect::<Vec<_>>().join("\n").trim_end().to_owned())
}

fn headline(view: &View) -> Line<'_> {
    let picture = &view.picture;
    let state = match (&view.failure, picture.troubles.is_empty()) {
        (Some(reason), _) => Span::styled(format!("not answering: {}", printable(reason)), bad()),
        (None, true) => Span::styled("healthy", Style::new().fg(Color::Green)),
        (None, false) => Span::styled(format!("{} trouble(s)", picture.troubles.len()), bad()),
    };
    let rate: f64 = picture.topics.iter().filter_map(|topic| topic.records_per_s).sum();
    let byte_rate: f64 = picture.topics.iter().filter_map(|topic| topic.bytes_per_s).sum();
    let facts = format!(
        "  {}  {} broker(s)  {} topic(s)  {} group(s)  in {}/s, {}/s  looked in {} ms",
        picture.cluster_id,
        picture.broker_count,
        picture.topics.len(),
        picture.groups.len(),
        grouped(rate as u64),
        bytes(byte_rate as u64),
        picture.took_ms,
    );
    Line::from(vec![Span::styled("thalweg ", Style::new().add_modifier(Modifier::BOLD)), state, Span::raw(facts)])
}

fn draw_topics(frame: &mut Frame, view: &View, area: Rect) {
    let row = |topic: &TopicRow| {
        let style = if topic.is_well { Style::new() } else { bad() };
        Row::new([
            Cell::from(printable(&topic.name)),
            right(topic.partition_count.to_string()),
            right(grouped(topic.record_count.unsigned_abs())),
            right(bytes(topic.size_bytes)),
            right(rate(topic.records_per_s)),
            right(topic.bytes_per_s.map_or("-".to_owned(), |rate| format!("{}/s", bytes(rate.max(0.0) as u64)))),
        ])
        .style(style)
    };
    let rows = view.picture.topics.iter().skip(view.offsets[0]).map(row);
    let widths = [Constraint::Fill(1), N, N, N, N, Constraint::Length(14)];
    let heading = ["TOPIC", "PARTITIONS", "RECORDS", "SIZE", "RECORDS/S", "BYTES/S"];
    frame.render_widget(table(rows, &widths, &heading, "topics", view.pane == Pane::Topics), area);
}

fn draw_groups(frame: &mut Frame, view: &View, area: Rect) {
    let row = |group: &GroupRow| {
        let is_late = group.lag_ms.is_some_and(|ms| ms > LATE_MS);
        Row::new([
            Cell::from(printable(&group.name)),
            Cell::from(group.state.clone()),
            right(group.member_count.to_string()),
            right(grouped(group.lag.unsigned_abs())),
            right(group.lag_ms.map_or("-".to_owned(), time::span)),
            right(rate(group.records_per_s)),
        ])
        .style(if is_late { Style::new().fg(Color::Yellow) } else { Style::new() })
    };
    let rows = view.picture.groups.iter().skip(view.offsets[1]).map(row);
    let widths = [Constraint::Fill(1), Constraint::Length(20), N, N, N, N];
    let heading = ["GROUP", "STATE", "MEMBERS", "LAG", "TIME-LAG", "COMMITS/S"];
    frame.render_widget(table(rows, &widths, &heading, "groups", view.pane == Pane::Groups), area);
}

fn table<'a>(
    rows: impl Iterator<Item = Row<'a>>,
    widths: &[Constraint],
    heading: &[&'a str],
    title: &'a str,
    is_chosen: bool,
) -> Table<'a> {
    let cells = heading.iter().enumerate().map(|(i, text)| {
        let is_text = i == 0 || *text == "STATE";
        if is_text { Cell::from(*text) } else { right((*text).to_owned()) }
    });
    let border =
        if is_chosen { Style::new().add_modifier(Modifier::BOLD) } else { Style::new().add_modifier(Modifier::DIM) };
    Table::new(rows, widths.to_vec())
        .header(Row::new(cells).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(title).border_style(border))
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| grouped(rate.max(0.0).round() as u64))
}

/// Names come from others: none of them steers the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn bad() -> Style {
    Style::new().fg(Color::Red)
}

const N: Constraint = Constraint::Length(12);
const HELP: &str = "q quit  Tab topics/groups  arrows scroll  s order by name or by rate and lag";
const TROUBLES_MAX: usize = 5;
/// Behind by this much a group is shown in another colour.
const LATE_MS: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::state::{Key, Picture};

    fn view() -> View {
        View::new(Picture {
            cluster_id: "c1".into(),
            broker_count: 3,
            troubles: Vec::new(),
            topics: vec![TopicRow {
                name: "orders\u{1b}[2J".into(),
                partition_count: 6,
                record_count: 1_234_567,
                size_bytes: 3 << 30,
                records_per_s: Some(1_500.4),
                bytes_per_s: Some(2048.0),
                is_well: true,
            }],
            groups: vec![GroupRow {
                name: "billing".into(),
                state: "Stable".into(),
                member_count: 2,
                lag: 4_200,
                lag_ms: Some(3_200),
                records_per_s: None,
            }],
            took_ms: 12,
        })
    }

    /// Goal: the screen says what the value says. Method: a terminal in memory.
    #[test]
    fn a_value_is_drawn_with_units_and_without_escape_codes() {
        let text = as_text(&view(), 120, 20).unwrap();
        let find =
            |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {text}"));
        assert!(find("thalweg healthy").contains("3 broker(s)"));
        let orders = find("orders");
        for part in ["1,234,567", "3.0 GiB", "1,500", "2.0 KiB/s", "\u{fffd}[2J"] {
            assert!(orders.contains(part), "{part}: {orders}");
        }
        let billing = find("billing");
        for part in ["Stable", "4,200", "3.2 s", " - "] {
            assert!(billing.contains(part) || (part == " - " && billing.contains("-│")), "{part}: {billing}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn troubles_and_silence_stand_above_the_rest() {
        let mut view = view();
        view.picture.troubles = (0..9).map(|i| format!("trouble {i}")).collect();
        let text = as_text(&view, 100, 24).unwrap();
        assert!(text.contains("9 trouble(s)") && text.contains("trouble 4") && !text.contains("trouble 5"), "{text}");
        view.fail("nothing listens");
        assert!(as_text(&view, 100, 24).unwrap().contains("not answering: nothing listens"));
    }

    #[test]
    fn it_draws_on_a_terminal_of_any_size() {
        let mut view = view();
        view.press(Key::Switch);
        for (columns, rows) in [(1, 1), (10, 3), (300, 100)] {
            as_text(&view, columns, rows).unwrap();
        }
    }
}

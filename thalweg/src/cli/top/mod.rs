//! `thalweg top`: one screen of topics, groups, lag, throughput and health that redraws itself.

mod gather;
mod screen;
mod state;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::connect::Connection;
use super::failure::Failure;
use super::output::print_line;
use super::stop::Stop;
use gather::Gatherer;
use state::{Key, View};

/// q or Ctrl-C ends it; Tab goes between topics and groups, arrows scroll, s changes the order.
#[derive(Debug, Args)]
pub struct Top {
    /// Look again after so many seconds
    #[arg(short, long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one picture as text and end, as when stdout is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Top {
    pub async fn run(self) -> Result<(), Failure> {
        let client = self.connection.open().await?;
        let mut gatherer = Gatherer::new(client);
        let interval = Duration::from_secs(self.interval);
        // Rates need two looks.
        let mut view = View::new(gatherer.look().await?);
        if self.once || !io::stdout().is_terminal() {
            tokio::time::sleep(interval).await;
            view.take(gatherer.look().await?);
            return print_line(&screen::as_text(&view, TEXT_COLUMNS, TEXT_ROWS)?);
        }
        let mut terminal = ratatui::init();
        let result = show(&mut terminal, &mut view, &mut gatherer, interval).await;
        // The terminal is the user's again before anything is said.
        ratatui::restore();
        result
    }
}

async fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    gatherer: &mut Gatherer,
    interval: Duration,
) -> Result<(), Failure> {
    let mut keys = read_keys();
    let mut stop = Stop::listen()?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        terminal.draw(|frame| screen::draw(frame, view))?;
        tokio::select! {
            biased;
            () = stop.asked() => return Ok(()),
            key = keys.recv() => match key {
                None | Some(Key::Quit) => return Ok(()),
                Some(key) => view.press(key),
            },
            _ = ticks.tick() => match gatherer.look().await {
                Ok(picture) => view.take(picture),
                // It may come back: the last picture stays, with the reason above it.
                Err(failure) => view.fail(failure.message()),
            },
        }
    }
}

/// Keys, read in a thread of its own; it ends with the process.
fn read_keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
                    KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
                    KeyCode::Char('s') => Key::Sort,
                    KeyCode::Tab => Key::Switch,
                    KeyCode::Up => Key::Up,
                    KeyCode::Down => Key::Down,
                    _ => continue,
                },
                Event::Resize(..) => Key::Redraw,
                _ => continue,
            };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}

const TEXT_COLUMNS: u16 = 120;
const TEXT_ROWS: u16 = 40;

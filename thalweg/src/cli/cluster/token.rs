//! `thalweg cluster token`: what lets new nodes in.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::nodes_client::NodesClient;
use thalweg_proto::v1::{
    CreateTokenRequest, DescribeCoordinatorsRequest, ListTokensRequest, RevokeTokenRequest, TokenInfo,
};

use crate::cli::coordinators::{Connect, Coordinators, in_time, told};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table, note, print_line, print_value};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, with which machines can join until it expires; it is shown this once
    Create(Create),
    /// List the tokens, without their secrets
    List(List),
    /// Let nobody in with a token any more; nodes that joined with it stay
    Revoke(Revoke),
}

#[derive(Debug, Args)]
pub struct Create {
    /// How long it lets nodes in, such as 30m, 12h or 7d; at most 30d
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration_ms)]
    expires: i64,
    /// Write it into this file, as a whole, for `thalweg start --token-file`; only this user can read it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
pub struct Revoke {
    /// As `token list` shows it: the third part of the token
    id: String,
    #[command(flatten)]
    connect: Connect,
}

pub async fn run(command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(verb) => verb.run().await,
        TokenCommand::List(verb) => verb.run().await,
        TokenCommand::Revoke(verb) => verb.run().await,
    }
}

impl Create {
    async fn run(self) -> Result<(), Failure> {
        let create = |channel| {
            let request = CreateTokenRequest { ttl_ms: self.expires };
            async move { NodesClient::new(channel).create_token(in_time(request)).await }
        };
        let coordinators = self.connect.find().await?;
        let answer = coordinators.call(create).await?;
        told(answer.error)?;
        if self.output.format.is_data() {
            let value = json!({"token": answer.token, "id": answer.id, "expires_at_ms": answer.expires_at_ms});
            return print_value(self.output.format, &value);
        }
        let lasting = lasting(self.expires);
        if let Some(path) = &self.out {
            write_whole(path, &answer.token)
                .map_err(|cause| Failure::failed(format!("{}: {cause}", path.display())))?;
            note(&format!("the token in {} lets machines in for {lasting}", path.display()));
            return Ok(());
        }
        // Alone on standard output, for scripts.
        print_line(&answer.token)?;
        let place = place(&coordinators).await?;
        note(&format!(
            "lets machines in for {lasting}; on each: thalweg start --data-dir DIR --join {place} --token TOKEN"
        ));
        Ok(())
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let list = |channel| async move { NodesClient::new(channel).list_tokens(in_time(ListTokensRequest {})).await };
        let answer = self.connect.find().await?.call(list).await?;
        if self.output.format.is_data() {
            let value = |token: &TokenInfo| {
                json!({
                    "id": token.id,
                    "created_at_ms": token.created_at_ms,
                    "expires_at_ms": token.expires_at_ms,
                    "expired": token.expires_at_ms <= answer.now_ms,
                    "joined": token.joined_count,
                })
            };
            let tokens: Vec<_> = answer.tokens.iter().map(value).collect();
            return print_value(self.output.format, &json!(tokens));
        }
        let mut table = Table::new(&["TOKEN", "EXPIRES", "JOINED"]);
        for token in &answer.tokens {
            let left = token.expires_at_ms.saturating_sub(answer.now_ms);
            let expires = if left > 0 { format!("in {}", lasting(left)) } else { "expired".to_owned() };
            table.row(vec![token.id.clone(), expires, token.joined_count.to_string()]);
        }
        table.print()
    }
}

impl Revoke {
    async fn run(self) -> Result<(), Failure> {
        let revoke = |channel| {
            let request = RevokeTokenRequest { id: self.id.clone() };
            async move { NodesClient::new(channel).revoke_token(in_time(request)).await }
        };
        told(self.connect.find().await?.call(revoke).await?.error)?;
        note(&format!("token {} lets nobody in any more", self.id));
        Ok(())
    }
}

/// Whoever waits for the file finds the whole token or none.
fn write_whole(path: &Path, token: &str) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(".next");
    let next = path.with_file_name(name);
    // One that is there may be open to others.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    writeln!(file, "{token}")?;
    fs::rename(&next, path)
}

/// Where other machines reach the coordinator that leads.
async fn place(coordinators: &Coordinators) -> Result<String, Failure> {
    let describe = |channel| async move {
        AdminClient::new(channel).describe_coordinators(in_time(DescribeCoordinatorsRequest {})).await
    };
    let known = coordinators.call(describe).await?;
    Ok(known.nodes.into_iter().find(|node| node.leader).map_or_else(|| "HOST".to_owned(), |node| node.address))
}

/// `30m`, `12h`, `7d`, `90s`.
fn duration_ms(text: &str) -> Result<i64, String> {
    let unit = |unit: char| match unit {
        's' => Some(1_000),
        'm' => Some(60_000),
        'h' => Some(3_600_000),
        'd' => Some(24 * 3_600_000_i64),
        _ => None,
    };
    let parsed = text.char_indices().last().and_then(|(at, last)| {
        let number: i64 = text.get(..at)?.parse().ok()?;
        number.checked_mul(unit(last)?).filter(|ms| *ms > 0)
    });
    parsed.ok_or_else(|| "it is a number with s, m, h or d, such as 30m".to_owned())
}

/// For people: the largest unit that is at least two of it.
fn lasting(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} minutes", seconds / 60),
        7_200..=172_799 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        assert_eq!(duration_ms("90s"), Ok(90_000));
        assert_eq!(duration_ms("7d"), Ok(7 * 86_400_000));
        for wrong in ["", "h", "1", "-1h", "0h", "1w", "1.5h", "9223372036854775807d", "é"] {
            assert!(duration_ms(wrong).unwrap_err().contains("30m"), "{wrong}");
        }
        assert_eq!(
            (lasting(3_600_000), lasting(90_000), lasting(7 * 86_400_000)),
            ("60 minutes".into(), "90 s".into(), "7 days".into())
        );
    }
}

//! `thalweg generate`: files for other programs, from the names of metrics that this version has.

mod list;

use clap::Subcommand;
use serde_json::{Value, json};

use self::list::{ALERTS, Alert, Kind, PANELS, Panel};
use super::failure::Failure;
use super::output::print_line;

#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// A dashboard for Grafana (JSON); its source of data is a Prometheus with the uid `prometheus`
    GrafanaDashboard,
    /// Rules for Prometheus (YAML) that say what is wrong and what to type
    PrometheusAlerts,
}

pub fn run(command: &GenerateCommand) -> Result<(), Failure> {
    print_line(
        match command {
            GenerateCommand::GrafanaDashboard => dashboard(),
            GenerateCommand::PrometheusAlerts => alerts(),
        }
        .trim_end(),
    )
}

fn dashboard() -> String {
    let mut panels = Vec::new();
    let (mut x, mut y, mut row_height) = (0, 0, 0);
    for (id, panel) in (1..).zip(PANELS) {
        let (width, height) = match panel.kind {
            Kind::Number => (6, 4),
            Kind::Lines => (12, 8),
        };
        if x + width > COLUMNS {
            (x, y) = (0, y + row_height);
        }
        panels.push(grafana_panel(id, panel, &json!({"x": x, "y": y, "w": width, "h": height})));
        (x, row_height) = (x + width, height);
    }
    let whole = json!({
        "uid": "thalweg",
        "title": "Thalweg",
        "schemaVersion": 39,
        "editable": true,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "panels": panels,
    });
    // A tree of our own always has a text.
    format!("{whole:#}\n")
}

fn grafana_panel(id: usize, panel: &Panel, place: &Value) -> Value {
    let source = json!({"type": "prometheus", "uid": "prometheus"});
    let targets = ('A'..).zip(panel.lines).map(|(name, (expression, legend))| {
        json!({"refId": name.to_string(), "expr": expression, "legendFormat": legend, "datasource": source})
    });
    json!({
        "id": id,
        "type": match panel.kind { Kind::Number => "stat", Kind::Lines => "timeseries" },
        "title": panel.title,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets.collect::<Vec<_>>(),
    })
}

fn alerts() -> String {
    let mut text =
        "# Written by `thalweg generate prometheus-alerts`.\ngroups:\n  - name: thalweg\n    rules:\n".to_owned();
    for Alert { name, expression, lasting, severity, summary, remedy } in ALERTS {
        // JSON strings are YAML strings.
        let quoted = |text: &str| Value::from(text).to_string();
        text += &format!(
            "      - alert: {name}\n        expr: {}\n        for: {lasting}\n        labels: {{severity: {severity}}}\n        \
             annotations:\n          summary: {}\n          remedy: {}\n",
            quoted(expression),
            quoted(summary),
            quoted(remedy),
        );
    }
    text
}

/// How wide Grafana's grid is.
const COLUMNS: i32 = 24;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_files_of_deploy_are_what_this_version_generates() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring");
        for (name, text, verb) in
            [("dashboard.json", dashboard(), "grafana-dashboard"), ("alerts.yaml", alerts(), "prometheus-alerts")]
        {
            let path = folder.join(name);
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(stored == text, "write it anew: thalweg generate {verb} >deploy/monitoring/{name}");
        }
    }

    #[test]
    fn panels_do_not_overlap_and_stay_in_the_grid() {
        let whole: Value = serde_json::from_str(&dashboard()).unwrap();
        let mut taken = std::collections::BTreeSet::new();
        for panel in whole["panels"].as_array().unwrap() {
            let at = |name: &str| panel["gridPos"][name].as_i64().unwrap();
            assert!(at("x") + at("w") <= i64::from(COLUMNS), "{panel}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{panel}");
                }
            }
        }
    }
}

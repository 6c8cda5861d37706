//! JSON values as YAML: block style, so that people can read it and every YAML parser can too.

use serde_json::Value;

/// The value as one YAML document, ending in a newline.
pub fn render(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Array(items) if !items.is_empty() => push_items(&mut text, items, 0),
        Value::Object(fields) if !fields.is_empty() => push_fields(&mut text, fields, 0),
        scalar => push_scalar(&mut text, scalar),
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn push_items(text: &mut String, items: &[Value], depth: usize) {
    for item in items {
        indent(text, depth);
        match item {
            // The first field stands on the dash's line: same column as the others.
            Value::Object(fields) if !fields.is_empty() => {
                let mut inner = String::new();
                push_fields(&mut inner, fields, depth + 1);
                text.push_str("- ");
                text.push_str(inner.trim_start_matches(' '));
            }
            Value::Array(inner) if !inner.is_empty() => {
                text.push_str("-\n");
                push_items(text, inner, depth + 1);
            }
            scalar => {
                text.push_str("- ");
                push_scalar(text, scalar);
                text.push('\n');
            }
        }
    }
}

fn push_fields(text: &mut String, fields: &serde_json::Map<String, Value>, depth: usize) {
    for (name, value) in fields {
        indent(text, depth);
        push_text(text, name);
        text.push(':');
        match value {
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                push_items(text, items, depth + 1);
            }
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                push_fields(text, inner, depth + 1);
            }
            scalar => {
                text.push(' ');
                push_scalar(text, scalar);
                text.push('\n');
            }
        }
    }
}

fn push_scalar(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => push_text(text, string),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
        Value::Null | Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
    }
}

/// Plain where nothing else could be meant, else in double quotes, whose escapes are JSON's.
fn push_text(text: &mut String, string: &str) {
    let is_word = string.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'));
    let begins_as_word = string.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    // Words that some version of YAML reads as a truth, nothing or a number.
    let special = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    if is_word && begins_as_word && !special.contains(&string.to_ascii_lowercase().as_str()) {
        text.push_str(string);
    } else {
        text.push_str(&Value::String(string.to_owned()).to_string());
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_and_maps_nest_and_doubtful_words_are_quoted() {
        let value = json!([{"a": 1, "b": [true, null], "c": {"d": "no", "e": "a: b"}}, [], {}, "1", "x\ny", ["z"]]);
        // Python's YAML reads this as the same value.
        let expected = "- a: 1\n  b:\n    - true\n    - null\n  c:\n    d: \"no\"\n    e: \"a: b\"\n- []\n- {}\n- \"1\"\n- \"x\\ny\"\n-\n  - z\n";
        assert_eq!(render(&value), expected);
        assert_eq!(render(&json!({"topic": "orders-1.eu"})), "topic: orders-1.eu\n");
        assert_eq!(render(&json!([])), "[]\n");
    }
}

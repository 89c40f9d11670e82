//! The input files of programs in the truth table. They are generated, and the same on every machine.

use serde::Deserialize;

/// What a file contains. The numbers are those of lines, functions or rows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// Lines, each with a number of up to ten digits. The numbers of consecutive lines are unrelated.
    Lines(u32),
    /// Lines of JSON, each an object with a number, a name and a list.
    Json(u32),
    /// Lines of eight words each, from a vocabulary of 4096.
    Words(u32),
    /// Functions in C.
    Functions(u32),
    /// Function templates in C++.
    Templates(u32),
    /// Rows of a table in SQL.
    Sql(u32),
    Text(String),
}

impl Content {
    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let lines = |count: u32, line: &dyn Fn(u32) -> String| (0..count).map(|number| line(number) + "\n").collect();
        let text: String = match self {
            Content::Lines(count) => lines(*count, &|number| scattered(number).to_string()),
            Content::Json(count) => lines(*count, &|number| {
                let value = scattered(number);
                format!("{{\"id\":{number},\"name\":\"n{}\",\"list\":[{value},{}]}}", value % 997, value % 31)
            }),
            Content::Words(count) => lines(*count, &|number| {
                let words = (0..8).map(|word| format!("w{:x}", scattered(number * 8 + word) % 4096));
                words.collect::<Vec<_>>().join(" ")
            }),
            Content::Functions(count) => lines(*count, &|number| {
                let body = "int s = 0; for (int i = 0; i < n; i++) s += a[i] * n; return s;";
                format!("int f{number}(int *a, int n) {{ {body} }}")
            }),
            Content::Templates(count) => {
                let first = "template <class T> struct V { T *a; int n; T sum() const { T s{}; for (int i = 0; i < n; i++) s += a[i]; return s; } };\n";
                let each = |number: u32| {
                    format!(
                        "struct S{number} {{ int v; S{number} &operator+=(const S{number} &o) {{ v += o.v * {number}; return *this; }} }}; int f{number}(S{number} *a, int n) {{ return V<S{number}>{{a, n}}.sum().v; }}"
                    )
                };
                first.to_owned() + &lines(*count, &each)
            }
            Content::Sql(count) => lines(*count, &|number| {
                format!("INSERT INTO t VALUES({number},{},'name {}');", scattered(number) % 10_000, scattered(number))
            }),
            Content::Text(text) => text.clone(),
        };
        text.into_bytes()
    }
}

/// A pseudorandom number (Knuth's multiplicative hash).
fn scattered(number: u32) -> u32 {
    number.wrapping_mul(2_654_435_761)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_the_requested_lines_and_is_reproducible() {
        for content in [Content::Lines(9), Content::Json(9), Content::Words(9), Content::Functions(9), Content::Sql(9)]
        {
            let bytes = content.bytes();
            assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 9, "{content:?}");
            assert_eq!(bytes, content.bytes());
        }
        assert_eq!(Content::Text("a".into()).bytes(), b"a");
    }
}

//! Parses names of page-table formats ([`FormatName`]), and suggests the nearest name for an unknown one.

use paging::format::named::{FAMILIES, NameError, Named};
use policy::similar::nearest;

/// A format and the name that was given for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatName {
    /// The name, in lower case, with its options.
    pub name: String,
    /// The format.
    pub named: Named,
}

/// The name does not denote a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no format of this name.
    #[error(
        "there is no format {text:?}; {}`pagelab list formats` shows all",
        nearest.as_ref().map_or(String::new(), |name| format!("the nearest is {name:?}, "))
    )]
    Unknown {
        text: String,
        /// The name with the smallest edit distance.
        nearest: Option<String>,
    },
    /// The format exists, but does not have that option.
    #[error(transparent)]
    Option(#[from] NameError),
}

pub fn parse_format(text: &str) -> Result<FormatName, FormatError> {
    let name = text.to_ascii_lowercase();
    match text.parse::<Named>() {
        Ok(named) => Ok(FormatName { name, named }),
        Err(NameError::Unknown { .. }) => {
            let base = name.split('+').next().unwrap_or_default();
            Err(FormatError::Unknown {
                text: text.to_owned(),
                nearest: nearest(base, &base_names()).map(str::to_owned),
            })
        }
        Err(error @ NameError::Option { .. }) => Err(error.into()),
    }
}

/// All format names without options.
pub fn base_names() -> Vec<String> {
    let granules = ["4k", "16k", "64k"];
    let stage1 = granules.iter().flat_map(|granule| [39, 42, 47, 48, 52].map(|bits| format!("arm64-{granule}-{bits}")));
    let stage2 = granules.iter().flat_map(|granule| (32..=48).map(move |bits| format!("arm64-s2-{granule}-{bits}")));
    let rest = ["sv39", "sv48", "sv57", "sv39x4", "sv48x4", "sv57x4", "sv39-64k", "sv48-64k", "sv57-64k"];
    let x86 = ["x86-64", "x86-64-la57"].map(String::from);
    x86.into_iter().chain(stage1).chain(stage2).chain(rest.map(String::from)).collect()
}

/// Help text that lists the format names.
pub fn help() -> String {
    let families = FAMILIES.map(|family| format!("  {}: {}; options {}", family.names, family.what, family.options));
    let families = families.map(|line| results::fold(&line, 98, 4));
    let first = "Formats (`pagelab list formats` shows each); options follow, each after a +, as in x86-64+phys46:";
    format!("{first}\n{}", families.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_a_format() {
        for name in base_names() {
            assert_eq!(parse_format(&name).map(|format| format.name), Ok(name.clone()));
        }
    }

    #[test]
    fn a_typing_error_names_the_nearest() {
        for (text, nearest) in [
            ("x86_64", "x86-64"),
            ("arm64-4k-53", "arm64-4k-52"),
            ("sv39x2", "sv39x4"),
            ("SV93", "sv39"),
            ("arm64-s2-8k-40", "arm64-s2-4k-40"),
        ] {
            let message = parse_format(text).unwrap_err().to_string();
            assert!(message.contains(&format!("nearest is {nearest:?}")), "{message}");
        }
        assert!(parse_format("x86-64+nx").unwrap_err().to_string().contains("no-nx"));
        let message = parse_format("z80").unwrap_err().to_string();
        assert_eq!(message, "there is no format \"z80\"; `pagelab list formats` shows all");
    }
}

//! Finds paths among the tokens of macros. How a macro expands is known only to the compiler.

use proc_macro2::{Spacing, TokenStream, TokenTree};

use super::{Mention, Segments};

/// The paths among the tokens of a macro or an attribute, including those in groups.
pub fn paths(tokens: &TokenStream) -> Vec<Mention> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut length = 1;
        match &tokens[at] {
            TokenTree::Group(group) => found.extend(paths(&group.stream())),
            TokenTree::Ident(first) if begins_path(&tokens[..at], first == "crate") => {
                let path = path_of(&tokens[at..]);
                length = path.len() * 3 - 2;
                found.push(Mention { path, line: first.span().start().line });
            }
            _ => {}
        }
        at += length;
    }
    found
}

/// Whether an identifier that follows these tokens starts a path. It does not if it is a field, method, lifetime or
/// macro variable.
fn begins_path(before: &[TokenTree], is_crate: bool) -> bool {
    let mark = |token: Option<&TokenTree>| match token {
        Some(TokenTree::Punct(mark)) => Some(mark.as_char()),
        _ => None,
    };
    let last = mark(before.last());
    let before_last = mark(before.len().checked_sub(2).map(|at| &before[at]));
    match (before_last, last) {
        (Some('.'), Some('.')) => true,
        (Some(':'), Some(':')) | (_, Some('.' | '\'')) => false,
        (_, Some('$')) => is_crate,
        _ => true,
    }
}

/// The path at the start of the tokens.
fn path_of(tokens: &[TokenTree]) -> Segments {
    let mut path = Segments::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(segment)) = tokens.get(at) {
        path.push(segment.to_string());
        let colons = matches!(
            (tokens.get(at + 1), tokens.get(at + 2)),
            (Some(TokenTree::Punct(one)), Some(TokenTree::Punct(two)))
                if one.as_char() == ':' && one.spacing() == Spacing::Joint && two.as_char() == ':'
        );
        if !colons {
            break;
        }
        at += 3;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_methods_lifetimes_and_variables_of_macros_are_no_paths() {
        for (source, expected) in [
            ("crate::a::b(x.c.d(), 0..E)", "crate::a::b x E"),
            ("[a::<b::C>::d; 2]", "a b::C"),
            ("&'a T, $b, $crate::c", "T crate::c"),
            ("a: b, {c}", "a b c"),
        ] {
            let found: Vec<String> = paths(&source.parse().unwrap()).iter().map(|one| one.path.join("::")).collect();
            assert_eq!(found.join(" "), expected, "{source}");
        }
    }
}

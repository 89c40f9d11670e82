//! The programs that unpacking and building need.

use crate::test::packages::is_in_path;

/// Checks that a program is installed.
///
/// # Errors
/// It is not installed; the message names its package.
pub fn needs(tool: &str, package: &str) -> Result<(), String> {
    if is_in_path(tool) { Ok(()) } else { Err(format!("needs {tool}; apt-get install {package}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        assert_eq!(needs("sh", "dash"), Ok(()));
        assert_eq!(
            needs("no-such-program", "a-package").unwrap_err(),
            "needs no-such-program; apt-get install a-package"
        );
    }
}

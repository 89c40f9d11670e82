//! Arguments of `compare` about kernels that it boots.

use std::path::PathBuf;

use clap::Args;

use crate::words::{parse_duration, parse_size};

/// Kernels to boot, and how.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Other kernels")]
pub struct Guests {
    /// Measure in guests that QEMU boots with this kernel, under all policies; repeat it for several kernels, which are compared
    /// with the first. With KVM where that works, else emulated by TCG, and no times are reported. The guest uses this host's files; what it
    /// writes is discarded. Modules are taken from lib/modules/RELEASE above the image, or from the tree in which the kernel was built
    #[arg(long = "kernel", value_name = "[NAME=]IMAGE", value_parser = parse_kernel, conflicts_with_all = ["arm_of_boot", "csv"])]
    pub kernels: Vec<NamedImage>,
    /// More words for the kernel's command line: once for all kernels, or once for each --kernel, in the same order
    #[arg(long, value_name = "WORDS", requires = "kernels", allow_hyphen_values = true)]
    pub cmdline: Vec<String>,
    /// Memory of a guest; default: 4G
    #[arg(long, value_name = "SIZE", requires = "kernels", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// The root directory of another system, which a guest uses in place of this host's files, for example one for the
    /// architecture of the kernels. It needs a static pagelab in usr/bin. The command runs as root
    #[arg(long, value_name = "DIR", requires = "kernels")]
    pub sysroot: Option<PathBuf>,
    /// Emulate one processor and count its instructions: they become the metric that decides
    #[arg(long, requires = "kernels")]
    pub icount: bool,
    /// The number of boots of each kernel, which take turns. A boot is one observation: the median of its blocks, for which --blocks 2
    /// is enough where instructions are counted. --max-time limits the trials of each boot, not all boots together. Default: the
    /// fewest that can show a difference, four for two kernels
    #[arg(long, value_name = "N", requires = "kernels", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub boots: Option<u32>,
    /// End a guest that takes longer by this host's clock, booting included, and keep its console log next to the store. Default: 1h
    #[arg(long, value_name = "TIME", requires = "kernels", value_parser = parse_duration)]
    pub guest_time: Option<f64>,
    /// Print plain text in 72 columns instead of the tables, for kernel mailing lists
    #[arg(long, requires = "kernels", conflicts_with = "json")]
    pub mail: bool,
}

/// A kernel image as given to --kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedImage {
    /// The kernel's name in the tables; `None` means its release.
    pub name: Option<String>,
    /// The image file.
    pub image: PathBuf,
}

/// A name that cannot be part of a kernel's command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected IMAGE or NAME=IMAGE with a name without spaces, quotes and /, found the name {0:?}")]
pub struct NameError(String);

/// Parses `IMAGE` or `NAME=IMAGE`. The part before the first `=` is a name unless it contains a `/`.
pub fn parse_kernel(text: &str) -> Result<NamedImage, NameError> {
    match text.split_once('=').filter(|(name, _)| !name.contains('/')) {
        Some((name, _)) if !study::guest::is_name(name) => Err(NameError(name.to_owned())),
        Some((name, image)) => Ok(NamedImage { name: Some(name.to_owned()), image: image.into() }),
        None => Ok(NamedImage { name: None, image: text.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_may_have_a_name_and_a_path_with_an_equals_sign() {
        let parsed = |text| parse_kernel(text).map(|named| (named.name, named.image.display().to_string()));
        assert_eq!(parsed("old=/boot/a=b"), Ok((Some("old".into()), "/boot/a=b".into())));
        assert_eq!(parsed("/boot/a=b"), Ok((None, "/boot/a=b".into())));
        assert_eq!(parsed("bzImage"), Ok((None, "bzImage".into())));
        assert_eq!(parsed("my kernel=x"), Err(NameError("my kernel".into())));
    }
}

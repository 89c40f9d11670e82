//! Formats by name, for command lines and files: `x86-64`, `arm64-16k-47`, `arm64-s2-4k-40`, `sv48x4+svnapot`,
//! `sv39-64k`.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use thiserror::Error as ThisError;

use super::BreakLevel;
use super::arm64_shape::{Granule, is_physical_bits};
use super::arm64_stage1::Arm64Stage1;
use super::arm64_stage2::Arm64Stage2;
use super::riscv::{RiscV, Stage};
use super::software_64k::Software64K;
use super::x86_64::X86_64;
use crate::extension::Extension;

/// A format selected by name. [`with_format!`](crate::with_format) gives access to the format itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The format x86-64.
    X86_64(X86_64),
    /// The format of arm64 stage 1.
    Arm64Stage1(Arm64Stage1),
    /// The format of arm64 stage 2.
    Arm64Stage2(Arm64Stage2),
    /// The format of RISC-V, either stage.
    RiscV(RiscV),
    /// 64K software pages on RISC-V.
    Software64K(Software64K),
}

/// Evaluates an expression with the format of a [`Named`], whose type differs by variant.
#[macro_export]
macro_rules! with_format {
    ($named:expr, $format:ident => $body:expr) => {
        match $named {
            $crate::format::named::Named::X86_64($format) => $body,
            $crate::format::named::Named::Arm64Stage1($format) => $body,
            $crate::format::named::Named::Arm64Stage2($format) => $body,
            $crate::format::named::Named::RiscV($format) => $body,
            $crate::format::named::Named::Software64K($format) => $body,
        }
    };
}

/// A family of format names, for help and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The pattern of its names.
    pub names: &'static str,
    /// The options, each of which follows a `+`.
    pub options: &'static str,
    /// A description of the formats.
    pub what: &'static str,
}

/// All families of formats.
pub const FAMILIES: [Family; 5] = [
    Family {
        names: "x86-64, x86-64-la57",
        options: "physBITS (32 to 52), no-1g, no-nx, no-keys",
        what: "4-level and 5-level paging",
    },
    Family {
        names: "arm64-GRANULE-BITS",
        options: "physBITS (32, 36, 40, 42, 44, 48 or 52), upper, dbm, poe, bbm1, bbm2",
        what: "stage 1; granule 4k, 16k or 64k; 39, 42, 47, 48 or 52 bits",
    },
    Family {
        names: "arm64-s2-GRANULE-BITS",
        options: "physBITS (as stage 1, and no fewer than of IPA), dbm, no-xnx, bbm1, bbm2",
        what: "stage 2 with KVM's concatenated roots; 32 to 48 bits of IPA",
    },
    Family {
        names: "sv39, sv48, sv57, sv39x4, sv48x4, sv57x4",
        options: "physBITS (32 to 56), svnapot, svpbmt",
        what: "RISC-V, and its guest stages",
    },
    Family {
        names: "sv39-64k, sv48-64k, sv57-64k",
        options: "physBITS (32 to 56), svnapot",
        what: "64K software pages on a 4K RISC-V MMU",
    },
];

/// Why a name is not a format.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum NameError {
    /// There is no such format.
    #[error("{name:?} is not a page-table format; expected {}", self.expected())]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The format does not have this option.
    #[error("the format {format:?} has no option {option:?}; expected {options}")]
    Option {
        /// The option that was given, without the `+`.
        option: String,
        /// The format's name.
        format: String,
        /// The options that the format has.
        options: &'static str,
    },
}

impl NameError {
    /// The expected names or options, for messages that state what was found and where.
    pub fn expected(&self) -> String {
        match self {
            NameError::Unknown { .. } => FAMILIES.map(|family| family.names).join(", "),
            NameError::Option { option, format, options } => {
                alloc::format!("an option of {format:?} in place of {option:?}: {options}")
            }
        }
    }
}

impl FromStr for Named {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Named, NameError> {
        let lower = text.to_ascii_lowercase();
        let mut parts = lower.split('+');
        let base = parts.next().unwrap_or_default();
        let (named, family) = base_of(base).ok_or_else(|| NameError::Unknown { name: String::from(text) })?;
        parts.try_fold(named, |named, option| {
            let refused = || NameError::Option {
                option: String::from(option),
                format: String::from(base),
                options: family.options,
            };
            named.with_option(option).ok_or_else(refused)
        })
    }
}

fn base_of(name: &str) -> Option<(Named, &'static Family)> {
    let [x86, stage1, stage2, riscv, software] = &FAMILIES;
    if let Some(levels) = [("x86-64", 4), ("x86-64-la57", 5)].iter().find(|(known, _)| *known == name) {
        return Some((Named::X86_64(X86_64::new(levels.1, 52)), x86));
    }
    if let Some(rest) = name.strip_prefix("arm64-s2-") {
        let (granule, bits) = granule_and_bits(rest)?;
        return (32..=48).contains(&bits).then(|| (Named::Arm64Stage2(Arm64Stage2::new(granule, bits)), stage2));
    }
    if let Some(rest) = name.strip_prefix("arm64-") {
        let (granule, bits) = granule_and_bits(rest)?;
        return [39, 42, 47, 48, 52]
            .contains(&bits)
            .then(|| (Named::Arm64Stage1(Arm64Stage1::new(granule, bits)), stage1));
    }
    let (levels, rest) = [("sv39", 3), ("sv48", 4), ("sv57", 5)]
        .iter()
        .find_map(|(known, levels)| Some((*levels, name.strip_prefix(known)?)))?;
    match rest {
        "" => Some((Named::RiscV(RiscV::new(levels, Stage::Supervisor)), riscv)),
        "x4" => Some((Named::RiscV(RiscV::new(levels, Stage::Guest)), riscv)),
        "-64k" => Some((Named::Software64K(Software64K::new(levels, false)), software)),
        _ => None,
    }
}

fn granule_and_bits(text: &str) -> Option<(Granule, u8)> {
    let (granule, bits) = text.split_once('-')?;
    let granule = match granule {
        "4k" => Granule::K4,
        "16k" => Granule::K16,
        "64k" => Granule::K64,
        _ => return None,
    };
    Some((granule, bits.parse().ok()?))
}

impl Named {
    fn with_option(self, option: &str) -> Option<Named> {
        match self {
            Named::X86_64(format) => x86_option(format, option).map(Named::X86_64),
            Named::Arm64Stage1(format) => stage1_option(format, option).map(Named::Arm64Stage1),
            Named::Arm64Stage2(format) => stage2_option(format, option).map(Named::Arm64Stage2),
            Named::RiscV(format) => riscv_option(format, option).map(Named::RiscV),
            Named::Software64K(format) => software_64k_option(format, option).map(Named::Software64K),
        }
    }
}

fn x86_option(mut format: X86_64, option: &str) -> Option<X86_64> {
    match option {
        "no-1g" => format.gigabyte_leaves = false,
        "no-nx" => format.execute_disable = false,
        "no-keys" => format.keys = false,
        _ => format = format.with_physical_bits(physical_bits(option).filter(|bits| (32..=52).contains(bits))?),
    }
    Some(format)
}

fn riscv_option(format: RiscV, option: &str) -> Option<RiscV> {
    Some(match option {
        "svnapot" => format.with_napot(),
        "svpbmt" => format.with_memory_types(),
        _ => format.with_physical_bits(physical_bits(option).filter(|bits| (32..=56).contains(bits))?),
    })
}

fn software_64k_option(format: Software64K, option: &str) -> Option<Software64K> {
    Some(match option {
        "svnapot" => format.with_napot(),
        _ => format.with_physical_bits(physical_bits(option).filter(|bits| (32..=56).contains(bits))?),
    })
}

/// Parses the number in an option such as `phys46`.
fn physical_bits(option: &str) -> Option<u8> {
    option.strip_prefix("phys")?.parse().ok()
}

fn stage1_option(mut format: Arm64Stage1, option: &str) -> Option<Arm64Stage1> {
    match option {
        "upper" => format = format.with_extension(Extension::Ones),
        "dbm" => format = format.with_hardware_dirty(),
        "poe" => format = format.with_overlay(),
        _ => match physical_bits(option) {
            Some(bits) if is_physical_bits(bits) => format = format.with_physical_bits(bits),
            _ => format = format.with_break_level(break_level(option)?),
        },
    }
    Some(format)
}

fn stage2_option(mut format: Arm64Stage2, option: &str) -> Option<Arm64Stage2> {
    match option {
        "dbm" => format = format.with_hardware_dirty(),
        "no-xnx" => format = format.without_xnx(),
        _ => match physical_bits(option) {
            Some(bits) if is_physical_bits(bits) && bits >= crate::Format::geometry(&format).input_bits() => {
                format = format.with_physical_bits(bits);
            }
            _ => format = format.with_break_level(break_level(option)?),
        },
    }
    Some(format)
}

fn break_level(option: &str) -> Option<BreakLevel> {
    match option {
        "bbm0" => Some(BreakLevel::Zero),
        "bbm1" => Some(BreakLevel::One),
        "bbm2" => Some(BreakLevel::Two),
        _ => None,
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_format!(self, format => f.write_str(crate::Format::name(format)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use alloc::string::ToString;

    #[test]
    fn parses_every_documented_name() {
        for name in
            ["x86-64", "x86-64-la57", "sv39", "sv48x4", "sv57-64k", "SV39+SvNapot+svpbmt", "arm64-4k-48+bbm2+dbm"]
        {
            assert!(name.parse::<Named>().is_ok(), "{name}");
        }
        for granule in ["4k", "16k", "64k"] {
            for bits in [39, 42, 47, 48, 52] {
                let named: Named = alloc::format!("arm64-{granule}-{bits}").parse().unwrap();
                with_format!(named, format => assert_eq!(format.geometry().input_bits(), bits));
            }
            for bits in 32..=48 {
                let named: Named = alloc::format!("arm64-s2-{granule}-{bits}").parse().unwrap();
                with_format!(named, format => assert_eq!(format.geometry().input_bits(), bits));
            }
        }
        let named: Named = "x86-64+phys39+no-1g".parse().unwrap();
        with_format!(named, format => assert_eq!((format.geometry().output_bits(), format.has_leaf(2)), (39, false)));
        for (name, bits) in [
            ("arm64-4k-52", 52),
            ("arm64-4k-48", 48),
            ("arm64-64k-48+phys52+bbm2", 52),
            ("arm64-64k-52+phys48", 48),
            ("arm64-s2-16k-40+phys40", 40),
            ("sv39+phys40+svnapot", 40),
            ("sv57-64k+svnapot+phys50", 50),
        ] {
            let named: Named = name.parse().unwrap();
            with_format!(named, format => assert_eq!(format.geometry().output_bits(), bits, "{name}"));
        }
    }

    #[test]
    fn refuses_other_names_and_lists_the_expected_ones() {
        for name in
            ["", "x86", "arm64-4k-40", "arm64-8k-48", "arm64-s2-4k-49", "sv39x2", "sv64", "arm64-4k-", "+svnapot"]
        {
            let message = name.parse::<Named>().unwrap_err().to_string();
            assert!(
                message.contains("arm64-GRANULE-BITS") && message.contains(&alloc::format!("{name:?}")),
                "{message}"
            );
        }
        for (name, option) in [
            ("x86-64+svnapot", "svnapot"),
            ("sv39+", ""),
            ("x86-64+phys99", "phys99"),
            ("sv39-64k+svpbmt", "svpbmt"),
            ("arm64-4k-48+phys41", "phys41"),
            ("arm64-s2-4k-42+phys40", "phys40"),
            ("sv39+phys57", "phys57"),
            ("sv39+phys", "phys"),
        ] {
            let message = name.parse::<Named>().unwrap_err().to_string();
            assert!(message.contains("expected") && message.contains(&alloc::format!("{option:?}")), "{message}");
        }
    }
}

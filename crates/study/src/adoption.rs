//! How a program itself supports or prevents a permanent policy: its own switches, and its calls that conflict with the policy.

use policy::verdict::AnsweredCall;
use policy::{Granularity, Modifier, Policy};

/// What a switch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Stops the program from disabling transparent pages for itself. It does not request them.
    LeavesThpOn,
    /// The program itself requests transparent pages of PMD size.
    AsksForThp,
    /// The program itself requests pages of the hugetlb pool.
    AsksForHugetlb,
}

/// A program's own option for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    programs: &'static [&'static str],
    purpose: Purpose,
    options: &'static str,
    /// What the option does, and where else it can be set.
    pub what: &'static str,
}

/// Known switches, each with the manual that describes it.
const SWITCHES: [Switch; 4] = [
    // redis.conf of Redis 6.2 and valkey.conf: `disable-thp yes` is the default, and takes effect if sysfs says `always`.
    Switch {
        programs: &["redis-server", "valkey-server"],
        purpose: Purpose::LeavesThpOn,
        options: "--disable-thp no",
        what: "its own switch, or `disable-thp no` in its configuration file (since Redis 6.2): otherwise it turns \
               transparent pages off for itself",
    },
    // java(1): "Enables the use of large pages without requiring ... hugetlbfs"; takes effect with `madvise` and `always`.
    Switch {
        programs: &["java"],
        purpose: Purpose::AsksForThp,
        options: "-XX:+UseTransparentHugePages",
        what: "its own switch: the heap asks for them",
    },
    // java(1), -XX:+UseLargePages.
    Switch {
        programs: &["java"],
        purpose: Purpose::AsksForHugetlb,
        options: "-XX:+UseLargePages",
        what: "its own switch: the heap comes from the pool",
    },
    // MySQL manual, Enabling Large Page Support; MariaDB, large_pages.
    Switch {
        programs: &["mysqld", "mariadbd"],
        purpose: Purpose::AsksForHugetlb,
        options: "--large-pages",
        what: "its own switch, or `large-pages` in its configuration file: the buffer pool comes from the hugetlb pool",
    },
];

/// The calls that disable transparent pages, as a prefix of [`AnsweredCall::call`].
const TURNED_OFF: &str = "prctl(PR_SET_THP_DISABLE, 1";
const ADVISED_AGAINST: &str = "madvise(MADV_NOHUGEPAGE";
/// The call on which [`Granularity::Base`] relies, and with which a program undoes it.
const THP_SETTING: &str = "prctl(PR_SET_THP_DISABLE";

impl Switch {
    /// The switch of the command's program for this policy, if one is known, and the program's name.
    pub fn of(command: &[String], policy: &Policy) -> Option<(Switch, String)> {
        if policy.has(Modifier::NoHuge) {
            return None;
        }
        let purposes: &[Purpose] = match policy.granularity {
            Granularity::Thp => &[Purpose::LeavesThpOn, Purpose::AsksForThp],
            Granularity::Mthp(_) => &[Purpose::LeavesThpOn],
            Granularity::Hugetlb(_) => &[Purpose::AsksForHugetlb],
            Granularity::Default | Granularity::Base | Granularity::DirectMap(_) => return None,
        };
        // The program may follow other commands (numactl, taskset), or be part of a shell script.
        let words = command.iter().flat_map(|word| word.split_whitespace());
        let names = words.map(|word| word.rsplit_once('/').map_or(word, |(_, name)| name));
        let mut found = names.filter_map(|name| {
            let is_its = |switch: &&Switch| switch.programs.contains(&name) && purposes.contains(&switch.purpose);
            SWITCHES.iter().find(is_its).map(|switch| (*switch, name.to_owned()))
        });
        found.next()
    }

    /// The option for the program's command line.
    pub fn options(&self) -> &'static str {
        self.options
    }

    /// Whether the program requests the pages itself, so that a system suffices that gives them only on request.
    pub fn asks(&self) -> bool {
        self.purpose != Purpose::LeavesThpOn
    }

    /// Whether the program no longer makes this call when started with the switch.
    fn ends(&self, call: &str) -> bool {
        self.purpose == Purpose::LeavesThpOn && call.starts_with(TURNED_OFF)
    }
}

/// Why a policy that held under pagelab requires changing the program: it makes a call that pagelab answered in the
/// kernel's place, and that nothing outside the program prevents. One clause, without the policy's name.
pub fn obstacle(command: &[String], policy: &Policy, answered: &[AnsweredCall]) -> Option<String> {
    let switch = Switch::of(command, policy).map(|(switch, _)| switch);
    let stands = |one: &&AnsweredCall| {
        let call = one.call.as_str();
        match policy.granularity {
            _ if policy.has(Modifier::NoHuge) => false,
            Granularity::Mthp(_) | Granularity::Thp => {
                (call.starts_with(TURNED_OFF) || call.starts_with(ADVISED_AGAINST))
                    && !switch.is_some_and(|switch| switch.ends(call))
            }
            Granularity::Base => call.starts_with(THP_SETTING),
            Granularity::Default | Granularity::Hugetlb(_) | Granularity::DirectMap(_) => false,
        }
    };
    let call = &answered.iter().find(stands)?.call;
    Some(match policy.granularity {
        Granularity::Base => format!(
            "the program undoes it itself ({call}, which pagelab answered): a setting for every program holds against that, \
             one for this program does not"
        ),
        _ if call.starts_with(ADVISED_AGAINST) => format!(
            "it cannot be had without changing the program, which advises against it ({call}, which pagelab answered)"
        ),
        _ => format!(
            "it cannot be had without changing the program, which turns it off for itself ({call}, which pagelab answered)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    fn answered(call: &str) -> Vec<AnsweredCall> {
        vec![AnsweredCall { call: call.into(), times: 1 }]
    }

    #[test]
    fn a_program_that_turns_pages_off_is_in_the_way_unless_it_has_a_switch() {
        let off = answered("prctl(PR_SET_THP_DISABLE, 1)");
        let thp: Policy = "thp".parse().unwrap();
        assert_eq!(obstacle(&words("/usr/bin/redis-server --save x"), &thp, &off), None);
        assert!(obstacle(&words("./table"), &thp, &off).unwrap().contains("without changing the program"));
        assert!(
            obstacle(&words("java -jar x"), &thp, &off).is_some(),
            "its switch asks, and does not prevent the call"
        );
        assert!(obstacle(&words("redis-server"), &thp, &answered("madvise(MADV_NOHUGEPAGE)")).is_some());
        for policy in ["hugetlb-2m", "default", "thp+no-huge"] {
            assert_eq!(obstacle(&words("./table"), &policy.parse().unwrap(), &off), None, "{policy}");
        }
        assert_eq!(obstacle(&words("./table"), &thp, &answered("madvise(MADV_GUARD_INSTALL)")), None);
        let undone = answered("prctl(PR_SET_THP_DISABLE, 0)");
        assert!(obstacle(&words("./table"), &"base".parse().unwrap(), &undone).unwrap().contains("every program"));
    }

    #[test]
    fn a_switch_is_found_behind_other_programs_and_in_a_shells_text() {
        let of = |command: &[String], policy: &str| {
            Switch::of(command, &policy.parse().unwrap()).map(|(switch, name)| format!("{name} {}", switch.options()))
        };
        let redis = Some("redis-server --disable-thp no".to_owned());
        assert_eq!(of(&words("numactl -N 0 /opt/bin/redis-server x.conf"), "mthp-64k"), redis);
        assert_eq!(of(&["sh".into(), "-c".into(), "exec redis-server --port 0".into()], "thp"), redis);
        assert_eq!(of(&words("redis-server"), "hugetlb-2m"), None);
        assert_eq!(of(&words("redis-benchmark"), "thp"), None);
        assert_eq!(of(&words("java -jar x"), "hugetlb-2m").as_deref(), Some("java -XX:+UseLargePages"));
        assert_eq!(of(&words("java -jar x"), "base"), None);
    }
}

//! [`Knob`]s, the switches of programs for large pages, one row each: what memory they reach, what they give it, and where
//! this is documented.
//!
//! The rows of glibc, jemalloc, CPython, Redis and Java were executed on a running kernel (`crates/pagelab/tests/inspect`); the
//! others are from documentation. Switches that exist but had no effect in these runs are left out: jemalloc's `hpa:true`, every
//! setting of Debian's tcmalloc, Go's and Node's own for their heaps.

use super::change::Change;
use super::runtime::Runtime;
use crate::inspect::Kind;

/// What a switch gives the memory that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobEffect {
    /// Advice (MADV_HUGEPAGE) before the first touch, in steps of whole slots.
    Advice,
    /// Growth in larger steps only, so that `always` takes effect.
    LargeSteps,
    /// Pages of a hugetlb pool.
    Pool {
        /// Bytes that it takes from the pool in addition to the region.
        extra_bytes: u64,
    },
    /// The program no longer calls PR_SET_THP_DISABLE.
    NoPrctl,
}

/// Memory that a switch reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All memory of the region.
    All,
    /// Memory that malloc mapped. Whether malloc mapped a region without a name is not visible.
    IfFromMalloc,
    /// The buffer pool, which is not distinguishable from other memory without a name.
    IfBufferPool,
}

impl KnobEffect {
    /// What it gives, in words.
    pub fn describe(self) -> &'static str {
        match self {
            KnobEffect::Advice => "advice (MADV_HUGEPAGE) from the start",
            KnobEffect::LargeSteps => "growth in large steps, for `always`",
            KnobEffect::Pool { .. } => "pages of the pool",
            KnobEffect::NoPrctl => "no PR_SET_THP_DISABLE, for `always`",
        }
    }
}

impl Reach {
    /// The condition in words; `None` without one.
    pub fn describe(self) -> Option<&'static str> {
        match self {
            Reach::All => None,
            Reach::IfFromMalloc => Some("if malloc made it"),
            Reach::IfBufferPool => Some("if it is the buffer pool"),
        }
    }
}

/// A switch of a program.
pub struct Knob {
    /// The program or library that has it.
    pub runtime: Runtime,
    /// What it gives.
    pub effect: KnobEffect,
    /// The regions that it reaches, by the labels of their kinds.
    pub reaches: &'static [(&'static str, Reach)],
    /// How it is set.
    pub how: How,
    /// The first version that has it, and its documentation.
    pub source: &'static str,
}

/// How a switch is set.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Environment variables with their values.
    Environment(&'static [(&'static str, &'static str)]),
    /// The name of the program and arguments for it.
    Arguments(&'static str, &'static [&'static str]),
    /// No switch: the program uses the pool by default, and base pages if the pool has none. The text is its setting with the
    /// default.
    ByDefault(&'static str),
}

/// The label that matches every kind.
const ANY: &str = "";

/// All switches; those of one program in the order in which to try them.
pub const KNOBS: &[Knob] = &[
    Knob {
        runtime: Runtime::Glibc,
        effect: KnobEffect::Advice,
        reaches: &[("heap", Reach::All), ("anonymous", Reach::IfFromMalloc)],
        how: How::Environment(&[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")]),
        source: "glibc 2.35; manual, Memory Allocation Tunables",
    },
    Knob {
        runtime: Runtime::Glibc,
        effect: KnobEffect::LargeSteps,
        reaches: &[("heap", Reach::All), ("glibc_arena", Reach::All)],
        how: How::Environment(&[("GLIBC_TUNABLES", "glibc.malloc.top_pad=67108864")]),
        source: "glibc 2.26; manual, Memory Allocation Tunables",
    },
    // glibc 2.36 does not advise the arenas of threads. With at most one arena, threads have none of their own.
    Knob {
        runtime: Runtime::Glibc,
        effect: KnobEffect::Advice,
        reaches: &[("glibc_arena", Reach::All)],
        how: How::Environment(&[("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1")]),
        source: "glibc 2.35; manual, Memory Allocation Tunables",
    },
    // If the pool is empty, malloc silently falls back. Each allocation above its mmap threshold takes whole hugetlb pages.
    Knob {
        runtime: Runtime::Glibc,
        effect: KnobEffect::Pool { extra_bytes: 4 << 20 },
        reaches: &[("heap", Reach::All), ("glibc_arena", Reach::All), ("anonymous", Reach::IfFromMalloc)],
        how: How::Environment(&[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")]),
        source: "glibc 2.35; manual, Memory Allocation Tunables",
    },
    Knob {
        runtime: Runtime::CPython,
        effect: KnobEffect::Advice,
        reaches: &[("anonymous", Reach::IfFromMalloc)],
        how: How::Environment(&[("PYTHONMALLOC", "malloc"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")]),
        source: "CPython 3.6; Command line and environment, PYTHONMALLOC",
    },
    Knob {
        runtime: Runtime::Jemalloc,
        effect: KnobEffect::Advice,
        reaches: &[("jemalloc_arena", Reach::All), ("anonymous", Reach::IfFromMalloc)],
        how: How::Environment(&[("MALLOC_CONF", "thp:always")]),
        source: "jemalloc 5.0; jemalloc(3), opt.thp",
    },
    Knob {
        runtime: Runtime::Mimalloc,
        effect: KnobEffect::Pool { extra_bytes: 0 },
        reaches: &[("mimalloc_arena", Reach::All), ("anonymous", Reach::IfFromMalloc)],
        how: How::Environment(&[("MIMALLOC_LARGE_OS_PAGES", "1"), ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1")]),
        source: "mimalloc 1.0, the second name from 2.1 on; Environment Options",
    },
    Knob {
        runtime: Runtime::Jvm,
        effect: KnobEffect::Advice,
        reaches: &[("jvm_heap", Reach::All)],
        how: How::Environment(&[("JAVA_TOOL_OPTIONS", "-XX:+UseTransparentHugePages")]),
        source: "JDK 7; java(1), -XX:+UseTransparentHugePages",
    },
    // The cache of generated code takes 240M of the pool before the heap does, and the bitmaps of the collector take some too.
    Knob {
        runtime: Runtime::Jvm,
        effect: KnobEffect::Pool { extra_bytes: 256 << 20 },
        reaches: &[("jvm_heap", Reach::All)],
        how: How::Environment(&[("JAVA_TOOL_OPTIONS", "-XX:+UseLargePages")]),
        source: "JDK 5; java(1), -XX:+UseLargePages",
    },
    Knob {
        runtime: Runtime::Redis,
        effect: KnobEffect::NoPrctl,
        reaches: &[(ANY, Reach::All)],
        how: How::Arguments("redis-server", &["--disable-thp", "no"]),
        source: "Redis 6.2; redis.conf, disable-thp",
    },
    Knob {
        runtime: Runtime::PostgreSql,
        effect: KnobEffect::Pool { extra_bytes: 0 },
        reaches: &[("shared_memory", Reach::All)],
        how: How::ByDefault("huge_pages = try"),
        source: "PostgreSQL 9.4; huge_pages (try), shared_memory_size_in_huge_pages (15)",
    },
    // The key cache of MyISAM and the page cache of Aria (128M each by default) take pages of the pool before the buffer pool
    // does. InnoDB may round the buffer pool up by 8M. If the pool has too few pages for the buffer pool, that gets none.
    Knob {
        runtime: Runtime::MySql,
        effect: KnobEffect::Pool { extra_bytes: 264 << 20 },
        reaches: &[("anonymous", Reach::IfBufferPool)],
        how: How::Arguments("the server", &["--large-pages"]),
        source: "MariaDB and MySQL 5.x; large_pages",
    },
    Knob {
        runtime: Runtime::Qemu,
        effect: KnobEffect::Pool { extra_bytes: 0 },
        reaches: &[("guest_memory", Reach::All)],
        how: How::Arguments("QEMU", &["-mem-path", "/dev/hugepages"]),
        source: "QEMU; qemu-system(1), -mem-path",
    },
];

impl Knob {
    /// Which part of a region the switch reaches; `None` if it reaches nothing of the region.
    pub fn reach(&self, kind: &Kind) -> Option<Reach> {
        let label = kind.label();
        self.reaches.iter().find(|(reached, _)| *reached == label || *reached == ANY).map(|(_, reach)| *reach)
    }

    /// The changes that set the switch.
    pub fn changes(&self) -> Vec<Change> {
        match self.how {
            How::Environment(variables) => variables
                .iter()
                .map(|(variable, value)| Change::Environment { variable: (*variable).into(), value: (*value).into() })
                .collect(),
            How::Arguments(program, arguments) => vec![Change::Arguments {
                program: program.into(),
                arguments: arguments.iter().map(|word| (*word).into()).collect(),
            }],
            How::ByDefault(setting) => vec![Change::Restart { taken_by: setting.into() }],
        }
    }
}

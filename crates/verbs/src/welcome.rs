//! The output of `pagelab` without arguments.

pub const WELCOME: &str = "\
pagelab finds out which page size a program's memory should be mapped with: what
it gains, what it costs, and why. The program runs unmodified under each policy.

  pagelab demo                        compare page sizes on a built-in workload
  pagelab compare -- sort lines.txt   compare page sizes for a command
  pagelab inspect PID                 say why a program has small pages

pagelab --help lists all commands.";

//! The report of `compare --kernel` ([`ReportContent`]): kernels x policies, in the requested forms.

use policy::machine::Machine;
use results::matrix::{self as shown, HostOf, Report};
use study::comparison::{Comparison, Design, Invocation};
use study::control::Role;
use study::guest::{Clock, NO_STUDY, kernel_of, processor_of};
use study::stats::boots;
use study_files::definition::{Boot, Definition, HOST, Size, Slurm, Stopping, Workload};
use study_files::matrix::kernels;

use super::config;
use crate::failure::Failure;
use crate::output::{print, terminal_width, write_page};
use crate::publish::Forms;

/// What a report contains, and in which forms it is published.
pub struct ReportContent<'a> {
    /// The boots that have a result; the first one is the baseline.
    pub boots: Vec<Boot>,
    /// How often each kernel was to be booted.
    pub planned_boots: u32,
    pub command: String,
    pub forms: &'a Forms,
    /// Whether to print the report as a mail.
    pub mail: bool,
}

impl ReportContent<'_> {
    /// Prints and writes the merged result of the boots.
    pub fn publish(&self, comparisons: &[Comparison]) -> Result<(), Failure> {
        let definition = self.definition(comparisons);
        let host = comparisons.first().map_or(HOST.to_owned(), |one| kernels::place(&processor_of(&one.machine), one));
        let named: Vec<(String, &Comparison)> = comparisons.iter().map(|one| (host.clone(), one)).collect();
        let workloads = [(self.command.as_str(), named)];
        let policies = kernels::of_policies(&definition, &workloads);
        // The run without the tracer gets a row too: the tracer's stops cost instructions, and the number differs
        // between kernels.
        let bare = bare_label(comparisons).into_iter().chain(definition.policies.iter().cloned()).collect();
        let with_bare = Definition { policies: bare, ..definition.clone() };
        let of_kernels = kernels::of_kernels(&with_bare, &workloads);
        let kernels = of_kernels.as_ref().filter(|_| definition.boots.len() > 1);
        let report = |matrix, over_boots| Report {
            definition: &definition,
            matrix,
            over_boots,
            over_variants: &[],
            explained: Vec::new(),
            counted: None,
            series: Vec::new(),
            forms: Vec::new(),
            hosts: self.hosts(comparisons),
            missing: Vec::new(),
            lacking: None,
            kernels_differ: config::differences(&definition.boots),
            command: comparisons.first().map(|one| one.invocation.pagelab.clone()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        // Documents and pages have the same form as those of a study. Text begins with the matrix that has kernels as columns,
        // because the user asks about kernels. A mail has no room for the other matrix.
        let others = Some(&policies).filter(|_| !self.mail);
        let (of_study, kernels_first) = (report(&policies, kernels), kernels.map(|kernels| report(kernels, others)));
        let of_text = kernels_first.as_ref().unwrap_or(&of_study);
        let text = if self.forms.json {
            format!("{:#}", shown::document(&of_study))
        } else if self.mail {
            shown::mail(of_text)
        } else if self.forms.is_full {
            shown::render(of_text, terminal_width())
        } else {
            shown::screen(of_text, terminal_width(), &self.full_command(comparisons))
        };
        print(text.trim_end(), self.forms.json || self.mail)?;
        match &self.forms.html {
            Some(file) => write_page(file, &results::html::matrix::report(&of_study)),
            None => Ok(()),
        }
    }

    /// `pagelab show 1 2 3 4 --full`: the command that shows everything.
    fn full_command(&self, comparisons: &[Comparison]) -> String {
        let numbers = comparisons.iter().map(|one| one.id.to_string()).collect::<Vec<_>>().join(" ");
        format!("pagelab show {numbers} --full{}", self.forms.store_words())
    }

    /// The comparison as a study definition: one workload, with the kernels as boots.
    fn definition(&self, comparisons: &[Comparison]) -> Definition {
        let mut policies: Vec<String> = Vec::new();
        for design in comparisons.iter().map(|one| &one.design) {
            let labels = design.compared().map(|arm| &design.arms[arm].label);
            labels.filter(|label| !policies.contains(label)).cloned().collect::<Vec<_>>().into_iter().for_each(
                |label| {
                    policies.push(label);
                },
            );
        }
        let first = comparisons.first().map(|one| &one.design);
        let first_machine = comparisons.first().map(|one| &one.machine);
        let boots: Vec<String> = self.boots.iter().map(|boot| self.of_boot(&boot.name, comparisons)).collect();
        Definition {
            name: NO_STUDY.to_owned(),
            question: format!(
                "`{}` in guests ({}); {}",
                self.command,
                first_machine.map_or("", accelerator),
                boots.join(", ")
            ),
            size: Size::Standard,
            policies,
            baseline: first.map_or(String::new(), |design| design.arms[design.baseline].label.clone()),
            machines: vec![HOST.to_owned()],
            workloads: vec![Workload { name: self.command.clone(), ..Workload::default() }],
            primary: first.map_or(String::new(), |design| design.primary.clone()),
            model_primary: String::new(),
            band: None,
            seed: first.map(|design| design.seed),
            stopping: Stopping::default(),
            memory_sizes_bytes: Vec::new(),
            published: Vec::new(),
            fragmented: None,
            own_session: first.is_some_and(|design| design.own_session.is_some()),
            explain: first.is_some_and(Design::is_explained),
            form: None,
            counted: None,
            series: Vec::new(),
            boots: self.boots.clone(),
            slurm: Slurm::default(),
        }
    }

    /// `old (6.1.0-56-amd64) in 2 boots`: a kernel, and how often it was booted.
    fn of_boot(&self, name: &str, comparisons: &[Comparison]) -> String {
        let own: Vec<&Comparison> = comparisons.iter().filter(|one| kernel_of(&one.machine) == Some(name)).collect();
        let release =
            own.first().and_then(|one| one.machine.kernel.split(' ').next()).filter(|release| *release != name);
        let name = release.map_or(name.to_owned(), |release| format!("{name} ({release})"));
        let own = own.len() as u32;
        if own < self.planned_boots {
            return format!("{name} in only {own} of {} boots", self.planned_boots);
        }
        format!("{name} in {}", boots::count_of_boots(own))
    }

    /// The machine of each kernel, without duplicates, that of the baseline first.
    fn hosts(&self, comparisons: &[Comparison]) -> Vec<HostOf> {
        let mut hosts: Vec<HostOf> = Vec::new();
        let place = |one: &&Comparison| self.boots.iter().position(|boot| kernel_of(&one.machine) == Some(&boot.name));
        let mut in_order: Vec<&Comparison> = comparisons.iter().collect();
        in_order.sort_by_key(place);
        for comparison in in_order {
            let label = kernels::place(kernel_of(&comparison.machine).unwrap_or_default(), comparison);
            let started = Some(comparison.started_unix_s);
            match hosts.iter_mut().find(|host| host.label == label) {
                Some(host) => host.measured_unix_s = host.measured_unix_s.max(started),
                None => hosts.push(HostOf {
                    label,
                    machine: comparison.machine.clone(),
                    measured_unix_s: started,
                    settings: shown::settings(comparison),
                }),
            }
        }
        hosts
    }
}

/// The label of the run without the tracer, if every comparison has that run.
fn bare_label(comparisons: &[Comparison]) -> Option<String> {
    let label =
        |one: &Comparison| one.design.arms.iter().find(|arm| arm.role == Role::Bare).map(|arm| arm.label.clone());
    let first = comparisons.first().and_then(label)?;
    comparisons.iter().all(|one| label(one).as_ref() == Some(&first)).then_some(first)
}

/// Whether guests ran under KVM or were emulated, in words.
fn accelerator(machine: &Machine) -> &'static str {
    match Clock::of(machine) {
        Clock::Real => "KVM",
        Clock::Nothing => "emulated",
        Clock::Instructions => "emulated, counting instructions",
    }
}

/// The command of a comparison. With a server, the server's command and the client's.
pub fn command_line_of(comparison: &Comparison) -> String {
    let Invocation { command, client, .. } = &comparison.invocation;
    command.iter().chain(client.iter().flatten()).cloned().collect::<Vec<_>>().join(" ")
}

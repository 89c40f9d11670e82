//! Runs the phases of `kvm-dirty-log` in order ([`Phases`]). Records the duration of each phase, the dirty pages in the
//! log, and the leaves afterwards.

use std::time::Duration;

use crate::guest::{Access, Leaves, Machine, RandomWrites};
use census::{CensusError, Observer};
use policy::census::Census;
use workloads::random::mix;

use super::{Arguments, DOING, Mode, Populate};
use crate::table_split::report::median;
use verbs::lab::{WorkloadError, check};

/// The measurements of one phase.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: String,
    /// Name of the phase's figure in the report; `None` for phases of later rounds.
    pub figure: Option<&'static str>,
    /// The duration of the phase in each cycle, in seconds.
    pub walls_s: Vec<f64>,
    /// The number of dirty pages in the log in the last cycle; `None` for phases that do not get the log.
    pub dirty_pages: Option<u64>,
    /// The number of pages that the guest wrote in each cycle; empty unless it chooses them at random.
    pub written_pages: Vec<u64>,
    /// The leaves after the phase in the first cycle, if KVM counts them.
    pub leaves: Option<Leaves>,
    /// Whether the number of leaves above 4K after the phase was different in a later cycle.
    pub leaves_varied: bool,
}

impl Phase {
    /// The median duration of all cycles, in seconds.
    pub fn wall_s(&self) -> f64 {
        median(&self.walls_s)
    }

    fn add(&mut self, wall_s: f64, leaves: Option<Leaves>) {
        self.walls_s.push(wall_s);
        self.leaves_varied |= leaves.map(large_leaves) != self.leaves.map(large_leaves);
    }

    /// The shortest duration of all cycles, in seconds.
    pub fn least_s(&self) -> f64 {
        self.walls_s.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Why it is unknown how this process maps the guest's memory.
#[derive(Debug, thiserror::Error)]
pub enum UnknownMappings {
    #[error("not read yet")]
    NotYet,
    #[error(transparent)]
    Census(#[from] CensusError),
}

/// All phases of one machine.
#[derive(Debug)]
pub struct Phases {
    /// The phases in order.
    pub list: Vec<Phase>,
    /// The number of pages of the guest.
    pub pages: u64,
    /// How this process maps the populated memory, or why that is unknown.
    pub host: Result<Census, UnknownMappings>,
    /// A checksum of the log and the memory, which depends only on the arguments.
    pub checksum: u64,
}

/// The number of leaves above 4K.
fn large_leaves(leaves: Leaves) -> u64 {
    leaves.pages_2m + leaves.pages_1g
}

/// A pass, of the guest or of this process, that wrote `value` to the pages selected by `random_writes`.
struct WritePass {
    value: u64,
    random_writes: RandomWrites,
}

/// A machine while its phases run.
struct Running<'a> {
    machine: Machine,
    arguments: &'a Arguments,
    phases: Phases,
    /// The number of write passes so far.
    writes: u64,
    /// The last write pass that wrote every page, and the passes after it.
    written: Vec<WritePass>,
}

impl Phases {
    /// Runs all phases. `pages` is the number of pages of the machine.
    pub fn run(machine: Machine, arguments: &Arguments, pages: u64) -> Result<Phases, WorkloadError> {
        let phases = Phases { list: Vec::new(), pages, host: Err(UnknownMappings::NotYet), checksum: mix(pages) };
        let mut running = Running { machine, arguments, phases, writes: 0, written: Vec::new() };
        running.populate()?;
        running.write_all("write before", Some("write_before"))?;
        running.verify()?;
        for _ in 0..arguments.cycles {
            running.cycle()?;
        }
        Ok(running.phases)
    }

    /// The first phase that reduced the number of leaves above 4K, if they are counted.
    pub fn split_in(&self) -> Option<&Phase> {
        let large = |phase: &Phase| phase.leaves.map(large_leaves);
        let pairs = self.list.windows(2);
        pairs.filter(|pair| large(&pair[1]) < large(&pair[0])).map(|pair| &pair[1]).next()
    }
}

impl Running<'_> {
    fn populate(&mut self) -> Result<(), WorkloadError> {
        match self.arguments.populate {
            Populate::Guest => self.write_all("populate", Some("populate"))?,
            Populate::PreFault => {
                let value = self.next_value();
                self.written = vec![WritePass { value, random_writes: RandomWrites::of_percent(value, 100) }];
                self.machine.write_from_host(value);
                self.phase("populate", Some("populate"), |machine| Ok(machine.pre_fault()?))?;
            }
        }
        let memory = self.machine.memory();
        let (start, end) = (memory.address(), memory.address() + memory.bytes());
        let census = Observer::open().and_then(|observer| observer.range(std::process::id(), start, end));
        self.phases.host = census.map_err(UnknownMappings::from);
        Ok(())
    }

    /// Runs one cycle. Afterwards every page is written and logging is disabled, as before.
    fn cycle(&mut self) -> Result<(), WorkloadError> {
        self.enable()?;
        for round in 1..=self.arguments.rounds {
            self.round(round)?;
        }
        self.phase("disable", Some("disable"), |machine| Ok(machine.set_logging(false)?))?;
        self.write_all("repopulate", Some("repopulate"))?;
        self.verify()
    }

    fn enable(&mut self) -> Result<(), WorkloadError> {
        self.phase("enable", Some("enable"), |machine| Ok(machine.set_logging(true)?))?;
        // With KVM_DIRTY_LOG_INITIALLY_SET every page starts as dirty; without it no page is dirty before a write.
        let (mode, pages) = (self.arguments.mode, self.phases.pages);
        let expected = if mode == Mode::Clear { pages } else { 0 };
        let get = self.get("get", Some("get_initial"))?;
        check("dirty pages in phase `get`", expected, get)?;
        self.add_to_checksum(expected);
        self.clear("clear", Some("clear_initial"))
    }

    /// Runs one round, and checks that the log contains the written pages.
    fn round(&mut self, round: u64) -> Result<(), WorkloadError> {
        let first = round == 1;
        let percent = self.arguments.write_percent.unwrap_or(100);
        self.write(&format!("write {round}"), first.then_some("first_write"), percent)?;
        let get = format!("get {round}");
        let found = self.get(&get, first.then_some("get"))?;
        self.check_log(&get, found)?;
        self.clear(&format!("clear {round}"), first.then_some("clear"))?;
        self.verify()
    }

    fn write_all(&mut self, name: &str, figure: Option<&'static str>) -> Result<(), WorkloadError> {
        self.write(name, figure, 100)
    }

    /// Runs a pass in which the guest writes each page with a probability of `percent`, and reads the others.
    fn write(&mut self, name: &str, figure: Option<&'static str>, percent: u8) -> Result<(), WorkloadError> {
        let value = self.next_value();
        let random_writes = RandomWrites::of_percent(mix(value), percent);
        let is_random = self.arguments.write_percent.is_some();
        let access = if is_random { Access::Drawn(value, random_writes) } else { Access::Write(value) };
        let phase = self.phase(name, figure, |machine| Ok(machine.pass(access)?))?;
        if percent == 100 {
            self.written.clear();
        }
        self.written.push(WritePass { value, random_writes });
        if is_random {
            let pages = self.written_pages();
            self.phases.list[phase].written_pages.push(pages);
        }
        Ok(())
    }

    /// The number of pages that the last pass wrote.
    fn written_pages(&self) -> u64 {
        let last = self.written.last();
        last.map_or(0, |last| (0..self.phases.pages).filter(|page| last.random_writes.writes(*page)).count() as u64)
    }

    /// Checks that the log contains the pages that the last pass wrote, and no others. Others are allowed unless it is
    /// known that there never was a large leaf: after KVM has split or removed one, it maps pages anew even on a read,
    /// makes them writable, and logs them.
    fn check_log(&mut self, phase: &str, found: u64) -> Result<(), WorkloadError> {
        let expected = self.written_pages();
        let what = format!("dirty pages in phase `{phase}`");
        let writes = |page| self.written.last().is_some_and(|last| last.random_writes.writes(page));
        if let Some(page) = self.machine.missing_page(writes) {
            let what = format!("{what}: page {page} is missing although the guest wrote it");
            return Err(WorkloadError::WrongAnswer { what, expected, found });
        }
        let none_is_large = |phase: &Phase| phase.leaves.is_some_and(|leaves| large_leaves(leaves) == 0);
        if expected == self.phases.pages || self.phases.list.iter().all(none_is_large) {
            check(what, expected, found)?;
        }
        self.add_to_checksum(expected);
        Ok(())
    }

    /// Verifies the memory. Call it only between rounds: reading all memory during a round would disturb the caches of
    /// its phases.
    fn verify(&mut self) -> Result<(), WorkloadError> {
        let last = |page: u64| self.written.iter().rev().find(|written| written.random_writes.writes(page));
        self.machine.verify(|page| last(page).map_or(0, |written| written.value))?;
        let value = self.value();
        self.add_to_checksum(value);
        Ok(())
    }

    /// Gets the log, and returns the number of dirty pages.
    fn get(&mut self, name: &str, figure: Option<&'static str>) -> Result<u64, WorkloadError> {
        let phase = self.phase(name, figure, |machine| Ok(machine.get_log()?))?;
        let found = self.machine.dirty_pages();
        self.phases.list[phase].dirty_pages = Some(found);
        Ok(found)
    }

    fn clear(&mut self, name: &str, figure: Option<&'static str>) -> Result<(), WorkloadError> {
        if self.arguments.mode == Mode::Enable {
            return Ok(());
        }
        let chunk = self.arguments.chunk;
        self.phase(name, figure, |machine| Ok(machine.clear_log(chunk)?)).map(drop)
    }

    /// Runs a phase, and returns its index in the list.
    fn phase(
        &mut self,
        name: &str,
        figure: Option<&'static str>,
        work: impl FnOnce(&mut Machine) -> Result<Duration, WorkloadError>,
    ) -> Result<usize, WorkloadError> {
        if let Ok(mut doing) = DOING.lock() {
            *doing = format!("in phase `{name}`");
        }
        if let Some(pause_s) = self.arguments.pause {
            std::thread::sleep(Duration::try_from_secs_f64(pause_s).unwrap_or(Duration::MAX));
        }
        let wall_s = work(&mut self.machine)?.as_secs_f64();
        let leaves = self.machine.leaves()?;
        let list = &mut self.phases.list;
        let known = list.iter().position(|phase| phase.name == name);
        let index = known.unwrap_or_else(|| {
            let walls_s = Vec::new();
            let (dirty_pages, written_pages) = (None, Vec::new());
            list.push(Phase {
                name: name.into(),
                figure,
                walls_s,
                dirty_pages,
                written_pages,
                leaves,
                leaves_varied: false,
            });
            list.len() - 1
        });
        list[index].add(wall_s, leaves);
        Ok(index)
    }

    fn next_value(&mut self) -> u64 {
        self.writes += 1;
        self.value()
    }

    /// The value of the current pass: never zero, and different for each pass.
    fn value(&self) -> u64 {
        mix(self.arguments.seed ^ mix(self.writes)) | 1
    }

    fn add_to_checksum(&mut self, part: u64) {
        self.phases.checksum = mix(self.phases.checksum ^ part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_splitting_phase_and_detects_varying_large_leaves() {
        let phase = |name: &str, pages_4k, pages_2m| Phase {
            name: name.into(),
            figure: None,
            walls_s: vec![0.0],
            dirty_pages: None,
            written_pages: Vec::new(),
            leaves: Some(Leaves { pages_4k, pages_2m, pages_1g: 0 }),
            leaves_varied: false,
        };
        let phases = |list| Phases { list, pages: 1, host: Err(UnknownMappings::NotYet), checksum: 0 };
        let split = phases(vec![phase("populate", 1, 4), phase("enable", 1, 4), phase("write 1", 2049, 0)]);
        assert_eq!(split.split_in().unwrap().name, "write 1");
        assert!(phases(vec![phase("populate", 9, 0), phase("enable", 0, 0)]).split_in().is_none());
        let mut again = phase("enable", 1, 4);
        again.add(1.0, Some(Leaves { pages_4k: 9, pages_2m: 4, pages_1g: 0 }));
        assert_eq!((again.leaves_varied, again.walls_s.len()), (false, 2), "4K leaves are ignored");
        again.add(1.0, Some(Leaves { pages_4k: 9, pages_2m: 3, pages_1g: 0 }));
        assert!(again.leaves_varied);
        let unknown = Phase { leaves: None, ..phase("enable", 0, 0) };
        assert!(phases(vec![unknown.clone(), unknown]).split_in().is_none());
    }
}

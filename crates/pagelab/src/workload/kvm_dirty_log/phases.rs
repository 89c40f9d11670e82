//! The phases, one after the other, each with its time, the pages that the log named, and the leaves after it.

use std::time::Duration;

use census::{CensusError, Observer};
use policy::census::Census;
use workloads::kvm::{Access, Draw, Leaves, Machine};
use workloads::random::mix;

use super::{Arguments, DOING, Mode, Populate};
use crate::table::split::report::median;
use crate::workload::{WorkloadError, check};

/// One phase.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// The figure that it is in the report; later rounds have none of their own.
    pub figure: Option<&'static str>,
    /// How long it took, in each cycle.
    pub walls_s: Vec<f64>,
    /// Dirty pages in the log that it got: the same in each cycle, unless pages are drawn; then those of the last.
    pub dirty_pages: Option<u64>,
    /// Pages that the guest wrote in it: in each cycle, where it draws them.
    pub written_pages: Vec<u64>,
    /// The leaves after it, the first time, where KVM counts them.
    pub leaves: Option<Leaves>,
    /// A later cycle had another number of leaves above 4K after it.
    pub leaves_varied: bool,
}

impl Phase {
    /// How long it took: the median of the cycles.
    pub fn wall_s(&self) -> f64 {
        median(&self.walls_s)
    }

    fn add(&mut self, wall_s: f64, leaves: Option<Leaves>) {
        self.walls_s.push(wall_s);
        self.leaves_varied |= leaves.map(large) != self.leaves.map(large);
    }

    /// How long it took the one time that it took least.
    pub fn least_s(&self) -> f64 {
        self.walls_s.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Why it is not known what maps the memory in this process.
#[derive(Debug, thiserror::Error)]
pub enum Unseen {
    /// It is not there yet.
    #[error("not looked at")]
    NotYet,
    /// It could not be looked at.
    #[error(transparent)]
    Census(#[from] CensusError),
}

/// All phases of one machine.
#[derive(Debug)]
pub struct Phases {
    /// In their order.
    pub list: Vec<Phase>,
    /// Pages of the guest.
    pub pages: u64,
    /// What maps the memory in this process once it is there; `None` where that could not be seen.
    pub host: Result<Census, Unseen>,
    /// What the log named and the memory held, which the arguments alone decide.
    pub checksum: u64,
}

fn large(leaves: Leaves) -> u64 {
    leaves.pages_2m + leaves.pages_1g
}

/// A pass over the pages: those that the draw names begin with the value then.
struct Written {
    value: u64,
    draw: Draw,
}

/// A machine in the middle of its phases.
struct Running<'a> {
    machine: Machine,
    arguments: &'a Arguments,
    phases: Phases,
    /// How often the guest went over its pages to write.
    writes: u64,
    /// What it wrote, from the last time on that it was every page.
    written: Vec<Written>,
}

impl Phases {
    /// Runs them; `pages` is how many pages the machine has.
    ///
    /// # Errors
    /// KVM refuses something, or the log or the memory is not what it must be.
    pub fn run(machine: Machine, arguments: &Arguments, pages: u64) -> Result<Phases, WorkloadError> {
        let phases = Phases { list: Vec::new(), pages, host: Err(Unseen::NotYet), checksum: mix(pages) };
        let mut running = Running { machine, arguments, phases, writes: 0, written: Vec::new() };
        running.populate()?;
        running.write_all("write before", Some("write_before"))?;
        running.verify()?;
        for _ in 0..arguments.cycles {
            running.cycle()?;
        }
        Ok(running.phases)
    }

    /// The first phase in which leaves above 4K became fewer, where they are counted.
    pub fn split_in(&self) -> Option<&Phase> {
        let large = |phase: &Phase| phase.leaves.map(large);
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
                self.written = vec![Written { value, draw: Draw::of_percent(value, 100) }];
                self.machine.write_from_host(value);
                self.phase("populate", Some("populate"), |machine| Ok(machine.pre_fault()?))?;
            }
        }
        let memory = self.machine.memory();
        let (start, end) = (memory.address(), memory.address() + memory.bytes());
        let census = Observer::open().and_then(|observer| observer.range(std::process::id(), start, end));
        self.phases.host = census.map_err(Unseen::from);
        Ok(())
    }

    /// Leaves every page written and not logged, as it was before.
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
        // Initially set means: every page counts as dirty; otherwise nothing is before a write.
        let (mode, pages) = (self.arguments.mode, self.phases.pages);
        let expected = if mode == Mode::Clear { pages } else { 0 };
        let get = self.get("get", Some("get_initial"))?;
        check("dirty pages in phase `get`", expected, get)?;
        self.answer(expected);
        self.clear("clear", Some("clear_initial"))
    }

    /// What is written must be in the log.
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

    /// Has the guest write each page with a chance of so many percent.
    fn write(&mut self, name: &str, figure: Option<&'static str>, percent: u8) -> Result<(), WorkloadError> {
        let value = self.next_value();
        let draw = Draw::of_percent(mix(value), percent);
        let draws = self.arguments.write_percent.is_some();
        let access = if draws { Access::Drawn(value, draw) } else { Access::Write(value) };
        let phase = self.phase(name, figure, |machine| Ok(machine.pass(access)?))?;
        if percent == 100 {
            self.written.clear();
        }
        self.written.push(Written { value, draw });
        if draws {
            let pages = self.written_pages();
            self.phases.list[phase].written_pages.push(pages);
        }
        Ok(())
    }

    /// Pages that the last pass wrote.
    fn written_pages(&self) -> u64 {
        let last = self.written.last();
        last.map_or(0, |last| (0..self.phases.pages).filter(|page| last.draw.writes(*page)).count() as u64)
    }

    /// The log must name every page that the last pass wrote, and no other. But a page that is only read is in the log too
    /// where KVM maps it anew, because it then maps it writable: after a large leaf went.
    fn check_log(&mut self, phase: &str, found: u64) -> Result<(), WorkloadError> {
        let expected = self.written_pages();
        let what = format!("dirty pages in phase `{phase}`");
        let writes = |page| self.written.last().is_some_and(|last| last.draw.writes(page));
        if let Some(page) = self.machine.missing_page(writes) {
            let what = format!("{what}, among which page {page} is not although the guest wrote it");
            return Err(WorkloadError::WrongAnswer { what, expected, found });
        }
        let none_is_large = |phase: &Phase| phase.leaves.is_some_and(|leaves| large(leaves) == 0);
        if expected == self.phases.pages || self.phases.list.iter().all(none_is_large) {
            check(what, expected, found)?;
        }
        self.answer(expected);
        Ok(())
    }

    /// Looks at the memory, at a time when that does not put the caches of the next phase to other uses.
    fn verify(&mut self) -> Result<(), WorkloadError> {
        let last = |page: u64| self.written.iter().rev().find(|written| written.draw.writes(page));
        self.machine.verify(|page| last(page).map_or(0, |written| written.value))?;
        let value = self.value();
        self.answer(value);
        Ok(())
    }

    /// Gets the log; how many pages it names.
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

    /// Runs a phase; which of the list it is.
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

    /// What is written now: never zero, and another value each time.
    fn value(&self) -> u64 {
        mix(self.arguments.seed ^ mix(self.writes)) | 1
    }

    fn answer(&mut self, part: u64) {
        self.phases.checksum = mix(self.phases.checksum ^ part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_is_where_large_leaves_became_fewer() {
        let phase = |name: &str, pages_4k, pages_2m| Phase {
            name: name.into(),
            figure: None,
            walls_s: vec![0.0],
            dirty_pages: None,
            written_pages: Vec::new(),
            leaves: Some(Leaves { pages_4k, pages_2m, pages_1g: 0 }),
            leaves_varied: false,
        };
        let phases = |list| Phases { list, pages: 1, host: Err(Unseen::NotYet), checksum: 0 };
        let split = phases(vec![phase("populate", 1, 4), phase("enable", 1, 4), phase("write 1", 2049, 0)]);
        assert_eq!(split.split_in().unwrap().name, "write 1");
        assert!(phases(vec![phase("populate", 9, 0), phase("enable", 0, 0)]).split_in().is_none());
        let mut again = phase("enable", 1, 4);
        again.add(1.0, Some(Leaves { pages_4k: 9, pages_2m: 4, pages_1g: 0 }));
        assert_eq!((again.leaves_varied, again.walls_s.len()), (false, 2), "leaves of 4K come with the guest's loop");
        again.add(1.0, Some(Leaves { pages_4k: 9, pages_2m: 3, pages_1g: 0 }));
        assert!(again.leaves_varied);
        let unknown = Phase { leaves: None, ..phase("enable", 0, 0) };
        assert!(phases(vec![unknown.clone(), unknown]).split_in().is_none());
    }
}

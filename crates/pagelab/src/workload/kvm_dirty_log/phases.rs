//! The phases, one after the other, each with its time, the pages that the log named, and the leaves after it.

use std::time::Duration;

use metal::census::Observer;
use metal::kvm::{Access, Leaves, Machine};
use study::census::Census;

use super::{Arguments, DOING, Mode, Populate};
use crate::table::split::report::median;
use crate::workload::random::mix;
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
    /// Dirty pages in the log that it got: the same in each cycle.
    pub dirty_pages: Option<u64>,
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

/// All phases of one machine.
#[derive(Debug)]
pub struct Phases {
    /// In their order.
    pub list: Vec<Phase>,
    /// Pages of the guest.
    pub pages: u64,
    /// What maps the memory in this process once it is there; `None` where that could not be seen.
    pub host: Result<Census, String>,
    /// What the log named and the memory held, which the arguments alone decide.
    pub checksum: u64,
}

fn large(leaves: Leaves) -> u64 {
    leaves.pages_2m + leaves.pages_1g
}

/// A machine in the middle of its phases.
struct Running<'a> {
    machine: Machine,
    arguments: &'a Arguments,
    phases: Phases,
    /// How often all pages were written.
    writes: u64,
}

impl Phases {
    /// Runs them; `pages` is how many pages the machine has.
    ///
    /// # Errors
    /// KVM refuses something, or the log or the memory is not what it must be.
    pub fn run(machine: Machine, arguments: &Arguments, pages: u64) -> Result<Phases, WorkloadError> {
        let phases = Phases { list: Vec::new(), pages, host: Err("not looked at".into()), checksum: mix(pages) };
        let mut running = Running { machine, arguments, phases, writes: 0 };
        running.populate()?;
        running.write("write before", Some("write_before"))?;
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
            Populate::Guest => self.write("populate", Some("populate"))?,
            Populate::PreFault => {
                self.writes += 1;
                let value = self.value();
                self.machine.write_from_host(value);
                self.phase("populate", Some("populate"), |machine| Ok(machine.pre_fault()?))?;
            }
        }
        let memory = self.machine.memory();
        let (start, end) = (memory.address(), memory.address() + memory.bytes());
        let census = Observer::open().range(std::process::id(), start, end);
        self.phases.host = census.map_err(|error| error.to_string());
        Ok(())
    }

    /// Leaves every page written and not logged, as it was before.
    fn cycle(&mut self) -> Result<(), WorkloadError> {
        self.enable()?;
        for round in 1..=self.arguments.rounds {
            self.round(round)?;
        }
        self.phase("disable", Some("disable"), |machine| Ok(machine.set_logging(false)?))?;
        self.write("repopulate", Some("repopulate"))?;
        self.verify()
    }

    fn enable(&mut self) -> Result<(), WorkloadError> {
        self.phase("enable", Some("enable"), |machine| Ok(machine.set_logging(true)?))?;
        // Initially set means: every page counts as dirty; otherwise nothing is before a write.
        let (mode, pages) = (self.arguments.mode, self.phases.pages);
        let expected = if mode == Mode::Clear { pages } else { 0 };
        self.get("get", Some("get_initial"), expected)?;
        self.clear("clear", Some("clear_initial"))
    }

    /// Every page is written, and must be in the log.
    fn round(&mut self, round: u64) -> Result<(), WorkloadError> {
        let first = round == 1;
        self.write(&format!("write {round}"), first.then_some("first_write"))?;
        self.get(&format!("get {round}"), first.then_some("get"), self.phases.pages)?;
        self.clear(&format!("clear {round}"), first.then_some("clear"))?;
        self.verify()
    }

    fn write(&mut self, name: &str, figure: Option<&'static str>) -> Result<(), WorkloadError> {
        self.writes += 1;
        let value = self.value();
        self.phase(name, figure, |machine| Ok(machine.pass(Access::Write(value))?)).map(drop)
    }

    /// Looks at the memory, at a time when that does not put the caches of the next phase to other uses.
    fn verify(&mut self) -> Result<(), WorkloadError> {
        let value = self.value();
        self.machine.verify(value)?;
        self.answer(value);
        Ok(())
    }

    fn get(&mut self, name: &str, figure: Option<&'static str>, expected: u64) -> Result<(), WorkloadError> {
        let phase = self.phase(name, figure, |machine| Ok(machine.get_log()?))?;
        let found = self.machine.dirty_pages();
        self.phases.list[phase].dirty_pages = Some(found);
        check(format!("dirty pages in phase `{name}`"), expected, found)?;
        self.answer(found);
        Ok(())
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
        let wall_s = work(&mut self.machine)?.as_secs_f64();
        let leaves = self.machine.leaves()?;
        let list = &mut self.phases.list;
        let known = list.iter().position(|phase| phase.name == name);
        let index = known.unwrap_or_else(|| {
            let walls_s = Vec::new();
            list.push(Phase { name: name.into(), figure, walls_s, dirty_pages: None, leaves, leaves_varied: false });
            list.len() - 1
        });
        list[index].add(wall_s, leaves);
        Ok(index)
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
            leaves: Some(Leaves { pages_4k, pages_2m, pages_1g: 0 }),
            leaves_varied: false,
        };
        let phases = |list| Phases { list, pages: 1, host: Err(String::new()), checksum: 0 };
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

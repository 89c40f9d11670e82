//! The scripts that sbatch gets.

use std::path::Path;

use study::definition::{Definition, Slurm};

use super::tasks::Task;
use crate::failure::Failure;
use crate::words::parse_duration;

/// What of a job does not come from the study.
pub struct Job<'a> {
    /// What all jobs of this study and store are called.
    pub name: &'a str,
    /// How files of the study's tasks begin.
    pub stem: &'a str,
    /// This program, as the nodes see it.
    pub program: &'a Path,
    /// The words that name the study, its size and its store.
    pub study: &'a [String],
    /// Further words of `study run`.
    pub options: &'a [String],
    /// Processors of a task that simulates.
    pub model_cpus: u32,
}

impl Job<'_> {
    /// The array of tasks that measure: each has a node for itself.
    ///
    /// # Errors
    /// A limit that is no time.
    pub fn measured(&self, definition: &Definition, tasks: &[&Task]) -> Result<String, Failure> {
        let mut lines = self.array(&definition.slurm, tasks)?;
        lines.extend(["exclusive".to_owned(), "mem=0".to_owned()]);
        lines.extend(definition.slurm.constraint.iter().map(|features| format!("constraint={features}")));
        Ok(script(&lines, &self.task(&[])))
    }

    /// The array of tasks that simulate: many share a node.
    ///
    /// # Errors
    /// A limit that is no time.
    pub fn modelled(&self, definition: &Definition, tasks: &[&Task]) -> Result<String, Failure> {
        let mut lines = self.array(&definition.slurm, tasks)?;
        lines.push(format!("cpus-per-task={}", self.model_cpus));
        Ok(script(&lines, &self.task(&["--jobs".to_owned(), self.model_cpus.to_string()])))
    }

    /// The job that merges what the tasks of these arrays leave, however they end. Of one name one runs at a time.
    pub fn merge(&self, definition: &Definition, arrays: &[String]) -> String {
        let name = format!("{}-merge", self.name);
        let mut lines = common(&definition.slurm, &name, &format!("{}-merge-%j.out", self.stem));
        lines.push(format!("dependency=afterany:{},singleton", arrays.join(":")));
        let words = ["study", "merge", "--shards"].map(str::to_owned);
        script(&lines, &format!("exec {}", self.words(&words, &[])))
    }

    fn array(&self, slurm: &Slurm, tasks: &[&Task]) -> Result<Vec<String>, Failure> {
        let numbers: Vec<usize> = tasks.iter().map(|task| task.number).collect();
        let most = slurm.concurrent.map(|most| format!("%{most}")).unwrap_or_default();
        let mut lines = common(slurm, self.name, &format!("{}-%a.out", self.stem));
        lines.push(format!("array={}{most}", ranges(&numbers)));
        lines.push("requeue".to_owned());
        if let Some(time) = &slurm.time {
            let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("slurm.time: {error}"));
            let minutes = (parse_duration(time).map_err(|error| wrong(&error))? / 60.0).ceil();
            lines.push(format!("time={minutes}"));
        }
        Ok(lines)
    }

    fn task(&self, added: &[String]) -> String {
        let words = ["study", "run"].map(str::to_owned);
        let options: Vec<String> = self.options.iter().chain(added).cloned().collect();
        format!("exec {} --task \"$SLURM_ARRAY_TASK_ID\"", self.words(&words, &options))
    }

    fn words(&self, verb: &[String], options: &[String]) -> String {
        let program = [self.program.to_string_lossy().into_owned()];
        let words = [&program, verb, self.study, options].concat();
        // Only a word with a zero byte cannot be quoted, and no argument has one.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }
}

/// What all jobs ask for: one process, on one node.
fn common(slurm: &Slurm, name: &str, output: &str) -> Vec<String> {
    let mut lines = vec![format!("job-name={name}"), "nodes=1".to_owned(), "ntasks=1".to_owned()];
    lines.extend([format!("output={output}"), "open-mode=append".to_owned()]);
    let words = [
        ("partition", &slurm.partition),
        ("account", &slurm.account),
        ("qos", &slurm.qos),
        ("reservation", &slurm.reservation),
    ];
    lines.extend(words.into_iter().filter_map(|(key, word)| Some(format!("{key}={}", word.as_ref()?))));
    lines
}

fn script(lines: &[String], command: &str) -> String {
    let lines: String = lines.iter().map(|line| format!("#SBATCH --{line}\n")).collect();
    format!("#!/bin/sh\n{lines}{command}\n")
}

/// Numbers as Slurm writes them: `0-2,5`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let told = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    told.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[]), "");
    }
}

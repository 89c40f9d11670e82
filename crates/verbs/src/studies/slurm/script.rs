//! Writes the scripts for sbatch ([`Submission`]).

use std::path::Path;

use study_files::definition::{Definition, Slurm};

use super::tasks::Task;
use crate::failure::Failure;
use crate::words::parse_duration;

/// What all scripts of one submission have in common.
pub struct Submission<'a> {
    /// The name of the arrays; the merging job has this name with `-merge`.
    pub name: &'a str,
    /// The prefix of file names of the study's tasks.
    pub stem: &'a str,
    /// The path of this program on the nodes.
    pub program: &'a Path,
    /// The arguments that name the study, its size and its store.
    pub study: &'a [String],
    /// Further arguments of `study run`.
    pub options: &'a [String],
    /// The processors of a simulation task.
    pub model_cpus: u32,
    /// Array indices are below this (MaxArraySize).
    pub max_array_size: usize,
}

/// An array of tasks.
pub struct Array {
    /// The sbatch script.
    pub script: String,
    /// Whether this array waits for the previous one. It must, because Slurm's limit of concurrent tasks (`%N`) is per
    /// array.
    pub is_after_previous: bool,
}

/// The tasks of one array. Numbers of tasks beyond Slurm's largest index are counted from an offset.
struct ArrayTasks<'a> {
    offset: usize,
    tasks: Vec<&'a Task>,
}

impl Submission<'_> {
    /// The arrays of measuring tasks, each with exclusive use of a node.
    ///
    /// # Errors
    /// The time limit cannot be parsed.
    pub fn measuring_arrays(&self, definition: &Definition, tasks: &[&Task]) -> Result<Vec<Array>, Failure> {
        let features = definition.slurm.constraint.iter().map(|features| format!("constraint={features}"));
        let resources: Vec<String> = ["exclusive".to_owned(), "mem=0".to_owned()].into_iter().chain(features).collect();
        self.arrays(definition, tasks, &resources, &[])
    }

    /// The arrays of simulation tasks: they may share a node.
    ///
    /// # Errors
    /// The time limit cannot be parsed.
    pub fn simulating_arrays(&self, definition: &Definition, tasks: &[&Task]) -> Result<Vec<Array>, Failure> {
        let resources = [format!("cpus-per-task={}", self.model_cpus)];
        self.arrays(definition, tasks, &resources, &["--jobs".to_owned(), self.model_cpus.to_string()])
    }

    fn arrays(
        &self,
        definition: &Definition,
        tasks: &[&Task],
        resources: &[String],
        added: &[String],
    ) -> Result<Vec<Array>, Failure> {
        let array = |(at, part): (usize, ArrayTasks<'_>)| {
            let options = [self.array_options(&definition.slurm, &part)?, resources.to_vec()].concat();
            let is_after_previous = at > 0 && definition.slurm.concurrent.is_some();
            Ok(Array { script: script(&options, &self.task_command(part.offset, added)), is_after_previous })
        };
        parts(tasks, self.max_array_size).into_iter().enumerate().map(array).collect()
    }

    /// The job that merges the results of these arrays' tasks, however they end. Only one job of this name and user runs at a time.
    pub fn merging_script(&self, definition: &Definition, arrays: &[String]) -> String {
        let name = format!("{}-merge", self.name);
        let mut options = common_options(&definition.slurm, &name, &format!("{}-merge-%j.out", self.stem));
        options.push(format!("dependency=afterany:{},singleton", arrays.join(":")));
        let words = ["study", "merge", "--shards"].map(str::to_owned);
        script(&options, &format!("exec {}", self.command_line(&words, &[])))
    }

    fn array_options(&self, slurm: &Slurm, part: &ArrayTasks<'_>) -> Result<Vec<String>, Failure> {
        let numbers: Vec<usize> = part.tasks.iter().map(|task| task.number - part.offset).collect();
        let concurrent = slurm.concurrent.map(|tasks| format!("%{tasks}")).unwrap_or_default();
        let output = match part.offset {
            0 => format!("{}-%a.out", self.stem),
            offset => format!("{}-{offset}+%a.out", self.stem),
        };
        let mut options = common_options(slurm, self.name, &output);
        // squeue shows the comment. The number of a task is the sum of this offset and the array index.
        options.push(format!("comment={}", part.offset));
        options.push(format!("array={}{concurrent}", ranges(&numbers)));
        options.push("requeue".to_owned());
        if let Some(time) = &slurm.time {
            let wrong = |error: &dyn std::fmt::Display| Failure::Input(format!("slurm.time: {error}"));
            let minutes = (parse_duration(time).map_err(|error| wrong(&error))? / 60.0).ceil();
            options.push(format!("time={minutes}"));
        }
        Ok(options)
    }

    fn task_command(&self, offset: usize, added: &[String]) -> String {
        let number = match offset {
            0 => "$SLURM_ARRAY_TASK_ID".to_owned(),
            offset => format!("$((SLURM_ARRAY_TASK_ID + {offset}))"),
        };
        let words = ["study", "run"].map(str::to_owned);
        let options: Vec<String> = self.options.iter().chain(added).cloned().collect();
        format!("exec {} --task \"{number}\"", self.command_line(&words, &options))
    }

    fn command_line(&self, verb: &[String], options: &[String]) -> String {
        let program = [self.program.to_string_lossy().into_owned()];
        let words = [&program, verb, self.study, options].concat();
        // Quoting fails only for a NUL byte, which no argument contains.
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
    }
}

/// The sbatch options of all jobs: one process, on one node.
fn common_options(slurm: &Slurm, name: &str, output: &str) -> Vec<String> {
    let mut options = vec![format!("job-name={name}"), "nodes=1".to_owned(), "ntasks=1".to_owned()];
    options.extend([format!("output={output}"), "open-mode=append".to_owned()]);
    let choices = [
        ("partition", &slurm.partition),
        ("account", &slurm.account),
        ("qos", &slurm.qos),
        ("reservation", &slurm.reservation),
    ];
    options.extend(choices.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?))));
    options
}

fn script(options: &[String], command: &str) -> String {
    let lines: String = options.iter().map(|option| format!("#SBATCH --{option}\n")).collect();
    format!("#!/bin/sh\n{lines}{command}\n")
}

/// Divides tasks into arrays of this size by their numbers, so that a task stays in the same array when it is submitted
/// again later.
fn parts<'a>(tasks: &[&'a Task], size: usize) -> Vec<ArrayTasks<'a>> {
    let mut parts: Vec<ArrayTasks<'a>> = Vec::new();
    for task in tasks {
        let offset = task.number / size.max(1) * size.max(1);
        match parts.last_mut().filter(|part| part.offset == offset) {
            Some(part) => part.tasks.push(task),
            None => parts.push(ArrayTasks { offset, tasks: vec![task] }),
        }
    }
    parts
}

/// Formats numbers as Slurm does: `0-2,5`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let texts =
        ranges.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_indices_stay_below_slurms_limit() {
        let task = |number| Task { number, workload: Default::default(), machines: vec![] };
        let tasks: Vec<Task> = [0, 1, 999, 1000, 1001, 2500].map(task).into();
        let parts = parts(&tasks.iter().collect::<Vec<_>>(), 1000);
        let numbers =
            |part: &ArrayTasks<'_>| part.tasks.iter().map(|task| task.number - part.offset).collect::<Vec<_>>();
        let texts: Vec<(usize, Vec<usize>)> = parts.iter().map(|part| (part.offset, numbers(part))).collect();
        assert_eq!(texts, [(0, vec![0, 1, 999]), (1000, vec![0, 1]), (2000, vec![500])]);
    }

    #[test]
    fn formats_numbers_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[]), "");
    }
}

//! Process images and the names of their trace files. Each image has its own trace.

/// The execution of a process from its fork, or an `execve`, to its end or the next `execve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Image {
    /// The process number.
    pub process: u32,
    /// How many programs the process has executed, up to and including this one.
    pub execs: u32,
}

impl Image {
    /// The image after the next `execve`.
    pub fn next(self) -> Image {
        Image { execs: self.execs.saturating_add(1), ..self }
    }

    /// The suffix that its trace's name has in addition to the name of the first trace: `.4711` for a forked process,
    /// `.4711.exec1` for the first program that process 4711 executes, whether it was forked or is the first process.
    pub fn suffix(self) -> String {
        let Image { process, execs } = self;
        if execs == 0 { format!(".{process}") } else { format!(".{process}.exec{execs}") }
    }

    /// The image whose trace has this suffix; `None` if no image has it.
    pub fn of_suffix(suffix: &str) -> Option<Image> {
        let rest = suffix.strip_prefix('.')?;
        let (process, execs) = match rest.split_once(".exec") {
            None => (rest, 0),
            Some((process, execs)) => (process, execs.parse().ok()?),
        };
        let image = Image { process: process.parse().ok()?, execs };
        // Rejects other spellings of the same numbers.
        (image.suffix() == suffix).then_some(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_identifies_the_image() {
        let forked = Image { process: 4711, execs: 0 };
        for (image, suffix) in
            [(forked, ".4711"), (forked.next(), ".4711.exec1"), (forked.next().next(), ".4711.exec2")]
        {
            assert_eq!((image.suffix().as_str(), Image::of_suffix(suffix)), (suffix, Some(image)));
        }
        for other in
            ["", ".", "4711", ".4711.", ".4711.exec", ".4711.exec0", ".4711.exec01", ".+1", ".1.exec1.exec2", ".x"]
        {
            assert_eq!(Image::of_suffix(other), None, "{other}");
        }
    }
}

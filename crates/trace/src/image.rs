//! Process images, each with a trace: what their files are called.

/// What a process executes from its fork, or an `execve`, to its end or the next `execve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Image {
    /// The process.
    pub process: u32,
    /// How many programs it has executed before and with this one.
    pub execs: u32,
}

impl Image {
    /// The one that follows by `execve`.
    pub fn next(self) -> Image {
        Image { execs: self.execs.saturating_add(1), ..self }
    }

    /// What the name of its trace has behind that of the first one's: `.4711` of a process that was forked, `.4711.exec1` of
    /// the first program that the process 4711 executes, forked or the first one.
    pub fn suffix(self) -> String {
        let Image { process, execs } = self;
        if execs == 0 { format!(".{process}") } else { format!(".{process}.exec{execs}") }
    }

    /// The image whose trace has this behind its name.
    pub fn of_suffix(suffix: &str) -> Option<Image> {
        let rest = suffix.strip_prefix('.')?;
        let (process, execs) = match rest.split_once(".exec") {
            None => (rest, 0),
            Some((process, execs)) => (process, execs.parse().ok()?),
        };
        let image = Image { process: process.parse().ok()?, execs };
        // Numbers can be written in other ways.
        (image.suffix() == suffix).then_some(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_image() {
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

//! Shows stored boots of one `compare --kernel` together ([`report`]).

use guest::Image;
use study::comparison::Comparison;
use study::guest::kernel_of;
use study::stats::boots::boots_needed;
use study_files::definition::{Boot, Guest};

use super::report::{ReportContent, command_line_of};
use crate::compare::in_study;
use crate::failure::Failure;
use crate::guest_arguments::NamedImage;
use crate::publish::Forms;

/// The report of boots that measured one command under the same policies.
///
/// # Errors
/// A boot was not made by `compare --kernel`, or measured another command or other policies.
pub fn report<'a>(boots: &[Comparison], forms: &'a Forms, mail: bool) -> Result<ReportContent<'a>, Failure> {
    let first = boots.first().ok_or_else(|| Failure::Input("expected the number of a comparison".into()))?;
    check_alike(first, boots)?;
    let arguments = in_study::parsed(first.invocation.pagelab.iter().skip(2).cloned())?;
    let images = &arguments.guests.kernels;
    let mut names: Vec<&str> = Vec::new();
    for name in boots.iter().filter_map(|one| kernel_of(&one.machine)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // Kernels have the order of the command line. A kernel whose image is gone comes last.
    names.sort_by_key(|name| place_of(images, name).unwrap_or(usize::MAX));
    let boot = |(at, name): (usize, &&str)| {
        let image = place_of(images, name).map(|place| images[place].image.display().to_string()).unwrap_or_default();
        let guest = Guest { image, cmdline: String::new(), memory: None, icount: false, sysroot: None };
        Boot::of_guest(name, at == 0, guest)
    };
    Ok(ReportContent {
        boots: names.iter().enumerate().map(boot).collect(),
        planned_boots: arguments.guests.boots.unwrap_or_else(|| boots_needed(images.len())),
        command: command_line_of(first),
        forms,
        mail,
    })
}

fn check_alike(first: &Comparison, boots: &[Comparison]) -> Result<(), Failure> {
    if let Some(other) = boots.iter().find(|one| kernel_of(&one.machine).is_none()) {
        return Err(Failure::Input(format!(
            "comparison {} was not made by compare --kernel, and only boots of kernels are shown together; give its number alone",
            other.id
        )));
    }
    let labels = |one: &Comparison| one.design.arms.iter().map(|arm| arm.label.clone()).collect::<Vec<_>>();
    let is_alike = |one: &&Comparison| command_line_of(one) == command_line_of(first) && labels(one) == labels(first);
    match boots.iter().find(|one| !is_alike(one)) {
        Some(other) => Err(Failure::Input(format!(
            "comparisons {} and {} measured different commands or policies; give boots of one command under the same policies",
            first.id, other.id
        ))),
        None => Ok(()),
    }
}

/// The place of a kernel among the images of the command line. A kernel without a name is named by its release, and numbered
/// (`6.1.0#2`) if earlier images have the same release.
fn place_of(images: &[NamedImage], name: &str) -> Option<usize> {
    let (release, number) = name.rsplit_once('#').unwrap_or((name, "1"));
    let is_unnamed = |image: &NamedImage| {
        image.name.is_none() && Image::read(&image.image).is_ok_and(|image| image.release == release)
    };
    let mut unnamed = images.iter().enumerate().filter(|(_, image)| is_unnamed(image)).map(|(place, _)| place);
    let named = images.iter().position(|image| image.name.as_deref() == Some(name));
    named.or_else(|| unnamed.nth(number.parse::<usize>().ok()?.checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_its_name_on_the_command_line() {
        let image = |name: &str| NamedImage { name: Some(name.into()), image: format!("/no/such/{name}").into() };
        let images = [image("old"), image("new"), NamedImage { name: None, image: "/no/such/image".into() }];
        assert_eq!(place_of(&images, "old"), Some(0));
        assert_eq!(place_of(&images, "new"), Some(1));
        assert_eq!(place_of(&images, "6.1.0"), None, "its image is gone");
        assert_eq!(place_of(&images, "6.1.0#0"), None);
    }
}

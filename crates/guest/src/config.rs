//! Finds the configuration with which a kernel image was built.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::file;
use crate::image::Image;

/// The options of a kernel, by name (`CONFIG_TRANSPARENT_HUGEPAGE`), with their values. An option that is not set is absent.
pub type Options = BTreeMap<String, String>;

/// The configuration of an image, and its file: `config-RELEASE` next to the image, `.config` of the tree in which it was
/// built, or `config` of its modules. `None` if there is no such file.
pub fn find(image: &Image) -> Option<(PathBuf, Options)> {
    let release = &image.release;
    let neighbour = image.path.parent().map(|place| place.join(format!("config-{release}")));
    let above = || image.path.ancestors().skip(1);
    // The image is at arch/NAME/boot/IMAGE in the tree, so the tree is at most four directories above.
    let built = above().take(4).map(|place| place.join(".config"));
    let modules = above().flat_map(|place| ["lib/modules", "usr/lib/modules"].map(|below| place.join(below)));
    let installed =
        modules.flat_map(|modules| ["config", "build/.config"].map(|file| modules.join(release).join(file)));
    let mut files = neighbour.into_iter().chain(built).chain(installed);
    files.find_map(|path| {
        let bytes = file::read(&path).ok()?;
        Some((path, options(&String::from_utf8_lossy(&bytes))))
    })
}

fn options(text: &str) -> Options {
    let option = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter(|line| line.starts_with("CONFIG_")).filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Architecture;

    fn image(path: &Path) -> Image {
        Image { path: path.to_owned(), architecture: Architecture::X86_64, release: "6.1.0".into() }
    }

    #[test]
    fn the_configuration_is_next_to_the_image_in_its_tree_or_with_its_modules() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for (image_at, config_at) in [
            ("boot/vmlinuz-6.1.0", "boot/config-6.1.0"),
            ("tree/arch/x86/boot/bzImage", "tree/.config"),
            ("other/linux", "other/lib/modules/6.1.0/config"),
        ] {
            let [image_at, config_at] = [image_at, config_at].map(|path| root.join(path));
            std::fs::create_dir_all(image_at.parent().unwrap()).unwrap();
            assert_eq!(find(&image(&image_at)), None, "{}", image_at.display());
            std::fs::create_dir_all(config_at.parent().unwrap()).unwrap();
            std::fs::write(&config_at, "# CONFIG_KSM is not set\nCONFIG_HZ=250\nCONFIG_A=\"b=c\"\n").unwrap();
            let (path, options) = find(&image(&image_at)).unwrap();
            assert_eq!(path, config_at);
            let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(options, [("CONFIG_A", "\"b=c\""), ("CONFIG_HZ", "250")]);
        }
    }
}

//! The known name that is most similar to an unknown one.

/// The known name with the smallest edit distance, if at most two fifths of the longer name differ. Case does not count.
pub fn nearest<'a, S: AsRef<str> + ?Sized + 'a>(name: &str, known: impl IntoIterator<Item = &'a S>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |known: &&str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let is_similar = |known: &&str| distance(known) <= known.len().max(name.len()) * 2 / 5;
    known.into_iter().map(AsRef::as_ref).min_by_key(distance).filter(is_similar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_name_is_near() {
        let known = ["redis-server", "postgres", "qemu-system-x86"];
        assert_eq!(nearest("Redis-Sever", &known), Some("redis-server"));
        assert_eq!(nearest("mysqld", &known), None);
        assert_eq!(nearest::<str>("x", []), None);
    }
}

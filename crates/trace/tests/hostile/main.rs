//! Arbitrary bytes cause neither a panic nor an endless loop. The fuzz targets run the same bodies.

mod bodies;

use proptest::prelude::*;
use trace::{Builder, Call, Event, Header, Kind, Run, Writer};

/// A valid trace, so that bytes near it get past the first checks.
fn valid_trace() -> Vec<u8> {
    let header = Header { command: vec!["sort".to_owned()], architecture: "x86_64".to_owned(), ..Header::of("a test") };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for thread in 0..3 {
        let mut builder = Builder::new(header.columns);
        for run in 0..200u64 {
            builder.push(Run { page: run * 7 % 31, kind: Kind::LOAD, accesses: 3 }, &[]);
        }
        writer.runs(thread, &builder.take(), 1000).unwrap();
        let call = Call::Munmap { address: 0x1000, bytes: 0x1000 };
        writer.events(thread, &[Event { run: 5, order: 0, call, result: 0 }], 1000).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #![proptest_config(testing::properties(256))]
    #[test]
    fn a_trace_with_bytes_changed_left_out_or_put_in(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..8)
    ) {
        let mut bytes = valid_trace();
        for (place, byte, what) in changes {
            let place = place.index(bytes.len());
            match what {
                0 => bytes[place] ^= byte,
                1 => drop(bytes.drain(place..(place + usize::from(byte)).min(bytes.len() - 1))),
                _ => bytes.insert(place, byte),
            }
        }
        bodies::read(&bytes);
    }

    #[test]
    fn bytes_that_are_no_trace(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        bodies::read(&bytes);
        bodies::imported(&bytes);
    }

    #[test]
    fn valid_blocks_with_arbitrary_content(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        bodies::built(&bytes);
    }

    #[test]
    fn lines_like_those_of_other_tools(
        choice in any::<u8>(),
        text in "(==1== x\n|I  0?[0-9a-f]{1,17},[0-9]{1,3}\n| [LSM] [0-9a-f]{1,17},[0-9]{1,20}\n|[ 0-9:x@a-f<>.-]{0,60}\n){0,12}",
    ) {
        let mut bytes = vec![choice];
        bytes.extend_from_slice(text.as_bytes());
        bodies::imported(&bytes);
    }
}

#[test]
fn the_valid_trace_is_read() {
    bodies::read(&valid_trace());
}

/// A block of two runs of the thread with the highest number, with these page differences, starting at run `first`.
fn runs(page: u8, first: u64) -> usize {
    let [zero, one, two, highest] = [0u64, 1, 2, u64::MAX].map(u64::to_le_bytes);
    let columns = [1, page, 0, 0, 0, 1, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0];
    // Columns of kinds and accesses; a block of runs with wide numbers.
    bodies::built(&[&[0, 0x86][..], &one, &first.to_le_bytes(), &zero, &highest, &two, &columns].concat())
}

#[test]
fn numbers_at_the_end_of_the_range() {
    assert_eq!(runs(2, 0), 2);
    // The page u64::MAX: none of its bytes has a 64-bit address.
    assert_eq!(runs(1, 0), 0);
    assert_eq!((runs(2, u64::MAX), runs(2, u64::MAX - 2)), (0, 0));
}

//! Adds notes to a finished trace.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::block::PREFIX_BYTES;
use crate::notes::Notes;
use crate::read_error::ReadError;
use crate::reader::Reader;
use crate::writer::Writer;

/// Adds notes to a trace, in front of its index. Returns `false` if the trace has no index: it was cut off and is left unchanged.
///
/// # Errors
/// The file cannot be read or written, or is no trace.
pub fn add_notes(mut file: impl Read + Write + Seek, notes: &Notes) -> Result<bool, ReadError> {
    file.rewind()?;
    let places = Reader::new(&mut file)?.places()?;
    let Some((places, last)) = places.and_then(|places| places.last().copied().map(|last| (places, last))) else {
        return Ok(false);
    };
    let index = last.offset + PREFIX_BYTES as u64 + u64::from(last.prefix.payload_bytes);
    file.seek(SeekFrom::Start(index))?;
    let mut writer = Writer::resumed(file, index, places);
    writer.notes(notes)?;
    writer.index()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::notes::{Native, NativeRun, NativeTime};
    use crate::{Block, Header, Kind, Recording};

    fn measured(user_s: f64) -> Notes {
        let run = |user_s| NativeRun { user_s, system_s: 0.25 };
        let (processor_id, processor) = (String::new(), "a test".to_owned());
        let runs = vec![run(user_s), run(0.5)];
        Notes { native: Native::Measured(NativeTime { runs, processor_id, processor }) }
    }

    fn trace() -> Vec<u8> {
        let mut recording = Recording::new(Vec::new(), Header::of("a test")).unwrap();
        for page in 0..100 {
            recording.access(0, page << 12, 8, Kind::STORE).unwrap();
        }
        recording.finish().unwrap()
    }

    /// The number of runs, the notes, and whether the file is complete and undamaged.
    fn read(bytes: &[u8]) -> (usize, Option<Notes>, bool) {
        let (mut reader, mut runs, mut is_undamaged) = (Reader::new(bytes).unwrap(), 0, true);
        while let Some(block) = reader.next_block().unwrap() {
            match block {
                Block::Runs { chunk, .. } => runs += chunk.len(),
                Block::Damaged(_) => is_undamaged = false,
                Block::Events { .. } | Block::Timestamps(_) => {}
            }
        }
        (runs, reader.notes().cloned(), is_undamaged && reader.is_whole())
    }

    #[test]
    fn notes_are_added_and_all_else_stays() {
        let mut file = Cursor::new(trace());
        assert_eq!(read(file.get_ref()), (100, None, true));
        assert!(add_notes(&mut file, &measured(1.5)).unwrap());
        assert_eq!(read(file.get_ref()), (100, Some(measured(1.5)), true));
        let places = Reader::new(Cursor::new(file.into_inner())).unwrap().places().unwrap().unwrap();
        assert_eq!(places.last().unwrap().prefix.payload_kind, crate::PayloadKind::Notes);
    }

    #[test]
    fn a_trace_that_was_cut_off_stays_as_it_is() {
        let whole = trace();
        let mut file = Cursor::new(whole[..whole.len() - 9].to_vec());
        assert!(!add_notes(&mut file, &measured(1.5)).unwrap());
        assert_eq!(file.get_ref()[..], whole[..whole.len() - 9]);
    }

    #[test]
    fn notes_that_no_recorder_writes_are_damage() {
        let parsed = |text: &str| Notes::parsed(text.as_bytes()).unwrap_err().to_string();
        let with = |runs: &str| {
            let rest = r#""processor_id":"","processor":"""#;
            format!(r#"{{"native":{{"measured":{{"runs":[{runs}],{rest}}}}}}}"#)
        };
        let run = |user_s: &str| with(&format!(r#"{{"user_s":{user_s},"system_s":0}}"#));
        assert!(parsed(&run("-1")).contains("expected the seconds of a run, found -1"));
        assert!(parsed(&run("1e300")).contains("expected the seconds"));
        assert!(parsed(&with("")).contains("expected at least one run, found none"));
        assert!(!parsed(r#"{"native":{"unknown":1}}"#).is_empty() && !parsed("{}").is_empty());
        let mut file = Cursor::new(trace());
        assert!(add_notes(&mut file, &measured(1.0)).unwrap() && add_notes(&mut file, &measured(2.0)).unwrap());
        assert_eq!(read(file.get_ref()), (100, Some(measured(1.0)), false));
    }
}

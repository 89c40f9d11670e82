//! `pagelab trace import`: converts a trace of another tool.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::Path;

use policy::size::format_bytes;
use serde_json::json;
use trace::import::{Tool, import};

use results::output::Output;

use super::{Import, ImportTool, about, refuse_same};
use crate::failure::Failure;
use crate::output::print;

/// Runs `pagelab trace import`.
pub fn run(arguments: &Import) -> Result<(), Failure> {
    let from: Box<dyn BufRead> = if arguments.file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        refuse_same(&arguments.file, &arguments.output)?;
        let file = File::open(&arguments.file).map_err(|error| about(&arguments.file, error))?;
        Box::new(BufReader::with_capacity(1 << 20, file))
    };
    let wrong = |error: std::io::Error| about(&arguments.output, error);
    let to = Output::create(&arguments.output).map_err(Failure::input)?;
    let written =
        import(tool(arguments.from), from, BufWriter::new(to)).map_err(|error| about(&arguments.file, error))?;
    written.into_inner().map_err(|error| wrong(error.into_error()))?.finish().map_err(Failure::input)?;
    let bytes = std::fs::metadata(&arguments.output).map_err(wrong)?.len();
    let text = if arguments.json {
        format!("{:#}", json!({ "schema": "pagelab.trace-import/1", "file_bytes": bytes }))
    } else {
        format!("{}: {}", results::printable(&arguments.output.display().to_string()), format_bytes(bytes))
    };
    print(&text, arguments.json)
}

const fn tool(tool: ImportTool) -> Tool {
    match tool {
        ImportTool::Lackey => Tool::Lackey,
        ImportTool::DrmemtraceView => Tool::View,
        ImportTool::Champsim => Tool::ChampSim,
        ImportTool::Perf => Tool::Perf,
    }
}

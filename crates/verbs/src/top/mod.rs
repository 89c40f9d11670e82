//! `pagelab top`: a live view of which page sizes map the processes of this host.
//!
//! `watch` reads data within the budget of `pace` and in the order of `turns`. The result is a `view`, plain data. `frame`
//! draws the view with `header` and `columns`, as the user's choices in `browse` demand, in pure functions. `screen`
//! controls the terminal, and `keyboard` reads `keys` from it.

mod browse;
mod columns;
mod document;
mod frame;
mod header;
mod keyboard;
mod keys;
mod pace;
mod screen;
mod turns;
mod view;
mod watch;

#[cfg(test)]
mod sample;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use crate::failure::Failure;
use crate::locale::has_unicode;
use crate::output::{Reader, is_dumb, is_set, print, print_update, terminal_height, terminal_width};
use crate::words::parse_duration;
use browse::{Browse, Sort};
use frame::{TerminalStyle, full_text};
use watch::{InspectionLimit, Watcher};

/// Arguments of `pagelab top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// Update this often, or less often if that would cost more than 1 % of a processor
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    every: f64,
    /// Print one frame with all processes, and exit. This is the default without a terminal
    #[arg(long)]
    once: bool,
    /// Print one frame as one JSON document
    #[arg(long)]
    json: bool,
    /// The sort order of processes
    #[arg(long, value_name = "COLUMN", default_value = "resident")]
    sort: Sort,
    /// Only processes with this in their name, PID or cause
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

/// Runs `pagelab top`.
pub fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let mut watcher = Watcher::new(arguments.every).map_err(Failure::input)?;
    let mut browse = Browse::new(arguments.sort, arguments.filter.clone());
    if arguments.once || arguments.json || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return once(&mut watcher, &browse, arguments);
    }
    if is_dumb() {
        return print_frames(&mut watcher, &browse);
    }
    let style_options = TerminalStyle { colours: !is_set("NO_COLOR"), unicode: has_unicode() };
    screen::live(&mut watcher, &mut browse, style_options)
}

/// Prints one frame. It takes two readings, so that rates can be computed over the time between them.
fn once(watcher: &mut Watcher, browse: &Browse, arguments: &TopArguments) -> Result<(), Failure> {
    watcher.frame(InspectionLimit::All, |_| Ok(()))?;
    std::thread::sleep(Duration::from_secs_f64(arguments.every.min(1.0)));
    let view = watcher.frame(InspectionLimit::All, |_| Ok(()))?;
    let text = if arguments.json {
        format!("{:#}", document::document(&view, browse))
    } else {
        full_text(&view, browse, terminal_width() as u16, terminal_height(), usize::MAX)
    };
    print(&text, arguments.json)
}

/// Prints frames one below the other, for a terminal that cannot move its cursor, until Ctrl-C or until the terminal is
/// closed.
fn print_frames(watcher: &mut Watcher, browse: &Browse) -> Result<(), Failure> {
    /// Maximum number of processes per frame.
    const MOST: usize = 20;
    loop {
        let mut reader = Reader::Present;
        watcher.frame(InspectionLimit::Paced, |view| {
            let text = full_text(view, browse, terminal_width() as u16, terminal_height(), MOST);
            reader = print_update(&format!("{text}\n"), false)?;
            Ok(())
        })?;
        if reader == Reader::Gone {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs_f64(watcher.every_s().min(1e6)));
    }
}

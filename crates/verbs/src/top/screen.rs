//! Controls the terminal for `top`: draws frames, reads keys, and restores the terminal's state at the end ([`live`]).

use std::io;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use results::inspection;
use tracer::signals::{self, Forward};

use super::browse::{Browse, Command, Shown};
use super::frame::{MAX_HEIGHT, MAX_WIDTH, TerminalStyle, frame};
use super::keyboard::{Input, Keyboard};
use super::view::View;
use super::watch::{InspectionLimit, Watcher};
use crate::failure::{Failure, error_chain};

/// The interval between checks whether a signal arrived or the terminal was resized.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Shows frames until the user quits, a signal arrives, or the terminal is closed.
///
/// # Errors
/// The terminal or /proc cannot be read, the terminal was closed, or a signal ended it. The terminal is restored in all
/// cases.
pub fn live(watcher: &mut Watcher, browse: &mut Browse, style_options: TerminalStyle) -> Result<(), Failure> {
    // The handler of `catch` sets an alarm, because a write to a terminal that takes no output (Ctrl-S) blocks.
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let (terminal, area) = take_terminal().map_err(unusable)?;
    let mut screen = Screen { terminal, area, style_options, shown: Shown::default(), keyboard: Keyboard::default() };
    let ended = screen.run(watcher, browse);
    let restored = screen.restore();
    // A hangup sends SIGHUP, and also makes a read or write fail. The signal is reported, not the failure.
    match (ended, signals::arrived()) {
        (Err(Failure::Input(_)), Some(signal)) => Err(stopped(signal)),
        (ended, _) => ended.and(restored),
    }
}

fn stopped(signal: i32) -> Failure {
    Failure::Stopped(signal, "nothing was changed")
}

/// Takes control of the terminal. The area is limited here: by default, ratatui would allocate cells for any size that
/// the terminal reports.
fn take_terminal() -> io::Result<(ManuallyDrop<DefaultTerminal>, Rect)> {
    let area = area()?;
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport: Viewport::Fixed(area) })?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Ok((ManuallyDrop::new(terminal), area))
}

/// The area for frames, from the terminal's current size.
fn area() -> io::Result<Rect> {
    let (width, height) = terminal::size()?;
    Ok(Rect::new(0, 0, width.min(MAX_WIDTH), height.min(MAX_HEIGHT)))
}

fn unusable(error: io::Error) -> Failure {
    Failure::Input(format!("the terminal cannot be used: {error}; pagelab top --once prints one frame and needs none"))
}

struct Screen {
    /// Never dropped: drop prints to standard error if it cannot show the cursor, and panics if standard error is closed, too.
    terminal: ManuallyDrop<DefaultTerminal>,
    /// The area that is drawn.
    area: Rect,
    style_options: TerminalStyle,
    /// The part that the last frame showed.
    shown: Shown,
    keyboard: Keyboard,
}

impl Screen {
    fn run(&mut self, watcher: &mut Watcher, browse: &mut Browse) -> Result<(), Failure> {
        loop {
            let view = watcher.frame(InspectionLimit::Paced, |view| self.draw(view, browse))?;
            let next = Instant::now() + Duration::from_secs_f64(watcher.every_s().min(1e6));
            while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                if let Some(signal) = signals::arrived() {
                    return Err(stopped(signal));
                }
                let was_pressed = match self.handle_keys(watcher, browse, &view, left.min(CHECK_INTERVAL))? {
                    ControlFlow::Break(()) => return Ok(()),
                    ControlFlow::Continue(was_pressed) => was_pressed,
                };
                if was_pressed || area().map_err(unusable)? != self.area {
                    self.draw(&view, browse)?;
                }
            }
        }
    }

    /// Waits for a key, and handles all keys that have arrived. Breaks if a key ends `top`; otherwise returns whether there
    /// was a key.
    fn handle_keys(
        &mut self,
        watcher: &Watcher,
        browse: &mut Browse,
        view: &View,
        mut timeout: Duration,
    ) -> Result<ControlFlow<(), bool>, Failure> {
        let mut was_pressed = false;
        // Signals are checked after each key, because input may arrive without a pause.
        while signals::arrived().is_none() {
            let key = match self.keyboard.next(io::stdin(), timeout).map_err(unusable)? {
                Input::Key(key) => key,
                Input::Nothing => return Ok(ControlFlow::Continue(was_pressed)),
                Input::Closed => return Err(unusable(io::Error::other("it was closed"))),
            };
            match browse.press(key, view, self.shown) {
                Command::Draw => {}
                Command::Quit => return Ok(ControlFlow::Break(())),
                Command::Suspend => self.suspend()?,
                Command::Inspect(pid) => self.inspect(watcher, browse, view, pid)?,
            }
            (was_pressed, timeout) = (true, Duration::ZERO);
        }
        Ok(ControlFlow::Continue(was_pressed))
    }

    fn draw(&mut self, view: &View, browse: &Browse) -> Result<(), Failure> {
        let area = area().map_err(unusable)?;
        if area != self.area {
            self.terminal.resize(area).map_err(unusable)?;
            self.area = area;
        }
        let (style_options, shown) = (self.style_options, &mut self.shown);
        let drawn = self.terminal.draw(|to| {
            let area = to.area();
            let drawn = frame(view, browse, style_options, area.width, area.height);
            *shown = drawn.shown;
            *to.buffer_mut() = drawn.cells;
        });
        drawn.map(drop).map_err(unusable)
    }

    /// Shows the inspection of a process, or why it failed.
    fn inspect(&mut self, watcher: &Watcher, browse: &mut Browse, view: &View, pid: u32) -> Result<(), Failure> {
        browse.show(format!("inspection of process {pid}"), "being inspected");
        self.draw(view, browse)?;
        let width = usize::from(self.area.width);
        let text = match watcher.inspect(pid) {
            Ok(seen) => inspection::answer_first(&seen, width),
            Err(error) => results::printable(&error_chain(&error)),
        };
        browse.show(format!("inspection of process {pid}"), &text);
        Ok(())
    }

    /// Restores the terminal and stops this process (SIGSTOP). When the process continues, takes control of the terminal
    /// again.
    fn suspend(&mut self) -> Result<(), Failure> {
        self.restore()?;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP).map_err(|error| unusable(error.into()))?;
        (self.terminal, self.area) = take_terminal().map_err(unusable)?;
        self.terminal.clear().map_err(unusable)
    }

    /// Restores the terminal's initial state.
    fn restore(&mut self) -> Result<(), Failure> {
        let restored = ratatui::try_restore();
        restored.and(self.terminal.show_cursor()).map_err(unusable)
    }
}

//! The terminal: frames go there, keys come from there, and it is left as it was found.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use results::inspection;
use tracer::signals::{self, PassOn};

use super::browse::{Browse, Key, Shown, Wish};
use super::frame::{Looks, MAX_HEIGHT, MAX_WIDTH, frame};
use super::view::View;
use super::watch::{Thoroughness, Watcher};
use crate::failure::{Failure, told};

/// Between two looks at whether a signal arrived.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(250);

/// Shows frames until the user or a signal ends it.
///
/// # Errors
/// The terminal or /proc cannot be read, or a signal ended it. The terminal is as it was in any case.
pub fn live(watcher: &mut Watcher, browse: &mut Browse, looks: Looks) -> Result<(), Failure> {
    signals::catch(PassOn::Same).map_err(Failure::input)?;
    let (terminal, area) = taken().map_err(unusable)?;
    let mut screen = Screen { terminal, area, looks, shown: Shown::default() };
    let ended = screen.run(watcher, browse);
    let restored = ratatui::try_restore().map_err(unusable);
    ended.and(restored)
}

/// Takes the terminal. The area of it that is drawn is chosen here: ratatui has cells for all of what it chooses itself.
fn taken() -> io::Result<(DefaultTerminal, Rect)> {
    let area = area()?;
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport: Viewport::Fixed(area) })?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Ok((terminal, area))
}

/// The part of the terminal that frames have, as large as it is now.
fn area() -> io::Result<Rect> {
    let (width, height) = terminal::size()?;
    Ok(Rect::new(0, 0, width.min(MAX_WIDTH), height.min(MAX_HEIGHT)))
}

fn unusable(error: io::Error) -> Failure {
    Failure::Input(format!("the terminal cannot be used: {error}; pagelab top --once prints one frame and needs none"))
}

struct Screen {
    terminal: DefaultTerminal,
    area: Rect,
    looks: Looks,
    /// What the last frame had.
    shown: Shown,
}

impl Screen {
    fn run(&mut self, watcher: &mut Watcher, browse: &mut Browse) -> Result<(), Failure> {
        loop {
            let view = watcher.frame(Thoroughness::Paced, |view| self.draw(view, browse))?;
            let next = Instant::now() + Duration::from_secs_f64(watcher.every_s().min(1e6));
            while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                if let Some(signal) = signals::arrived() {
                    return Err(Failure::Stopped(signal, "nothing was changed"));
                }
                if !event::poll(left.min(SIGNAL_PATIENCE)).map_err(unusable)? {
                    continue;
                }
                if self.hear(watcher, browse, &view)? {
                    return Ok(());
                }
                self.draw(&view, browse)?;
            }
        }
    }

    /// Takes all that was typed; whether it was to end.
    fn hear(&mut self, watcher: &Watcher, browse: &mut Browse, view: &View) -> Result<bool, Failure> {
        loop {
            if let Event::Key(pressed) = event::read().map_err(unusable)?
                && let Some(key) = key(pressed)
            {
                match browse.press(key, view, self.shown) {
                    Wish::Draw => {}
                    Wish::Quit => return Ok(true),
                    Wish::Suspend => self.suspend()?,
                    Wish::Inspect(pid) => self.inspect(watcher, browse, view, pid)?,
                }
            }
            if !event::poll(Duration::ZERO).map_err(unusable)? {
                return Ok(false);
            }
        }
    }

    fn draw(&mut self, view: &View, browse: &Browse) -> Result<(), Failure> {
        let area = area().map_err(unusable)?;
        if area != self.area {
            self.terminal.resize(area).map_err(unusable)?;
            self.area = area;
        }
        let (looks, shown) = (self.looks, &mut self.shown);
        let drawn = self.terminal.draw(|to| {
            let area = to.area();
            let drawn = frame(view, browse, looks, area.width, area.height);
            *shown = drawn.shown;
            *to.buffer_mut() = drawn.cells;
        });
        drawn.map(drop).map_err(unusable)
    }

    /// Shows the inspection of a process, or why there is none.
    fn inspect(&mut self, watcher: &Watcher, browse: &mut Browse, view: &View, pid: u32) -> Result<(), Failure> {
        browse.show(format!("inspection of process {pid}"), "being inspected");
        self.draw(view, browse)?;
        let width = usize::from(self.area.width);
        let text = match watcher.inspect(pid) {
            Ok(seen) => inspection::process(&seen, false, width),
            Err(error) => results::printable(&told(&error)),
        };
        browse.show(format!("inspection of process {pid}"), &text);
        Ok(())
    }

    /// Stops this process with the terminal as it was, and takes it again when the process goes on.
    fn suspend(&mut self) -> Result<(), Failure> {
        ratatui::try_restore().map_err(unusable)?;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP).map_err(|error| unusable(error.into()))?;
        (self.terminal, self.area) = taken().map_err(unusable)?;
        self.terminal.clear().map_err(unusable)
    }
}

fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char('z') if is_control => Key::Suspend,
        KeyCode::Char(_) if is_control || pressed.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

//! Converts captured terminal text to an SVG: `... | cargo run -p results --example terminal_picture`.

fn main() -> std::io::Result<()> {
    let text = std::io::read_to_string(std::io::stdin())?;
    print!("{}", results::terminal::picture(&text));
    Ok(())
}

//! Writes the seeds of every target into `corpus/<target>/`, where `cargo fuzz run` looks for them.

use std::error::Error;
use std::path::Path;

use bandsaw::testing::fuzz::TARGETS;

fn main() -> Result<(), Box<dyn Error>> {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        std::fs::create_dir_all(&folder)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
        println!("{}: {} seeds", target.name, seeds.len());
    }
    Ok(())
}

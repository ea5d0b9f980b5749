//! Writes the seeds of every target to `corpus/<target>/`, where `cargo fuzz run` looks for them.

use std::error::Error;
use std::path::Path;

use bandsaw::testing::fuzz::TARGETS;

fn main() -> Result<(), Box<dyn Error>> {
    let targets = TARGETS.iter().map(|target| (target.name, target.seeds));
    for (name, seeds) in targets.chain([("nbd", bandsaw_nbd::testing::seeds as fn() -> _)]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(name);
        std::fs::create_dir_all(&folder)?;
        let seeds = seeds();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
        println!("{name}: {} seeds", seeds.len());
    }
    Ok(())
}

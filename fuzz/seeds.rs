//! Writes the seeds of every target to `corpus/<target>/`, where `cargo fuzz run` looks for them.

use std::error::Error;
use std::path::Path;

use bandsaw::testing::fuzz::TARGETS;

fn main() -> Result<(), Box<dyn Error>> {
    let targets = TARGETS.iter().map(|target| (target.name, target.seeds));
    let others: [(_, fn() -> _); 2] = [
        ("nbd", bandsaw_nbd::testing::seeds),
        ("time_machine_lists", bandsaw_backups::testing::seeds),
    ];
    for (name, seeds) in targets.chain(others) {
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

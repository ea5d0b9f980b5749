//! Real images.
use std::path::{Path, PathBuf};

pub(crate) struct Real {
    pub bytes: Vec<u8>,
    pub files: Vec<(String, String)>,
}

pub(crate) fn folder() -> Result<PathBuf, String> {
    let folder = std::env::var_os("BANDSAW_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    if folder.join("MANIFEST.json").is_file() { Ok(folder) } else { Err("no corpus".into()) }
}

pub(crate) fn image(name: &str) -> Real {
    let folder = folder().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("MANIFEST.json")).unwrap()).unwrap();
    let e = manifest.as_array().unwrap().iter().find(|e| e["path"] == name).unwrap();
    let mut bytes = vec![];
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(std::fs::File::open(folder.join(name)).unwrap()), &mut bytes)
        .unwrap();
    let files = e["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["path"].as_str().unwrap().into(), f["sha256"].as_str().unwrap().into()))
        .collect();
    Real { bytes, files }
}

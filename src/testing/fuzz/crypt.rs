//! Headers of encrypted images.

use std::sync::Arc;

use super::{describe, disk};
use crate::crypt::{self, Device, KeyMaterial, LEAST_ITERATIONS, Locked, Protection, Secret};
use crate::device::{BlockDevice, BlockDeviceExt, Leave, Memory};
use crate::problem::{Problems, Severity};

/// An input describes a file. Its header is refused, or what it tells is within the file, and with some key (they are not
/// unlocked here: that takes long on purpose) the data can be read at both ends. The file is as it was.
pub fn crypt_header(input: &[u8]) {
    let Some(file) = disk(input) else { return };
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(file.to_vec()));
    let mut problems = Problems::default();
    let checked = crypt::check(&*file, &mut problems);
    let told = checked.is_err() || problems.worst() > Some(Severity::Note);
    let Ok(read) = Locked::read(&*file) else {
        assert!(told, "a check finds nothing wrong with a header that is refused");
        return;
    };
    assert!(told || checked.ok().flatten() == read.as_ref().map(|header| header.describe().block));
    let Some(header) = read else { return };
    let description = header.describe();
    let Ok(keys) = KeyMaterial::random(description.key_bits) else { panic!("{description:?}") };
    let Ok(device) = Device::new(file.clone(), header, &keys) else {
        assert!(told, "a check finds nothing wrong with data that are cut short");
        return;
    };
    let len = device.info().len;
    assert!(len == description.data_size && len <= file.info().len, "{description:?}");
    for offset in [0, len.saturating_sub(512)] {
        assert!(device.read_vec(offset, len.min(512) as usize).is_ok());
    }
    assert!(device.read_vec(len, 1).is_err());
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let made = |key_bits, block| {
        let file = Arc::new(Memory::zeros(0));
        let passphrase = Some(Secret::new(b"seed".to_vec()));
        let protection = Protection { key_bits, block, passphrase, iterations: LEAST_ITERATIONS, certificates: Vec::new() };
        let device = Device::create(file.clone(), &protection);
        let device = device.expect("it can be made");
        let grown =
            device.set_len(8192, Leave::Zeros).and_then(|()| device.write_at(100, b"secret")).and_then(|()| device.flush());
        grown.expect("it can be written");
        let mut bytes = file.to_vec();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        describe(&bytes)
    };
    vec![made(128, 512), made(256, 4096)]
}

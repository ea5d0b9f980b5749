//! Images in devices of the caller: opened and checked like files, and never changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::create::{CreateOptions, NewVolume, Source, create};
use bandsaw::progress::Silent;
use bandsaw::{Kind, Reason};

fn image(format: Format, path: &Path) -> Arc<dyn BlockDevice> {
    let options = CreateOptions {
        format,
        len: Some(4 << 20),
        volume: Some(NewVolume {
            layout: bandsaw::ops::create::Layout::Gptspud,
            name: "Docs".to_owned(),
            format: bandsaw::ops::format::NewFormat::HfsPlus,
            block_size: None,
            source: Source::Empty,
        }),
        ..CreateOptions::default()
    };
    create(path, options, &Silent).unwrap();
    Arc::new(Memory::from(fs::read(path).unwrap()))
}

#[test]
fn a_device_opens_like_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for format in [Format::Udrw, Format::Udsp, Format::Udzo, Format::Asif] {
        let path = folder.path().join(format.code());
        let device = image(format, &path);
        let options = OpenOptions::default();
        let of_file = open::open(&path, &options).unwrap();
        let name = Path::new("<memory>");
        let of_device = open::open_device(device.clone(), name, &options).unwrap();
        assert_eq!(of_device.format(), format);
        let len = usize::try_from(of_file.disk().info().len).unwrap();
        assert!(
            of_device.disk().read_vec(0, len).unwrap() == of_file.disk().read_vec(0, len).unwrap()
        );
        assert_eq!(of_device.volumes().len(), 1);
        assert_eq!(of_device.disk().info().access, Access::ReadOnly, "{format}");
        let found = open::examine_device(device, name, &options, &Silent).unwrap();
        assert_eq!(found.conclusion().name(), "sound");
    }
}

#[test]
fn a_device_is_neither_changed_nor_layered() {
    let folder = tempfile::tempdir().unwrap();
    let device = image(Format::Udrw, &folder.path().join("image"));
    let name = Path::new("<memory>");
    let writing = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let refused = open::open_device(device.clone(), name, &writing).unwrap_err();
    assert_eq!(refused.kind(), Kind::ReadOnly);
    assert_eq!(refused.file(), Some("<memory>"));
    let shadows = [PathBuf::from("over.asif")];
    let layered = OpenOptions {
        shadows: &shadows,
        ..OpenOptions::default()
    };
    let refused = open::open_device(device, name, &layered).unwrap_err();
    assert_eq!(refused.kind(), Kind::Unsupported);

    let text: Arc<dyn BlockDevice> = Arc::new(Memory::from(b"not an image".repeat(100)));
    let unknown = open::open_device(text, name, &OpenOptions::default()).unwrap_err();
    assert_eq!(unknown.reason(), Some(Reason::UnknownFormat));
}

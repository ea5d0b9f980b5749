//! Previews of files of every kind.

use std::fs;

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;

use crate::common::{Images, Site};

/// A PDF with one page.
pub(crate) fn document() -> Vec<u8> {
    let text = "1 0 0 rg 0 0 300 200 re f";
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{text}\nendstream", text.len()),
    ];
    let mut file = "%PDF-1.4\n".to_owned();
    let mut table = "xref\n0 5\n0000000000 65535 f \n".to_owned();
    for (number, object) in (1..).zip(objects) {
        table.push_str(&format!("{:010} 00000 n \n", file.len()));
        file.push_str(&format!("{number} 0 obj\n{object}\nendobj\n"));
    }
    let at = file.len();
    file.push_str(&table);
    file.push_str(&format!(
        "trailer << /Size 5 /Root 1 0 R >>\nstartxref\n{at}\n%%EOF\n"
    ));
    file.into_bytes()
}

/// Two seconds of a tone: 8,000 samples a second, of a byte each.
pub(crate) fn sound() -> Vec<u8> {
    let samples: Vec<u8> = (0..16_000_u32)
        .map(|at| if at / 9 % 2 == 0 { 96 } else { 160 })
        .collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + samples.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend([1, 0, 1, 0]);
    file.extend(8000_u32.to_le_bytes());
    file.extend(8000_u32.to_le_bytes());
    file.extend([1, 0, 8, 0]);
    file.extend(b"data");
    file.extend((samples.len() as u32).to_le_bytes());
    file.extend(samples);
    file
}

/// A binary property list: `{"Name": "a<b"}`.
pub(crate) fn binary_list() -> Vec<u8> {
    let mut list = b"bplist00".to_vec();
    list.extend([0xD1, 1, 2]);
    list.extend(b"\x54Name");
    list.extend(b"\x53a<b");
    list.extend([8, 11, 16]);
    list.extend([0; 6]);
    list.extend([1, 1]);
    list.extend(3_u64.to_be_bytes());
    list.extend(0_u64.to_be_bytes());
    list.extend(20_u64.to_be_bytes());
    list
}

/// Writes a file of each kind into the tree of an image.
pub(crate) fn write_all(images: &Images) {
    for (name, bytes) in [
        ("letter.pdf", document()),
        ("tone.wav", sound()),
        ("binary.plist", binary_list()),
        ("e\u{301}.txt", b"combining".to_vec()),
    ] {
        fs::write(images.path("tree").join(name), bytes).unwrap();
    }
}

#[test]
fn documents_are_shown_in_a_frame_that_may_do_nothing() {
    let images = Images::new();
    write_all(&images);
    fs::write(images.path("tree/late.txt"), "x%PDF-1.4").unwrap();
    images.create("docs.dmg", Format::Udzo, NewFormat::HfsPlus, None);
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let page = visitor.get("file?r=0&i=docs.dmg&v=1&p=/letter.pdf");
    let text = page.text();
    assert!(text.contains("<iframe class=\"document\"") && text.contains("download the file"));
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.ends_with("frame-src 'self'"), "{policy}");
    let raw = "raw?r=0&i=docs.dmg&v=1&p=/letter.pdf";
    let shown = visitor.get(&format!("{raw}&show=1"));
    assert_eq!(shown.field("content-type").unwrap(), "application/pdf");
    let policy = shown.field("content-security-policy").unwrap();
    assert!(
        policy.starts_with("sandbox; default-src 'none'"),
        "{policy}"
    );
    assert_eq!(shown.field("x-frame-options").unwrap(), "SAMEORIGIN");
    assert_eq!(shown.body, document());
    // Everything else is in no frame, nor is a download.
    let saved = visitor.get(raw);
    assert_eq!(
        saved.field("content-type").unwrap(),
        "application/octet-stream"
    );
    for page in [
        raw,
        "file?r=0&i=docs.dmg&v=1&p=/hello.txt",
        "raw?r=0&i=docs.dmg&v=1&p=/late.txt&show=1",
    ] {
        let reply = visitor.get(page);
        assert_eq!(reply.field("x-frame-options").unwrap(), "DENY", "{page}");
        let policy = reply.field("content-security-policy").unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("frame-src"),
            "{page}"
        );
    }
}

#[test]
fn sounds_are_sent_by_ranges_and_lists_are_text() {
    let images = Images::new();
    write_all(&images);
    images.create("docs.dmg", Format::Udzo, NewFormat::HfsPlus, None);
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let page = visitor.page("file?r=0&i=docs.dmg&v=1&p=/tone.wav");
    assert!(page.contains("<audio controls"), "{page}");
    let raw = "raw?r=0&i=docs.dmg&v=1&p=/tone.wav&show=1";
    let part = visitor.get_with(raw, &["Range: bytes=100-199"]);
    assert_eq!((part.status, part.body), (206, sound()[100..200].to_vec()));
    let list = visitor.page("file?r=0&i=docs.dmg&v=1&p=/binary.plist");
    for part in ["&lt;key&gt;Name&lt;/key&gt;", "a&amp;lt;b"] {
        assert!(list.contains(part), "{part}: {list}");
    }
}

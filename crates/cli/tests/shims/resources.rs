//! Licenses, icons and pictures.

use super::*;

#[test]
fn licenses_and_icons_are_added() {
    let scratch = links();
    let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
    scratch.write("src/file", "file");
    scratch.write("license.r", LICENSE);
    ok("hdiutil create -srcfolder src -fs HFS+ a");
    ok("hdiutil unflatten a.dmg");
    ok("Rez -F Carbon Carbon.r license.r -a -o a.dmg");
    ok("hdiutil flatten a.dmg");
    scratch.ok(&["verify", "a.dmg"]);
    assert_eq!(scratch.ok(&["cat", "a.dmg:/file"]), "file");
    let text = scratch.ok(&["resources", "extract", "a.dmg", "TEXT:5000", "--raw"]);
    assert_eq!(text, "be nice");
    // As text, and back.
    scratch.write("all.r", ok("DeRez a.dmg"));
    assert!(!ok("DeRez a.dmg -only LPic").contains("STR#"));
    ok("hdiutil create -srcfolder src -fs HFS+ b");
    ok("Rez -a all.r -o b.dmg");
    let list = |image: &str| scratch.ok(&["resources", "extract", image]);
    assert_eq!(list("b.dmg"), list("a.dmg"));
    // Without -a, the license is replaced.
    scratch.write("one.r", "data 'TEXT' (5001) { \"other\" };");
    ok("Rez one.r -o b.dmg");
    assert!(!list("b.dmg").contains("LPic"));

    if !run(&scratch, &["xattr", "-w", "org.example.a", "1", "a.dmg"])
        .status
        .success()
    {
        return skip(
            "licenses_and_icons_are_added",
            "files have no attributes here",
        );
    }
    scratch.write("x.icns", b"icns\0\0\0\x08");
    scratch.write("icon.r", "read 'icns' (-16455) \"x.icns\";");
    ok("Rez -a icon.r -o a.dmg");
    ok("SetFile -a C a.dmg");
    assert!(!list("a.dmg").contains("icns"));
    let printed = ok("DeRez -only icns a.dmg");
    assert!(
        printed.starts_with("data 'icns' (-16455) {\n\t$\"6963 6E73 0000 0008\""),
        "{printed}"
    );
    let fork = ok("xattr -px com.apple.ResourceFork a.dmg");
    assert!(fork.contains("69 63 6E 73"), "{fork}");
}

/// Writes pictures by all filters of PNG, and compares the pages of a TIFF with them.
const PICTURES: &str = r"import struct, sys, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
def png(path, width, height, depth, color, rows, more=b''):
    header = struct.pack('>IIBBBBB', width, height, depth, color, 0, 0, 0)
    data = zlib.compress(b''.join(rows))
    with open(path, 'wb') as file:
        file.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + more + chunk(b'IDAT', data) + chunk(b'IEND', b''))
def paeth(a, b, c):
    near = [(abs(b - c), a), (abs(a - c), b), (abs(a + b - 2 * c), c)]
    return min(near, key=lambda pair: pair[0])[1]
def filtered(rows, size):
    before = bytes(len(rows[0]))
    for number, row in enumerate(rows):
        left = bytes(size) + row
        corner = bytes(size) + before
        guesses = [
            lambda i: 0, lambda i: left[i], lambda i: before[i], lambda i: (left[i] + before[i]) // 2,
            lambda i: paeth(left[i], before[i], corner[i])]
        kind = number % 5
        yield bytes([kind]) + bytes((row[i] - guesses[kind](i)) % 256 for i in range(len(row)))
        before = row
def pixels(width, height, step):
    return [bytes((x * 7 + y * 13 + c * step) % 256 for x in range(width) for c in range(4)) for y in range(height)]
if sys.argv[1] == 'make':
    png('one.png', 10, 6, 8, 6, filtered(pixels(10, 6, 50), 4))
    png('two.png', 20, 12, 8, 6, filtered(pixels(20, 12, 60), 4))
    palette = chunk(b'PLTE', bytes(range(12)))
    png('palette.png', 4, 1, 2, 3, [bytes([0, 0b00011011])], palette)
    png('gray.png', 2, 1, 16, 0, [bytes([0, 9, 1, 8, 2])], chunk(b'tRNS', bytes([8, 2])))
else:
    data = open(sys.argv[2], 'rb').read()
    assert data[:4] == b'II*\0'
    at, pages = struct.unpack('<I', data[4:8])[0], []
    while at:
        fields = {}
        for entry in range(struct.unpack('<H', data[at:at + 2])[0]):
            tag, kind, count, value = struct.unpack('<HHII', data[at + 2 + 12 * entry:][:12])
            fields[tag] = value & 0xFFFF if kind == 3 and count == 1 else value
        at = struct.unpack('<I', data[at + 2 + 12 * (entry + 1):][:4])[0]
        pixels_of = data[fields[273]:fields[273] + fields[279]]
        dots = struct.unpack('<II', data[fields[282]:fields[282] + 8])
        pages.append((fields[256], fields[257], fields[277], dots[0] // dots[1], pixels_of))
    if sys.argv[3] == 'two':
        assert pages == [
            (10, 6, 4, 72, b''.join(pixels(10, 6, 50))), (20, 12, 4, 144, b''.join(pixels(20, 12, 60)))], pages
    else:
        assert pages == [
            (4, 1, 3, 72, bytes(range(12))), (2, 1, 4, 72, bytes([9, 9, 9, 255, 8, 8, 8, 0]))], pages
";

#[test]
fn pictures_are_put_together() {
    let scratch = links();
    let python = |args: &[&str]| {
        let mut command = Command::new("python3");
        command
            .args(["-c", PICTURES])
            .args(args)
            .current_dir(scratch.path(""));
        command.output()
    };
    let Ok(made) = python(&["make"]) else {
        return without_program("pictures_are_put_together", "no python3");
    };
    assert!(made.status.success(), "{}", stderr(&made));
    let ok = |line: &str| ok(&scratch, &line.split(' ').collect::<Vec<_>>());
    let read = |file: &str, what: &str| {
        let output = python(&["read", file, what]).unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    };
    ok("tiffutil -cathidpicheck one.png two.png -out both.tiff");
    read("both.tiff", "two");
    // Pages that are in a TIFF already stay as they are.
    ok("tiffutil -cat both.tiff");
    read("out.tiff", "two");
    ok("tiffutil -cat palette.png gray.png -out more.tiff");
    read("more.tiff", "more");
    for file in ["two.png", "more.tiff"] {
        let printed = ok(&format!("sips -g pixelHeight -g pixelWidth {file}"));
        let (height, width) = if file == "two.png" { (12, 20) } else { (1, 4) };
        let expected = format!("  pixelHeight: {height}\n  pixelWidth: {width}\n");
        assert!(printed.ends_with(&expected), "{printed}");
    }
    for line in [
        "tiffutil -cathidpicheck one.png one.png -out x.tiff",
        "tiffutil -cathidpicheck one.png -out x.tiff",
    ] {
        fails(&scratch, &line.split(' ').collect::<Vec<_>>());
    }
    assert!(!scratch.path("x.tiff").exists());
}

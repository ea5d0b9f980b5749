"""Images in a bucket and behind a web server, from a server in this process."""

from __future__ import annotations

import http.server
import os
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

import bandsaw


class Handler(http.server.BaseHTTPRequestHandler):
    """Files of a folder as objects: GET and HEAD with ranges, and lists of a bucket."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, has_body: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        name = urllib.parse.unquote(url.path).lstrip("/")
        if "list-type" in query:
            self.send(200, self.listing(name.strip("/"), query), has_body, {"Content-Type": "application/xml"})
            return
        path = self.folder / name
        if not path.is_file():
            error = b"<Error><Code>NoSuchKey</Code></Error>"
            self.send(404, error, has_body, {"Content-Type": "application/xml"})
            return
        data = path.read_bytes()
        headers = {
            "ETag": f'"{path.stat().st_mtime_ns:x}"',
            "Last-Modified": self.date_time_string(path.stat().st_mtime),
            "Accept-Ranges": "bytes",
        }
        status = 200
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(data) - int(last))
            end = min(len(data), int(last) + 1) if first and last else len(data)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            status, data = 206, data[start:end]
        self.send(status, data, has_body, headers)

    def listing(self, bucket: str, query: dict[str, str]) -> bytes:
        root, prefix = self.folder / bucket, query.get("prefix", "")
        delimiter, after = query.get("delimiter", ""), query.get("start-after", "")
        keys, prefixes = [], set()
        for folder, _, files in os.walk(root):
            for file in files:
                key = str(Path(folder, file).relative_to(root))
                if not key.startswith(prefix) or key <= after:
                    continue
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
                else:
                    keys.append(key)
        parts = ["<ListBucketResult><IsTruncated>false</IsTruncated>"]
        for key in sorted(keys):
            size = (root / key).stat().st_size
            parts.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f'<ETag>"x"</ETag><Size>{size}</Size></Contents>'
            )
        parts += [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(prefixes)]
        return "".join([*parts, "</ListBucketResult>"]).encode()

    def send(self, status: int, data: bytes, has_body: bool, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if has_body:
            self.wfile.write(data)


@pytest.fixture
def server(examples: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    handler = type("ExampleHandler", (Handler,), {"folder": examples})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{found.server_address[1]}"
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        yield url
        found.shutdown()
        thread.join()


def test_a_web_server(server: str, dmg: Path) -> None:
    with bandsaw.open(f"{server}/Docs.dmg") as image, bandsaw.open(dmg) as local:
        assert image.layers[0] == "remote_file"
        assert image.volume().read_bytes("Letters/a.txt") == b"Dear A\n"
        assert image.checksum() == local.checksum()
    with pytest.raises(bandsaw.Error):
        bandsaw.open(f"{server}/missing.dmg")
    with pytest.raises(bandsaw.Error):
        bandsaw.open(f"{server}/Docs.dmg", writable=True)


def test_a_bundle_in_a_bucket(server: str, examples: Path, tmp_path: Path) -> None:
    # A folder beside the examples is the bucket; the files of the bundle in it are the objects.
    bucket = examples / "backups"
    if not bucket.exists():
        with bandsaw.open(examples / "Docs.sparsebundle") as image:
            bucket.mkdir()
            image.convert(bucket / "Mac.sparsebundle", passphrase="open sesame")
    with pytest.raises(bandsaw.PassphraseNeeded):
        bandsaw.open("s3://backups/Mac.sparsebundle")
    with bandsaw.open("s3://backups/Mac.sparsebundle", passphrase="open sesame") as image:
        assert image.layers[0] == "bucket"
        assert image.info().bucket is not None
        volume = image.volume()
        assert volume.read_bytes("Letters/b.txt") == b"Dear B\n"
        volume.extract(tmp_path / "restored", "/Letters")
    assert (tmp_path / "restored/a.txt").read_bytes() == b"Dear A\n"

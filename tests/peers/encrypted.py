"""Decrypts and makes encrypted disk images (`encrcdsa`, version 2), written from docs/formats/encrypted.md alone.

    encrypted.py decrypt IMAGE KEY OUT    KEY: a file with the passphrase, or a private key in PEM
    encrypted.py make PLAIN KEY OUT BITS BLOCK ITERATIONS

IMAGE is a file or a sparse bundle. Nothing of this shares code with Bandsaw; the ciphers are those of `cryptography`.
"""

import os
import plistlib
import struct
import sys

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
except ImportError:
    TripleDES = algorithms.TripleDES

MARK = b"CKIE\0"
DATA_OFFSETS = {512: 0x1DE00, 4096: 0x1E000}


def derive(passphrase, salt, iterations, length=24):
    return PBKDF2HMAC(hashes.SHA1(), length, salt, iterations).derive(passphrase)


def marked(plain):
    return plain[: -len(MARK)] if plain.endswith(MARK) else None


def by_passphrase(entry, passphrase):
    kdf, prf, iterations, salt_length = struct.unpack_from(">4I", entry)
    bits, algorithm, pad, mode, length = struct.unpack_from(">5I", entry, 0x54)
    assert (kdf, prf, salt_length, pad, mode) == (103, 0, 20, 7, 6), "unknown passphrase entry"
    assert (bits, algorithm) == (192, 17) or (algorithm == 0x80000001 and bits in (128, 192, 256)), "unknown wrap"
    assert struct.unpack_from(">I", entry, 0x30) == (8,) and len(entry) == 616
    assert not any(entry[0x10 + 20 : 0x30] + entry[0x34 + 8 : 0x54] + entry[0x68 + length :]), "padding is zeros"
    key = derive(passphrase, entry[0x10 : 0x10 + 20], iterations, bits // 8)
    if algorithm == 17:
        decryptor = Cipher(TripleDES(key), modes.CBC(entry[0x34:0x3C])).decryptor()
    else:
        decryptor = Cipher(algorithms.AES(key), modes.CBC(entry[0x34:0x3C] + bytes(8))).decryptor()
    plain = decryptor.update(entry[0x68 : 0x68 + length]) + decryptor.finalize()
    count = plain[-1]
    return marked(plain[:-count]) if plain[-count:] == bytes([count]) * count else None


def by_private_key(entry, private):
    hash_length, = struct.unpack_from(">I", entry)
    algorithm, pad, mode, length = struct.unpack_from(">4I", entry, 0x24)
    assert (hash_length, algorithm, pad, mode) == (20, 42, 10, 0), "unknown public key entry"
    numbers = private.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.PKCS1)
    digest = hashes.Hash(hashes.SHA1())
    digest.update(numbers)
    if digest.finalize() != entry[4:24]:
        return None
    return marked(private.decrypt(entry[0x34 : 0x34 + length], padding.PKCS1v15()))


class Header:
    def __init__(self, data, key):
        magic, version, iv_length, mode, algorithm, bits, iv_algorithm, iv_bits = struct.unpack_from(">8s7I", data)
        assert (magic, version) == (b"encrcdsa", 2), "no encrypted image"
        assert (iv_length, mode, algorithm, iv_algorithm, iv_bits) == (16, 5, 0x80000001, 91, 160), "unknown ciphers"
        self.block, self.size, self.offset, count = struct.unpack_from(">IQQI", data, 0x34)
        assert self.offset == DATA_OFFSETS[self.block] and bits in (128, 256)
        material = None
        for n in range(count):
            kind, offset, size = struct.unpack_from(">IQQ", data, 0x4C + 20 * n)
            entry = data[offset : offset + size]
            if kind == 1 and isinstance(key, bytes):
                material = material or by_passphrase(entry, key)
            if kind == 2 and not isinstance(key, bytes):
                material = material or by_private_key(entry, key)
        if material is None:
            sys.exit("no entry opens with this key")
        assert len(material) == bits // 8 + 20
        self.cipher, self.mac = material[:-20], material[-20:]


def vector(mac, number):
    digest = hmac.HMAC(mac, hashes.SHA1())
    digest.update(struct.pack(">I", number))
    return digest.finalize()[:16]


def decrypt(header, data):
    plain = bytearray()
    for n in range(len(data) // header.block):
        mode = modes.CBC(vector(header.mac, n))
        decryptor = Cipher(algorithms.AES(header.cipher), mode).decryptor()
        plain += decryptor.update(data[n * header.block : (n + 1) * header.block]) + decryptor.finalize()
    return plain


def decrypt_bundle(folder, key):
    """Missing bands and what lies past a band's file are zeros; blocks count from 0 in every band."""
    read = lambda name: open(os.path.join(folder, name), "rb").read()
    info = plistlib.loads(read("Info.plist"))
    header = Header(read("token"), key)
    disk = bytearray(info["size"])
    for name in os.listdir(os.path.join(folder, "bands")):
        band = read("bands/" + name)
        start = int(name, 16) * info["band-size"]
        plain = decrypt(header, band)[: len(disk) - start]
        disk[start : start + len(plain)] = plain
    return disk


def decrypt_file(path, key):
    data = open(path, "rb").read()
    header = Header(data, key)
    end = header.offset + -(-header.size // header.block) * header.block
    return decrypt(header, data[header.offset : end])[: header.size]


def make(plain, passphrase, bits, block, iterations):
    cipher, mac, salt, iv = os.urandom(bits // 8), os.urandom(20), os.urandom(20), os.urandom(8)
    material = cipher + mac + MARK
    count = 8 - len(material) % 8
    encryptor = Cipher(TripleDES(derive(passphrase, salt, iterations)), modes.CBC(iv)).encryptor()
    blob = encryptor.update(material + bytes([count]) * count) + encryptor.finalize()
    entry = struct.pack(">4I32sI32s5I512s", 103, 0, iterations, 20, salt, 8, iv, 192, 17, 7, 6, len(blob), blob)
    header = struct.pack(">8s7I", b"encrcdsa", 2, 16, 5, 0x80000001, bits, 91, 160) + os.urandom(16)
    header += struct.pack(">IQQI", block, len(plain), DATA_OFFSETS[block], 1) + struct.pack(">IQQ", 1, 0x60, 616) + entry
    image = bytearray(header.ljust(DATA_OFFSETS[block], b"\0"))
    for n, start in enumerate(range(0, len(plain), block)):
        encryptor = Cipher(algorithms.AES(cipher), modes.CBC(vector(mac, n))).encryptor()
        image += encryptor.update(plain[start : start + block].ljust(block, b"\xA5")) + encryptor.finalize()
    return image


def main(verb, source, key, out, *numbers):
    key = open(key, "rb").read()
    if key.startswith(b"-----BEGIN"):
        key = serialization.load_pem_private_key(key, None)
    if verb == "make":
        result = make(open(source, "rb").read(), key, *map(int, numbers))
    else:
        result = (decrypt_bundle if os.path.isdir(source) else decrypt_file)(source, key)
    open(out, "wb").write(result)


main(*sys.argv[1:])

//! Tests of archives for a private key, of signed ones, and of wrapped keys.

use super::*;

fn pair() -> P256PrivateKey {
    P256PrivateKey::generate().unwrap()
}

#[test]
fn archives_for_a_recipient_open_with_the_private_key_only() {
    let (recipient, signer, other) = (pair(), pair(), pair());
    let plain = text(150_000);
    for signed in [false, true] {
        let options = NewArchive {
            key: Some(NewArchiveKey::Recipient(recipient.public().clone())),
            signer: signed.then(|| signer.clone()),
            compression: Compression::Lzfse,
        };
        let bytes = written(&options, &plain);
        let keys = |key: &P256PrivateKey, signer: Option<&P256PrivateKey>| ArchiveKeys {
            key: Some(ArchiveKey::Private(key.clone())),
            signer: signer.map(|key| key.public().clone()),
        };
        let right = keys(&recipient, signed.then_some(&signer));
        let archive = open_with(&bytes, &right).unwrap();
        assert!(read_all(&archive).unwrap() == plain);
        let expected = match signed {
            true => SignatureState::Verified,
            false => SignatureState::None,
        };
        assert_eq!(archive.description().signature, expected);
        let fails = |bytes: &[u8], keys: &ArchiveKeys| {
            let error = open_with(bytes, keys).unwrap_err();
            (error.kind(), error.reason())
        };
        let wrong = (Kind::WrongKey, Some(Reason::WrongArchiveKey));
        assert_eq!(
            fails(&bytes, &keys(&other, signed.then_some(&signer))),
            wrong
        );
        let none = (Kind::WrongKey, Some(Reason::ArchivePrivateKeyNeeded));
        assert_eq!(fails(&bytes, &ArchiveKeys::default()), none);
        if signed {
            assert_eq!(fails(&bytes, &keys(&recipient, Some(&other))), wrong);
            let none = (Kind::WrongKey, Some(Reason::SignerKeyNeeded));
            assert_eq!(fails(&bytes, &keys(&recipient, None)), none);
        }
        // Every byte of the prologue and of the first headers is authenticated.
        for at in (4..700).step_by(7).chain(4..12) {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            let read = LockedArchive::read(&Memory::from(changed.clone()));
            let opened = read.and_then(|locked| locked.unwrap().unlock(&right));
            let read = opened.and_then(|unlocked| {
                read_all(&Archive::new(Arc::new(Memory::from(changed)), unlocked))
            });
            assert!(read.is_err(), "{at}");
        }
    }
}

#[test]
fn signed_archives_are_verified() {
    let signer = pair();
    let plain = text(50_000);
    for key in [None, Some(NewArchiveKey::Symmetric(symmetric()))] {
        let options = NewArchive {
            key,
            signer: Some(signer.clone()),
            compression: Compression::Zlib,
        };
        let bytes = written(&options, &plain);
        let keys = ArchiveKeys {
            key: Some(ArchiveKey::Symmetric(symmetric())),
            signer: Some(signer.public().clone()),
        };
        let archive = open_with(&bytes, &keys).unwrap();
        assert_eq!(archive.description().signature, SignatureState::Verified);
        assert!(archive.is_authenticated() && read_all(&archive).unwrap() == plain);
    }
}

/// Metadata as in system software, with the key of the fixture wrapped for `recipient`.
fn metadata(recipient: &P256PrivateKey) -> Vec<u8> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    let (encapsulated, wrapped) = hpke::seal(recipient.public(), &KEY).unwrap();
    let json = format!(
        r#"{{"enc-request":"{}","wrapped-key":"{}"}}"#,
        STANDARD.encode(encapsulated),
        STANDARD.encode(wrapped).replace('/', "\\/")
    );
    let entry = |name: &str, value: &str| {
        let pair = [name.as_bytes(), &[0], value.as_bytes()].concat();
        let len = u32::try_from(pair.len() + 4).unwrap();
        [&len.to_le_bytes()[..], &pair].concat()
    };
    [
        entry("com.apple.wkms.fcs-key-url", "https://keys.example/key.pem"),
        entry("com.apple.wkms.fcs-response", &json),
    ]
    .concat()
}

#[test]
fn keys_of_system_software_are_unwrapped() {
    let (recipient, other) = (pair(), pair());
    let fixture = ArchiveFixture {
        metadata: metadata(&recipient),
        ..ArchiveFixture::default()
    };
    let plain = text(50_000);
    let bytes = fixture.of(&plain);
    let description = LockedArchive::read(&Memory::from(bytes.clone()));
    let description = description.unwrap().unwrap().describe();
    assert!(description.has_wrapped_key);
    let url = description.key_url.as_deref();
    assert_eq!(url, Some("https://keys.example/key.pem"));
    let with = |key: &P256PrivateKey| ArchiveKeys {
        key: Some(ArchiveKey::Private(key.clone())),
        signer: None,
    };
    let archive = open_with(&bytes, &with(&recipient)).unwrap();
    assert!(read_all(&archive).unwrap() == plain);
    // The key itself opens it, too.
    assert!(open_with(&bytes, &fixture.keys()).is_ok());
    let fails = |bytes: &[u8], keys: &ArchiveKeys| {
        let error = open_with(bytes, keys).unwrap_err();
        (error.kind(), error.reason())
    };
    let wrong = (Kind::WrongKey, Some(Reason::WrongArchiveKey));
    assert_eq!(fails(&bytes, &with(&other)), wrong);
    let none = (Kind::WrongKey, Some(Reason::ArchivePrivateKeyNeeded));
    assert_eq!(fails(&bytes, &ArchiveKeys::default()), none);
    for at in (12..12 + fixture.metadata.len()).step_by(5) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(open_with(&changed, &with(&recipient)).is_err(), "{at}");
    }
    // Without such metadata, a private key is none.
    let plain_one = ArchiveFixture::default().of(&plain);
    let none = (Kind::WrongKey, Some(Reason::ArchiveKeyNeeded));
    assert_eq!(fails(&plain_one, &with(&recipient)), none);
}

#[test]
fn wrapped_keys_of_any_form_are_survived() {
    let recipient = pair();
    for json in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"enc-request":1,"wrapped-key":2}"#,
        r#"{"enc-request":"AAAA","wrapped-key":"AAAA"}"#,
        &format!("{{\"enc-request\":\"{}\"}}", "A".repeat(70_000)),
        &"[".repeat(10_000),
    ] {
        let error = wrapped_key::unwrap(json.as_bytes(), &recipient).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
}

//! Tests of the handshake, option by option.

use std::sync::Arc;

use crate::common::{ACK, Client, context, go, server};
use bandsaw::device::{BlockDevice, Memory};
use bandsaw_nbd::{Export, Options, Server};

const UNSUPPORTED: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const UNKNOWN: u32 = 0x8000_0006;

fn memory(len: usize) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::zeros(len))
}

fn two() -> Server {
    let exports = vec![
        Export::new("", "the disk", memory(1 << 20)),
        Export::new("Büro", "a volume", memory(4096)),
    ];
    Server::new(exports, Options::default()).unwrap()
}

#[test]
fn exports_are_listed_and_selected_by_name() {
    let mut client = Client::greeted(&two());
    let named = |name: &str, what: &str| {
        (
            2,
            [
                &(name.len() as u32).to_be_bytes(),
                name.as_bytes(),
                what.as_bytes(),
            ]
            .concat(),
        )
    };
    assert_eq!(
        client.option(3, &[]),
        [
            named("", "the disk"),
            named("Büro", "a volume"),
            (ACK, vec![])
        ]
    );
    let report = client.option(6, &go("Büro", &[1, 2, 3, 77]));
    let kinds: Vec<_> = report
        .iter()
        .map(|(kind, data)| (*kind, data.get(1).copied()))
        .collect();
    assert_eq!(
        kinds,
        [
            (3, Some(0)),
            (3, Some(3)),
            (3, Some(1)),
            (3, Some(2)),
            (ACK, None)
        ]
    );
    assert_eq!(report[0].1[2..10], 4096_u64.to_be_bytes());
    assert_eq!(
        report[1].1[2..],
        [1_u32, 4096, 32 << 20].map(u32::to_be_bytes).concat()
    );
    assert_eq!(
        (&report[2].1[2..], &report[3].1[2..]),
        ("Büro".as_bytes(), &b"a volume"[..])
    );
    assert_eq!(client.option(7, &go("nothing", &[]))[0].0, UNKNOWN);
    // INFO does not choose an export.
    assert_eq!(
        client.option(7, &go("", &[]))[0].1[2..10],
        (1_u64 << 20).to_be_bytes()
    );
    assert!(client.read(0, (1 << 20) - 512, 512).is_ok());
    client.leave();
}

#[test]
fn the_old_way_to_choose() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let mut client = Client::connected(&two());
        client.bytes(18);
        client.send(&[0, 0, 0, flags]);
        client.send(
            &[
                &b"IHAVEOPT\0\0\0\x01"[..],
                &5_u32.to_be_bytes(),
                "Büro".as_bytes(),
            ]
            .concat(),
        );
        let report = client.bytes(10 + zeroes);
        assert_eq!(report[..8], 4096_u64.to_be_bytes());
        assert!(report[10..].iter().all(|byte| *byte == 0));
        assert_eq!(client.read(0, 0, 4096).unwrap(), [0; 4096]);
        client.leave();
    }
    let mut client = Client::greeted(&two());
    client.send(b"IHAVEOPT\0\0\0\x01\0\0\0\x01x");
    assert!(client.is_over());
}

#[test]
fn contexts_want_structured_replies_and_an_export() {
    let mut client = Client::greeted(&two());
    let base = |id: u32| (4, [&id.to_be_bytes(), &b"base:allocation"[..]].concat());
    assert_eq!(
        client.option(9, &context("", &[])),
        [base(0), (ACK, vec![])]
    );
    assert_eq!(
        client.option(9, &context("", &["base:"])),
        [base(0), (ACK, vec![])]
    );
    assert_eq!(client.option(9, &context("", &["qemu:"])), [(ACK, vec![])]);
    assert_eq!(
        client.option(10, &context("", &["base:allocation"]))[0].0,
        INVALID
    );
    assert_eq!(client.option(8, &[]), [(ACK, vec![])]);
    assert_eq!(
        client.option(10, &context("other", &["base:allocation"]))[0].0,
        UNKNOWN
    );
    assert_eq!(
        client.option(10, &context("Büro", &["base:allocation", "x:y"])),
        [base(1), (ACK, vec![])]
    );
    // A context belongs to one export.
    client.option(7, &go("", &[]));
    client.structured = true;
    assert_eq!(client.status(0, 0, 512), Err(crate::common::INVAL));
    client.leave();
}

#[test]
fn unknown_options_are_refused_and_the_handshake_continues() {
    let mut client = Client::greeted(&two());
    assert_eq!(client.option(99, b"what?")[0].0, UNSUPPORTED);
    assert_eq!(client.option(11, &[])[0].0, UNSUPPORTED, "extended headers");
    assert_eq!(
        client.option(5, &[])[0].0,
        POLICY,
        "TLS without certificates"
    );
    assert_eq!(client.option(3, b"x")[0].0, INVALID);
    assert_eq!(client.option(7, b"x")[0].0, INVALID);
    assert_eq!(client.option(2, &[])[0].0, ACK);
    assert!(client.is_over());
}

#[test]
fn flags_say_what_there_is() {
    let flags = |client: &mut Client| {
        let report = client.option(6, &go("", &[]));
        u16::from_be_bytes(report[0].1[10..12].try_into().unwrap())
    };
    let mut client = Client::greeted(&server(memory(4096)));
    assert_eq!(flags(&mut client), 0b1101_0110_1101);
    client.option(8, &[]);
    assert_eq!(flags(&mut client), 0b1101_1110_1101);
}

#[test]
fn exports_that_make_no_sense() {
    assert!(Server::new(vec![], Options::default()).is_err());
    let same = || Export::new("a", "", memory(512));
    assert!(Server::new(vec![same(), same()], Options::default()).is_err());
    assert!(
        Server::new(
            vec![Export::new("x".repeat(5000), "", memory(512))],
            Options::default()
        )
        .is_err()
    );
}

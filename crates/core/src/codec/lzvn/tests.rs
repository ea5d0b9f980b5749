//! Tests of the decoder and the encoder.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn decoded(packed: &[u8], len: usize) -> Result<Vec<u8>, CodecError> {
    let mut plain = vec![0xEE; len];
    decode(packed, &mut plain).map(|()| plain)
}

/// Decodes the stream with the independent LZFSE decoder, in a frame.
fn decoded_by_another(packed: &[u8], len: usize) -> Vec<u8> {
    let mut framed = b"bvxn".to_vec();
    framed.extend((len as u32).to_le_bytes());
    framed.extend((packed.len() as u32).to_le_bytes());
    framed.extend_from_slice(packed);
    framed.extend(b"bvx$");
    let mut plain = Vec::new();
    lzfse_rust::decode_bytes(&framed, &mut plain).expect("a stream another decoder takes");
    plain
}

#[test]
fn every_kind_of_opcode() {
    let stream = [
        &[0xE3, b'a', b'b', b'c'][..], // literals
        &[0x0E, 0x16],                 // nothing, twice
        &[0xC8, 3, b'x', b'y', b'z'],  // three literals, four from three back: "xyz" and "x"
        &[0x47 | 1 << 3, 7, 0, b'-'],  // one literal, four from seven back
        &[0xA0 | 1 << 3, 3 << 2, 0, b'+'],
        &[0x46, b'!'],
        &[0xF2],
        &[0xF0, 0],
        &[END],
    ]
    .concat();
    let mut expected = b"abcxyz".to_vec();
    let back = |plain: &mut Vec<u8>, distance: usize, len: usize| {
        (0..len).for_each(|_| plain.push(plain[plain.len() - distance]));
    };
    back(&mut expected, 3, 4);
    expected.push(b'-');
    back(&mut expected, 7, 4);
    expected.push(b'+');
    back(&mut expected, 3, 3);
    expected.push(b'!');
    back(&mut expected, 3, 3);
    back(&mut expected, 3, 2);
    back(&mut expected, 3, 16);
    assert_eq!(decoded(&stream, expected.len()).unwrap(), expected);
    assert!(
        decoded(&stream, expected.len() + 1).is_err(),
        "an end too early is told"
    );
}

#[test]
fn invalid_streams_are_refused() {
    for (stream, len) in [
        (&[][..], 1),
        (&[END], 1),
        (&[0x1E], 1),
        (&[0x70], 9),
        (&[0xD0], 9),
        (&[0xE5, b'a'], 5),          // literals cut off
        (&[0xE0], 16),               // an opcode cut off
        (&[0xE1, b'a', 0x00], 9),    // a distance cut off
        (&[0xE1, b'a', 0x00, 2], 9), // before the beginning
        (&[0xE1, b'a', 0x00, 0], 9), // from nowhere
        (&[0xE1, b'a', 0xF3], 9),    // the distance of no match
        (&[0xE2, b'a', b'b'], 1),    // more than fits
        (&[0xE1, b'a', 0x00, 1], 2),
    ] {
        assert!(decoded(stream, len).is_err(), "{stream:x?}");
    }
}

#[test]
fn a_text_gets_shorter() {
    let text: Vec<u8> = (0..6000_u32)
        .flat_map(|line| format!("line {line}: {}\n", line * line % 97).into_bytes())
        .collect();
    let text = &text[..65536];
    let mut packed = vec![1, 2, 3];
    assert!(LzvnEncoder::default().encode(text, &mut packed));
    assert!(packed.starts_with(&[1, 2, 3]));
    assert!(packed.len() < text.len() / 2, "{} bytes", packed.len());
    assert!(packed.ends_with(&[END, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(decoded(&packed[3..], text.len()).unwrap(), text);
    assert_eq!(decoded_by_another(&packed[3..], text.len()), text);
}

#[test]
fn noise_does_not() {
    let noise: Vec<u8> = (0..5000_u32)
        .flat_map(|n| n.wrapping_mul(0x9E37_79B9).rotate_left(13).to_le_bytes())
        .collect();
    let mut packed = vec![7];
    assert!(!LzvnEncoder::default().encode(&noise, &mut packed));
    assert_eq!(packed, [7]);
}

/// Generates bytes with near and far, short and long repeats.
fn plain() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(|bytes| (bytes, 0, 0)),
        (1_usize..70_000, 1_usize..700).prop_map(|(back, len)| (Vec::new(), back, len)),
        (any::<u8>(), 1_usize..900).prop_map(|(byte, len)| (vec![byte; len], 0, 0)),
    ];
    vec(piece, 0..60).prop_map(|pieces| {
        let mut plain: Vec<u8> = Vec::new();
        for (bytes, back, len) in pieces {
            plain.extend(bytes);
            if (1..=plain.len()).contains(&back) {
                (0..len).for_each(|_| plain.push(plain[plain.len() - back]));
            }
        }
        plain
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_decode_to_their_source(plain in plain()) {
        let (mut packed, mut encoder) = (Vec::new(), LzvnEncoder::default());
        if encoder.encode(&plain, &mut packed) {
            prop_assert!(packed.len() < plain.len());
            prop_assert_eq!(&decoded(&packed, plain.len()).unwrap(), &plain);
            prop_assert_eq!(&decoded_by_another(&packed, plain.len()), &plain);
        }
        // Tables of the previous piece have no effect.
        let again = packed.len();
        encoder.encode(&plain, &mut packed);
        prop_assert_eq!(&packed[..again], &packed[again..]);
    }

    #[test]
    fn noise_is_refused_or_decoded(packed in vec(any::<u8>(), 0..400), len in 0_usize..2000) {
        let _ = decoded(&packed, len);
    }
}

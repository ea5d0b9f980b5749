//! Data of the handshake's options.

use crate::layout::Fields;

/// Data of `INFO` and `GO`: an export, and the information requested.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InfoRequest<'a> {
    pub(crate) name: &'a str,
    /// Kinds of information requested; the server may send others, too.
    pub(crate) kinds: Vec<u16>,
}

impl<'a> InfoRequest<'a> {
    /// Parses the data; `None` unless all of it has this form.
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = usize::from(fields.u16()?);
        // The count must match the remaining length.
        if fields.0.len() != count * 2 {
            return None;
        }
        let kinds = std::iter::from_fn(|| fields.u16()).collect();
        Some(Self { name, kinds })
    }
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`: an export, and the contexts requested.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContextQuery<'a> {
    pub(crate) name: &'a str,
    pub(crate) queries: Vec<&'a str>,
}

impl<'a> ContextQuery<'a> {
    /// Parses the data; `None` unless all of it has this form.
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = usize::try_from(fields.u32()?).ok()?;
        // Each takes four bytes at least.
        if count > fields.0.len() / 4 {
            return None;
        }
        let queries = (0..count).map(|_| fields.string()).collect::<Option<_>>()?;
        fields.0.is_empty().then_some(Self { name, queries })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn string(text: &str) -> Vec<u8> {
        [
            &u32::try_from(text.len()).unwrap().to_be_bytes(),
            text.as_bytes(),
        ]
        .concat()
    }

    fn info(name: &str, kinds: &[u16]) -> Vec<u8> {
        let mut data = string(name);
        data.extend(u16::try_from(kinds.len()).unwrap().to_be_bytes());
        kinds
            .iter()
            .for_each(|kind| data.extend(kind.to_be_bytes()));
        data
    }

    fn contexts(name: &str, queries: &[String]) -> Vec<u8> {
        let mut data = string(name);
        data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
        queries.iter().for_each(|query| data.extend(string(query)));
        data
    }

    #[test]
    fn counts_are_not_believed() {
        let mut data = string("disk");
        data.extend(u32::MAX.to_be_bytes());
        assert_eq!(ContextQuery::parse(&data), None);
        assert_eq!(InfoRequest::parse(&data), None);
        assert_eq!(InfoRequest::parse(&u32::MAX.to_be_bytes()), None);
        assert_eq!(InfoRequest::parse(&info(&"x".repeat(4097), &[])), None);
        assert_eq!(
            InfoRequest::parse(&[info("disk", &[3]), vec![0]].concat()),
            None
        );
        assert_eq!(
            ContextQuery::parse(&[contexts("disk", &[]), vec![0]].concat()),
            None
        );
    }

    proptest! {
        #[test]
        fn options_read_back(name in "[a-zé ]{0,40}", kinds: Vec<u16>, queries in prop::collection::vec("[a-z:]{0,20}", 0..8)) {
            let data = info(&name, &kinds);
            prop_assert_eq!(InfoRequest::parse(&data), Some(InfoRequest { name: &name, kinds }));
            let data = contexts(&name, &queries);
            let parsed = ContextQuery::parse(&data).unwrap();
            prop_assert_eq!((parsed.name, parsed.queries), (&*name, queries.iter().map(String::as_str).collect::<Vec<_>>()));
        }

        #[test]
        fn nothing_panics(data: Vec<u8>) {
            let _ = InfoRequest::parse(&data);
            let _ = ContextQuery::parse(&data);
        }
    }
}

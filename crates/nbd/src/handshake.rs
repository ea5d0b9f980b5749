//! The fixed newstyle handshake: negotiates options until an export is chosen.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use crate::channel::{Channel, Encryption};
use crate::export::{Export, Exports};
use crate::layout::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, Fields, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    answer, greeting, info, option,
};
use crate::options::{ContextQuery, InfoRequest};

/// Maximum length of an option's data, in bytes; longer data closes the connection.
const MAX_DATA: usize = 64 << 10;

/// Result of the negotiation.
#[derive(Debug)]
pub(crate) struct NegotiatedOptions {
    pub(crate) export: Arc<Export>,
    /// True if structured replies were negotiated.
    pub(crate) structured: bool,
    /// True if block status was negotiated.
    pub(crate) contexts: bool,
}

/// The handshake with one client.
pub(crate) struct Handshake<'a> {
    channel: &'a Channel,
    exports: &'a Exports,
    tls: Option<&'a dyn Encryption>,
    deadline: Instant,
    /// Called once an export is chosen; returns the reason for a refusal.
    admit: &'a dyn Fn() -> Result<(), &'static str>,
    no_zeroes: bool,
    structured: bool,
    /// Export for which `base:allocation` was requested.
    context_for: Option<String>,
}

/// Continuation of the handshake after an option.
enum NextStep {
    Option,
    Transmission(Arc<Export>),
    End,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(
        channel: &'a Channel,
        exports: &'a Exports,
        tls: Option<&'a dyn Encryption>,
        deadline: Instant,
        admit: &'a dyn Fn() -> Result<(), &'static str>,
    ) -> Self {
        Self {
            channel,
            exports,
            tls,
            deadline,
            admit,
            no_zeroes: false,
            structured: false,
            context_for: None,
        }
    }

    /// Runs the handshake; `None` if the client ended it without choosing an export.
    pub(crate) fn run(mut self) -> io::Result<Option<NegotiatedOptions>> {
        let mut hello = GREETING_MAGIC.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend((greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes());
        self.send(&hello)?;
        let mut flags = [0; 4];
        self.receive(&mut flags)?;
        let flags = u32::from_be_bytes(flags);
        if flags & !u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES) != 0 {
            return Err(protocol("unknown flags in the greeting"));
        }
        self.no_zeroes = flags & u32::from(greeting::NO_ZEROES) != 0;
        loop {
            match self.option()? {
                NextStep::Option => {}
                NextStep::End => return Ok(None),
                NextStep::Transmission(export) => {
                    let contexts =
                        self.structured && self.context_for.as_deref() == Some(export.name());
                    return Ok(Some(NegotiatedOptions {
                        export,
                        structured: self.structured,
                        contexts,
                    }));
                }
            }
        }
    }

    fn option(&mut self) -> io::Result<NextStep> {
        let mut head = [0; 16];
        self.receive(&mut head)?;
        let mut fields = Fields(&head);
        let (Some(OPTION_MAGIC), Some(option), Some(len)) =
            (fields.u64(), fields.u32(), fields.u32())
        else {
            return Err(protocol("invalid option header"));
        };
        let len = usize::try_from(len).ok().filter(|len| *len <= MAX_DATA);
        let mut data = vec![0; len.ok_or_else(|| protocol("option data exceeds 64 KiB"))?];
        self.receive(&mut data)?;
        if self.tls.is_some()
            && !self.channel.is_encrypted()
            && !matches!(option, option::STARTTLS | option::ABORT)
        {
            if option == option::EXPORT_NAME {
                return Err(protocol("requested an export without TLS"));
            }
            return self.answer(option, answer::TLS_REQUIRED, b"TLS is required");
        }
        match option {
            option::EXPORT_NAME => self.export_name(&data),
            option::ABORT => {
                // The client may close without waiting for the reply.
                let _ = self.answer(option, answer::ACK, &[]);
                Ok(NextStep::End)
            }
            option::LIST if data.is_empty() => self.list(),
            option::STARTTLS if data.is_empty() => self.start_tls(),
            option::INFO | option::GO => self.info(option, &data),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.answer(option, answer::ACK, &[])
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, &data),
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY => self.answer(
                option,
                answer::INVALID,
                b"the option has data, expected none",
            ),
            _ => self.answer(option, answer::UNSUPPORTED, b"unsupported option"),
        }
    }

    /// Handles the old option EXPORT_NAME: it has no error reply, so a refusal closes the
    /// connection.
    fn export_name(&mut self, data: &[u8]) -> io::Result<NextStep> {
        let name = std::str::from_utf8(data)
            .map_err(|_| protocol("the name of the export is not UTF-8"))?;
        let export = self
            .exports
            .get(name)
            .ok_or_else(|| protocol("requested an export that does not exist"))?;
        (self.admit)().map_err(protocol)?;
        let mut reply = export.device().info().len.to_be_bytes().to_vec();
        reply.extend(export.flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            reply.extend([0; 124]);
        }
        self.send(&reply)?;
        Ok(NextStep::Transmission(Arc::clone(export)))
    }

    fn list(&mut self) -> io::Result<NextStep> {
        for export in self.exports.iter() {
            let mut data = length(export.name()).to_vec();
            data.extend(export.name().as_bytes());
            data.extend(export.description().as_bytes());
            self.answer(option::LIST, answer::SERVER, &data)?;
        }
        self.answer(option::LIST, answer::ACK, &[])
    }

    fn start_tls(&mut self) -> io::Result<NextStep> {
        match self.tls {
            Some(_) if self.channel.is_encrypted() => {
                self.answer(option::STARTTLS, answer::INVALID, b"TLS is already active")
            }
            Some(tls) => {
                self.answer(option::STARTTLS, answer::ACK, &[])?;
                self.channel.start_tls(tls, self.deadline)?;
                // Negotiation before TLS is discarded: it may not have come from the client.
                (self.structured, self.context_for) = (false, None);
                Ok(NextStep::Option)
            }
            None => self.answer(
                option::STARTTLS,
                answer::POLICY,
                b"the server has no certificate",
            ),
        }
    }

    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<NextStep> {
        let Some(query) = InfoRequest::parse(data) else {
            return self.answer(option, answer::INVALID, b"malformed data of the option");
        };
        let Some(export) = self.exports.get(query.name) else {
            return self.answer(option, answer::UNKNOWN, b"the export does not exist");
        };
        if option == option::GO
            && let Err(why) = (self.admit)()
        {
            return self.answer(option, answer::SHUTDOWN, why.as_bytes());
        }
        let mut about = info::EXPORT.to_be_bytes().to_vec();
        about.extend(export.device().info().len.to_be_bytes());
        about.extend(export.flags(self.structured).to_be_bytes());
        self.answer(option, answer::INFO, &about)?;
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        sizes.extend(export.block_sizes().into_iter().flat_map(u32::to_be_bytes));
        self.answer(option, answer::INFO, &sizes)?;
        for (kind, text) in [
            (info::NAME, export.name()),
            (info::DESCRIPTION, export.description()),
        ] {
            if query.kinds.contains(&kind) {
                self.answer(
                    option,
                    answer::INFO,
                    &[&kind.to_be_bytes(), text.as_bytes()].concat(),
                )?;
            }
        }
        self.answer(option, answer::ACK, &[])?;
        Ok(if option == option::GO {
            NextStep::Transmission(Arc::clone(export))
        } else {
            NextStep::Option
        })
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<NextStep> {
        let setting = option == option::SET_META_CONTEXT;
        if setting {
            self.context_for = None;
        }
        let Some(query) = ContextQuery::parse(data) else {
            return self.answer(option, answer::INVALID, b"malformed data of the option");
        };
        if setting && !self.structured {
            return self.answer(
                option,
                answer::INVALID,
                b"contexts require structured replies",
            );
        }
        if self.exports.get(query.name).is_none() {
            return self.answer(option, answer::UNKNOWN, b"the export does not exist");
        }
        let all = !setting && query.queries.is_empty();
        let meant = |query: &&str| *query == BASE_ALLOCATION || (!setting && *query == "base:");
        if all || query.queries.iter().any(meant) {
            let id = if setting { BASE_ALLOCATION_ID } else { 0 };
            self.answer(
                option,
                answer::META_CONTEXT,
                &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat(),
            )?;
            if setting {
                self.context_for = Some(query.name.to_owned());
            }
        }
        self.answer(option, answer::ACK, &[])
    }

    fn answer(&self, option: u32, kind: u32, data: &[u8]) -> io::Result<NextStep> {
        let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(option.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend(length(data));
        reply.extend(data);
        self.send(&reply)?;
        Ok(NextStep::Option)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.channel.send(&mut [IoSlice::new(bytes)], false)
    }

    fn receive(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match self.channel.receive_until(into, Some(self.deadline))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => into = &mut into[count..],
            }
        }
        Ok(())
    }
}

/// Returns the length of a string as a field; strings of this server are short.
fn length(of: impl AsRef<[u8]>) -> [u8; 4] {
    u32::try_from(of.as_ref().len()).unwrap_or(0).to_be_bytes()
}

/// Returns an error for a protocol violation by the client.
pub(crate) fn protocol(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

//! The frame of every page, and parts that several use.

use bandsaw::size;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::app::Target;
use crate::session::Session;
use crate::text;

/// The part of the head that loads a page again, for browsers without scripts.
fn reload() -> Markup {
    html! { noscript { meta http-equiv="refresh" content="2"; } }
}

/// Options of a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame {
    /// Loads the script that shows progress.
    pub(crate) script: bool,
    /// Loads the script for uploads.
    pub(crate) upload: bool,
}

/// Returns a page of a session.
pub(crate) fn page(session: &Session, title: &str, frame: Frame, main: &Markup) -> Markup {
    html! {
        (begin(title, frame))
        body {
            a.skip href="#main" { (text::SKIP) }
            header {
                a href="./" { (text::IMAGES) }
                a href="benchmarks" { (text::BENCHMARKS) }
                span.grow {}
                (button(session, "lock", text::LOCK, &[]))
                (button(session, "end", text::END, &[]))
            }
            main #main {
                @for note in session.take_notes() {
                    p.note role="status" { (note) }
                }
                (main)
            }
        }
    }
}

/// Returns a page for visitors without a session.
pub(crate) fn plain(title: &str, main: &Markup) -> Markup {
    html! {
        (begin(title, Frame::default()))
        body {
            main #main { (main) }
        }
    }
}

/// Returns a page that leads to another one at once, in whose place it is in the history.
pub(crate) fn onward(address: &str) -> Markup {
    html! {
        (DOCTYPE)
        (PreEscaped("<html lang=\"en\">"))
        head {
            meta charset="utf-8";
            meta http-equiv="refresh" content={ "0; url=" (address) };
            title { (text::TITLE) }
        }
        body { main { h1 { (text::TITLE) } p { a href=(address) { (text::IMAGES) } } } }
    }
}

/// Returns the beginning of a page that is sent in pieces: all of it up to its contents.
pub(crate) fn opening(session: &Session, title: &str) -> String {
    const MARK: &str = "\u{0}";
    let mark = PreEscaped(MARK.to_owned());
    let whole = page(session, title, Frame::default(), &mark).into_string();
    whole.split(MARK).next().unwrap_or_default().to_owned()
}

fn begin(title: &str, frame: Frame) -> Markup {
    html! {
        (DOCTYPE)
        // The end of `html` may be left out.
        (PreEscaped("<html lang=\"en\">"))
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) " – " (text::TITLE) }
            link rel="stylesheet" href="style.css";
            link rel="icon" type="image/svg+xml" href="icon.svg";
            @if frame.script {
                (reload())
                script src="progress.js" defer {}
            }
            @if frame.upload { script src="upload.js" defer {} }
        }
    }
}

/// Returns the page of a refusal.
pub(crate) fn refusal(status: u16, message: &str) -> Markup {
    plain(
        "Refused",
        &html! {
            h1 { "Refused (" (status) ")" }
            p.bad role="alert" { (message) }
            p { a href="./" { (text::IMAGES) } }
        },
    )
}

/// Returns a form of one button, with the token of the session and these fields.
pub(crate) fn button(
    session: &Session,
    action: &str,
    label: &str,
    fields: &[(&str, &str)],
) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name="csrf" value=(session.csrf().reveal());
            @for (name, value) in fields {
                input type="hidden" name=(name) value=(value);
            }
            button type="submit" { (label) }
        }
    }
}

/// Returns hidden fields of a form that name the target at this path. `None`: the path of the image
/// is not text, and forms send text only.
pub(crate) fn hidden(target: &Target, path: &str) -> Option<Markup> {
    let image = std::str::from_utf8(&target.image.path).ok()?;
    let volume = target.volume.as_ref();
    Some(html! {
        input type="hidden" name="r" value=(target.image.root_text());
        input type="hidden" name="i" value=(image);
        @if let Some(snapshot) = &target.image.snapshot {
            input type="hidden" name="b" value=(snapshot);
        }
        @if let Some(volume) = volume {
            input type="hidden" name="v" value=(volume.text());
            @if let Some(snapshot) = &volume.snapshot {
                input type="hidden" name="s" value=(snapshot);
            }
            input type="hidden" name="p" value=(path);
        }
    })
}

/// Returns a name, in its own direction of text.
pub(crate) fn name(name: &str) -> Markup {
    html! { bdi { (crate::names::visible(name)) } }
}

/// Returns a number of bytes with its unit; the exact number is shown on hover.
pub(crate) fn bytes(count: u64) -> Markup {
    html! { span title={ (count) " bytes" } { (size::display(count)) } }
}

/// Returns a fact of a list.
pub(crate) fn fact(term: &str, value: &Markup) -> Markup {
    html! { dt { (term) } dd { (value) } }
}

/// Returns the links of a page.
pub(crate) fn links(links: &[(String, &str)]) -> Markup {
    html! {
        nav aria-label="Actions" {
            ul {
                @for (address, label) in links {
                    li { a href=(address) { (label) } }
                }
            }
        }
    }
}

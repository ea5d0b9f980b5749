//! Fields of on-disk structures, parsed from the sources that declare them: a field that is added
//! there is changed here, too.

use std::collections::HashMap;

/// One field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// The path to it, such as `catalog_file.extents[0].start_block`.
    pub(super) name: String,
    /// Offset from the start of the structure, in bytes.
    pub(super) offset: usize,
    /// Size in bytes.
    pub(super) size: usize,
    /// True if it is a single number; text, identifiers and reserved bytes are not.
    pub(super) is_number: bool,
    /// True if it is big-endian.
    pub(super) is_big_endian: bool,
}

/// The structures of one format.
#[derive(Debug, Default)]
pub(super) struct Layout {
    structs: HashMap<String, Vec<(String, String)>>,
    names: HashMap<String, String>,
    is_big_endian: bool,
}

/// Maximum number of elements of an array of numbers that are used, plus the last one; the rest is
/// skipped.
const ELEMENTS: usize = 3;

impl Layout {
    /// Parses the structures that `sources` declare; `U16` and the like are big-endian there if
    /// `is_big_endian`.
    pub(super) fn read(sources: &[&str], is_big_endian: bool) -> Self {
        let mut layout = Self {
            is_big_endian,
            ..Self::default()
        };
        for source in sources {
            layout.read_source(source);
        }
        layout
    }

    fn read_source(&mut self, source: &str) {
        let mut lines = source.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let line = without_visibility(line);
            if let Some(name) = line
                .strip_prefix("struct ")
                .and_then(|rest| rest.strip_suffix(" {"))
            {
                let fields = lines
                    .by_ref()
                    .take_while(|line| *line != "}")
                    .filter_map(field)
                    .collect();
                self.structs.insert(name.to_owned(), fields);
            } else if let Some((name, value)) = line
                .strip_prefix("const ")
                .or(line.strip_prefix("type "))
                .and_then(|rest| rest.split_once('='))
            {
                let name = name.split(':').next().unwrap_or(name).trim();
                self.names.insert(
                    name.to_owned(),
                    value
                        .rsplit_once(';')
                        .map_or(value, |(value, _)| value)
                        .trim()
                        .to_owned(),
                );
            }
        }
    }

    /// Returns the fields of the structure `name`, in order, with nested ones flattened.
    pub(super) fn fields(&self, name: &str) -> Vec<Field> {
        let mut fields = Vec::new();
        self.flatten(name, "", 0, &mut fields);
        assert!(!fields.is_empty(), "no structure {name}");
        fields
    }

    /// Adds the fields of a type at `offset`; returns its size.
    fn flatten(&self, kind: &str, path: &str, offset: usize, fields: &mut Vec<Field>) -> usize {
        let (digits, is_big_endian) = match kind.strip_prefix("Le").or(kind.strip_prefix("Be")) {
            Some(digits) => (digits, kind.starts_with("Be")),
            None => (
                kind.strip_prefix(['U', 'u', 'i']).unwrap_or(""),
                self.is_big_endian,
            ),
        };
        if let Ok(bits) = digits.parse::<usize>() {
            fields.push(Field {
                name: path.to_owned(),
                offset,
                size: bits / 8,
                is_number: true,
                is_big_endian,
            });
            return bits / 8;
        }
        if let Some((element, count)) = kind
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']')?.rsplit_once("; "))
        {
            let count = self.number(count);
            if element == "u8" {
                fields.push(Field {
                    name: path.to_owned(),
                    offset,
                    size: count,
                    is_number: false,
                    is_big_endian,
                });
                return count;
            }
            let mut size = 0;
            for index in 0..count {
                let before = fields.len();
                size = self.flatten(
                    element,
                    &format!("{path}[{index}]"),
                    offset + index * size,
                    fields,
                );
                if index >= ELEMENTS && index + 1 < count {
                    fields.truncate(before);
                }
            }
            return count * size;
        }
        if let Some(kind) = self.names.get(kind) {
            return self.flatten(kind, path, offset, fields);
        }
        let members = self
            .structs
            .get(kind)
            .unwrap_or_else(|| panic!("the size of {kind} at {path} is not known"));
        let mut size = 0;
        for (name, kind) in members {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            size += self.flatten(kind, &path, offset + size, fields);
        }
        size
    }

    fn number(&self, text: &str) -> usize {
        let text = text.trim_end_matches(" as usize");
        text.parse().unwrap_or_else(|_| {
            let value = self
                .names
                .get(text)
                .unwrap_or_else(|| panic!("the number {text} is not known"));
            self.number(value)
        })
    }
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    let rest = if rest.starts_with('(') {
        rest.split_once(')').map_or(rest, |(_, rest)| rest)
    } else {
        rest
    };
    rest.trim_start()
}

/// Parses name and type of a member: `/*08*/ pub(super) kind: U32, // …`.
fn field(line: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix("/*")?.split_once("*/")?.1.trim();
    let (name, kind) = without_visibility(rest)
        .split("//")
        .next()?
        .trim()
        .strip_suffix(',')?
        .split_once(": ")?;
    Some((name.to_owned(), kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_source_says() {
        let source = "
            const MANY: usize = 5;
            pub(super) struct InnerRaw {
                /*00*/ pub(crate) start: U32,
                /*04*/ pub(crate) count: Le16, // blocks
            }
            type All = [InnerRaw; 2];
            struct OuterRaw {
                /*00*/ magic: [u8; 4],
                /*04*/ pub(super) all: All,
                /*10*/ slots: [U32; MANY as usize],
                /*24*/ kind: i8,
            }";
        let fields = Layout::read(&[source], true).fields("OuterRaw");
        let report: Vec<_> = fields
            .iter()
            .map(|field| (&*field.name, field.offset, field.size))
            .collect();
        assert_eq!(
            report,
            [
                ("magic", 0, 4),
                ("all[0].start", 4, 4),
                ("all[0].count", 8, 2),
                ("all[1].start", 10, 4),
                ("all[1].count", 14, 2),
                ("slots[0]", 16, 4),
                ("slots[1]", 20, 4),
                ("slots[2]", 24, 4),
                ("slots[4]", 32, 4),
                ("kind", 36, 1),
            ]
        );
        assert!(fields[1].is_big_endian && !fields[2].is_big_endian);
    }
}

//! Arrays as texts: the elements between braces.

/// The elements of an array that is written as a text: `{a,"b c",NULL}`. None if it is no such text, or has arrays in it.
pub fn array_elements(written: &str) -> Option<Vec<Option<String>>> {
    let inner = written.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    let (mut element, mut quoted, mut was_quoted) = (String::new(), false, false);
    let mut letters = inner.chars();
    let finish = |element: &mut String, was_quoted: bool| {
        let text = std::mem::take(element);
        let trimmed = text.trim();
        if was_quoted { Some(text) } else { (!trimmed.eq_ignore_ascii_case("null")).then(|| trimmed.to_owned()) }
    };
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => element.push(letters.next()?),
            '"' => {
                // Nor are those before it.
                if !was_quoted && element.trim().is_empty() {
                    element.clear();
                }
                quoted = !quoted;
                was_quoted = true;
            }
            ',' if !quoted => {
                elements.push(finish(&mut element, was_quoted));
                was_quoted = false;
            }
            '{' | '}' if !quoted => return None,
            // Blanks around an element in quotes are not its own.
            c if c.is_whitespace() && was_quoted && !quoted => {}
            other => element.push(other),
        }
    }
    elements.push(finish(&mut element, was_quoted));
    Some(elements)
}

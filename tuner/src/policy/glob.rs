//! Globs on paths: `*` is any text, slashes included; `?` is one character.

use wildmatch::WildMatch;

/// Whether the whole of `text` matches `pattern`. Takes at most `pattern` times `text` steps.
pub(super) fn glob_matches(pattern: &str, text: &str) -> bool {
    WildMatch::new(pattern).matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn matches_paths() {
        for (pattern, text, matches) in [
            ("*/java", "/usr/lib/jvm/bin/java", true),
            ("*/java", "/usr/bin/javac", false),
            ("/usr/?in/*", "/usr/bin/x", true),
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("?", "", false),
            ("?", "ä", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("**", "abc", true),
            ("a\\*", "a\\b", true),
        ] {
            assert_eq!(glob_matches(pattern, text), matches, "{pattern} {text}");
        }
    }

    /// What a glob means, by trying everything.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|taken| by_definition(rest, &text[taken..])),
            Some((wanted, rest)) => text.split_first().is_some_and(|(first, others)| {
                (wanted == first || *wanted == '?') && by_definition(rest, others)
            }),
        }
    }

    proptest! {
        #[test]
        fn matches_by_the_definition(pattern in "[ab*?\\\\]{0,6}", text in "[ab\\\\]{0,8}") {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(glob_matches(&pattern, &text), by_definition(&characters(&pattern), &characters(&text)));
        }
    }
}

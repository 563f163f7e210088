//! Globs on paths: `*` is any text, slashes included; `?` is one character.

/// Whether the whole of `text` matches `pattern`. Takes at most `pattern` times `text` steps.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut in_pattern, mut in_text) = (0, 0);
    // Behind the last star, and how much of the text it has swallowed so far.
    let mut star: Option<(usize, usize)> = None;
    while let Some(character) = text.get(in_text) {
        match pattern.get(in_pattern) {
            Some('*') => {
                star = Some((in_pattern + 1, in_text));
                in_pattern += 1;
            }
            Some(wanted) if *wanted == '?' || wanted == character => {
                in_pattern += 1;
                in_text += 1;
            }
            _ => match star {
                Some((behind, swallowed)) => {
                    star = Some((behind, swallowed + 1));
                    (in_pattern, in_text) = (behind, swallowed + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(in_pattern).all(|rest| *rest == '*')
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
            ("*", "", true),
            ("?", "", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("**", "abc", true),
        ] {
            assert_eq!(glob_matches(pattern, text), matches, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_matches_itself_and_stars_around_a_part(
            before in "[a-z/]*",
            part in "[a-z/]*",
            after in "[a-z/]*",
        ) {
            let text = format!("{before}{part}{after}");
            prop_assert!(glob_matches(&text, &text));
            let pattern = format!("*{part}*");
            prop_assert!(glob_matches(&pattern, &text));
        }
    }
}

use super::*;

fn only(source: &str) -> String {
    match parse(source) {
        Ok(Node { value: Value::Map(entries), .. }) => format!("{:?}", entries[0].1.value),
        Ok(other) => format!("{:?}", other.value),
        Err(error) => format!("{:?}: {}", error.at.map(|at| (at.line, at.column)), error.text),
    }
}

// RL-32: what looks like a number is kept as typed, so that nothing is silently read as another one.
#[test]
fn scalars_are_kept_as_typed() {
    for number in ["100", "010", "0x10", "1_000", "1e3", "1.0", "-1", "18446744073709551616", "1.10"] {
        let value = only(&format!("a: {number}"));
        assert!(value == format!("Number({number:?})") || value == format!("Text({number:?})"), "{number}: {value}");
    }
    assert_eq!(only("a: \"100\""), "Text(\"100\")");
    assert_eq!(only("a: no"), "Text(\"no\")");
    assert_eq!(only("a: on"), "Text(\"on\")");
    assert_eq!(only("a: true"), "Bool(true)");
    assert_eq!(only("a: ~"), "Null");
    assert_eq!(only("a:"), "Null");
    assert_eq!(only("a: 10s"), "Text(\"10s\")");
}

// RL-31: what passes silently elsewhere is an error with its place.
#[test]
fn mistakes_that_yaml_lets_pass_are_errors() {
    for source in ["a: 1\na: 2\n", "a: {b: 1, b: 2}", "a: 1\n---\nb: 2\n", "a:\n\tb: 1\n", "x: &x {b: 1}\na: {<<: *x}"]
    {
        assert!(parse(source).is_err(), "{source:?}");
    }
    let error = parse("a: 1\na: 2\n").unwrap_err();
    assert_eq!(error.at.map(|at| at.line), Some(2), "{}", error.text);
}

// RL-31: some editors write a byte-order mark. Skipped at the very start, with numbers still read as typed; else refused.
#[test]
fn a_byte_order_mark_is_skipped_at_the_start_and_nowhere_else() {
    assert_eq!(only("\u{feff}a: 1_000 # \u{20ac}"), "Number(\"1_000\")");
    assert_eq!(only("\u{feff}# \u{20ac}\r\na: 0x10\r\n"), "Number(\"0x10\")");
    assert!(only("a: 1\n\u{feff}b: 2\n").contains("byte-order mark"));
}

// The library's messages name its options and functions, which nobody who edits a file can set.
#[test]
fn errors_are_in_the_editors_words() {
    for (source, wanted) in [
        ("a: 1\na: 2\n", "Some((2, 1)): the key \"a\" stands here a second time: remove one"),
        (
            "a: 1\n---\nb: 2\n",
            "Some((3, 1)): a second document begins here: a configuration is one, so remove the line of dashes",
        ),
        ("a: 1\nb:\n\tc: 1\n", "Some((3, 1)): a tab indents this line: use spaces"),
        ("<<: {b: 1}", "Some((1, 1)): merge keys (<<) are not read: write the settings out"),
        ("a: *b", "Some((1, 4)): this alias (*) names no anchor before it: put it in quotes, if a text is meant"),
        ("a: !b 1", "Some((1, 7)): tags (!) are not read: remove it, or put the text in quotes"),
        ("~: 1", "Some((1, 1)): a key is a text: put it in quotes, or remove it"),
    ] {
        assert_eq!(only(source), wanted);
    }
    let deep = only(&format!("a: {}{}", "[".repeat(40), "]".repeat(40)));
    assert!(deep.contains("nested more than 32 deep"), "{deep}");
    let many = format!("a: &a 1\nb: [{}]", vec!["*a"; 65].join(", "));
    assert!(only(&many).contains("more than 64 aliases"));
}

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..50 {
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    assert!(only(&bomb).contains("the aliases (*) unfold to more than a configuration may hold"));
}

#[test]
fn every_value_knows_its_place() {
    let Ok(Node { value: Value::Map(entries), .. }) = parse("a: 1\nb:\n  c: 2\n") else { panic!("a map") };
    assert_eq!(entries[1].0.at, Place { line: 2, column: 1 });
    let Value::Map(inner) = &entries[1].1.value else { panic!("a map") };
    assert_eq!(inner[0].1.at, Place { line: 3, column: 6 });
}

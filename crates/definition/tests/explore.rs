use countersign_definition::*;
#[test]
fn explore() {
    let good = "kind: process\nname: a\nstates: [x, y]\ninitial_state: x\nterminal_states: [y]\ntransitions:\n  - {from: x, action: go, to: y}\n";
    let bomb = {
        let mut s = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            s += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
        }
        s
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
      ("good", good.into()),
      ("bom", format!("\u{feff}{good}").into()),
      ("bom bad", b"\xef\xbb\xbfkindd: process\n".to_vec()),
      ("empty", b"".to_vec()), ("comment", b"# x\n\n".to_vec()), ("null", b"~".to_vec()), ("scalar", b"\n\n  foo".to_vec()), ("seq", b"- a".to_vec()),
      ("two", format!("{good}---\n{good}").into()),
      ("two json", b"{\"kind\":\"process\"} {\"a\":1}".to_vec()),
      ("dots", format!("{good}...\n").into()),
      ("dots2", format!("{good}... # c\n# d\n").into()),
      ("dots3", format!("{good}...\n{{]\n").into()),
      ("dots4", format!("{good}...\n{good}").into()),
      ("two empty", format!("{good}---\n").into()),
      ("lead", format!("---\n{good}").into()),
      ("utf8", b"kind: process\nname: \xc3\xa9\xff\n".to_vec()),
      ("rawnul", b"kind: pro\0cess\n".to_vec()),
      ("deep", "[".repeat(10000).into()), ("deepok", format!("{}{}", "[".repeat(10000), "]".repeat(10000)).into()),
      ("deepblock", "- ".repeat(10000).into()), ("deep?", "? ".repeat(10000).into()), ("deep{", "{a: ".repeat(10000).into()),
      ("bomb", bomb.into()),
      ("rec", b"a: &a [*a]".to_vec()),
      ("unk alias", b"kind: process\nname: *x\n".to_vec()),
      ("tag", b"kind: !foo process\n".to_vec()),
      ("tab", b"kind: process\n\tname: x\n".to_vec()),
      ("unclosed", b"kind: process\nstates: [a, b\nname: x\n".to_vec()),
      ("quote", b"kind: \"process\nname: x\n".to_vec()),
      ("colon", b"kind: process: x\n".to_vec()),
      ("indent", b"kind: process\n  name: x\n".to_vec()),
      ("numbers", b"kind: process\na: 9007199254740991\nb: 9007199254740992\nc: .inf\nd: .nan\ne: 1e999\nf: 99999999999999999999999\ng: -9007199254740992\nh: \"a\\0b\"\n1: x\n<<: {}\n? [a]\n: b\n: c\ntrue: 1\n1: y\n\"a\\0b\": 1\n".to_vec()),
      ("cr", "kind: process\rnamee: x\r".into()),
      ("nel", "kind: process\u{85}namee: x\n".into()),
      ("json tabs", "{\n\t\"kind\": \"process\",\n\t\"name\": 7}".into()),
      ("unicode", "# é☃\nkind: process\ndescription: \"é☃𝄞\"\n{é: ".into()),
      ("anchor", "kind: process\nname: a\nstates: &s [x, y]\ninitial_state: x\nterminal_states: *s\ntransitions: []\n".into()),
      ("alias", "kind: process\nname: a\nstates: [x, &b \"\", y]\ninitial_state: *b\nterminal_states: []\ntransitions: [&t {from: z}, *t]\n".into()),
    ];
    for (name, text) in cases {
        let t = std::time::Instant::now();
        let r = parse(&text);
        println!("== {name} ({:?})", t.elapsed());
        match r {
            Ok(d) => println!("OK {}", d.name),
            Err(p) => {
                for p in &p {
                    println!("  {:?} {p}", p.path);
                }
                if text.len() < 2000 {
                    print!("{}", render("f.yaml", &String::from_utf8_lossy(&text), &p[..1], false));
                }
            }
        }
    }
}

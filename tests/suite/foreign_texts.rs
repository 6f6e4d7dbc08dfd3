//! Texts that Lua would take for a state and the limiter never writes: each is a failure, untouched (P3).

use super::foreign_states::{Bench, WINDOW_MS};

/// Each of these texts, with an expiry that a state could have, is malformed. They are parted by `|`.
#[track_caller]
fn refuses(bench: &Bench, texts: &str) {
    for (n, text) in texts.split('|').enumerate() {
        let subject = format!("case {n}: {:.40}", text.escape_debug().to_string());
        bench.redis.seed(&bench.key(&subject), text, WINDOW_MS);
        bench.fails_untouched(&subject, "malformed");
    }
}

// RL-02, RL-03 d: a part missing, added, or no plain integer.
#[test]
fn a_sliding_windows_text_that_it_does_not_write_is_a_failure() {
    let bench = Bench::start("sliding-window");
    let texts = "|5|I|I:1|I:1:|I::1|:1:1|::|I:1:1:1|I:1:1:|I;1;1|I:1:0|I:01:1|I:00:1|I:1:01|0I:1:1|+I:1:1|-I:1:1|I:+1:1|\
        I:-1:1|I:1:-1|I:1:+1|I.0:1:1|I:1.5:1|I:1:1.0|I:1e2:1|I:1:1e2|I:0x1:1| I:1:1|I:1:1 |I: 1:1|I:1:1\n|I:1:1\0|I:nan:1|\
        I:1:inf|I:\u{967}:1|12345678901234:1:1|I:1:HUGE";
    let beyond_exact_products = "I:150119987580:1|I:1:150119987580|I:9007199254740993:1|I:1:9223372036854775808";
    let index = (bench.now_ms() / WINDOW_MS).to_string();
    let huge = "1".repeat(1024 * 1024);
    refuses(&bench, &texts.replace('I', &index).replace("HUGE", &huge));
    refuses(&bench, &beyond_exact_products.replace('I', &index));
}

// RL-02, RL-03 b
#[test]
fn a_token_buckets_text_that_it_does_not_write_is_a_failure() {
    let bench = Bench::start("token-bucket");
    let texts = "|5|T|5:|:T|:|5:T:1|5:T:|x:T|5:x|5;T|05:T|00:T|5:0T|+5:T|-5:T|-0:T|5:+T|5:-T|5.0:T|5:T.0|1e2:T|5:1e12|\
        0x5:T| 5:T|5:T |5: T|5:T\n|5:T\0|nan:T|inf:T|5:nan|\u{96b}:T|9007199254740992:T|99999999999999999:T|\
        5:12345678901234|HUGE:T";
    let huge = "1".repeat(1024 * 1024);
    refuses(&bench, &texts.replace('T', &bench.now_ms().to_string()).replace("HUGE", &huge));
}

// RL-02, its kind for a sorted set: what a last member cannot be.
#[test]
fn a_sliding_logs_member_that_it_does_not_write_is_a_failure() {
    let bench = Bench::start("sliding-log");
    let now = bench.redis.now_us().to_string();
    let labels = "1||ada|NOW.5|+000000000000001| 000000000000001|00000000000000e1|9007199254740992|9999999999999999";
    let labels = labels.split('|').map(|label| ("NOW", label));
    let scores = ["0", "-1", "1.5", "1700000000000.5", "1e17", "inf", "-inf"].map(|score| (score, "NOW"));
    for (n, (score, label)) in labels.chain(scores).enumerate() {
        let subject = format!("case {n}: {score}, {label}");
        let key = bench.key(&subject);
        bench.redis.run(&["ZADD", &key, &score.replace("NOW", &now), &label.replace("NOW", &now)]);
        bench.redis.run(&["PEXPIRE", &key, "60000"]);
        bench.fails_untouched(&subject, "malformed");
    }
}

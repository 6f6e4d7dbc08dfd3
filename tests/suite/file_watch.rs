//! A changed file is noticed by itself, whatever way it was changed, and a bad one changes nothing (RL-33).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

/// The promise is some seconds; how many a loaded machine takes is not this test's matter.
const LIVE: Duration = Duration::from_secs(20);

fn with(limit: u64) -> Setup {
    Setup::memory().policy("orders", limit, "1h", "closed")
}

/// The text of a file with this limit, for a sidecar that runs already.
fn text(sidecar: &Sidecar, limit: u64) -> String {
    with(limit).text(&sidecar.folder().join("hmac.key"))
}

fn in_use(sidecar: &Sidecar) -> String {
    sidecar.get("/config").text()
}

#[track_caller]
fn assert_live(sidecar: &Sidecar, limit: u64, how: &str) {
    wait_for(how, LIVE, || in_use(sidecar).contains(&format!("only: {limit} every 1h")));
}

fn switch(folder: &Path, to: &str) {
    symlink(to, folder.join("..data_tmp")).expect("a link");
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("a rename");
}

#[test]
fn every_style_of_change_is_noticed() {
    let sidecar = with(1).start();
    let folder = sidecar.folder();
    let file = folder.join("tallygate.yaml");

    fs::write(&file, text(&sidecar, 2)).unwrap();
    assert_live(&sidecar, 2, "written in place");

    sidecar.rewrite(&with(3));
    assert_live(&sidecar, 3, "renamed over");

    fs::remove_file(&file).unwrap();
    wait_for("the removal to be told", LIVE, || in_use(&sidecar).contains("cannot be read"));
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "the rules stay");
    fs::write(&file, text(&sidecar, 4)).unwrap();
    assert_live(&sidecar, 4, "there again");

    // As Kubernetes mounts a ConfigMap: a folder for each version, and a link that is switched.
    for (version, limit) in [("..v5", 5), ("..v6", 6)] {
        fs::create_dir(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("tallygate.yaml"), text(&sidecar, limit)).unwrap();
    }
    symlink("..v5", folder.join("..data")).unwrap();
    fs::remove_file(&file).unwrap();
    symlink("..data/tallygate.yaml", &file).unwrap();
    assert_live(&sidecar, 5, "a link in its place");
    switch(folder, "..v6");
    assert_live(&sidecar, 6, "the link switched");

    for limit in 7..=11 {
        sidecar.rewrite(&with(limit));
    }
    assert_live(&sidecar, 11, "the last of five at once");
}

// RL-33: as editors, and tools that keep their files elsewhere, do it.
#[test]
fn what_moves_in_from_elsewhere_is_noticed_too() {
    let sidecar = with(1).start();
    let folder = sidecar.folder();
    let file = folder.join("tallygate.yaml");
    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();

    fs::write(elsewhere.join("tallygate.yaml"), text(&sidecar, 2)).unwrap();
    fs::rename(elsewhere.join("tallygate.yaml"), &file).unwrap();
    assert_live(&sidecar, 2, "renamed over from another folder");

    fs::rename(&file, folder.join("tallygate.yaml~")).unwrap();
    fs::write(&file, text(&sidecar, 3)).unwrap();
    assert_live(&sidecar, 3, "the old one kept as a backup");

    // The folder that the file lies in goes and comes back with another file, by way of a link to it.
    let (mounted, away) = (folder.join("mounted"), folder.join("away"));
    fs::create_dir(&mounted).unwrap();
    fs::write(mounted.join("tallygate.yaml"), text(&sidecar, 4)).unwrap();
    fs::remove_file(&file).unwrap();
    symlink("mounted/tallygate.yaml", &file).unwrap();
    assert_live(&sidecar, 4, "a link into another folder");
    fs::rename(&mounted, &away).unwrap();
    wait_for("the absence to be told", LIVE, || in_use(&sidecar).contains("cannot be read"));
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "the rules stay");
    let generation = sidecar.generation();
    fs::rename(&away, &mounted).unwrap();
    wait_for("the return", LIVE, || in_use(&sidecar).contains("last error none"));
    assert_eq!(sidecar.generation(), generation, "what came back is what is in use");
    fs::write(mounted.join("tallygate.yaml"), text(&sidecar, 5)).unwrap();
    assert_live(&sidecar, 5, "written in the folder that came back");
}

/// How a file gets another text: the folder that it lies in, the text, and which change it is.
type Style = fn(&Path, &str, usize);

const STYLES: [(&str, Style); 5] = [
    ("written in place", |folder, text, _| fs::write(folder.join("tallygate.yaml"), text).unwrap()),
    ("renamed over", |folder, text, _| {
        fs::write(folder.join("fresh"), text).unwrap();
        fs::rename(folder.join("fresh"), folder.join("tallygate.yaml")).unwrap();
    }),
    ("renamed over from another folder", |folder, text, _| {
        fs::create_dir_all(folder.join("elsewhere")).unwrap();
        fs::write(folder.join("elsewhere/fresh"), text).unwrap();
        fs::rename(folder.join("elsewhere/fresh"), folder.join("tallygate.yaml")).unwrap();
    }),
    ("the old one kept as a backup", |folder, text, _| {
        fs::rename(folder.join("tallygate.yaml"), folder.join("tallygate.yaml~")).unwrap();
        fs::write(folder.join("tallygate.yaml"), text).unwrap();
    }),
    ("a ConfigMap's link switched", |folder, text, nth| {
        let version = format!("..v{nth}");
        fs::create_dir(folder.join(&version)).unwrap();
        fs::write(folder.join(&version).join("tallygate.yaml"), text).unwrap();
        switch(folder, &version);
        if nth == 0 {
            fs::remove_file(folder.join("tallygate.yaml")).unwrap();
            symlink("..data/tallygate.yaml", folder.join("tallygate.yaml")).unwrap();
        }
    }),
];

// RL-33 in its full length: thirty changes of each style, 2 s apart; a few of them in the suite.
#[test]
fn change_after_change_of_each_style_is_live() {
    let soak = std::env::var_os("TALLYGATE_SOAK").is_some();
    let (changes, pause) = if soak { (30, Duration::from_secs(2)) } else { (4, Duration::ZERO) };
    let styles = STYLES.map(|(how, change)| {
        thread::spawn(move || {
            let sidecar = with(1).start();
            for nth in 0..changes {
                let limit = if nth % 2 == 0 { 5 } else { 6 };
                change(sidecar.folder(), &text(&sidecar, limit), nth);
                assert_live(&sidecar, limit, how);
                assert_eq!(sidecar.generation(), 2 + nth as u64, "{how}: each once");
                thread::sleep(pause);
            }
        })
    });
    for style in styles {
        style.join().expect("every change was live");
    }
}

#[test]
fn a_change_in_the_moment_of_the_start_is_not_missed() {
    for round in 0..5 {
        let sidecar = with(1).start_without_store();
        sidecar.rewrite(&with(2 + round));
        assert_live(&sidecar, 2 + round, "changed at once");
    }
}

#[test]
fn a_touch_is_no_change_and_a_half_written_file_takes_nothing_away() {
    let sidecar = with(2).start();
    let client = sidecar.client();
    let generation = || sidecar.metrics().count("tallygate_config_generation", &[]);
    let whole = text(&sidecar, 9);
    fs::write(sidecar.folder().join("tallygate.yaml"), &whole[..whole.len() / 2]).unwrap();
    wait_for("the refusal", LIVE, || sidecar.metrics().count("tallygate_config_last_reload_failed", &[]) == 1);
    assert_eq!(generation(), 1);
    let answers = client.check_times(&Check::of("ada"), 3);
    assert_eq!(answers.iter().filter(|answer| answer.outcome() == Outcome::Allowed).count(), 2, "the old limit holds");
    fs::write(sidecar.folder().join("tallygate.yaml"), &whole).unwrap();
    assert_live(&sidecar, 9, "the whole file");
    assert_eq!(generation(), 2);
    assert_eq!(sidecar.metrics().count("tallygate_config_last_reload_failed", &[]), 0);
    assert_eq!(client.check(&Check::of("ada")).metadata("remaining"), "6", "and the counters live on");

    sidecar.rewrite(&with(9));
    let touched = fs::File::options().write(true).open(sidecar.folder().join("tallygate.yaml")).unwrap();
    touched.set_modified(std::time::SystemTime::now() + Duration::from_secs(60)).unwrap();
    thread::sleep(Duration::from_secs(2)); // four looks: long enough for a change that must not come
    assert_eq!(generation(), 2);
    assert_eq!(sidecar.log().matches("was read again and is in use").count(), 1, "{}", sidecar.log());
}

#[test]
fn a_change_that_would_move_live_counters_is_refused_with_the_sentence_to_write() {
    let sidecar = with(2).start();
    let file = sidecar.folder().join("tallygate.yaml");
    let one = fs::read_to_string(&file).unwrap();
    let more = "    limits:\n      - { name: more, per: [tenant], fixed_window: { limit: 9, window: 1h } }";
    let two = one.replacen("    limits:", more, 1);
    fs::write(&file, &two).unwrap();
    let sentence = "adding limit more moves the counters of policy orders: write version: 2";
    wait_for("the refusal", LIVE, || in_use(&sidecar).contains(sentence));
    wait_for("the log to say it", LIVE, || sidecar.log().contains(sentence));
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
    fs::write(&file, two.replace("version: 1", "version: 2")).unwrap();
    wait_for("the new version", LIVE, || in_use(&sidecar).contains("orders v2"));
}

#[test]
fn a_new_secret_is_told_to_need_a_restart_and_the_old_one_stays() {
    let sidecar = with(2).start();
    let client = sidecar.client();
    client.check_times(&Check::of("ada"), 2);
    fs::write(sidecar.folder().join("hmac.key"), "another secret of more than 32 bytes").unwrap();
    wait_for("the log to say so", LIVE, || sidecar.log().contains("takes effect only with a restart"));
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Limited, "the counter has the same key");
}

// Two hundred in a soak, some in every run.
#[test]
fn reloads_under_load_lose_no_check_and_give_no_wrong_verdict() {
    let redis = RedisServer::start();
    let setup = |limit| {
        let base = Setup::redis(redis.port()).policy("plenty", limit, "1h", "closed");
        base.policy("tiny", 1, "1h", "closed")
    };
    let sidecar = setup(1_000_000).start();
    let client = sidecar.client();
    let tiny = Check::of("ada").path("/tiny");
    assert_eq!(client.check(&tiny).outcome(), Outcome::Allowed);
    let done = AtomicBool::new(false);
    let rounds = if std::env::var_os("TALLYGATE_SOAK").is_some() { 200 } else { 20 };
    thread::scope(|scope| {
        let loads = ["one", "two"].map(|subject| {
            let (client, done, tiny) = (sidecar.client(), &done, tiny.clone());
            scope.spawn(move || {
                let mut checks = 0;
                while !done.load(Ordering::Relaxed) {
                    let plenty = Check::of(subject).path("/plenty");
                    assert_eq!(client.check(&plenty).outcome(), Outcome::Allowed);
                    assert_eq!(client.check(&tiny).outcome(), Outcome::Limited);
                    checks += 1;
                }
                checks
            })
        });
        for round in 0..rounds {
            if round % 2 == 0 {
                sidecar.rewrite(&setup(999_000 + round));
            } else {
                sidecar.rewrite_with("policies: [");
            }
            let before = sidecar.log().len();
            sidecar.sighup();
            wait_for("the reload to be told", LIVE, || sidecar.log()[before..].contains("in use"));
        }
        done.store(true, Ordering::Relaxed);
        for load in loads {
            let checks: u64 = load.join().expect("no wrong verdict");
            assert!(checks > 10, "the load was no load: {checks}");
        }
    });
}

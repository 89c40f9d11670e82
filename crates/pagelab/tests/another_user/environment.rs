//! Tests of the environment of a command that runs as another user: it has that user's own environment, and the
//! variables that were named.

use super::*;

#[test]
fn the_environment_is_the_users_plus_named_variables() {
    if !can_become_another() {
        return;
    }
    let bench = Bench::new();
    for policy in POLICIES {
        let mut own = bench.pagelab(&[&["exec", "-p", policy][..], &NOBODY].concat());
        own.args(["--env", "PAGELAB_GIVEN=a=b", "--env", "PAGELAB_NAMED", "--", "env"]);
        own.env("TERM", "vt100").env("LC_TIME", "C").env("TZ", "UTC").env("LANG", "C");
        own.env("PAGELAB_SECRET", "1")
            .env("PAGELAB_NAMED", "2")
            .env("XDG_CONFIG_HOME", "/superuser/x")
            .env("LD_LIBRARY_PATH", "/superuser");
        let ran = own.env_remove("COLORTERM").env_remove("LANGUAGE").env_remove("LC_ALL").ran();
        ran.assert_exit(0, &[]);
        let mut found: Vec<&str> = ran.stdout.lines().collect();
        found.sort_unstable();
        let home = "HOME=/nonexistent";
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let shell = "SHELL=/usr/sbin/nologin";
        let rest = ["TERM=vt100", "TZ=UTC", "USER=nobody"];
        let named = ["LANG=C", "LC_TIME=C", "LOGNAME=nobody", "PAGELAB_GIVEN=a=b", "PAGELAB_NAMED=2", path, shell];
        assert_eq!(found, [&[home][..], &named, &rest].concat(), "{policy}");
    }
}

#[test]
fn variables_are_given_to_the_same_user_too_and_bad_ones_are_refused() {
    let bench = Bench::new();
    let exec = |option: &str| {
        bench.pagelab(&["exec", "-p", "base", "--env", option, "--", "sh", "-c", "echo $PAGELAB_X"]).ran()
    };
    assert_eq!(exec("PAGELAB_X=1").assert_exit(0, &[]).stdout, "1\n");
    exec("PAGELAB_X").assert_exit(2, &["--env PAGELAB_X", "PAGELAB_X=VALUE"]);
    for bad in ["", "=", "1X=2", "A-B=1"] {
        exec(bad).assert_exit(2, &["--env", "expected NAME"]);
    }
    let options =
        [&["-p", "default,base", "--env", "PAGELAB_X=7", "--json", "--metric", "x:lower=x=([0-9]+)"][..], &QUICK]
            .concat();
    let prepare = "sh -c '[ \"$PAGELAB_X\" = 7 ]'";
    let options = [&options[..], &["--prepare", prepare]].concat();
    let ran = bench.compare(&options, &shell("echo x=$PAGELAB_X")).ran();
    ran.assert_exit(0, &[]);
    assert!(ran.json()["arms"].is_array());
    for verb in ["exec", "compare"] {
        bench
            .pagelab(&[verb, "--help"])
            .ran()
            .assert_stdout(&["--env <NAME[=VALUE]>", "HOME, USER, LOGNAME, SHELL, PATH"]);
    }
}

-- The store; docs/reference/formats/store.md describes it. A change raises `VERSION` in mod.rs, unless it changes only comments.
-- Lists of words and the content of kernel files are JSON; everything that can be asked for is a column.

CREATE TABLE machines (
    hash        TEXT PRIMARY KEY,           -- SHA-256 of `machine`
    machine     TEXT NOT NULL               -- JSON object
) STRICT;

CREATE TABLE comparisons (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    started_unix_s  INTEGER NOT NULL,
    command         TEXT NOT NULL,          -- JSON list
    client          TEXT,                   -- JSON list
    pagelab         TEXT NOT NULL,          -- JSON list
    version         TEXT NOT NULL,
    machine         TEXT NOT NULL REFERENCES machines (hash),
    baseline        INTEGER NOT NULL,
    primary_metric  TEXT NOT NULL,
    min_blocks      INTEGER NOT NULL,
    max_blocks      INTEGER NOT NULL,
    max_time_s      REAL,
    precision_ratio REAL NOT NULL,
    band_ratio      REAL NOT NULL,
    confidence      REAL NOT NULL,
    seed            TEXT NOT NULL,          -- decimal: it has 64 bits without a sign
    ended           TEXT NOT NULL,
    ended_message   TEXT,
    analysis        TEXT,                   -- JSON object, derived from the rest
    advice          TEXT,                   -- JSON object, where settings were to be tried
    prove_all       INTEGER NOT NULL,
    prepare         TEXT,                   -- JSON list
    trial_time_s    REAL,
    khugepaged      TEXT NOT NULL,
    fragmented      TEXT,                   -- JSON object
    own_session     TEXT,                   -- JSON object
    contention      TEXT                    -- JSON object
) STRICT;

CREATE TABLE arms (
    comparison  INTEGER NOT NULL REFERENCES comparisons (id) ON DELETE CASCADE,
    arm         INTEGER NOT NULL,           -- counted from 0
    label       TEXT NOT NULL,
    policy      TEXT NOT NULL,
    mechanism   TEXT,                       -- where it was admitted
    reason      TEXT,                       -- where it was not
    remedy      TEXT,
    role        TEXT,                       -- JSON object, of control arms
    variant     TEXT,                       -- JSON object, where the command has variants
    PRIMARY KEY (comparison, arm)
) STRICT, WITHOUT ROWID;

CREATE TABLE metrics (
    comparison  INTEGER NOT NULL REFERENCES comparisons (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    name        TEXT NOT NULL,
    unit        TEXT NOT NULL,
    direction   TEXT NOT NULL,
    PRIMARY KEY (comparison, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    hash        TEXT PRIMARY KEY,           -- SHA-256 of `settings`
    settings    TEXT NOT NULL               -- JSON object: path to value
) STRICT;

CREATE TABLE states (
    id          INTEGER PRIMARY KEY,
    settings    TEXT NOT NULL REFERENCES settings (hash),
    moment      TEXT NOT NULL               -- JSON object: the rest of the state
) STRICT;

CREATE TABLE trials (
    id              INTEGER PRIMARY KEY,    -- rises in the order of the runs
    comparison      INTEGER NOT NULL,
    arm             INTEGER NOT NULL,
    block           INTEGER NOT NULL,
    position        INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    started_s       REAL NOT NULL,
    exit_code       INTEGER,
    exit_signal     INTEGER,
    stdout_sha256   TEXT,
    state_before    INTEGER NOT NULL REFERENCES states (id),
    state_after     INTEGER NOT NULL REFERENCES states (id),
    too_slow        INTEGER NOT NULL,
    stated          TEXT,                   -- JSON object, where the answer was stated
    UNIQUE (comparison, block, arm, attempt),
    CHECK ((exit_code IS NULL) <> (exit_signal IS NULL)),
    FOREIGN KEY (comparison, arm) REFERENCES arms (comparison, arm) ON DELETE CASCADE
) STRICT;

CREATE TABLE observations (
    trial       INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    metric      TEXT NOT NULL,
    value       REAL NOT NULL,
    provenance  TEXT NOT NULL,
    PRIMARY KEY (trial, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE census (
    trial       INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    backing     TEXT NOT NULL,
    leaf_bytes  INTEGER NOT NULL,
    folio       TEXT NOT NULL,              -- unknown, whole, part
    folio_bytes INTEGER NOT NULL,           -- 0 where unknown
    bytes       INTEGER NOT NULL,
    PRIMARY KEY (trial, backing, leaf_bytes, folio, folio_bytes)
) STRICT, WITHOUT ROWID;

CREATE TABLE verdicts (
    trial           INTEGER PRIMARY KEY REFERENCES trials (id) ON DELETE CASCADE,
    holding         TEXT NOT NULL,
    concerned_bytes INTEGER NOT NULL,
    covered_bytes   INTEGER NOT NULL,
    peak_seen_bytes INTEGER,                -- this and the next two: NULL where the peak is not known
    peak_least_bytes INTEGER,
    peak_most_bytes INTEGER
) STRICT;

CREATE TABLE causes (
    trial       INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    code        TEXT NOT NULL,
    cause       TEXT NOT NULL,              -- JSON object: the code and its details
    bytes       INTEGER,
    PRIMARY KEY (trial, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE answered_calls (
    trial       INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    call        TEXT NOT NULL,
    times       INTEGER NOT NULL,
    PRIMARY KEY (trial, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE rejections (
    trial       INTEGER NOT NULL REFERENCES trials (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    path        TEXT NOT NULL,
    before      TEXT,
    after       TEXT,
    PRIMARY KEY (trial, position)
) STRICT, WITHOUT ROWID;

-- Resumptions of interrupted comparisons.
CREATE TABLE resumptions (
    comparison      INTEGER NOT NULL REFERENCES comparisons (id) ON DELETE CASCADE,
    position        INTEGER NOT NULL,       -- counted from 0
    trials          INTEGER NOT NULL,       -- that there were before
    started_unix_s  INTEGER NOT NULL,
    boot_id         TEXT NOT NULL,
    PRIMARY KEY (comparison, position)
) STRICT, WITHOUT ROWID;

-- The comparisons of a study.
CREATE TABLE study_comparisons (
    study       TEXT NOT NULL,
    workload    TEXT NOT NULL,
    subject     TEXT NOT NULL,              -- JSON: everything that decides what is measured
    comparison  INTEGER NOT NULL REFERENCES comparisons (id) ON DELETE CASCADE,
    PRIMARY KEY (study, comparison)
) STRICT, WITHOUT ROWID;

-- The result of a model machine under a policy.
CREATE TABLE study_simulations (
    study       TEXT NOT NULL,
    workload    TEXT NOT NULL,
    subject     TEXT NOT NULL,              -- JSON: everything that decides what is simulated
    machine     TEXT NOT NULL,
    policy      TEXT NOT NULL,
    outcome     TEXT NOT NULL,              -- JSON object
    PRIMARY KEY (study, subject, machine, policy)
) STRICT, WITHOUT ROWID;

-- The changes against the baseline, from the derived analysis.
CREATE VIEW effects AS
SELECT comparisons.id AS comparison, outcome.key AS arm, arms.label, effect.key AS metric,
       effect.value ->> 'ratio' AS ratio, effect.value ->> 'low' AS low_ratio, effect.value ->> 'high' AS high_ratio,
       effect.value ->> 'p_adjusted' AS p_adjusted, effect.value ->> 'blocks' AS blocks,
       outcome.value ->> '$.outcome.outcome' AS outcome
FROM comparisons, json_each(comparisons.analysis, '$.arms') AS outcome
JOIN arms ON arms.comparison = comparisons.id AND arms.arm = outcome.key,
     json_each(outcome.value, '$.effects') AS effect;

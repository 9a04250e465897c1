"""The schema of the SQLite store, as numbered migrations.

`user_version` in the file counts the applied migrations; `application_id` marks it as a file of Antiphon. A file of a
newer version, or of another program, is refused and not changed.
"""

from __future__ import annotations

from typing import Final

import apsw

from antiphon.errors import ConfigError


def migrate(db: apsw.Connection, path: str) -> None:
    """Migrates the file to the newest version in one transaction. If two processes start together, one of them does
    it."""
    if _schema_version(db, path) == len(MIGRATIONS):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[_schema_version(db, path) :]:
            db.execute(migration)
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", len(MIGRATIONS))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def check_schema(db: apsw.Connection, path: str) -> None:
    """Refuses a file that this version cannot migrate, or that has no tables."""
    if _schema_version(db, path) == 0:
        raise ConfigError(f"{path}: the database has no tables of Antiphon")


def _schema_version(db: apsw.Connection, path: str) -> int:
    application_id, version = db.pragma("application_id"), db.pragma("user_version")
    is_empty = not db.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if application_id != APPLICATION_ID and not (application_id == version == 0 and is_empty):
        raise ConfigError(f"{path}: the database belongs to another program; name another file in [store] url")
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{path}: the database has schema version {version}, expected at most {len(MIGRATIONS)}; "
            "upgrade Antiphon, or name another file in [store] url"
        )
    return int(version)


APPLICATION_ID: Final = 0x416E7469  # "Anti"

# Never change a released migration: add another.
MIGRATIONS: Final = (
    """
    CREATE TABLE responses (
        seq INTEGER PRIMARY KEY,
        owner BLOB NOT NULL,
        id BLOB NOT NULL,
        previous BLOB,
        created_at INTEGER NOT NULL,
        status BLOB NOT NULL,
        input BLOB NOT NULL,
        output BLOB NOT NULL,
        head BLOB NOT NULL,
        UNIQUE (owner, id)
    ) STRICT;
    CREATE INDEX responses_previous ON responses (owner, previous) WHERE previous IS NOT NULL;
    CREATE INDEX responses_created_at ON responses (created_at);
    CREATE TABLE found_by (
        owner BLOB NOT NULL,
        kind INTEGER NOT NULL,
        id BLOB NOT NULL,
        seq INTEGER NOT NULL REFERENCES responses (seq) ON DELETE CASCADE,
        PRIMARY KEY (owner, kind, id, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX found_by_seq ON found_by (seq);
    """,
    # Work stays after its end, so that a runner that did not get the result of `finish` can ask again. Its row is
    # updated often and stays small: the request is in another table, and is deleted at the end.
    """
    CREATE TABLE work (
        seq INTEGER PRIMARY KEY REFERENCES responses (seq) ON DELETE CASCADE,
        id BLOB NOT NULL UNIQUE,
        attempt INTEGER NOT NULL DEFAULT 0,
        runner BLOB,
        held_until REAL,
        next_event INTEGER NOT NULL DEFAULT 0,
        is_cancelled INTEGER NOT NULL DEFAULT 0,
        has_ended INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX work_open ON work (seq) WHERE has_ended = 0;
    CREATE TABLE work_requests (
        seq INTEGER PRIMARY KEY REFERENCES work (seq) ON DELETE CASCADE,
        request BLOB NOT NULL
    ) STRICT;
    CREATE TABLE events (
        seq INTEGER NOT NULL REFERENCES responses (seq) ON DELETE CASCADE,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        sizes BLOB NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (seq, first)
    ) STRICT;
    """,
    # `place` is the order in which items were added.
    """
    CREATE TABLE conversations (
        seq INTEGER PRIMARY KEY,
        owner BLOB NOT NULL,
        id BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        metadata BLOB NOT NULL,
        UNIQUE (owner, id)
    ) STRICT;
    CREATE TABLE entries (
        place INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL REFERENCES conversations (seq) ON DELETE CASCADE,
        id BLOB NOT NULL,
        item BLOB NOT NULL,
        UNIQUE (seq, id)
    ) STRICT;
    CREATE INDEX entries_in_order ON entries (seq, place);
    """,
    # Input and output, apart from the heads, which a walk along a chain does not read. `before` is the number of the
    # previous turn: 0 if there is none, null if only its id is known. It is always smaller than `seq`, so a walk ends;
    # while a turn exists, no number below its own is assigned again.
    """
    CREATE TABLE turns (
        seq INTEGER PRIMARY KEY REFERENCES responses (seq) ON DELETE CASCADE,
        before INTEGER,
        input BLOB NOT NULL,
        output BLOB NOT NULL
    ) STRICT;
    INSERT INTO turns (seq, before, input, output)
    SELECT
        seq,
        iif(
            previous IS NULL,
            0,
            (SELECT seq FROM responses AS p WHERE p.owner = r.owner AND p.id = r.previous AND p.seq < r.seq)
        ),
        input,
        output
    FROM responses AS r;
    ALTER TABLE responses DROP COLUMN input;
    ALTER TABLE responses DROP COLUMN output;
    """,
    # Existing conversations count as changed now, because the time of their last change is not known.
    """
    ALTER TABLE conversations ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
    UPDATE conversations SET changed_at = unixepoch();
    CREATE INDEX conversations_changed_at ON conversations (changed_at);
    """,
    """
    CREATE TABLE usage (
        day INTEGER NOT NULL,
        owner BLOB NOT NULL,
        model BLOB NOT NULL,
        upstream BLOB NOT NULL,
        requests INTEGER NOT NULL,
        errors INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        losses INTEGER NOT NULL,
        PRIMARY KEY (day, owner, model, upstream)
    ) STRICT, WITHOUT ROWID;
    """,
    # At most one row.
    """
    CREATE TABLE retention (
        id INTEGER PRIMARY KEY CHECK (id = 0),
        looked_at INTEGER NOT NULL,
        held_until INTEGER NOT NULL
    ) STRICT;
    """,
)

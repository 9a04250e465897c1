"""The tables of the SQLite store, as numbered steps that are only ever added to.

A file knows how many steps it has been taken through (`user_version`) and that it is ours (`application_id`). A file of a newer
version, or of another program, is refused and left as it is.
"""

from __future__ import annotations

from typing import Final

import apsw

from antiphon.errors import ConfigError


def migrate(db: apsw.Connection, place: str) -> None:
    """Takes the file to the newest version, in one transaction: of two processes that start together, one does it."""
    if _version(db, place) == len(MIGRATIONS):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[_version(db, place) :]:
            db.execute(step)
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", len(MIGRATIONS))
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _version(db: apsw.Connection, place: str) -> int:
    application, version = db.pragma("application_id"), db.pragma("user_version")
    is_empty = not db.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if application != APPLICATION_ID and not (application == version == 0 and is_empty):
        raise ConfigError(f"{place}: is a database of another program; name another file in [store] url")
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{place}: was written by a newer Antiphon (schema {version}, this one knows {len(MIGRATIONS)}); "
            "upgrade Antiphon, or name another file in [store] url"
        )
    return int(version)


APPLICATION_ID: Final = 0x416E7469  # "Anti"

# Never change a step that was released: add one.
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
    # Work stays when it has ended, so that whoever finished it and was not told can ask again. Its row is written often and stays
    # small: what was asked is elsewhere, and goes when it has ended.
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
    # `place` is the order in which items came.
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
    # What was said, apart from the heads, which nobody reads who walks along a chain, and with the number of the turn before: 0
    # where there is none, null where it is known by its id alone. It is always smaller: such a walk has an end, and as long as a
    # turn is there no number below its own is given anew.
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
            previous IS NULL, 0, (SELECT seq FROM responses AS p WHERE p.owner = r.owner AND p.id = r.previous AND p.seq < r.seq)
        ),
        input,
        output
    FROM responses AS r;
    ALTER TABLE responses DROP COLUMN input;
    ALTER TABLE responses DROP COLUMN output;
    """,
    # What was there before counts as changed now: nobody knows better.
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
)

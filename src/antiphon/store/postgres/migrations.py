"""The schema of the PostgreSQL store, as numbered migrations. A released migration is never changed.

Tables have a prefix and are in the first schema of the user's search path, so that the user need not be allowed to
create a schema. Several gateways may start together; one of them migrates, the others wait.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.errors import ConfigError

#: Seconds for a migration of a large table, or for waiting until another gateway has finished it.
MIGRATION_TIMEOUT: Final = 600.0


async def migrate(connection: Any, *, target_version: int | None = None) -> None:
    """Migrates the tables to the newest version, or to `target_version`. Writes nothing if they are up to date, so that
    a user without the right to create tables can use existing ones."""
    if target_version is None:
        target_version = len(MIGRATIONS)
    if await _schema_version(connection) == target_version:
        return
    # Read committed: after waiting for the lock, the changes of the other gateway must be visible.
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(f"SET LOCAL statement_timeout = {MIGRATION_TIMEOUT * 1000:.0f}")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_ID, timeout=MIGRATION_TIMEOUT)
        version = await _schema_version(connection)
        if version > target_version:
            raise ConfigError(
                f"[store] url: the tables of this database have version {version}, expected at most "
                f"{target_version}; upgrade Antiphon, or use another database"
            )
        for number, migration in enumerate(MIGRATIONS[version:target_version], version + 1):
            await connection.execute(migration, timeout=MIGRATION_TIMEOUT)
            await connection.execute("INSERT INTO antiphon_schema (version) VALUES ($1)", number)


async def _schema_version(connection: Any) -> int:
    # Not `to_regclass`: it may use a cached result from before the lock.
    if not await connection.fetchval(HAS_TABLES):
        return 0
    version: int = await connection.fetchval("SELECT coalesce(max(version), 0) FROM antiphon_schema")
    return version


#: A number that no other program is likely to lock.
LOCK_ID: Final = int.from_bytes(b"antiphon")

HAS_TABLES: Final = """
SELECT EXISTS (SELECT FROM pg_tables WHERE tablename = 'antiphon_schema' AND schemaname = ANY (current_schemas(false)))
"""

# External values are bytea, because text refuses NUL. `seq` is the order in which responses were saved. Contents are
# not compressed: pglz, the only method that every server has, takes five times as long as writing them.
MIGRATIONS: Final = (
    """
    CREATE TABLE antiphon_schema (
        version integer PRIMARY KEY,
        applied_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE antiphon_responses (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        created_at bigint NOT NULL,
        owner bytea NOT NULL,
        id bytea NOT NULL,
        previous bytea,
        status bytea NOT NULL,
        head bytea NOT NULL,
        input bytea NOT NULL,
        output bytea NOT NULL,
        UNIQUE (owner, id)
    );
    ALTER TABLE antiphon_responses ALTER head SET STORAGE EXTERNAL, ALTER input SET STORAGE EXTERNAL,
        ALTER output SET STORAGE EXTERNAL;
    CREATE INDEX antiphon_responses_previous ON antiphon_responses (owner, previous) WHERE previous IS NOT NULL;
    CREATE INDEX antiphon_responses_age ON antiphon_responses (created_at, seq);
    CREATE TABLE antiphon_found_by (
        seq bigint NOT NULL REFERENCES antiphon_responses ON DELETE CASCADE,
        kind smallint NOT NULL,
        owner bytea NOT NULL,
        id bytea NOT NULL,
        PRIMARY KEY (owner, kind, id, seq)
    );
    CREATE INDEX antiphon_found_by_seq ON antiphon_found_by (seq);

    -- Both conditions select the oldest responses, so the one that selects more decides. After a response, its
    -- predecessor is deleted, if no other response continues that. Rows that another gateway deletes are skipped.
    CREATE FUNCTION antiphon_prune(before bigint, keep bigint, step bigint) RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE
        newest record;
        next_seq bigint;
        deleted record;
        count bigint := 0;
    BEGIN
        SELECT created_at, seq INTO newest FROM (
            SELECT before - 1 AS created_at, 9223372036854775807 AS seq WHERE before IS NOT NULL
            UNION ALL
            (SELECT created_at, seq FROM antiphon_responses WHERE keep IS NOT NULL
                ORDER BY created_at DESC, seq DESC OFFSET keep LIMIT 1)
        ) AS either ORDER BY created_at DESC, seq DESC LIMIT 1;
        FOR next_seq IN
            SELECT seq FROM antiphon_responses AS old
            WHERE (created_at, seq) <= (newest.created_at, newest.seq) AND NOT EXISTS (
                SELECT FROM antiphon_responses AS later
                WHERE later.owner = old.owner AND later.previous = old.id AND later.seq <> old.seq
            )
            ORDER BY created_at, seq LIMIT step FOR UPDATE SKIP LOCKED
        LOOP
            WHILE next_seq IS NOT NULL AND count < step LOOP
                DELETE FROM antiphon_responses AS old WHERE seq = next_seq AND NOT EXISTS (
                    SELECT FROM antiphon_responses AS later
                    WHERE later.owner = old.owner AND later.previous = old.id AND later.seq <> old.seq
                ) RETURNING owner, previous INTO deleted;
                EXIT WHEN NOT FOUND;
                count := count + 1;
                SELECT seq INTO next_seq FROM antiphon_responses
                    WHERE owner = deleted.owner AND id = deleted.previous
                        AND (created_at, seq) <= (newest.created_at, newest.seq)
                    FOR UPDATE SKIP LOCKED;
            END LOOP;
        END LOOP;
        RETURN count;
    END $$;
    """,
    # Work stays after its end, so that a runner that did not get the result of `finish` can ask again; its request is
    # deleted. No column that is updated often has an index. Responses with unfinished work are not pruned.
    """
    CREATE TABLE antiphon_work (
        seq bigint PRIMARY KEY REFERENCES antiphon_responses ON DELETE CASCADE,
        id bytea NOT NULL UNIQUE,
        attempt bigint NOT NULL DEFAULT 0,
        runner bytea,
        held_until timestamptz,
        next_event bigint NOT NULL DEFAULT 0,
        is_cancelled boolean NOT NULL DEFAULT false,
        has_ended boolean NOT NULL DEFAULT false,
        request bytea NOT NULL
    );
    ALTER TABLE antiphon_work ALTER request SET STORAGE EXTERNAL;
    CREATE INDEX antiphon_work_open ON antiphon_work (seq) WHERE NOT has_ended;
    CREATE TABLE antiphon_events (
        seq bigint NOT NULL REFERENCES antiphon_responses ON DELETE CASCADE,
        first bigint NOT NULL,
        count bigint NOT NULL,
        sizes bytea NOT NULL,
        content bytea NOT NULL,
        PRIMARY KEY (seq, first)
    );
    ALTER TABLE antiphon_events ALTER sizes SET STORAGE EXTERNAL, ALTER content SET STORAGE EXTERNAL;
    CREATE OR REPLACE FUNCTION antiphon_prune(before bigint, keep bigint, step bigint) RETURNS bigint
    LANGUAGE plpgsql AS $$
    DECLARE
        newest record;
        next_seq bigint;
        deleted record;
        count bigint := 0;
    BEGIN
        SELECT created_at, seq INTO newest FROM (
            SELECT before - 1 AS created_at, 9223372036854775807 AS seq WHERE before IS NOT NULL
            UNION ALL
            (SELECT created_at, seq FROM antiphon_responses WHERE keep IS NOT NULL
                ORDER BY created_at DESC, seq DESC OFFSET keep LIMIT 1)
        ) AS either ORDER BY created_at DESC, seq DESC LIMIT 1;
        FOR next_seq IN
            SELECT seq FROM antiphon_responses AS old
            WHERE (created_at, seq) <= (newest.created_at, newest.seq) AND NOT EXISTS (
                SELECT FROM antiphon_responses AS later
                WHERE later.owner = old.owner AND later.previous = old.id AND later.seq <> old.seq
            ) AND NOT EXISTS (SELECT FROM antiphon_work AS work WHERE work.seq = old.seq AND NOT work.has_ended)
            ORDER BY created_at, seq LIMIT step FOR UPDATE SKIP LOCKED
        LOOP
            WHILE next_seq IS NOT NULL AND count < step LOOP
                DELETE FROM antiphon_responses AS old WHERE seq = next_seq AND NOT EXISTS (
                    SELECT FROM antiphon_responses AS later
                    WHERE later.owner = old.owner AND later.previous = old.id AND later.seq <> old.seq
                ) AND NOT EXISTS (SELECT FROM antiphon_work AS work WHERE work.seq = old.seq AND NOT work.has_ended)
                RETURNING owner, previous INTO deleted;
                EXIT WHEN NOT FOUND;
                count := count + 1;
                SELECT seq INTO next_seq FROM antiphon_responses
                    WHERE owner = deleted.owner AND id = deleted.previous
                        AND (created_at, seq) <= (newest.created_at, newest.seq)
                    FOR UPDATE SKIP LOCKED;
            END LOOP;
        END LOOP;
        RETURN count;
    END $$;
    """,
    # `place` is the order in which items were added.
    """
    CREATE TABLE antiphon_conversations (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        owner bytea NOT NULL,
        id bytea NOT NULL,
        created_at bigint NOT NULL,
        metadata bytea NOT NULL,
        UNIQUE (owner, id)
    );
    CREATE TABLE antiphon_entries (
        place bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        seq bigint NOT NULL REFERENCES antiphon_conversations ON DELETE CASCADE,
        key bytea NOT NULL,
        id bytea NOT NULL,
        item bytea NOT NULL,
        UNIQUE (seq, key)
    );
    ALTER TABLE antiphon_entries ALTER item SET STORAGE EXTERNAL;
    CREATE INDEX antiphon_entries_in_order ON antiphon_entries (seq, place);
    """,
    # Existing conversations count as changed now, because the time of their last change is not known.
    """
    ALTER TABLE antiphon_conversations ADD changed_at bigint NOT NULL DEFAULT extract(epoch FROM now())::bigint;
    CREATE INDEX antiphon_conversations_age ON antiphon_conversations (changed_at);
    """,
    """
    CREATE TABLE antiphon_usage (
        day integer NOT NULL,
        owner bytea NOT NULL,
        model bytea NOT NULL,
        upstream bytea NOT NULL,
        requests bigint NOT NULL,
        errors bigint NOT NULL,
        input_tokens bigint NOT NULL,
        cached_tokens bigint NOT NULL,
        output_tokens bigint NOT NULL,
        reasoning_tokens bigint NOT NULL,
        losses bigint NOT NULL,
        PRIMARY KEY (day, owner, model, upstream)
    );
    """,
    # At most one row.
    """
    CREATE TABLE antiphon_retention (
        id integer PRIMARY KEY CHECK (id = 0),
        looked_at bigint NOT NULL,
        held_until bigint NOT NULL
    );
    """,
)

-- The catalog. Portable between SQLite and PostgreSQL: plain types, no vendor functions.
-- Uuids are hyphenated lower-case text, JSON is text, unsigned 64-bit numbers are BIGINT.

CREATE TABLE indices (
    uuid       TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    open       BOOLEAN NOT NULL,
    created_ms BIGINT  NOT NULL,
    shards     BIGINT  NOT NULL,
    replicas   BIGINT  NOT NULL,
    settings   TEXT    NOT NULL,
    doc_type   TEXT
);

CREATE TABLE aliases (
    index_uuid TEXT NOT NULL REFERENCES indices (uuid) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (index_uuid, name)
);

CREATE TABLE mappings (
    index_uuid TEXT  NOT NULL PRIMARY KEY REFERENCES indices (uuid) ON DELETE CASCADE,
    encoded    BYTEA NOT NULL
);

CREATE TABLE templates (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE cluster_settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE segments (
    id                TEXT   NOT NULL PRIMARY KEY,
    index_uuid        TEXT   NOT NULL REFERENCES indices (uuid) ON DELETE CASCADE,
    shard             BIGINT NOT NULL,
    row_count         BIGINT NOT NULL,
    data_bytes        BIGINT NOT NULL,
    bundle_bytes      BIGINT NOT NULL,
    ids_bytes         BIGINT NOT NULL,
    min_seq_no        BIGINT NOT NULL,
    max_seq_no        BIGINT NOT NULL,
    min_generated_id  TEXT,
    max_generated_id  TEXT,
    delete_generation BIGINT NOT NULL,
    deleted_rows      BIGINT NOT NULL,
    level             BIGINT NOT NULL,
    extra             TEXT   NOT NULL
);

CREATE INDEX segments_by_shard ON segments (index_uuid, shard);

-- Statistics of all columns of a segment as one value: a wide segment has a thousand columns, and a
-- row each would make the commit of a flush cost more than its fsync. Apart from `segments`, because
-- a new delete generation changes that row and not this one.
CREATE TABLE segment_columns (
    segment_id TEXT NOT NULL PRIMARY KEY REFERENCES segments (id) ON DELETE CASCADE,
    statistics TEXT NOT NULL
);

CREATE TABLE checkpoints (
    index_uuid   TEXT   NOT NULL REFERENCES indices (uuid) ON DELETE CASCADE,
    shard        BIGINT NOT NULL,
    primary_term BIGINT NOT NULL,
    next_seq_no  BIGINT NOT NULL,
    next_frame   BIGINT NOT NULL,
    PRIMARY KEY (index_uuid, shard)
);

CREATE TABLE source_positions (
    pipeline       TEXT   NOT NULL,
    source         TEXT   NOT NULL,
    part           TEXT   NOT NULL,
    reached        BYTEA  NOT NULL,
    owner_epoch    BIGINT NOT NULL,
    PRIMARY KEY (pipeline, source, part)
);

CREATE TABLE key_values (
    name  TEXT  NOT NULL PRIMARY KEY,
    value BYTEA NOT NULL
);

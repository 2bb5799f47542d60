-- Tombstones in pieces of some megabytes, so that a flush writes those of its own deletions only. A group has the sequence
-- numbers from `first_seq_no` to before that of the next one; its parts are in no order. What a version before kept
-- of a shard is its first group.
CREATE TABLE tombstone_chunks (
    index_uuid   TEXT   NOT NULL REFERENCES indices (uuid) ON DELETE CASCADE,
    shard        BIGINT NOT NULL,
    first_seq_no BIGINT NOT NULL,
    part         BIGINT NOT NULL,
    encoded      BYTEA  NOT NULL,
    PRIMARY KEY (index_uuid, shard, first_seq_no, part)
);

INSERT INTO tombstone_chunks (index_uuid, shard, first_seq_no, part, encoded)
SELECT index_uuid, shard, 0, 0, encoded FROM tombstones;

DROP TABLE tombstones;

-- Versions of deleted documents that the log need not hold any more: of the shard's deletions below its
-- checkpoint, as of its last flush. Apart from `checkpoints`, because most shards have none.
CREATE TABLE tombstones (
    index_uuid TEXT   NOT NULL REFERENCES indices (uuid) ON DELETE CASCADE,
    shard      BIGINT NOT NULL,
    encoded    BYTEA  NOT NULL,
    PRIMARY KEY (index_uuid, shard)
);

-- Frames of the log from which on readers of the change feed need it, by the name that each has, and when it was moved last.
CREATE TABLE leases (
    name     TEXT   NOT NULL PRIMARY KEY,
    frame    BIGINT NOT NULL,
    moved_ms BIGINT NOT NULL
);
